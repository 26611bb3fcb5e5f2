//! `try`: what is done about a failure, and in any case.

use semel::Result;
use semel::sabotage::{self, Bug};

use super::broken::Caught;
use super::frame::{Flow, Frame, Listed};
use super::undo::{UndoList, keep_for_ever};
use crate::definitions::expression::Data;
use crate::definitions::language::{DefinedStep, Try};

impl<'d> Frame<'d> {
    pub(super) async fn tried(&self, step: &'d DefinedStep, tried: &'d Try, fresh: bool) -> Listed {
        let listed = self.caught(step, tried, fresh).await;
        if tried.finally.is_empty() || sabotage::commits(Bug::FinallyIsSkipped) {
            return listed;
        }
        let mut frame = self.block(&step.name).block("finally");
        if !matches!(listed.end, Ok(Flow::Value(_))) {
            // It is done in any case: after a failure, a stop and a cancel too.
            frame = frame.cleaning_up();
        }
        let finally = frame.list(&tried.finally, listed.fresh).await;
        match (&listed.end, finally.end) {
            // The first failure is told.
            (Err(_), _) | (Ok(_), Ok(Flow::Value(_) | Flow::Stopped)) => {
                Listed { fresh: finally.fresh, ..listed }
            }
            (Ok(_), end) => Listed { end, fresh: finally.fresh },
        }
    }

    /// The steps, and what is done about their failure.
    async fn caught(&self, step: &'d DefinedStep, tried: &'d Try, fresh: bool) -> Listed {
        let mark = format!("{} (failed)", step.name);
        let (failure, fresh) = match self.ctx.earlier::<Caught>(&mark) {
            Err(fail) => return Listed::failed(self.broken(&step.name)(fail), fresh),
            // The failure was caught or undone before the run was retried: what followed it has happened, so it stays.
            Ok(Some(error)) => (FailedTry { error, is_kept: true }, fresh),
            Ok(None) => {
                let undo = self.undo.inside(&tried.steps);
                let inside = Frame { undo: undo.clone(), ..self.block(&step.name) };
                let listed = inside.list(&tried.steps, fresh).await;
                match listed.end {
                    Err(broken) if !broken.is_cancelled() => {
                        match self.taken_back(&mark, broken.caught(), &undo).await {
                            Ok(failure) => (failure, listed.fresh),
                            Err(fail) => return Listed::failed(self.broken(&mark)(fail), listed.fresh),
                        }
                    }
                    end => return Listed { end, ..listed },
                }
            }
        };
        self.handled(step, tried, &mark, failure, fresh).await
    }

    /// Undoes what has completed. That it is undone is known for ever.
    async fn taken_back(&self, mark: &str, error: Caught, undo: &UndoList<'d>) -> Result<FailedTry> {
        if undo.is_empty() {
            return Ok(FailedTry { error, is_kept: false });
        }
        let error = keep_for_ever(&self.ctx.cleanup(), mark, error).await?;
        undo.take_back(self.execution).await;
        Ok(FailedTry { error, is_kept: true })
    }

    /// Executes the case of `catch` that applies. That the failure is caught is known for ever, because the steps of the case follow
    /// from it. A failure that nothing catches is tried again by a retry of the run.
    async fn handled(
        &self,
        step: &'d DefinedStep,
        tried: &'d Try,
        mark: &str,
        FailedTry { error, is_kept }: FailedTry,
        fresh: bool,
    ) -> Listed {
        let visible = self.visible.inside(vec![("error".to_owned(), Data::of_json(&error.json()))]);
        // In the scope of the `try`: inside of `catch` its name could be that of a step.
        let beside = Frame { visible: visible.clone(), ..self.clone() };
        let case = match beside.decide(&format!("{} (caught)", step.name), &tried.catch).await {
            Err(fail) => return Listed::failed(self.broken(&step.name)(fail), fresh),
            Ok(None) => return Listed::failed(error.into_broken(), fresh),
            Ok(Some(case)) => &tried.catch[case].steps,
        };
        if !is_kept && let Err(fail) = keep_for_ever(&self.ctx.cleanup(), mark, error).await {
            return Listed::failed(self.broken(mark)(fail), fresh);
        }
        let frame = Frame { visible, undo: self.undo.inside(case), ..self.block(&step.name).block("catch") };
        frame.list(case, fresh).await
    }
}

/// A failure of the steps of a `try`, and whether it is kept for ever that they have failed.
struct FailedTry {
    error: Caught,
    is_kept: bool,
}
