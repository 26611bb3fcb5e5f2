//! Executes a workflow against its ledger until it stands still. Nothing is called, nothing is written.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};

use super::watch::{Asked, Place, Seen};
use crate::engine::cell::{Caller, Cell};
use crate::engine::{Core, panic_text};
use crate::rules::entry::{FailureKind, Outcome};
use crate::rules::json::Payload;
use crate::rules::ledger::Ledger;
use crate::sdk::ctx::Ctx;
use crate::sdk::fail::Fail;

/// How often the runtime may go round before a workflow that was not woken stands still: code that yields is woken when
/// the runtime comes by next.
const ROUNDS: u32 = 64;
/// The same if it waits for nothing that is its ledger's, but perhaps for another task.
const FOREIGN_ROUNDS: u32 = 10_000;
/// How often a workflow may wake itself without asking for anything new.
const IDLE_POLLS: u32 = 1000;

/// What came of a dry run.
pub(super) struct Played {
    /// How the workflow ended, if it did.
    pub(super) outcome: Option<Outcome>,
    pub(super) asked: Vec<(Place, Asked)>,
    /// What it waited for when it stood still.
    pub(super) waits: Vec<Place>,
}

/// A dry run under way.
pub(super) struct Execution {
    cell: Arc<Cell>,
    caller: Caller,
    code: crate::engine::Execution,
}

impl Execution {
    pub(super) fn begin(
        core: &Arc<Core>,
        ledger: &Ledger,
        workflow: impl FnOnce(Ctx) -> crate::engine::Execution,
    ) -> Self {
        let run = Cell::new(core.clone(), ledger.clone(), Vec::new(), true);
        Self { code: workflow(Ctx::new(run.clone())), caller: Caller::new(run.clone()), cell: run }
    }

    /// Polls until nothing moves any more.
    pub(super) async fn play(mut self) -> Played {
        let outcome = self.until_still().await;
        let outcome = outcome.map(|result| self.ended(result));
        // Looked at before the workflow is dropped, which takes back what it waits for.
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
        catch_unwind(AssertUnwindSafe(|| code.as_mut().poll(&mut Context::from_waker(waker)))).unwrap_or_else(
            |panic| {
                let message = format!("the workflow panicked: {}", panic_text(&*panic));
                Poll::Ready(Err(Fail::new(FailureKind::Panic, message)))
            },
        )
    }

    /// What a driver would make of the result.
    fn ended(&self, result: Result<Payload, Fail>) -> Outcome {
        match (result, self.cell.lock().ledger.cancelling()) {
            (Ok(value), _) => Outcome::Completed(value),
            (Err(fail), Some((reason, _))) if fail.is_cancelled() => Outcome::Cancelled(reason.to_owned()),
            (Err(fail), _) => Outcome::Failed(fail.failure()),
        }
    }

    fn watched<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        let watch = self.cell.watch.as_ref().expect("a dry run is watched");
        look(&mut watch.seen())
    }

    fn seen(&self) -> (Vec<(Place, Asked)>, Vec<Place>) {
        let (asked, mut waits) = self.watched(|seen| {
            let waits: Vec<_> = seen.waits.values().cloned().map(Place::Visit).collect();
            (std::mem::take(&mut seen.asked), waits)
        });
        let mut state = self.cell.lock();
        waits.extend(state.onces().keys().map(|(scope, label)| Place::Once(scope.clone(), label.clone())));
        (asked, waits)
    }
}
