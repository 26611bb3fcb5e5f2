//! What is taken back when a run, or a `try`, has failed: the `undo` steps of what has completed, the last in the document first.

use std::sync::{Arc, Mutex, PoisonError};

use semel::sabotage::{self, Bug};
use semel::{Ctx, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::frame::Frame;
use super::{Doing, Execution};
use crate::definitions::language::{DefinedStep, StepBody};

/// Completed steps that have an `undo`, in the order of the document. Clones are the same list.
#[derive(Clone, Default)]
pub(super) struct UndoList<'d>(Arc<Mutex<Vec<Completed<'d>>>>);

enum Completed<'d> {
    /// A step, and where it was executed.
    Step(&'d DefinedStep, Box<Frame<'d>>),
    /// What has completed inside a block, or in a branch or pass of it.
    Inside(UndoList<'d>),
}

impl<'d> UndoList<'d> {
    /// Notes a step that has completed.
    pub(super) fn completed(&self, step: &'d DefinedStep, frame: &Frame<'d>) {
        // Without the list, which would hold itself.
        self.push(Completed::Step(step, Box::new(frame.cleaning_up())));
    }

    /// The list of a block that begins, or of a branch or pass of it. It has its place here, however long it takes. Blocks
    /// in which nothing can be undone share an empty list.
    pub(super) fn inside(&self, steps: &[DefinedStep]) -> Self {
        let inside = Self::default();
        if has_undo(steps) && !sabotage::commits(Bug::UndoForgetsBlocks) {
            self.push(Completed::Inside(inside.clone()));
        }
        inside
    }

    fn push(&self, completed: Completed<'d>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(completed);
    }

    fn take(&self) -> Vec<Completed<'d>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn is_empty(&self) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().all(|completed| match completed {
            Completed::Step(..) => false,
            Completed::Inside(list) => list.is_empty(),
        })
    }

    /// Undoes everything, the last first; one that fails does not stop the others. Gives what could not be undone, which is logged.
    #[expect(clippy::only_used_in_recursion, reason = "it outlives the frames of the list")]
    pub(super) fn take_back(&self, execution: &'d Execution) -> Doing<'d, Vec<String>> {
        let mut all = self.take();
        Box::pin(async move {
            let mut failures = Vec::new();
            while let Some(completed) = all.pop() {
                match completed {
                    Completed::Inside(list) => failures.extend(list.take_back(execution).await),
                    Completed::Step(step, frame) => {
                        let frame = frame.block(&step.name).block("undo");
                        if sabotage::commits(Bug::UndoTwice) {
                            drop(frame.block("again").list(&step.undo, true).await);
                        }
                        if let Err(broken) = frame.list(&step.undo, true).await.end {
                            let failed = broken.told();
                            tracing::warn!(run = %frame.ctx.run_id(), %failed, "a step of a definition could not be undone");
                            failures.push(failed);
                        }
                    }
                }
            }
            failures
        })
    }
}

/// Records, before something is undone, that it is: a retry, a restart, and a fork with the same effect keys find it with
/// [`Ctx::earlier`]. Done again under those keys it would be absorbed by the other side, and stay undone.
pub(super) async fn keep_for_ever<T>(ctx: &Ctx, mark: &str, value: T) -> Result<T>
where
    T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    // An intent carries over, and its end is known: a crash leaves no doubt.
    let step = ctx.step(mark).reconcile(async |_| Ok(Some(value.clone())));
    step.run(async |_| Ok(value.clone())).await
}

/// Whether something in these steps can be undone.
fn has_undo(steps: &[DefinedStep]) -> bool {
    steps.iter().any(|step| {
        let inside = match &step.body {
            StepBody::Task(..) => false,
            body => body.lists().into_iter().any(has_undo),
        };
        inside || !step.undo.is_empty()
    })
}
