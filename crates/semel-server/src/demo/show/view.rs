//! What is shown while the show goes on: a line for everything that goes wrong, or would have, and a bar on a terminal.

use std::collections::BTreeSet;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::plan::Plan;
use super::tally::{ShowEvent, Tally};
use crate::demo::provider::{Event, Note};

/// Shows the progress of the demo: a bar, lines, or nothing.
#[derive(Debug)]
pub struct View {
    bar: Option<ProgressBar>,
    lines: bool,
    colours: bool,
}

/// How a line is painted: codes of ANSI terminals.
const KILL: &str = "1;31";
const LOST: &str = "33";
const ABSORBED: &str = "32";
const PLAIN: &str = "0";

impl View {
    /// Lines, and a bar under them.
    pub fn terminal(colours: bool) -> Self {
        Self { bar: Some(ProgressBar::new(0)), lines: true, colours }
    }

    /// Shows lines only, for logs and pipes.
    pub fn plain() -> Self {
        Self { bar: None, lines: true, colours: false }
    }

    /// Shows nothing, for output that a script reads.
    pub fn silent() -> Self {
        Self { bar: None, lines: false, colours: false }
    }

    pub(super) fn welcome(&self, plan: &Plan, url: &str) {
        let Plan { orders, kills, seed, .. } = plan;
        self.line(&format!(
            "{orders} orders, each sent by several callers; a provider that loses answers;\n\
             an engine that is killed {kills} times (kill -9). Every effect must happen once.\n\
             Seed {seed}. The engine listens on {url}/api/v1.\n"
        ));
        if let Some(bar) = &self.bar {
            bar.set_length(u64::from(*orders));
            let style = ProgressStyle::with_template("orders {bar:24} {pos:>3}/{len}  {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        }
    }

    pub(super) fn show(&self, at: Duration, seen: &ShowEvent, tally: &Tally) {
        if let Some((order, colour, text)) = told(seen, tally) {
            let seconds = at.as_secs_f64();
            let text = format!("{seconds:>6.2}s  {order:<9} {text}");
            self.line(&if self.colours { format!("\x1b[{colour}m{text}\x1b[0m") } else { text });
        }
        if let Some(bar) = &self.bar {
            let Tally { absorbed, lost, kills, .. } = tally;
            bar.set_position(tally.ended);
            bar.set_message(format!("{absorbed} duplicates, {lost} answers lost, {kills} kills"));
        }
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None if self.lines => println!("{text}"),
            None => {}
        }
    }
}

/// What is said of something, and in which colour. Whatever goes as it should is not worth a line.
fn told<'a>(seen: &'a ShowEvent, tally: &Tally) -> Option<(&'a str, &'static str, String)> {
    Some(match seen {
        ShowEvent::Sent { order, copies } => match tally.runs.get(order).map_or(0, BTreeSet::len) {
            1 => (order, ABSORBED, format!("sent by {copies} callers: one run, duplicates absorbed")),
            runs => (order, KILL, format!("sent by {copies} callers: {runs} RUNS")),
        },
        ShowEvent::Impostor { order, code: Some(code) } => {
            (order, ABSORBED, format!("same key, other amount: refused, {code}"))
        }
        ShowEvent::Impostor { order, code: None } => {
            (order, KILL, "same key, other amount: NOT refused".to_owned())
        }
        ShowEvent::Delivered { order, absorbed: true } => {
            (order, ABSORBED, "approved again: the same delivery, absorbed".to_owned())
        }
        ShowEvent::CutOff { order } => (order, LOST, "a caller gets no answer, and asks again".to_owned()),
        ShowEvent::Resumed { order } => (order, PLAIN, "stopped after five crashes, resumed".to_owned()),
        ShowEvent::Killed { kill, pid, in_flight } => {
            ("", KILL, format!("kill {kill}: SIGKILL to engine {pid}, {in_flight} calls open"))
        }
        ShowEvent::Back { pid, after } => {
            ("", PLAIN, format!("engine {pid} goes on after {} ms", after.as_millis()))
        }
        ShowEvent::Provider(note) => return told_by_provider(note),
        ShowEvent::Started { .. } | ShowEvent::Delivered { .. } | ShowEvent::Ended | ShowEvent::Broken(_) => {
            return None;
        }
    })
}

fn told_by_provider(Note { event, ask }: &Note) -> Option<(&str, &'static str, String)> {
    let what = ask.kind.name();
    let (colour, text) = match event {
        Event::Dropped => (LOST, format!("{what} done, and the answer is lost: connection dropped")),
        Event::FailedAfter => (LOST, format!("{what} done, and the answer is lost: error 500")),
        Event::FailedBefore => (LOST, format!("{what} not done: error 500")),
        Event::Stuck => (LOST, format!("{what} is stuck on its way to the provider")),
        Event::Repeated(_) => (ABSORBED, format!("{what} asked for again: same key, not done again")),
        Event::Stale => (ABSORBED, format!("{what} arrives too late: refused")),
        Event::LookedUp(Some(_)) => (ABSORBED, format!("{what} looked up: it is done, adopted")),
        Event::LookedUp(None) => (ABSORBED, format!("{what} looked up: not done, may be tried again")),
        Event::Asked | Event::Applied(_) | Event::Over => return None,
    };
    Some((&ask.order, colour, text))
}
