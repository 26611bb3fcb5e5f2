// Keys: / finds, g and a letter goes to a page, ? shows all of them.
const base = document.body.dataset.base;
const pages = { o: '/', r: '/runs', k: '/keys', h: '/hooks', d: '/doubts', w: '/workflows', s: '/settings' };
let went = 0;
document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, textarea, select, dialog')) return;
  if (event.key === '/') { event.preventDefault(); document.getElementById('find').focus(); }
  if (event.key === '?') document.getElementById('keys').showModal();
  if (pages[event.key] && event.timeStamp - went < 1000) location.assign(base + pages[event.key]);
  went = event.key === 'g' ? event.timeStamp : 0;
});
