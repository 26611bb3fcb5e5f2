//! One execution of a task: what it is given, and what it gives back.

use std::collections::BTreeMap;
use std::pin::Pin;

use semel::rules::json::Payload;
use semel::sdk::Step;
use semel::{Attempt, Ctx, Fail, Result, fatal};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use crate::connections::RESULT;
use crate::definitions::expression::Data;
use crate::definitions::interpret::OpenHooks;
use crate::definitions::language::DefinedStep;
use crate::definitions::limits;
use crate::definitions::template::{FailedAt, Template};
use crate::tasks::ModelUse;

/// A task in execution.
pub type Executing<'a> = Pin<Box<dyn Future<Output = Result<TaskEnd>> + Send + 'a>>;

/// What a task is given. What it needs of the server is state of the engine: `ctx.state::<T>()`.
#[derive(Clone, Copy, Debug)]
pub struct TaskCall<'a> {
    /// The run, in the scope of the blocks around the step.
    pub ctx: &'a Ctx,
    /// The step: its name, retries, timeout and class.
    pub step: &'a DefinedStep,
    /// Arguments of the task, not evaluated yet.
    pub args: &'a Template,
    /// The names that expressions of the step can read.
    pub scope: &'a Data,
    /// The hooks of the definition.
    pub hooks: &'a OpenHooks,
}

/// The result of a task.
#[derive(Clone, Debug)]
pub enum TaskEnd {
    /// The step has this value.
    Value(Payload),
    /// The step has this value, which the task has shaped as `keep` says before it was recorded.
    Kept(Payload),
    /// The step has this value, and its members are variables from now on.
    Set(Map<String, Json>),
    /// The run ends with this result.
    Return(Payload),
    /// The effect took place and the step is completed, but its result is refused: the run goes on as after a failure, except
    /// that the step is undone like any other that has completed, and never repeated.
    Refused(RefusedResult),
}

/// Why the result of an effect that took place is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedResult {
    /// Code of the failure, such as `EXPRESSION`.
    pub code: String,
    /// What is wrong with the result, for people.
    pub message: String,
    /// Details of the failure; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Payload>,
}

impl RefusedResult {
    fn of(fail: &Fail) -> Self {
        let code = fail.code().unwrap_or("EXPRESSION").to_owned();
        Self { code, message: fail.to_string(), data: fail.data().cloned() }
    }

    /// The failure that the workflow sees.
    pub fn fail(&self) -> Fail {
        let fail = fatal(&self.message).with_code(&*self.code);
        match &self.data {
            Some(data) => fail.with_data(data),
            None => fail,
        }
    }
}

/// Member under which a refused result is recorded.
const REFUSED: &str = "semel:refused";
/// Member under which a value is recorded that looks like one of ours.
const VALUE: &str = "semel:value";

/// What a step records whose effect took place: its value, or that its value is refused. [`read`] is its inverse.
pub fn record(kept: Result<Payload>) -> Result<Payload> {
    let recorded = match kept {
        Ok(value) if is_wrapped(&value) || ModelUse::of(&value).is_some() => {
            Payload::of(&BTreeMap::from([(VALUE, value)]))
        }
        Ok(value) => return Ok(value),
        Err(fail) => Payload::of(&BTreeMap::from([(REFUSED, RefusedResult::of(&fail))])),
    };
    recorded.map_err(|refused| fatal(refused).with_code("TOO_LARGE"))
}

/// What a recorded value says about the end of a task. [`record`] has written it.
pub fn read(recorded: Payload) -> Result<TaskEnd> {
    #[derive(Deserialize)]
    enum Wrapped {
        #[serde(rename = "semel:value")]
        Value(Payload),
        #[serde(rename = "semel:refused")]
        Refused(RefusedResult),
    }
    if !is_wrapped(&recorded) {
        return Ok(TaskEnd::Kept(recorded));
    }
    Ok(match recorded.read::<Wrapped>().map_err(fatal)? {
        Wrapped::Value(value) => TaskEnd::Kept(value),
        Wrapped::Refused(refused) => TaskEnd::Refused(refused),
    })
}

/// Whether a value is an object whose only member is one of ours.
fn is_wrapped(value: &Payload) -> bool {
    let text = value.text().trim_start();
    text.starts_with('{')
        && text[1..].trim_start().starts_with("\"semel:")
        && value.read::<Map<String, Json>>().is_ok_and(|members| {
            members.len() == 1 && (members.contains_key(REFUSED) || members.contains_key(VALUE))
        })
}

impl TaskEnd {
    /// The step has this value.
    pub fn value(value: &Json) -> Result<Self> {
        Payload::of(value).map(Self::Value).map_err(|refused| fatal(refused).with_code("TOO_LARGE"))
    }
}

impl TaskCall<'_> {
    /// Evaluates all arguments of a task without an effect: `effect.key` is not known in them.
    pub fn args(&self) -> Result<Json> {
        evaluated(self.args, self.scope)
    }

    /// Evaluates all arguments of a task that has an effect. They are the same on every attempt.
    pub fn args_of(&self, attempt: &Attempt) -> Result<Json> {
        evaluated(self.args, &self.scope_of(attempt))
    }

    /// The same arguments for a task that needs them before its step begins.
    pub fn args_before(&self) -> Result<Json> {
        evaluated(self.args, &self.scope_before()?)
    }

    /// The names that arguments of a task with an effect can read: `effect.key` too.
    pub fn scope_of(&self, attempt: &Attempt) -> Data {
        self.with_key(attempt.key())
    }

    /// The same names before the step begins.
    pub fn scope_before(&self) -> Result<Data> {
        Ok(self.with_key(&self.ctx.effect_key(&self.step.name)?))
    }

    fn with_key(&self, key: &str) -> Data {
        self.scope.with("effect", Data::of_json(&json!({"key": key})))
    }

    /// The step of the engine, with the retries, the timeout and the class that the definition says.
    pub fn begin(&self) -> Step {
        let step = self.begin_untimed();
        let step = match self.step.timeout {
            Some(timeout) => step.timeout(timeout),
            None => step,
        };
        if self.step.at_most_once { step.at_most_once() } else { step }
    }

    /// The step of the engine with the retries that the definition says: for tasks that keep the time themselves, since they know
    /// whether something was sent by then, and that decide the class themselves.
    pub fn begin_untimed(&self) -> Step {
        let step = self.ctx.step(&*self.step.name);
        match &self.step.retry {
            Some(retry) => step.retry(*retry),
            None => step,
        }
    }

    /// What is recorded of a value: all of it, or what `keep` makes of it, if that is not larger than `most` bytes.
    pub fn keep(&self, attempt: &Attempt, value: Payload, most: usize) -> Result<Payload> {
        self.kept(&self.scope_of(attempt), value, most)
    }

    /// The value of a step that something else has recorded as a whole, such as a child: what `keep` makes of it, in each replay, within
    /// the size of a result.
    pub fn of_recorded(&self, value: Payload) -> TaskEnd {
        match self.kept(self.scope, value, RESULT) {
            Ok(value) => TaskEnd::Kept(value),
            Err(fail) => TaskEnd::Refused(RefusedResult::of(&fail)),
        }
    }

    fn kept(&self, scope: &Data, value: Payload, most: usize) -> Result<Payload> {
        let kept = match &self.step.keep {
            Some(keep) => {
                let scope = scope.with("this", Data::of_payload(&value));
                let kept = evaluated(keep, &scope)?;
                Payload::of(&kept).map_err(|refused| fatal(refused).with_code("TOO_LARGE"))?
            }
            None => value,
        };
        bounded(kept, most)
    }
}

/// A result that is recorded, if it is not larger than `most` bytes.
pub(super) fn bounded(kept: Payload, most: usize) -> Result<Payload> {
    match kept.text().len() {
        size if size > most => {
            let message = format!(
                "the result has {size} bytes, and at most {most} are recorded: shorten it with `keep`"
            );
            Err(fatal(message).with_code("TOO_LARGE"))
        }
        _ => Ok(kept),
    }
}

/// Evaluates a value; an expression without one is an error of the author that no other attempt mends.
pub fn evaluated(template: &Template, scope: &Data) -> Result<Json> {
    template.evaluate(scope).map_err(not_evaluated)
}

/// The failure of an expression: `EXPRESSION`, with its place in the definition.
pub fn not_evaluated(failed: FailedAt) -> Fail {
    let FailedAt { pointer, source, failed } = failed;
    let short: String = source.chars().take(limits::EXPRESSION_SHOWN).collect();
    fatal(format!("{pointer}: {}: {short}", failed.message))
        .with_code("EXPRESSION")
        .with_data(&json!({"pointer": pointer, "expression": short}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(text: &str) -> Payload {
        Payload::parse(text).unwrap()
    }

    #[test]
    fn a_value_is_read_as_it_was_recorded_whatever_it_looks_like() {
        for text in [
            "7",
            "null",
            r#"{"a":1.10000000000000000001}"#,
            r#"{"semel:refused":{"code":"X","message":"y"}}"#,
            r#"{"semel:value":7}"#,
            r#"{"semel:value":7,"b":1}"#,
        ] {
            let recorded = record(Ok(payload(text))).unwrap();
            let TaskEnd::Kept(value) = read(recorded).unwrap() else { panic!("{text} is a value") };
            assert_eq!(value.text(), text);
        }
    }

    #[test]
    fn a_refused_result_is_a_failure_of_a_completed_step() {
        let fail = fatal("`this.body.id` is not there")
            .with_code("EXPRESSION")
            .with_data(&json!({"pointer": "/steps/0/keep"}));
        let recorded = record(Err(fail)).unwrap();
        let TaskEnd::Refused(refused) = read(recorded).unwrap() else { panic!("it is refused") };
        let fail = refused.fail();
        assert_eq!((fail.code(), fail.is_fatal()), (Some("EXPRESSION"), true));
        assert!(fail.data().unwrap().text().contains("/steps/0/keep"));
    }
}
