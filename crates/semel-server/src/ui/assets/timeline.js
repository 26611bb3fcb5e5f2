// A timeline of any length: as many rows as fit on the screen, drawn anew while it is scrolled. Positions are SVG attributes.
const ROW = 30, SPARE = 8, PAGE = 1000, SVG = 'http://www.w3.org/2000/svg';
const base = document.body.dataset.base;
const make = (name, attributes) => {
  const part = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
  return part;
};
const took = (ms) => (ms < 1000 ? `${ms} ms` : ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.floor(ms / 60000)} min`);
const fill = (span) => ({ 'in-doubt': 'hatch-doubt', failed: 'f-bad', skipped: 'f-mute' })[span.status]
  || (span.kind === 'timer' || span.kind === 'hook' ? 'f-waitl' : span.status === 'completed' ? 'f-ok' : 'f-run');
const mark = (span) => ({ timer: 'clock', hook: 'hook', child: 'child' })[span.kind]
  || ({ 'at-most-once': 'amo', reconcile: 'reconcile', tx: 'tx' })[span.class] || 'key';
const timeline = (view) => {
  const body = view.querySelector('.rows'), pages = new Map();
  let points, total, wanted = 0;
  const read = (data) => {
    points = data.scale.split(';').map((point) => point.split(',').map(Number));
    total = Number(data.total);
  };
  const x = (at) => {
    const after = points.findIndex(([time]) => time > at);
    if (after === 0) return 0;
    if (after < 0) return 100;
    const [from, left] = points[after - 1], [to, right] = points[after];
    return left + (at - from) / (to - from) * (right - left);
  };
  const bar = (from, to, name) => {
    const width = Math.max(0.35, to - from);
    return make('rect', { x: `${Math.min(from, 100 - width).toFixed(2)}%`, y: 9, width: `${width.toFixed(2)}%`, height: 12, rx: 2.5, class: name });
  };
  const row = (span) => {
    const line = document.createElement('tr');
    line.setAttribute('aria-rowindex', span.place + 4);
    const head = line.appendChild(document.createElement('th'));
    head.scope = 'row';
    const link = head.appendChild(document.createElement('a'));
    link.className = span.path.includes('/') ? 'name in1' : 'name';
    link.href = `${view.dataset.page}?step=${encodeURIComponent(span.path)}&tick=${span.tick}`;
    const icon = make('svg', { class: 'i', 'aria-hidden': true });
    icon.append(make('use', { href: `${view.dataset.icons}#${mark(span)}` }));
    const name = document.createElement('code'), text = document.createElement('bdi');
    name.className = 'cut';
    text.textContent = (span.token || span.path) + (span.tick > 1 ? ` (${span.tick})` : '');
    name.append(text);
    link.append(icon, name);
    const drawing = make('svg', { class: 'row', 'aria-hidden': true });
    const at = (time) => (time ? x(Date.parse(time)) : 100);
    const attempts = span.attempts || [span];
    attempts.forEach((one, place) => {
      if (place) drawing.append(make('line', { x1: `${at(attempts[place - 1].endedAt)}%`, x2: `${at(one.startedAt)}%`, y1: 15, y2: 15, class: 'wl' }));
      drawing.append(bar(at(one.startedAt), at(one.endedAt), one.lost ? 'ghost' : one.error ? 'f-bad' : fill(span)));
    });
    const state = document.createElement('span');
    state.className = 'vh';
    state.textContent = span.status;
    line.appendChild(document.createElement('td')).append(drawing, state);
    const end = line.appendChild(document.createElement('td'));
    end.className = 't';
    end.textContent = attempts.length > 1 ? `${attempts.length} attempts`
      : span.endedAt ? took(Date.parse(span.endedAt) - Date.parse(span.startedAt)) : 'open';
    return line;
  };
  const load = (page) => {
    if (pages.has(page)) return;
    pages.set(page, []);
    fetch(`${base}/api/workflow-runs/${view.dataset.run}/spans?from=${page * PAGE}&limit=${PAGE}`)
      .then((answer) => answer.json())
      .then(({ spans }) => { pages.set(page, spans); draw(); })
      .catch(() => pages.delete(page));
  };
  const gap = (rows) => {
    const line = document.createElement('tr'), cell = document.createElement('td');
    cell.colSpan = 3;
    cell.height = rows * ROW;
    line.append(cell);
    line.setAttribute('aria-hidden', 'true');
    return line;
  };
  const draw = () => {
    const fit = Math.ceil(view.clientHeight / ROW) + 2 * SPARE;
    const first = Math.max(0, Math.min(total - fit, Math.floor(view.scrollTop / ROW) - SPARE)), end = Math.min(total, first + fit);
    const rows = [];
    for (let place = first; place < end; place++) {
      load(Math.floor(place / PAGE));
      const span = pages.get(Math.floor(place / PAGE))?.[place % PAGE];
      rows.push(span ? row(span) : gap(1));
    }
    body.replaceChildren(...(first ? [gap(first)] : []), ...rows, ...(end < total ? [gap(total - end)] : []));
  };
  read(view.dataset);
  view.classList.add('long');
  view.parentElement.querySelector('[data-rest]')?.remove();
  view.addEventListener('scroll', () => { wanted ||= requestAnimationFrame(() => { wanted = 0; draw(); }); }, { passive: true });
  view.addEventListener('semel:changed', ({ detail }) => { read(detail); pages.clear(); draw(); });
  draw();
};
const long = document.querySelector('#timeline[data-more]');
if (long) timeline(long);
