//! What stands at a visit, and what an entry makes of it: the state machine of everything that has a path.

use crate::clock::Time;
use crate::id::RunId;
use crate::rules::entry::{Entry, FailureKind, Outcome};
use crate::rules::json::Payload;
use crate::rules::key::Token;
use crate::rules::step::Step;

/// What stands at a visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A step.
    Step(Step),
    /// A timer, and whether it has fired.
    Timer {
        /// Its time.
        at: Time,
        /// Whether it has fired.
        fired: bool,
    },
    /// A hook.
    Hook {
        /// Its token.
        token: Token,
        /// Where it stands.
        state: HookState,
    },
    /// A child.
    Child {
        /// Its run, once the store has settled it.
        run: Option<RunId>,
        /// Its end, once consumed.
        outcome: Option<Outcome>,
    },
    /// A recorded value.
    Value(Payload),
}

/// Where a hook stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookState {
    /// Asked of the store, not answered yet; what an earlier life had received.
    Opening(Vec<Payload>),
    /// Owns its token; what it has received so far.
    Open(Vec<Payload>),
    /// Another run owns the token.
    Conflicted(RunId),
    /// Free again; what it had received.
    Closed(Vec<Payload>),
    /// Open in an earlier life of the run, which ended; what it had received.
    Released(Vec<Payload>),
}

impl Record {
    pub(super) fn describe(found: Option<&Self>) -> &'static str {
        match found {
            None => "not there",
            Some(Self::Step(Step::Started { .. })) => "a step with a begun attempt",
            Some(Self::Step(Step::Retrying { .. })) => "a step between attempts",
            Some(Self::Step(Step::Completed(_))) => "a completed step",
            Some(Self::Step(Step::Failed(_) | Step::GivenUp { .. })) => "a failed step",
            Some(Self::Step(Step::Skipped)) => "a skipped step",
            Some(Self::Step(Step::InDoubt { .. })) => "a step in doubt",
            Some(Self::Step(Step::Cleared { .. })) => "a step to be run again",
            Some(Self::Timer { fired: false, .. }) => "a running timer",
            Some(Self::Timer { fired: true, .. }) => "a fired timer",
            Some(Self::Hook { state: HookState::Opening(_), .. }) => "a hook being opened",
            Some(Self::Hook { state: HookState::Open(_), .. }) => "an open hook",
            Some(Self::Hook { state: HookState::Conflicted(_), .. }) => "a hook in conflict",
            Some(Self::Hook { state: HookState::Closed(_), .. }) => "a closed hook",
            Some(Self::Hook { state: HookState::Released(_), .. }) => "a hook of an earlier life",
            Some(Self::Child { outcome: None, .. }) => "a child that has not ended",
            Some(Self::Child { outcome: Some(_), .. }) => "a child that has ended",
            Some(Self::Value(_)) => "a recorded value",
        }
    }

    /// Whether nothing about it is open: it carries over into a fork and a retry.
    pub(super) fn is_settled(&self) -> bool {
        match self {
            Self::Step(step) => step.is_settled(),
            Self::Timer { fired, .. } => *fired,
            Self::Hook { state, .. } => matches!(state, HookState::Closed(_)),
            Self::Child { outcome, .. } => outcome.is_some(),
            Self::Value(_) => true,
        }
    }

    /// What an entry makes of what stands at its visit; nothing if it does not fit. The state machine of everything
    /// that has a path.
    pub(super) fn next(found: Option<&Self>, entry: &Entry) -> Option<Self> {
        let step = match found {
            None => None,
            Some(Self::Step(step)) => Some(step),
            Some(_) => return Self::next_other(found, entry),
        };
        let open = step.and_then(Step::open_attempt);
        Some(Self::Step(match entry {
            Entry::StepStarted { attempt, class, .. } if Step::next_attempt(step) == Some(*attempt) => {
                Step::Started { attempt: *attempt, class: *class }
            }
            Entry::StepCompleted { value, .. } if open.is_some() => Step::Completed(value.clone()),
            Entry::StepFailed { attempt, error, retry_at, .. } if open == Some(*attempt) => match retry_at {
                // An uncertain failure is a doubt, not an occasion for another try.
                Some(_) if error.kind == FailureKind::Uncertain => return None,
                Some(at) => Step::Retrying { attempt: *attempt, error: error.clone(), at: *at },
                None => Step::Failed(error.clone()),
            },
            Entry::StepSkipped { .. } if step.is_none() => Step::Skipped,
            Entry::StepInDoubt { .. } => match *step? {
                Step::Started { attempt, class } => Step::InDoubt { attempt, class },
                _ => return None,
            },
            Entry::StepResolved { resolution, .. } => step?.resolved(resolution)?,
            _ if step.is_none() => return Self::next_other(None, entry),
            _ => return None,
        }))
    }

    fn next_other(found: Option<&Self>, entry: &Entry) -> Option<Self> {
        Some(match (found, entry) {
            (None, Entry::TimerSet { at, .. }) => Self::Timer { at: *at, fired: false },
            (Some(Self::Timer { at, fired: false }), Entry::TimerFired { .. }) => {
                Self::Timer { at: *at, fired: true }
            }
            (None, Entry::HookOpened { token, .. }) => {
                Self::Hook { token: token.clone(), state: HookState::Open(Vec::new()) }
            }
            (
                Some(Self::Hook { state: HookState::Opening(all) | HookState::Released(all), .. }),
                Entry::HookOpened { token, .. },
            ) => Self::Hook { token: token.clone(), state: HookState::Open(all.clone()) },
            (
                None | Some(Self::Hook { state: HookState::Opening(_) | HookState::Released(_), .. }),
                Entry::HookConflicted { token, owner, .. },
            ) => Self::Hook { token: token.clone(), state: HookState::Conflicted(*owner) },
            (Some(Self::Hook { token, state: HookState::Open(_) }), Entry::HookReceived { payload, .. }) => {
                Self::Hook { token: token.clone(), state: HookState::Open(vec![payload.clone()]) }
            }
            (Some(Self::Hook { token, state: HookState::Open(_) }), Entry::HookClosed { .. }) => {
                Self::Hook { token: token.clone(), state: HookState::Closed(Vec::new()) }
            }
            (None | Some(Self::Child { run: None, .. }), Entry::ChildStarted { run, .. }) => {
                Self::Child { run: Some(*run), outcome: None }
            }
            (Some(Self::Child { run: Some(run), outcome: None }), Entry::ChildFinished { outcome, .. }) => {
                Self::Child { run: Some(*run), outcome: Some(outcome.clone()) }
            }
            (None, Entry::Recorded { value, .. }) => Self::Value(value.clone()),
            _ => return None,
        })
    }
}
