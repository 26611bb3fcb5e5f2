//! Once across runs: one recorded outcome per label, shared by all runs that ask for it.
//!
//! The right to run the body belongs to a run, not to a process. It ends with the run, so a crash needs no lease; and
//! it ends when the run goes to rest, because then no node drives it. The fence of a grant is above that of the grant
//! before it, and never below the run's version. So an executor that lost the run cannot settle the once, even if the
//! grant was released or forgotten in between.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::json::Payload;
use super::key::{Key, Label, Scope};
use super::millis;
use crate::clock::Time;
use crate::error::Error;
use crate::id::{RunId, WorkspaceId};
use crate::sabotage::{self, Bug};

/// Scope in which a label is unique, beyond one run. (Labels of one run are in its ledger.)
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnceScope {
    /// The label is unique in the workspace.
    Workspace,
    /// The label is unique among all runs that ever had this key.
    Key(Scope, Key),
}

impl OnceScope {
    /// The scope as stored text. The length keeps scope and key apart.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Workspace => "*".to_owned(),
            Self::Key(scope, key) => format!("k{}/{}/{key}", scope.as_str().len(), scope.as_str()),
        }
    }
}

/// A run's call about a `run_once` value.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct OnceCall {
    /// Workspace to which the scope belongs.
    #[serde(skip, default = "WorkspaceId::unsaid")]
    pub workspace: WorkspaceId,
    /// Scope in which the label is unique.
    pub scope: OnceScope,
    /// Label of the value, unique in the scope.
    pub label: Label,
    /// The run that makes the call.
    pub run: RunId,
    /// What the call does: claim, settle or release.
    pub ask: Ask,
}

/// What a call about a `run_once` value does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = OnceAsk))]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Ask {
    /// Asks for the result, or for the right to make it.
    Claim,
    /// Records a result, under the grant that `fence` names.
    Settle {
        /// Fence of the grant.
        fence: u64,
        /// The result, as JSON.
        value: Payload,
        /// How long the result is remembered; for ever if absent.
        #[serde(rename = "ttlMs", alias = "ttl", with = "millis::option", default)]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
        ttl: Option<Duration>,
    },
    /// The body failed: another run may try.
    Release {
        /// Fence of the grant.
        fence: u64,
    },
}

/// A `run_once` value as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnceRow {
    /// The run that may run the body, or ran it.
    pub owner: RunId,
    /// Fence of the latest grant; it grows with every grant.
    pub fence: u64,
    /// The result; none until it is settled.
    pub value: Option<Payload>,
    /// Time at which the result is forgotten; none: never.
    pub expires: Option<Time>,
}

/// What happens to the runs that wait for a `run_once` value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiters {
    /// The waiting runs go on waiting.
    Stay,
    /// The run that asks becomes one of them.
    Join,
    /// All of them are told, and wait no more.
    Go,
}

/// The answer to a call about a `run_once` value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum OnceAnswer {
    /// The asking run may run the body, and settles with this fence.
    Mine(u64),
    /// The result that is kept.
    Settled(Payload),
    /// This other run is making the result; a message in the asking run's inbox will say when it is settled.
    InFlight(RunId),
    /// The grant was released: another run may make the result.
    Released,
}

/// Decision about a call: the row to write, the waiting runs to tell, the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnceStep {
    /// The row from now on; none to delete it, unchanged to leave it.
    pub row: Option<OnceRow>,
    /// Whether waiting runs are told.
    pub waiters: Waiters,
    /// The answer to the call.
    pub answer: OnceAnswer,
}

/// Decides a call of a run that has this version. `owner_open` tells whether the owner of the existing row may still
/// settle it.
pub fn decide(
    once: &OnceCall,
    version: u64,
    existing: Option<OnceRow>,
    owner_open: bool,
    now: Time,
) -> Result<OnceStep, Error> {
    // An expired row counts as deleted: it must make no difference whether a sweep has removed it.
    let existing = existing.filter(|row| row.expires.is_none_or(|at| at > now));
    let fence = existing.as_ref().map_or(1, |row| row.fence + 1).max(version);
    match &once.ask {
        Ask::Claim => Ok(claim(once.run, fence, existing, owner_open)),
        Ask::Settle { fence, value, ttl } => {
            let row = granted(once, existing, *fence)?;
            if let Some(kept) = &row.value {
                // Repeated by its owner: the first result is kept.
                let answer = OnceAnswer::Settled(kept.clone());
                return Ok(OnceStep { row: Some(row), waiters: Waiters::Stay, answer });
            }
            let row = OnceRow { value: Some(value.clone()), expires: ttl.map(|ttl| now.after(ttl)), ..row };
            let answer = OnceAnswer::Settled(value.clone());
            Ok(OnceStep { row: Some(row), waiters: Waiters::Go, answer })
        }
        Ask::Release { fence } => {
            let row = granted(once, existing, *fence)?;
            if row.value.is_some() {
                return Err(lost(once));
            }
            Ok(OnceStep { row: None, waiters: Waiters::Go, answer: OnceAnswer::Released })
        }
    }
}

fn claim(run: RunId, fence: u64, existing: Option<OnceRow>, owner_open: bool) -> OnceStep {
    let step = |row: OnceRow, answer| OnceStep { row: Some(row), waiters: Waiters::Stay, answer };
    let granted = |row: OnceRow| {
        let answer = OnceAnswer::Mine(row.fence);
        step(row, answer)
    };
    match existing {
        None => granted(OnceRow { owner: run, fence, value: None, expires: None }),
        Some(row) => match &row.value {
            Some(value) => {
                let answer = OnceAnswer::Settled(value.clone());
                step(row, answer)
            }
            // The run's own grant from before a crash, or that of a run that ended without settling it.
            None if row.owner == run || !owner_open || sabotage::commits(Bug::OnceGivenTwice) => {
                granted(OnceRow { owner: run, fence, ..row })
            }
            None => {
                let answer = OnceAnswer::InFlight(row.owner);
                OnceStep { waiters: Waiters::Join, ..step(row, answer) }
            }
        },
    }
}

fn granted(once: &OnceCall, existing: Option<OnceRow>, fence: u64) -> Result<OnceRow, Error> {
    existing.filter(|row| row.owner == once.run && row.fence == fence).ok_or_else(|| lost(once))
}

fn lost(once: &OnceCall) -> Error {
    Error::OnceLost { label: once.label.clone(), run: once.run }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn once(run: u128, ask: Ask) -> OnceCall {
        OnceCall {
            workspace: WorkspaceId::DEFAULT,
            scope: OnceScope::Workspace,
            label: Label::new("sms").unwrap(),
            run: RunId(Uuid::from_u128(run)),
            ask,
        }
    }

    fn settle(fence: u64, ttl: Option<Duration>) -> Ask {
        Ask::Settle { fence, value: Payload::parse("7").unwrap(), ttl }
    }

    #[test]
    fn one_runs_the_body_and_the_rest_wait_for_it() {
        let first = decide(&once(1, Ask::Claim), 1, None, false, Time(0)).unwrap();
        assert_eq!(first.answer, OnceAnswer::Mine(1));
        let second = decide(&once(2, Ask::Claim), 1, first.row, true, Time(0)).unwrap();
        assert_eq!(second.answer, OnceAnswer::InFlight(RunId(Uuid::from_u128(1))));
        let again = decide(&once(2, Ask::Claim), 1, second.row, true, Time(0)).unwrap();
        let settled = decide(&once(1, settle(1, None)), 1, again.row, true, Time(0)).unwrap();
        assert_eq!(
            [first.waiters, second.waiters, again.waiters, settled.waiters],
            [Waiters::Stay, Waiters::Join, Waiters::Join, Waiters::Go]
        );
        let late = decide(&once(2, Ask::Claim), 1, settled.row, false, Time(0)).unwrap();
        assert_eq!(late.answer, OnceAnswer::Settled(Payload::parse("7").unwrap()));
    }

    #[test]
    fn an_overtaken_executor_cannot_settle() {
        let row = decide(&once(1, Ask::Claim), 1, None, false, Time(0)).unwrap().row;
        let taken = decide(&once(2, Ask::Claim), 1, row, false, Time(0)).unwrap();
        assert_eq!(taken.answer, OnceAnswer::Mine(2));
        for (run, fence) in [(1, 1), (1, 2), (2, 1), (2, 3)] {
            let error =
                decide(&once(run, settle(fence, None)), 1, taken.row.clone(), true, Time(0)).unwrap_err();
            assert_eq!(error.code(), "CONCURRENCY_ERROR");
        }
        // The same run after a crash gets a new fence, and its own zombie is fenced off.
        let retaken = decide(&once(2, Ask::Claim), 1, taken.row, true, Time(0)).unwrap();
        assert_eq!(retaken.answer, OnceAnswer::Mine(3));
        assert!(decide(&once(2, settle(2, None)), 1, retaken.row, true, Time(0)).is_err());
    }

    #[test]
    fn a_result_is_forgotten_after_its_time() {
        let row = decide(&once(1, Ask::Claim), 1, None, false, Time(0)).unwrap().row;
        let row =
            decide(&once(1, settle(1, Some(Duration::from_millis(10)))), 1, row, true, Time(5)).unwrap().row;
        assert!(matches!(
            decide(&once(2, Ask::Claim), 1, row.clone(), false, Time(14)).unwrap().answer,
            OnceAnswer::Settled(_)
        ));
        assert_eq!(
            decide(&once(2, Ask::Claim), 1, row, false, Time(15)).unwrap().answer,
            OnceAnswer::Mine(1)
        );
    }

    #[test]
    fn a_released_once_is_free_and_a_settled_one_stays() {
        let row = decide(&once(1, Ask::Claim), 1, None, false, Time(0)).unwrap().row;
        let released = decide(&once(1, Ask::Release { fence: 1 }), 1, row.clone(), true, Time(0)).unwrap();
        assert_eq!((released.row, released.answer), (None, OnceAnswer::Released));
        let settled = decide(&once(1, settle(1, None)), 1, row, true, Time(0)).unwrap().row;
        assert!(decide(&once(1, Ask::Release { fence: 1 }), 1, settled, true, Time(0)).is_err());
    }

    #[test]
    fn a_fence_is_never_below_the_version_of_the_run() {
        let first = decide(&once(1, Ask::Claim), 7, None, false, Time(0)).unwrap();
        assert_eq!(first.answer, OnceAnswer::Mine(7));
        let again = decide(&once(1, Ask::Claim), 7, first.row, true, Time(0)).unwrap();
        assert_eq!(again.answer, OnceAnswer::Mine(8));
        let later = decide(&once(1, Ask::Claim), 12, again.row, true, Time(0)).unwrap();
        assert_eq!(later.answer, OnceAnswer::Mine(12));
    }

    #[test]
    fn scopes_of_keys_do_not_meet() {
        let scope = |scope: &str, key: &str| {
            OnceScope::Key(Scope::stored(scope.to_owned()), Key::new(key).unwrap()).text()
        };
        assert_ne!(scope("w/a", "b/c"), scope("w/a/b", "c"));
    }
}
