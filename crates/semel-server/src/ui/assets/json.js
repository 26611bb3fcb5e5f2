// Shows JSON from its text, so that every digit stays. Nothing is parsed into numbers.
const TOKEN = /"(?:[^"\\]|\\.)*"|[^\s"{}[\],:]+|[{}[\],:]/gy, MOST = 20000, FOLD = 40;
const span = (name, text) => {
  const part = document.createElement('span');
  if (name) part.className = name;
  part.textContent = text;
  return part;
};
const tokens = (text) => {
  const all = [];
  for (let at = 0; at < text.length;) {
    if (/\s/.test(text[at])) { at += 1; continue; }
    TOKEN.lastIndex = at;
    const found = TOKEN.exec(text);
    if (!found || all.length === MOST) return null;
    all.push(found[0]);
    at = TOKEN.lastIndex;
  }
  return all;
};
const kind = (token, key) => (token[0] === '"' ? (key ? 'k' : 'str') : /[-\d]/.test(token[0]) ? 'num' : 'p');
// One value from the token at `at`; gives the place behind it.
const value = (all, at, deep, out) => {
  const first = all[at];
  const end = { '{': '}', '[': ']' }[first];
  if (!end) { out.append(span(kind(first), first)); return at + 1; }
  if (all[at + 1] === end) { out.append(span('p', first + end)); return at + 2; }
  const inside = document.createElement('span');
  let count = 0, here = at + 1;
  while (here < all.length && all[here] !== end) {
    inside.append(`\n${'  '.repeat(deep + 1)}`);
    if (first === '{') { inside.append(span('k', all[here]), ': '); here += 2; }
    here = value(all, here, deep + 1, inside);
    count += 1;
    if (all[here] === ',') { inside.append(','); here += 1; }
  }
  inside.append(`\n${'  '.repeat(deep)}`);
  const fold = document.createElement('button');
  fold.type = 'button';
  fold.className = 'fold';
  const show = (open) => {
    inside.hidden = !open;
    fold.setAttribute('aria-expanded', String(open));
    fold.textContent = open ? '▾' : `▸ ${count} ${first === '{' ? 'members' : 'items'}`;
  };
  fold.addEventListener('click', () => show(inside.hidden));
  show(deep < 2 || here - at < FOLD);
  out.append(span('p', first), fold, inside, span('p', end));
  return here + 1;
};
const whole = (view, text) => {
  const load = document.createElement('button');
  load.type = 'button';
  load.className = 'btn sm';
  load.textContent = 'Show all of it';
  load.addEventListener('click', async () => {
    load.disabled = true;
    const answer = await fetch(view.dataset.whole);
    if (answer.ok) { view.textContent = await answer.text(); load.remove(); } else load.disabled = false;
  });
  view.textContent = text;
  view.after(load);
};
const show = () => {
  for (const view of document.querySelectorAll('pre[data-json]:not([data-shown])')) {
    const text = view.textContent;
    view.dataset.shown = 'true';
    if (view.dataset.whole) { whole(view, text); continue; }
    const all = tokens(text);
    if (!all?.length) continue;
    const out = document.createElement('code');
    try { if (value(all, 0, 0, out) !== all.length) continue; } catch { continue; }
    view.replaceChildren(out);
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'btn sm copytext';
    button.dataset.copy = text;
    button.textContent = 'Copy';
    view.before(button);
  }
};
show();
document.addEventListener('semel:swapped', show);
