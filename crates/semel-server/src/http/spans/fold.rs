//! The fold of a ledger into spans: when each step, timer, hook and child began and ended, and which node drove the run.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use semel::clock::Time;
use semel::id::{NodeId, RunId};
use semel::rules::entry::{Class, Entry, Failure, Outcome, Resolution, RestartFrom};
use semel::rules::path::Visit;
use semel::store::Numbered;

use crate::api::{SpanError, SpanKind, SpanStatus, SpanTotals};

/// Maximum number of attempts that are kept of a step, the last ones.
const ATTEMPTS: usize = 20;
/// Maximum number of entries that are kept of a span, the last ones.
const ENTRIES: usize = 100;
/// Maximum number of claims that are kept, the last ones.
pub(super) const CLAIMS: usize = 500;
/// Length of a rest that is told.
const IDLE: Duration = Duration::from_secs(2);
/// Maximum number of rests that are kept, the last ones.
const RESTS: usize = 200;
/// Maximum length of an error message, in characters.
const MESSAGE: usize = 500;
/// Approximate bytes of a span in memory.
const SPAN_BYTES: usize = 600;

/// A run's timeline up to a version.
#[derive(Debug, Default)]
pub(super) struct SpanFold {
    /// Number of the last entry that was read.
    pub(super) version: u64,
    pub(super) spans: Vec<Span>,
    pub(super) claims: Vec<Claim>,
    /// Times in which no attempt was open and nothing was recorded, the last ones.
    pub(super) idle: Vec<(Time, Time)>,
    places: HashMap<Visit, usize>,
    /// Places of the spans with an open attempt.
    running: HashSet<usize>,
    last_at: Option<Time>,
    driver: Option<(NodeId, u64)>,
}

/// A step, timer, hook or child.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) kind: SpanKind,
    pub(super) visit: Visit,
    pub(super) status: SpanStatus,
    pub(super) class: Option<Class>,
    pub(super) token: Option<String>,
    pub(super) other: Option<RunId>,
    pub(super) until: Option<Time>,
    pub(super) started: Time,
    pub(super) ended: Option<Time>,
    pub(super) attempts: Vec<Attempt>,
    pub(super) reason: Option<String>,
    pub(super) first_entry: u64,
    pub(super) entries: Vec<u64>,
}

/// One attempt at a step.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) number: u32,
    pub(super) started: Time,
    pub(super) ended: Option<Time>,
    pub(super) driver: Option<(NodeId, u64)>,
    pub(super) entry: u64,
    pub(super) lost: bool,
    pub(super) error: Option<SpanError>,
}

/// A time in which a node drove the run.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) node: NodeId,
    pub(super) fence: u64,
    pub(super) started: Time,
    pub(super) ended: Option<Time>,
    pub(super) lost: bool,
}

impl SpanFold {
    /// Adds the next entry.
    pub(super) fn add(&mut self, line: &Numbered) {
        let at = line.at;
        self.rested(begun(line));
        match &line.entry {
            Entry::Claimed { node } => self.claimed(*node, line),
            Entry::Waiting { .. } | Entry::Paused { .. } => self.released(at, false),
            Entry::Completed { .. }
            | Entry::Failed { .. }
            | Entry::Cancelled { .. }
            | Entry::TimedOut { .. } => {
                self.released(at, false);
            }
            Entry::Restarted { from: RestartFrom::Beginning, .. } => self.begin_again(),
            entry => {
                if let Some(visit) = entry.visit() {
                    self.visited(&visit.clone(), line);
                }
            }
        }
        self.version = line.number;
    }

    /// Notes the time between the last entry and this one, if it was a rest.
    fn rested(&mut self, at: Time) {
        let Some(before) = self.last_at.replace(at) else { return };
        if at < before.after(IDLE) || !self.running.is_empty() {
            return;
        }
        self.idle.push((before, at));
        if self.idle.len() > RESTS {
            self.idle.remove(0);
        }
    }

    /// Number of spans by state.
    pub(super) fn totals(&self) -> SpanTotals {
        let mut totals = SpanTotals { all: self.spans.len(), ..SpanTotals::default() };
        for span in &self.spans {
            let count = match span.status {
                SpanStatus::Open => &mut totals.open,
                SpanStatus::Retrying => &mut totals.retrying,
                SpanStatus::Completed => &mut totals.completed,
                SpanStatus::Failed => &mut totals.failed,
                SpanStatus::Skipped => &mut totals.skipped,
                SpanStatus::InDoubt => &mut totals.in_doubt,
            };
            *count += 1;
        }
        totals
    }

    /// The span of a visit, with its place.
    pub(super) fn of_visit(&self, visit: &Visit) -> Option<(usize, &Span)> {
        let place = *self.places.get(visit)?;
        Some((place, &self.spans[place]))
    }

    /// Approximate size in bytes.
    pub(super) fn weight(&self) -> usize {
        (self.spans.len() + self.claims.len()) * SPAN_BYTES
    }

    fn claimed(&mut self, node: NodeId, line: &Numbered) {
        self.released(line.at, true);
        self.driver = Some((node, line.number));
        let (fence, started) = (line.number, line.at);
        self.claims.push(Claim { node, fence, started, ended: None, lost: false });
        if self.claims.len() > CLAIMS {
            self.claims.remove(0);
        }
    }

    /// The driver has let the run go, or another one has taken it.
    fn released(&mut self, at: Time, taken: bool) {
        let open = self.claims.last_mut().filter(|claim| claim.ended.is_none());
        let Some(claim) = open else { return };
        (claim.ended, claim.lost) = (Some(at), taken);
        if taken {
            let running = self.spans.iter_mut().filter(|span| span.status == SpanStatus::Open);
            for attempt in running.filter_map(|span| span.attempts.last_mut()) {
                if attempt.ended.is_none() {
                    (attempt.ended, attempt.lost) = (Some(at), true);
                }
            }
            self.running.clear();
        }
    }

    /// The workflow begins at its first step: what was open is no longer waited for.
    fn begin_again(&mut self) {
        self.places.clear();
    }

    fn visited(&mut self, visit: &Visit, line: &Numbered) {
        let Some(kind) = kind_of(&line.entry) else { return };
        let spans = &mut self.spans;
        let place = *self.places.entry(visit.clone()).or_insert_with(|| {
            spans.push(Span::new(kind, visit.clone(), line));
            spans.len() - 1
        });
        let span = &mut self.spans[place];
        span.entries.push(line.number);
        if span.entries.len() > ENTRIES {
            span.entries.remove(0);
        }
        span.take(line, self.driver);
        match span.attempts.last() {
            Some(Attempt { ended: None, .. }) if span.status == SpanStatus::Open => {
                self.running.insert(place)
            }
            _ => self.running.remove(&place),
        };
    }
}

/// Time of an entry; of an attempt, the time at which its body began.
fn begun(line: &Numbered) -> Time {
    match line.entry {
        Entry::StepStarted { at: Some(began), .. } => began.min(line.at),
        _ => line.at,
    }
}

fn kind_of(entry: &Entry) -> Option<SpanKind> {
    Some(match entry {
        Entry::StepStarted { .. }
        | Entry::StepCompleted { .. }
        | Entry::StepFailed { .. }
        | Entry::StepSkipped { .. }
        | Entry::StepInDoubt { .. }
        | Entry::StepResolved { .. } => SpanKind::Step,
        Entry::TimerSet { .. } | Entry::TimerFired { .. } => SpanKind::Timer,
        Entry::HookOpened { .. }
        | Entry::HookConflicted { .. }
        | Entry::HookReceived { .. }
        | Entry::HookClosed { .. } => SpanKind::Hook,
        Entry::ChildStarted { .. } | Entry::ChildFinished { .. } => SpanKind::Child,
        _ => return None,
    })
}

impl Span {
    fn new(kind: SpanKind, visit: Visit, line: &Numbered) -> Self {
        Self {
            kind,
            visit,
            status: SpanStatus::Open,
            class: (kind == SpanKind::Step).then(Class::default),
            token: None,
            other: None,
            until: None,
            started: begun(line),
            ended: None,
            attempts: Vec::new(),
            reason: None,
            first_entry: line.number,
            entries: Vec::new(),
        }
    }

    fn take(&mut self, line: &Numbered, driver: Option<(NodeId, u64)>) {
        let at = line.at;
        match &line.entry {
            Entry::StepStarted { attempt, class, .. } => self.attempt(*attempt, *class, line, driver),
            Entry::StepFailed { error, retry_at, .. } => {
                self.attempt_ended(at, Some(error));
                self.until = *retry_at;
                let status = if retry_at.is_some() { SpanStatus::Retrying } else { SpanStatus::Failed };
                self.settle(status, at);
            }
            Entry::StepSkipped { reason, .. } => {
                self.reason = Some(reason.clone());
                self.settle(SpanStatus::Skipped, at);
            }
            Entry::StepInDoubt { reason, .. } => {
                self.reason = Some(reason.clone());
                self.settle(SpanStatus::InDoubt, at);
            }
            Entry::StepResolved { resolution, .. } => self.resolved(resolution, at),
            Entry::TimerSet { at: until, .. } => self.until = Some(*until),
            Entry::HookOpened { token, .. } => self.token = Some(token.to_string()),
            Entry::HookConflicted { token, owner, .. } => {
                (self.token, self.other) = (Some(token.to_string()), Some(*owner));
                self.settle(SpanStatus::Failed, at);
            }
            Entry::ChildStarted { run, .. } => self.other = Some(*run),
            Entry::ChildFinished { outcome: Outcome::Completed(_), .. }
            | Entry::StepCompleted { .. }
            | Entry::TimerFired { .. }
            | Entry::HookClosed { .. } => {
                self.attempt_ended(at, None);
                self.settle(SpanStatus::Completed, at);
            }
            Entry::ChildFinished { .. } => self.settle(SpanStatus::Failed, at),
            _ => {}
        }
    }

    fn attempt(&mut self, number: u32, class: Class, line: &Numbered, driver: Option<(NodeId, u64)>) {
        (self.status, self.class, self.ended) = (SpanStatus::Open, Some(class), None);
        (self.until, self.reason) = (None, None);
        let (started, entry) = (begun(line), line.number);
        self.attempts.push(Attempt { number, started, ended: None, driver, entry, lost: false, error: None });
        if self.attempts.len() > ATTEMPTS {
            self.attempts.remove(0);
        }
    }

    fn attempt_ended(&mut self, at: Time, error: Option<&Failure>) {
        if let Some(attempt) = self.attempts.last_mut() {
            (attempt.ended, attempt.lost) = (Some(at), false);
            attempt.error = error.map(error_of);
        }
    }

    fn resolved(&mut self, resolution: &Resolution, at: Time) {
        match resolution {
            Resolution::Happened(_) => self.settle(SpanStatus::Completed, at),
            Resolution::DidNotHappen => self.status = SpanStatus::Retrying,
            Resolution::GiveUp(_) => self.settle(SpanStatus::Failed, at),
        }
    }

    fn settle(&mut self, status: SpanStatus, at: Time) {
        self.status = status;
        if !matches!(status, SpanStatus::Retrying | SpanStatus::InDoubt) {
            self.ended = Some(at);
        }
        if status != SpanStatus::Retrying && self.kind == SpanKind::Step {
            self.until = None;
        }
    }
}

fn error_of(failure: &Failure) -> SpanError {
    let message = failure.message.chars().take(MESSAGE).collect();
    SpanError { kind: failure.kind, message, code: failure.code.clone() }
}

#[cfg(test)]
mod tests {
    use semel::rules::entry::FailureKind;
    use semel::rules::json::Payload;
    use semel::rules::path::Path;
    use uuid::Uuid;

    use super::*;

    fn node(number: u128) -> NodeId {
        NodeId(Uuid::from_u128(number))
    }

    fn visit(path: &str) -> Visit {
        Visit { path: Path::parse(path).unwrap(), tick: 1 }
    }

    fn started(path: &str, attempt: u32) -> Entry {
        Entry::StepStarted { step: visit(path), attempt, class: Class::Keyed, at: None, note: None }
    }

    fn fold(entries: Vec<Entry>) -> SpanFold {
        let mut fold = SpanFold::default();
        for (place, entry) in entries.into_iter().enumerate() {
            let number = place as u64 + 1;
            fold.add(&Numbered { number, at: Time(number as i64 * 100), entry });
        }
        fold
    }

    #[test]
    fn an_attempt_that_was_taken_over_is_lost_and_repeated() {
        let fold = fold(vec![
            Entry::Claimed { node: node(1) },
            started("pay", 1),
            Entry::Claimed { node: node(2) },
            started("pay", 1),
            Entry::StepCompleted { step: visit("pay"), value: Payload::null() },
        ]);
        let attempts = &fold.spans[0].attempts;
        assert_eq!(attempts.iter().map(|one| one.lost).collect::<Vec<_>>(), [true, false]);
        assert_eq!(attempts[1].driver, Some((node(2), 3)));
        assert_eq!((fold.spans[0].status, fold.spans[0].ended), (SpanStatus::Completed, Some(Time(500))));
        assert!(
            fold.claims[0].lost && fold.claims[0].ended == Some(Time(300)) && fold.claims[1].ended.is_none()
        );
    }

    #[test]
    fn a_failed_attempt_waits_for_the_next_one() {
        let error = Failure::new(FailureKind::Retryable, "x".repeat(900));
        let retry_at = Some(Time(9_000));
        let failed = Entry::StepFailed { step: visit("pay"), attempt: 1, error, retry_at };
        let fold = fold(vec![started("pay", 1), failed]);
        let span = &fold.spans[0];
        assert_eq!((span.status, span.until, span.ended), (SpanStatus::Retrying, retry_at, None));
        assert_eq!(span.attempts[0].error.as_ref().unwrap().message.len(), MESSAGE);
        assert_eq!(fold.totals(), SpanTotals { all: 1, retrying: 1, ..SpanTotals::default() });
    }

    #[test]
    fn a_body_that_ran_before_its_entry_is_no_rest() {
        let step = Entry::StepStarted {
            step: visit("pay"),
            attempt: 1,
            class: Class::Keyed,
            at: Some(Time(11_000)),
            note: None,
        };
        let done = Entry::StepCompleted { step: visit("pay"), value: Payload::null() };
        let mut fold = SpanFold::default();
        for (number, at, entry) in
            [(1, 1_000, Entry::Claimed { node: node(1) }), (2, 21_000, step), (3, 21_000, done)]
        {
            fold.add(&Numbered { number, at: Time(at), entry });
        }
        assert_eq!((fold.spans[0].started, fold.spans[0].ended), (Time(11_000), Some(Time(21_000))));
        assert_eq!(fold.idle, [(Time(1_000), Time(11_000))]);
    }

    #[test]
    fn a_restart_from_the_beginning_has_spans_of_its_own() {
        let done = || Entry::StepCompleted { step: visit("pay"), value: Payload::null() };
        let again = Entry::Restarted { from: RestartFrom::Beginning, by: "ada".to_owned(), deadline: None };
        let fold = fold(vec![started("pay", 1), done(), again, started("pay", 1)]);
        let states: Vec<_> = fold.spans.iter().map(|span| span.status).collect();
        assert_eq!(states, [SpanStatus::Completed, SpanStatus::Open]);
        assert_eq!(fold.of_visit(&visit("pay")).unwrap().0, 1);
    }
}
