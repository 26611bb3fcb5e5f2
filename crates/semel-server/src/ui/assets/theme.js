// Runs before the page is drawn: the theme that was chosen here, and the only place that makes a document of a text.
(() => {
  const root = document.documentElement;
  const kept = { get: () => { try { return localStorage.getItem('theme'); } catch { return null; } },
    set: (theme) => { try { localStorage.setItem('theme', theme); } catch { /* it lasts as long as the page */ } } };
  if (kept.get()) root.dataset.theme = kept.get();
  const policy = window.trustedTypes?.createPolicy('semel', { createHTML: (text) => text });
  // Only pages of this server are parsed, and scripts in them do not run.
  window.semelPage = (text) => new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, 'text/html');
  addEventListener('DOMContentLoaded', () => {
    const button = document.getElementById('theme');
    if (!button) return;
    button.hidden = false;
    button.addEventListener('click', () => {
      const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
      root.dataset.theme = dark ? 'light' : 'dark';
      kept.set(root.dataset.theme);
    });
  });
})();
