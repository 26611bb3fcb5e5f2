//! Why an entry is refused, in words that help whoever asked for it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::clock::Time;
use crate::rules::key::Label;
use crate::rules::path::Visit;
use crate::rules::status::Status;

/// The kinds of the entries that operators know by another name.
const RESTARTED: &str = "restarted";
const RESOLVED: &str = "stepResolved";

/// An entry that does not fit what came before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Refused {
    /// The run's state does not allow it.
    #[error("a run that is {from} {}", in_words(*from, entry))]
    Status {
        /// The run's state.
        from: Status,
        /// The kind of entry.
        entry: Cow<'static, str>,
    },
    /// The state of what stands at that path does not allow it.
    #[error("{}", misfit(visit, entry, found))]
    Visit {
        /// Where.
        visit: Visit,
        /// The kind of entry.
        entry: Cow<'static, str>,
        /// What is there.
        found: Cow<'static, str>,
    },
    /// `Created` stands elsewhere than first, or is missing.
    #[error("a ledger begins with `created`, once")]
    Beginning,
    /// A label of the run has its result already.
    #[error("the label {0} has its result already")]
    Once(Label),
    /// A run does not complete while a step is in doubt, or should be.
    #[error("it is not known whether {0} took place: say what became of it first")]
    InDoubt(Visit),
    /// A run times out at its limit only.
    #[error("{}", untimely(*.limit))]
    Limit {
        /// The run's limit; none if it has none.
        limit: Option<Time>,
    },
    /// A run that is paused because of steps in doubt goes on when they are resolved, not before.
    #[error("a run in doubt cannot be resumed: say first what became of {}", listed(.0))]
    Doubts(Vec<Visit>),
    /// The entry is written by the store, together with what it stands for.
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

/// What a state does not allow, for whoever reads the error. Of what operators do, only a restart gets here: all else is
/// absorbed, or the run has ended.
fn in_words(from: Status, entry: &str) -> String {
    if entry != RESTARTED {
        return format!("does not take {entry}");
    }
    let can: Vec<_> = Status::ALL.into_iter().filter(|s| s.may_restart()).map(|s| s.to_string()).collect();
    let instead = if from == Status::Paused { "resume it" } else { "let it end" };
    format!("cannot be retried or restarted: only {} runs can; {instead}, or fork it", can.join(" and "))
}

/// The same for what stands at a path. An operator gets here by the resolution of a doubt.
fn misfit(visit: &Visit, entry: &str, found: &str) -> String {
    match entry {
        RESOLVED => format!("{visit} cannot be resolved: it is {found}, and only a step in doubt can be"),
        entry => format!("{entry} does not fit {visit}: it is {found}"),
    }
}
