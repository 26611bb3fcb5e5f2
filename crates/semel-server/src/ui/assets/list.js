// j and k move through the rows of a list; Enter opens the row, because its link has the focus.
document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, textarea, select, dialog')) return;
  const step = { j: 1, k: -1 }[event.key];
  if (!step) return;
  const links = [...document.querySelectorAll('[data-list] tbody tr')].map((row) => row.querySelector('a')).filter(Boolean);
  const here = links.findIndex((link) => link.closest('tr').contains(document.activeElement));
  links[Math.min(links.length - 1, Math.max(0, here + step))]?.focus();
});
