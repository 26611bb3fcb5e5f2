// Copies a text. On plain HTTP browsers have no clipboard for pages, so there it copies a selection.
const copy = async (text) => {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement('textarea');
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand('copy');
  field.remove();
  if (!done) throw new Error('refused');
};
document.addEventListener('click', async (event) => {
  const button = event.target.closest('[data-copy]');
  if (!button) return;
  const said = document.getElementById('live');
  try { await copy(button.dataset.copy); said.textContent = 'Copied'; } catch { said.textContent = 'Not copied: select the text'; }
});
