//! Executes a workflow against its ledger until it stops moving. Nothing is called, nothing is written.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};

use super::watch::{Location, Requested, Seen};
use crate::engine::Core;
use crate::engine::programs::WorkflowFuture;
use crate::engine::run::Cell;
use crate::engine::run::cell::Caller;
use crate::fail::Fail;
use crate::rules::entry::Outcome;
use crate::rules::json::Payload;
use crate::rules::leave;
use crate::rules::ledger::Ledger;

/// Number of rounds of the runtime after which a workflow that was not woken counts as standing still: code that
/// yields is woken in the runtime's next round.
const ROUNDS: u32 = 64;
/// The same if it waits for nothing in its ledger, but perhaps for another task.
const FOREIGN_ROUNDS: u32 = 10_000;
/// Number of times that a workflow may wake itself without asking for anything new.
const IDLE_POLLS: u32 = 1000;

/// Result of a dry run.
pub(super) struct Played {
    /// Outcome of the workflow, if it ended.
    pub(super) outcome: Option<Outcome>,
    pub(super) asked: Vec<(Location, Requested)>,
    /// Waits of the workflow when it stood still.
    pub(super) waits: Vec<Location>,
}

/// A dry run under way.
pub(super) struct DryRun {
    cell: Arc<Cell>,
    caller: Caller,
    code: WorkflowFuture,
}

impl DryRun {
    pub(super) fn begin(
        core: &Arc<Core>,
        ledger: &Ledger,
        workflow: impl FnOnce(Arc<Cell>) -> WorkflowFuture,
    ) -> Self {
        let run = Cell::new(core.clone(), ledger.clone(), Vec::new(), true);
        Self { code: workflow(run.clone()), caller: Caller::new(run.clone()), cell: run }
    }

    /// Polls until nothing moves any more.
    pub(super) async fn play(mut self) -> Played {
        let outcome = self.until_still().await;
        let outcome = outcome.map(|result| self.ended(result));
        // Read before the workflow is dropped, because dropping it removes its waits.
        let (asked, waits) = self.seen();
        self.cell.lock().torn = true;
        if catch_unwind(AssertUnwindSafe(|| drop(self.code))).is_err() {
            tracing::error!(run = %self.cell.id, "a workflow panicked while it was dropped");
        }
        Played { outcome, asked, waits }
    }

    async fn until_still(&mut self) -> Option<Result<Payload, Fail>> {
        let (mut idle, mut asked) = (0, 0);
        self.cell.signal.woken();
        while idle < IDLE_POLLS && self.is_woken().await {
            match self.poll() {
                Poll::Ready(result) => return Some(result),
                Poll::Pending => {
                    let now = self.watched(|seen| seen.asked.len());
                    idle = if now > asked { 0 } else { idle + 1 };
                    asked = now;
                }
            }
        }
        None
    }

    async fn is_woken(&mut self) -> bool {
        let foreign = self.watched(|seen| seen.waits.is_empty()) && self.cell.lock().onces().is_empty();
        for _ in 0..if foreign { FOREIGN_ROUNDS } else { ROUNDS } {
            if self.cell.signal.take_woken() {
                return true;
            }
            tokio::task::yield_now().await;
        }
        self.cell.signal.take_woken()
    }

    fn poll(&mut self) -> Poll<Result<Payload, Fail>> {
        let (waker, code) = (self.caller.waker(), &mut self.code);
        catch_unwind(AssertUnwindSafe(|| code.as_mut().poll(&mut Context::from_waker(waker))))
            .unwrap_or_else(|panic| Poll::Ready(Err(Fail::panicked("the workflow", &*panic))))
    }

    /// The outcome that a driver would record for this result.
    fn ended(&self, result: Result<Payload, Fail>) -> Outcome {
        let result = result.map_err(|fail| fail.failure());
        let ending = self.cell.ledger(|ledger| leave::ending(result, false, ledger.cancelling()));
        ending.outcome().expect("without a doubt the run ends")
    }

    fn watched<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        let watch = self.cell.watch.as_ref().expect("a dry run is watched");
        look(&mut watch.seen())
    }

    fn seen(&self) -> (Vec<(Location, Requested)>, Vec<Location>) {
        let (asked, mut waits) = self.watched(|seen| {
            let waits: Vec<_> = seen.waits.values().cloned().map(Location::Visit).collect();
            (std::mem::take(&mut seen.asked), waits)
        });
        let mut state = self.cell.lock();
        waits.extend(state.onces().keys().map(|(scope, label)| Location::Once(scope.clone(), label.clone())));
        (asked, waits)
    }
}
