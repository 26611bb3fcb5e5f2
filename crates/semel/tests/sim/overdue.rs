//! Time limits: what the oracle knows of runs that should have ended.

use semel::clock::Time;
use semel::rules::status::Status;

use crate::oracle::Seen;
use crate::stage::Scene;

/// Milliseconds after the deadline of a run by which its driver or a sweep must have ended it.
const ENDS_WITHIN: i64 = 5_000;

impl Scene {
    /// A sweep has changed nothing: then no run is open that should have ended before.
    pub(crate) fn had_nothing_to_sweep(&mut self) {
        let latest = Time(self.now.0 - ENDS_WITHIN);
        let is_overdue = |seen: &&Seen| {
            let may_end = matches!(seen.run.status(), Status::Pending | Status::Running | Status::Waiting);
            may_end && seen.deadline().is_some_and(|limit| limit < latest)
        };
        let overdue = self.oracle.runs.values().find(is_overdue).map(|seen| seen.run.id());
        if let Some(id) = overdue {
            self.violate("overdue", format!("the time of {id} is up, and a sweep does not end it"));
        }
    }
}
