//! A list of steps in execution.

use jiff::Timestamp;
use semel::clock::Time;
use semel::rules::json::Payload;
use semel::{Ctx, Result, fatal};
use serde_json::Value as Json;

use super::broken::{Broken, too_large};
use super::stop::ListStop;
use super::undo::UndoList;
use super::visible::Visible;
use super::{Doing, Execution};
use crate::definitions::expression::Data;
use crate::definitions::language::{DefinedStep, StepBody};
use crate::definitions::template::Template;
use crate::tasks::{Kind, TaskCall, TaskEnd, evaluated, not_evaluated};
use semel::error::failure_code;

/// Where a list of steps is executed. Clones are the same place.
#[derive(Clone)]
pub(super) struct Frame<'d> {
    pub(super) execution: &'d Execution,
    /// The run, in the scope of the blocks around.
    pub(super) ctx: Ctx,
    /// Path of that scope with a `/` at its end; empty at the top.
    pub(super) path: String,
    pub(super) visible: Visible,
    /// Raised when the list has to end early; none where nothing runs beside it.
    pub(super) stop: Option<ListStop>,
    /// Where completed steps are noted that have an `undo`.
    pub(super) undo: UndoList<'d>,
}

/// The result of a list or a block.
pub(super) enum Flow {
    /// It has this value.
    Value(StepValue),
    /// The run ends with this result.
    Return(Payload),
    /// It ended early, because another branch had failed or had ended the run.
    Stopped,
}

/// The value of a step: as expressions read it, and, of a task, as it is recorded.
#[derive(Clone)]
pub(super) struct StepValue {
    pub(super) data: Data,
    payload: Option<Payload>,
    /// Whether the task has shaped it as `keep` says.
    is_kept: bool,
}

/// How a list or a block ended.
pub(super) struct Listed {
    pub(super) end: Result<Flow, Broken>,
    /// Whether what comes next cannot have begun in an earlier execution.
    pub(super) fresh: bool,
}

impl StepValue {
    pub(super) fn of_payload(payload: Payload) -> Self {
        Self { data: Data::of_payload(&payload), payload: Some(payload), is_kept: false }
    }

    pub(super) fn of_data(data: Data) -> Self {
        Self { data, payload: None, is_kept: false }
    }

    fn of_json(value: &Json) -> Self {
        Self::of_data(Data::of_json(value))
    }

    pub(super) fn null() -> Self {
        Self::of_json(&Json::Null)
    }

    /// The value as the result of a run.
    pub(super) fn payload(self) -> Result<Payload, Broken> {
        let made = || match self.data.json() {
            Ok(value) => too_large(&value),
            Err(failed) => Err(fatal(failed.message).with_code(failure_code::EXPRESSION)),
        };
        self.payload.clone().map_or_else(made, Ok).map_err(|fail| Broken::new(fail, "the result"))
    }
}

impl Listed {
    pub(super) fn failed(broken: Broken, fresh: bool) -> Self {
        Self { end: Err(broken), fresh }
    }
}

impl<'d> Frame<'d> {
    /// The steps of a definition.
    pub(super) fn top(execution: &'d Execution, ctx: Ctx, visible: Visible, undo: &UndoList<'d>) -> Self {
        Self { execution, ctx, path: String::new(), visible, stop: None, undo: undo.clone() }
    }

    /// The same place inside a block: its names, and a scope of its own.
    pub(super) fn block(&self, name: &str) -> Self {
        Self {
            ctx: self.ctx.scope(name),
            path: format!("{}{name}/", self.path),
            visible: self.visible.inside(Vec::new()),
            ..self.clone()
        }
    }

    /// The same place for steps that are done although the run has failed, or was asked to end.
    pub(super) fn cleaning_up(&self) -> Self {
        Self { ctx: self.ctx.cleanup(), stop: None, undo: UndoList::default(), ..self.clone() }
    }

    /// The place of one pass of a block.
    pub(super) fn pass(&self, name: &str, key: &str, visible: Visible) -> Self {
        Self {
            ctx: self.ctx.scope_keyed(name, key),
            path: format!("{}{name}[{key}]/", self.path),
            visible,
            ..self.clone()
        }
    }

    /// Path of a step in this list.
    pub(super) fn path_of(&self, step: &str) -> String {
        format!("{}{step}", self.path)
    }

    /// A failure of a step in this list.
    pub(super) fn broken(&self, step: &str) -> impl FnOnce(semel::Fail) -> Broken {
        let path = self.path_of(step);
        move |fail| Broken::new(fail, path)
    }

    /// Evaluates something that belongs to a step.
    pub(super) fn evaluated(&self, template: &Template, step: &str) -> Result<Json, Broken> {
        evaluated(template, &self.visible.data()).map_err(self.broken(step))
    }

    /// Evaluates the result of the run.
    pub(super) fn result(&self, returns: &Template) -> Result<Payload, Broken> {
        let value = evaluated(returns, &self.visible.data());
        value.and_then(|value| too_large(&value)).map_err(|fail| Broken::new(fail, "return"))
    }

    /// Executes steps, one after the other. The value is that of the last one that takes place.
    pub(super) fn list(&self, steps: &'d [DefinedStep], fresh: bool) -> Doing<'d, Listed> {
        let frame = self.clone();
        Box::pin(async move {
            let (mut last, mut fresh) = (StepValue::null(), fresh);
            for step in steps {
                if let Some(stop) = &frame.stop {
                    match stop.ends_before(&frame.ctx, &step.name, fresh).await {
                        Ok(false) => {}
                        Ok(true) => return Listed { end: Ok(Flow::Stopped), fresh },
                        Err(fail) => return Listed::failed(frame.broken(&step.name)(fail), fresh),
                    }
                }
                let listed = frame.step(step, fresh).await;
                fresh = listed.fresh;
                match listed.end {
                    Ok(Some(Flow::Value(value))) => {
                        frame.visible.add(&step.name, value.data.clone());
                        last = value;
                    }
                    Ok(None) => {}
                    Ok(Some(flow)) => return Listed { end: Ok(flow), fresh },
                    Err(broken) => return Listed::failed(broken, fresh),
                }
            }
            Listed { end: Ok(Flow::Value(last)), fresh }
        })
    }

    /// Executes one step; without a flow if it is skipped.
    async fn step(&self, step: &'d DefinedStep, fresh: bool) -> Stepped {
        let name = &*step.name;
        match self.applies(step).await {
            Ok(true) => {}
            Ok(false) => return Stepped { end: Ok(None), fresh },
            Err(fail) => return Stepped { end: Err(self.broken(name)(fail)), fresh },
        }
        let listed = match &step.body {
            StepBody::Task(kind, args) => self.task(step, kind, args).await,
            _ => self.block_of(step, fresh).await,
        };
        let end = match listed.end {
            Ok(Flow::Value(value)) => {
                // It has taken place, whatever becomes of its value.
                self.note_completed(step);
                self.kept(step, value).map(|value| Some(Flow::Value(value)))
            }
            Ok(flow) => Ok(Some(flow)),
            Err(broken) => Err(broken),
        };
        Stepped { end, fresh: listed.fresh }
    }

    /// Whether the step takes place; that it does not is recorded.
    async fn applies(&self, step: &DefinedStep) -> Result<bool> {
        self.execution.count_step()?;
        let Some(condition) = &step.condition else { return Ok(true) };
        if condition.is_true(&self.visible.data()).map_err(not_evaluated)? {
            return Ok(true);
        }
        self.ctx.skip(&step.name, "its condition is false").await?;
        Ok(false)
    }

    async fn task(&self, step: &'d DefinedStep, kind: &'static Kind, args: &'d Template) -> Listed {
        let fresh = !self.ctx.is_replaying();
        let names = self.visible.data();
        let hooks = &self.execution.hooks;
        let ended = (kind.execute)(TaskCall { ctx: &self.ctx, step, args, scope: &names, hooks }).await;
        let end = match ended {
            Ok(TaskEnd::Return(result)) => Ok(Flow::Return(result)),
            Ok(TaskEnd::Value(value)) => Ok(Flow::Value(StepValue::of_payload(value))),
            Ok(TaskEnd::Kept(value)) => {
                Ok(Flow::Value(StepValue { is_kept: true, ..StepValue::of_payload(value) }))
            }
            Ok(TaskEnd::Set(members)) => {
                let value = StepValue::of_json(&Json::Object(members.clone()));
                self.visible.set(members);
                Ok(Flow::Value(value))
            }
            Ok(TaskEnd::Refused(refused)) => {
                // Its effect took place, so it is undone.
                self.note_completed(step);
                Err(self.broken(&step.name)(refused.fail()))
            }
            Err(fail) => Err(self.broken(&step.name)(fail)),
        };
        Listed { end, fresh }
    }

    fn note_completed(&self, step: &'d DefinedStep) {
        if !step.undo.is_empty() {
            self.undo.completed(step, self);
        }
    }

    /// What expressions see of the value: `keep` shapes it.
    fn kept(&self, step: &DefinedStep, value: StepValue) -> Result<StepValue, Broken> {
        let Some(keep) = step.keep.as_ref().filter(|_| !value.is_kept) else { return Ok(value) };
        let names = self.visible.data().with("this", value.data);
        let kept = evaluated(keep, &names).map_err(self.broken(&step.name))?;
        Ok(StepValue::of_json(&kept))
    }
}

/// How one step ended; without a flow if it was skipped.
struct Stepped {
    end: Result<Option<Flow>, Broken>,
    fresh: bool,
}

/// A time as expressions read it.
pub(super) fn rfc3339(time: Time) -> Result<String> {
    Ok(Timestamp::from_millisecond(time.0).map_err(fatal)?.to_string())
}
