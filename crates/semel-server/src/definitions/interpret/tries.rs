//! `try`: what is done about a failure, and in any case.

use semel::sabotage::{self, Bug};

use super::broken::{Broken, Caught};
use super::frame::{Flow, Frame, Listed};
use super::undo::UndoList;
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
        let (error, fresh) = match self.ctx.earlier::<Caught>(&mark) {
            Err(fail) => return Listed::failed(self.broken(&step.name)(fail), fresh),
            // The run has been retried, and had handled this failure before: its steps are not tried again.
            Ok(Some(error)) => (error, fresh),
            Ok(None) => {
                let undo = self.undo.inside(&tried.steps);
                let inside = Frame { undo: undo.clone(), ..self.block(&step.name) };
                let listed = inside.list(&tried.steps, fresh).await;
                match listed.end {
                    Err(broken) if !broken.is_cancelled() => {
                        match self.given_up(&mark, broken, &undo).await {
                            Ok(error) => (error, listed.fresh),
                            Err(broken) => return Listed::failed(broken, listed.fresh),
                        }
                    }
                    end => return Listed { end, ..listed },
                }
            }
        };
        let names = vec![("error".to_owned(), Data::of_json(&error.json()))];
        let block = self.block(&step.name);
        let visible = self.visible.inside(names);
        let frame = Frame { visible, ..block.block("catch") };
        match frame.case_of(&tried.catch, &step.name) {
            Err(broken) => Listed::failed(broken, fresh),
            Ok(None) => Listed::failed(error.into_broken(), fresh),
            Ok(Some(case)) => {
                let steps = &tried.catch[case].steps;
                Frame { undo: self.undo.inside(steps), ..frame }.list(steps, fresh).await
            }
        }
    }

    /// Records that the steps have failed, and undoes what of them has completed.
    async fn given_up(&self, mark: &str, broken: Broken, undo: &UndoList<'d>) -> Result<Caught, Broken> {
        let path = self.path_of(mark);
        let error = self.ctx.cleanup().record(mark, broken.caught()).await;
        let error = error.map_err(|fail| Broken::new(fail, path))?;
        undo.take_back(self.execution).await;
        Ok(error)
    }
}
