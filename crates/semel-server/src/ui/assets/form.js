// A form is sent once: its button waits for the answer, and a lost answer is asked for again under the same call id.
const TRIES = 4;
const tell = (form, text, bad) => {
  const said = form.querySelector('.said') || form.appendChild(document.createElement('p'));
  said.className = bad ? 'said bad' : 'said';
  said.setAttribute('role', bad ? 'alert' : 'status');
  said.textContent = text;
};
const send = async (form, body) => {
  for (let tried = 1; ; tried++) {
    try {
      return await fetch(form.getAttribute('action'), { method: 'POST', body });
    } catch (lost) {
      if (tried === TRIES) throw lost;
      tell(form, 'The answer was lost. The same is sent again: it takes place once.');
      await new Promise((later) => { setTimeout(later, 500 * tried); });
    }
  }
};
document.addEventListener('submit', async (event) => {
  const form = event.target;
  if (!form.matches('[data-once]')) return;
  event.preventDefault();
  if (form.dataset.sent || (form.dataset.ask && !confirm(form.dataset.ask))) return;
  const body = new URLSearchParams(new FormData(form, event.submitter));
  form.dataset.sent = 'true';
  form.setAttribute('aria-busy', 'true');
  try {
    const answer = await send(form, body);
    if (answer.redirected) return location.assign(answer.url);
    const page = window.semelPage(await answer.text());
    tell(form, page.querySelector('main .pad p')?.textContent || `Refused with ${answer.status}`, true);
  } catch {
    tell(form, 'There was no answer. Press again: it is the same call, and takes place once.', true);
  }
  delete form.dataset.sent;
  form.removeAttribute('aria-busy');
});
