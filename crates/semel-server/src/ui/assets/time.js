// Times in the reader's zone, and ages that tick. The exact time is in the title.
const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const day = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: 'full', timeStyle: 'long' });
const age = (ms) => {
  const s = Math.max(0, Math.floor(ms / 1000));
  return s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min` : s < 172800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} days`;
};
const show = () => {
  const now = new Date();
  for (const time of document.querySelectorAll('time[datetime]')) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.valueOf())) continue;
    const text = 'age' in time.dataset ? age(now - at) : at.toDateString() === now.toDateString() ? clock.format(at) : day.format(at);
    if (time.textContent !== text) time.textContent = text;
    time.title = `${full.format(at)} · ${time.dateTime}`;
  }
};
show();
document.addEventListener('semel:swapped', show);
setInterval(() => { if (!document.hidden) show(); }, 5000);
