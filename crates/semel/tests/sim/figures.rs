//! What happened over all seeds, in numbers: a simulation in which nothing goes wrong shows nothing.

use std::collections::BTreeMap;
use std::fmt;

/// Every kind of trouble and every answer that must have come up over the seeds of `make check`.
pub(crate) const MUST_HAPPEN: &[&str] = &[
    "runs",
    "children",
    "forks",
    "effects",
    "look-ups",
    "look-ups that failed",
    "runs completed",
    "runs cancelled",
    "runs timed out",
    "crashes",
    "crashes before a write or effect",
    "crashes after a write or effect",
    "stale nodes",
    "nodes that stand still at a call or effect",
    "takeovers",
    "late commits refused",
    "calls refused",
    "calls lost",
    "answers lost",
    "calls that come late",
    "slow calls",
    "wake-ups lost",
    "wake-ups repeated",
    "starts absorbed",
    "starts refused for another payload",
    "starts that superseded",
    "starts that restarted",
    "deliveries",
    "deliveries absorbed",
    "cancels won",
    "cancels too late",
    "cancels asked for",
    "pauses",
    "restarts",
    "doubts resolved",
    "poisoned runs resumed",
    "nodes poisoned",
    "large values",
];

#[derive(Clone, Debug, Default)]
pub(crate) struct Figures(BTreeMap<&'static str, u64>);

impl Figures {
    pub(crate) fn count(&mut self, what: &'static str) {
        self.add(what, 1);
    }

    pub(crate) fn add(&mut self, what: &'static str, many: u64) {
        *self.0.entry(what).or_default() += many;
    }

    pub(crate) fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (what, many) in &other.0 {
            self.add(what, *many);
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(what, many)| writeln!(f, "  {many:>9} {what}"))
    }
}
