//! Reasons for refusing an entry, worded for the caller.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::clock::Time;
use crate::rules::key::Label;
use crate::rules::path::Visit;
use crate::rules::status::Status;

/// Kinds of entries for which operators use another name.
const RESTARTED: &str = "restarted";
const RESOLVED: &str = "stepResolved";

/// An entry that does not fit the ledger before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum RefusedEntry {
    /// The run's state does not allow it.
    #[error("a run that is {from} {}", in_words(*from, entry))]
    Status {
        /// Status of the run.
        from: Status,
        /// Kind of the entry.
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        entry: Cow<'static, str>,
    },
    /// The record at that visit does not allow the entry.
    #[error("{}", misfit(visit, entry, found))]
    Visit {
        /// Visit that the entry is about.
        visit: Visit,
        /// Kind of the entry.
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        entry: Cow<'static, str>,
        /// Description of the record that is there.
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        found: Cow<'static, str>,
    },
    /// `Created` is missing, or is not the first entry.
    #[error("a ledger begins with `created`, once")]
    Beginning,
    /// A label of the run already has its result.
    #[error("the label {0} has its result already")]
    Once(Label),
    /// A run does not complete while a step is in doubt, or should be.
    #[error("it is not known whether {0} took place: resolve it first")]
    InDoubt(Visit),
    /// A run times out at its time limit only.
    #[error("{}", untimely(*.limit))]
    Limit {
        /// Time limit of the run; none if it has no limit.
        limit: Option<Time>,
    },
    /// A run that is paused because of steps in doubt goes on when they are resolved, not before.
    #[error("a run in doubt cannot be resumed: resolve first {}", listed(.0))]
    Doubts(Vec<Visit>),
    /// Only the store writes this entry, together with the change it records.
    #[error("{0} is written by the store only")]
    Stores(Cow<'static, str>),
}

fn untimely(limit: Option<Time>) -> String {
    match limit {
        Some(limit) => format!("the run's time is up at {limit}: `timedOut` must name that limit"),
        None => "a run without a time limit does not time out".to_owned(),
    }
}

fn listed(steps: &[Visit]) -> String {
    steps.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Text about what a status does not allow. Of operator actions only a restart gets here: all others are absorbed, or
/// the run has ended.
fn in_words(from: Status, entry: &str) -> String {
    if entry != RESTARTED {
        return format!("does not take {entry}");
    }
    let can: Vec<_> = Status::ALL.into_iter().filter(|s| s.may_restart()).map(|s| s.to_string()).collect();
    let instead = if from == Status::Paused { "resume it" } else { "let it end" };
    format!("cannot be retried or restarted: only {} runs can; {instead}, or fork it", can.join(" and "))
}

/// Text about a record that does not allow an entry. Operators see it when they resolve a doubt.
fn misfit(visit: &Visit, entry: &str, found: &str) -> String {
    match entry {
        RESOLVED => format!("{visit} cannot be resolved: it is {found}, and only a step in doubt can be"),
        entry => format!("{entry} does not fit {visit}: it is {found}"),
    }
}
