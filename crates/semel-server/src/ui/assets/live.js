// Keeps a page current. A message says that something has changed; the page is asked for again, and its live parts are replaced.
const JOIN = 250, REST = 1000, AGAIN = 5000;
const told = document.getElementById('live'), pause = document.getElementById('pause');
let source, timer, last = 0, since, address = document.body.dataset.stream;
const say = (text, live) => {
  told.textContent = text;
  told.classList.toggle('on', Boolean(live));
};
const busy = (part) => part.contains(document.activeElement) || part.querySelector('[aria-busy], details[open] form')
  || (getSelection().toString() && part.contains(getSelection().anchorNode));
// Two renderings of a form differ in the id of its call only.
const bare = (part) => {
  const copy = part.cloneNode(true);
  for (const call of copy.querySelectorAll('[name=call]')) call.setAttribute('value', '');
  for (const time of copy.querySelectorAll('time')) { time.textContent = ''; time.title = ''; }
  return copy;
};
const swap = (page) => {
  for (const part of document.querySelectorAll('[data-live][id]')) {
    const fresh = page.getElementById(part.id);
    if (!fresh || busy(part) || bare(part).isEqualNode(bare(fresh))) continue;
    if ('more' in part.dataset) part.dispatchEvent(new CustomEvent('semel:changed', { bubbles: true, detail: fresh.dataset }));
    else part.replaceWith(document.adoptNode(fresh));
  }
  // Rows never move under the pointer: new ones wait behind a link.
  const newer = document.getElementById('newer');
  if (newer) {
    const count = [...page.querySelectorAll('table.runs tr[id]')].findIndex((row) => document.getElementById(row.id));
    newer.hidden = count === 0 || page.querySelectorAll('table.runs tr[id]').length === 0;
    newer.textContent = count > 0 ? `${count} newer ${count === 1 ? 'run' : 'runs'} · show` : 'Newer runs · show';
    newer.href = location.href;
  }
  document.dispatchEvent(new CustomEvent('semel:swapped'));
};
const refresh = async () => {
  last = performance.now();
  try {
    const answer = await fetch(location.href, { headers: { accept: 'text/html' } });
    if (answer.redirected || answer.status === 401) return location.reload();
    if (!answer.ok) return;
    const page = window.semelPage(await answer.text());
    swap(page);
    const now = page.body.dataset.stream;
    if (now && now.split('?')[0] !== address.split('?')[0]) { address = now; open(); }
  } catch { /* the stream says that the server is away */ }
};
const soon = () => {
  timer ||= setTimeout(() => { timer = 0; refresh(); }, Math.max(JOIN, REST - (performance.now() - last)));
};
const close = () => { source?.close(); source = undefined; };
const open = () => {
  close();
  if (!address || document.hidden || pause?.getAttribute('aria-pressed') === 'true') return;
  source = new EventSource(address);
  source.onopen = () => { if (since) soon(); since = undefined; say('Live', true); };
  source.onmessage = ({ data }) => {
    const change = JSON.parse(data);
    if (change.runs ? change.workspace || change.runs.length : true) soon();
  };
  source.onerror = () => {
    since ||= new Date().toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
    say(`Not live, since ${since}: the server does not answer`);
    soon();
    if (source?.readyState === EventSource.CLOSED) setTimeout(open, AGAIN);
  };
};
document.addEventListener('visibilitychange', () => {
  if (document.hidden) return close();
  open();
  soon();
});
// A browser has few connections to a server: the page leaves its own as soon as it goes.
addEventListener('pagehide', close);
if (pause) {
  pause.hidden = false;
  pause.addEventListener('click', () => {
    const paused = pause.getAttribute('aria-pressed') !== 'true';
    pause.setAttribute('aria-pressed', String(paused));
    if (paused) { close(); say('Updates are paused'); } else { open(); soon(); }
  });
}
open();
// No message tells of a call that was absorbed or refused, nor of a hook that was opened: a page that shows them asks for itself.
setInterval(() => { if (source && document.querySelector('[data-often]')) soon(); }, AGAIN);
