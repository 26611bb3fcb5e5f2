//! What a run does now, as far as the end of its ledger tells: for lists, which cannot fold whole ledgers.

use std::collections::HashSet;

use super::attention::Attention;
use super::entry::{Entry, PauseReason};
use super::key::Token;
use super::path::Visit;
use super::run::Run;
use super::status::Status;
use crate::clock::Time;
use crate::id::RunId;

/// Kind of what a run does or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NowKind {
    /// A node drives the run: it executes steps, or the code between them.
    Step,
    /// It waits for a delivery to a token.
    Hook,
    /// It waits until a time.
    Timer,
    /// It waits for the next attempt at a step.
    Retry,
    /// It waits for the end of a child, or for a remote step.
    Child,
    /// A step is in doubt: it waits for a person.
    Doubt,
}

/// What a run does or waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoesNow {
    /// Kind of the activity or of the wait.
    pub kind: NowKind,
    /// Visit of the step, timer, hook or child. None if the end of the ledger does not tell.
    pub visit: Option<Visit>,
    /// Token of the hook, if it waits for one.
    pub token: Option<Token>,
    /// The child, if it waits for one.
    pub child: Option<RunId>,
    /// Time at which it goes on by itself. None if it does not.
    pub until: Option<Time>,
    /// Number of the attempt that is being made, or that is next.
    pub attempt: Option<u32>,
}

impl DoesNow {
    fn at(kind: NowKind, visit: Option<Visit>) -> Self {
        Self { kind, visit, token: None, child: None, until: None, attempt: None }
    }
}

/// The end of a ledger, and what rows tell of a run.
#[derive(Clone, Debug, Default)]
pub struct GlanceFacts {
    /// The latest entries, the last one first.
    pub tail: Vec<Entry>,
    /// A token that the run owns, the latest one, and the visit at which it was opened.
    pub hook: Option<(Token, Option<Visit>)>,
}

impl GlanceFacts {
    /// Why the run is paused, if it is and the entries tell.
    pub fn pause(&self, run: &Run) -> Option<PauseReason> {
        let reason = |entry: &Entry| match entry {
            Entry::Paused { reason } => Some(reason.clone()),
            _ => None,
        };
        self.tail.iter().find_map(reason).filter(|_| run.status() == Status::Paused)
    }

    /// What the run does or waits for.
    pub fn now(&self, run: &Run) -> Option<DoesNow> {
        match run.status() {
            Status::Running => Some(self.driven()),
            Status::Waiting => self.waits(run),
            Status::Paused if run.state.attention == Some(Attention::InDoubt) => Some(self.doubt()),
            // Its start was delayed, or it waits for a node.
            Status::Pending => {
                let due = run.state.due.filter(|due| *due > run.new.created)?;
                let wait = DoesNow::at(NowKind::Timer, None);
                (run.state.version == 1).then_some(DoesNow { until: Some(due), ..wait })
            }
            _ => None,
        }
    }

    fn doubt(&self) -> DoesNow {
        let doubt = |entry: &Entry| match entry {
            Entry::StepInDoubt { step, .. } => Some(step.clone()),
            _ => None,
        };
        DoesNow::at(NowKind::Doubt, self.tail.iter().find_map(doubt))
    }

    /// The latest step that has begun without an end. A keyed step is recorded with its result, so none may be seen.
    fn driven(&self) -> DoesNow {
        let mut settled = HashSet::new();
        for entry in &self.tail {
            match entry {
                Entry::StepCompleted { step, .. }
                | Entry::StepFailed { step, .. }
                | Entry::StepSkipped { step, .. }
                | Entry::StepInDoubt { step, .. }
                | Entry::StepResolved { step, .. } => {
                    settled.insert(step);
                }
                Entry::StepStarted { step, attempt, .. } if !settled.contains(step) => {
                    let at = DoesNow::at(NowKind::Step, Some(step.clone()));
                    return DoesNow { attempt: Some(*attempt), ..at };
                }
                _ => {}
            }
        }
        DoesNow::at(NowKind::Step, None)
    }

    /// A hook first, because an answer from outside ends it; then the latest wait that is not over.
    fn waits(&self, run: &Run) -> Option<DoesNow> {
        let until = run.state.due;
        if let Some((token, visit)) = &self.hook {
            let wait = DoesNow::at(NowKind::Hook, visit.clone());
            return Some(DoesNow { token: Some(token.clone()), until, ..wait });
        }
        let wait = self.latest_wait().or_else(|| until.map(|_| DoesNow::at(NowKind::Timer, None)));
        wait.map(|wait| DoesNow { until, ..wait })
    }

    fn latest_wait(&self) -> Option<DoesNow> {
        let mut over = HashSet::new();
        for entry in &self.tail {
            match entry {
                Entry::TimerFired { timer: visit } | Entry::ChildFinished { child: visit, .. } => {
                    over.insert(visit);
                }
                Entry::StepStarted { step, .. } | Entry::StepCompleted { step, .. } => {
                    over.insert(step);
                }
                Entry::TimerSet { timer, .. } if !over.contains(timer) => {
                    return Some(DoesNow::at(NowKind::Timer, Some(timer.clone())));
                }
                Entry::StepFailed { step, attempt, retry_at: Some(_), .. } if !over.contains(step) => {
                    let wait = DoesNow::at(NowKind::Retry, Some(step.clone()));
                    return Some(DoesNow { attempt: Some(attempt + 1), ..wait });
                }
                Entry::ChildStarted { child, run, .. } if !over.contains(child) => {
                    let wait = DoesNow::at(NowKind::Child, Some(child.clone()));
                    return Some(DoesNow { child: Some(*run), ..wait });
                }
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::entry::{Class, Failure, FailureKind};
    use crate::rules::json::Payload;
    use crate::rules::run::tests::run;

    fn visit(path: &str) -> Visit {
        Visit::parse(path).unwrap()
    }

    fn timer(path: &str) -> Entry {
        Entry::TimerSet { timer: visit(path), at: Time(900) }
    }

    fn fired(path: &str) -> Entry {
        Entry::TimerFired { timer: visit(path) }
    }

    fn failed(path: &str) -> Entry {
        let error = Failure::new(FailureKind::Retryable, "no answer");
        Entry::StepFailed { step: visit(path), attempt: 2, error, retry_at: Some(Time(900)) }
    }

    fn started(path: &str) -> Entry {
        Entry::step_started(visit(path), 3, Class::AtMostOnce)
    }

    fn done(path: &str) -> Entry {
        Entry::StepCompleted { step: visit(path), value: Payload::null() }
    }

    /// What is told of a run with these entries, the last one last.
    fn told(
        status: Status,
        entries: Vec<Entry>,
        hook: Option<&str>,
    ) -> Option<(NowKind, Option<String>, Option<u32>)> {
        let mut run = run(status);
        run.state.due = (status == Status::Waiting).then_some(Time(900));
        run.state.attention = (status == Status::Paused).then_some(Attention::InDoubt);
        let tail = entries.into_iter().rev().collect();
        let hook = hook.map(|token| (Token::new(token).unwrap(), Some(visit("hook"))));
        let now = GlanceFacts { tail, hook }.now(&run);
        now.map(|now| (now.kind, now.visit.map(|visit| visit.to_string()), now.attempt))
    }

    #[test]
    fn the_end_of_the_ledger_tells_what_a_run_waits_for() {
        use NowKind::{Doubt, Hook, Retry, Step, Timer};
        let at = |path: &str| Some(path.to_owned());
        let doubt = Entry::StepInDoubt { step: visit("pay"), reason: "no answer".to_owned() };
        for (status, entries, hook, expected) in [
            (Status::Waiting, vec![timer("a"), timer("b")], None, Some((Timer, at("b"), None))),
            (Status::Waiting, vec![timer("a"), timer("b"), fired("b")], None, Some((Timer, at("a"), None))),
            (Status::Waiting, vec![timer("a"), fired("a")], None, Some((Timer, None, None))),
            (Status::Waiting, vec![timer("a")], Some("t"), Some((Hook, at("hook"), None))),
            (Status::Waiting, vec![failed("s")], None, Some((Retry, at("s"), Some(3)))),
            (
                Status::Waiting,
                vec![failed("s"), started("s"), timer("a")],
                None,
                Some((Timer, at("a"), None)),
            ),
            (Status::Running, vec![started("s")], None, Some((Step, at("s"), Some(3)))),
            (Status::Running, vec![started("s"), done("s")], Some("t"), Some((Step, None, None))),
            (Status::Paused, vec![doubt], None, Some((Doubt, at("pay"), None))),
            (Status::Completed, vec![done("s")], None, None),
            (Status::Pending, vec![], None, None),
        ] {
            assert_eq!(told(status, entries.clone(), hook), expected, "{status} {entries:?}");
        }
    }

    #[test]
    fn a_run_whose_start_is_delayed_waits_for_its_time() {
        let mut run = run(Status::Pending);
        run.state.due = Some(Time(700));
        let now = GlanceFacts::default().now(&run).unwrap();
        assert_eq!((now.kind, now.until), (NowKind::Timer, Some(Time(700))));
    }

    #[test]
    fn the_latest_pause_is_the_reason_of_a_paused_run_only() {
        let paused = |reason| Entry::Paused { reason };
        let tail = vec![paused(PauseReason::InDoubt), paused(PauseReason::Poisoned)];
        let facts = GlanceFacts { tail, hook: None };
        assert_eq!(facts.pause(&run(Status::Paused)), Some(PauseReason::InDoubt));
        assert_eq!(facts.pause(&run(Status::Pending)), None);
    }
}
