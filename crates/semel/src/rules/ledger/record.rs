//! The record at a visit, and how an entry changes it: the state machine of everything that has a path.

use crate::clock::Time;
use crate::id::RunId;
use crate::rules::entry::{Entry, FailureKind, Outcome};
use crate::rules::json::Payload;
use crate::rules::key::Token;
use crate::rules::step::StepState;

/// The state of the step, timer, hook, child or value at a visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VisitRecord {
    /// A step, in this state.
    Step(StepState),
    /// A timer, and whether it has fired.
    Timer {
        /// Time at which it fires.
        at: Time,
        /// Whether it has fired.
        fired: bool,
    },
    /// A hook, open or not.
    Hook {
        /// Token of the hook.
        token: Token,
        /// State of the hook.
        state: HookState,
    },
    /// A child run and how it ended.
    Child {
        /// Id of the child; none until the store has settled it.
        run: Option<RunId>,
        /// Outcome of the child; none until it is consumed.
        outcome: Option<Outcome>,
    },
    /// A value that the workflow recorded.
    Value(Payload),
}

/// Recorded state of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookState {
    /// The store has not answered yet. Holds payloads received before a restart.
    Opening(Vec<Payload>),
    /// Owns its token. Holds the payloads received so far.
    Open(Vec<Payload>),
    /// Another run owns the token.
    Conflicted(RunId),
    /// The token is free again. Holds the payloads it had received.
    Closed(Vec<Payload>),
    /// Open when the run ended, before a restart. Holds the payloads it had received.
    Released(Vec<Payload>),
}

impl VisitRecord {
    pub(super) fn describe(found: Option<&Self>) -> &'static str {
        match found {
            None => "not there",
            Some(Self::Step(StepState::Started { .. })) => "a step with a begun attempt",
            Some(Self::Step(StepState::Retrying { .. })) => "a step between attempts",
            Some(Self::Step(StepState::Completed(_))) => "a completed step",
            Some(Self::Step(StepState::Failed(_) | StepState::GivenUp { .. })) => "a failed step",
            Some(Self::Step(StepState::Skipped)) => "a skipped step",
            Some(Self::Step(StepState::InDoubt { .. })) => "a step in doubt",
            Some(Self::Step(StepState::Cleared { .. })) => "a step to be run again",
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

    /// The record after an entry; none if the entry does not fit. This is the state machine of everything that has a
    /// path.
    pub(super) fn next(found: Option<&Self>, entry: &Entry) -> Option<Self> {
        let step = match found {
            None => None,
            Some(Self::Step(step)) => Some(step),
            Some(_) => return Self::next_other(found, entry),
        };
        let open = step.and_then(StepState::open_attempt);
        Some(Self::Step(match entry {
            Entry::StepStarted { attempt, class, .. } if StepState::next_attempt(step) == Some(*attempt) => {
                StepState::Started { attempt: *attempt, class: *class }
            }
            Entry::StepCompleted { value, .. } if open.is_some() => StepState::Completed(value.clone()),
            Entry::StepFailed { attempt, error, retry_at, .. } if open == Some(*attempt) => match retry_at {
                // An uncertain failure is a doubt, not a reason for another attempt.
                Some(_) if error.kind == FailureKind::Uncertain => return None,
                Some(at) => StepState::Retrying { attempt: *attempt, error: error.clone(), at: *at },
                None => StepState::Failed(error.clone()),
            },
            Entry::StepSkipped { .. } if step.is_none() => StepState::Skipped,
            Entry::StepInDoubt { .. } => match *step? {
                StepState::Started { attempt, class } => StepState::InDoubt { attempt, class },
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
