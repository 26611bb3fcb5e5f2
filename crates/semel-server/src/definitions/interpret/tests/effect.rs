//! An effect of tests: `worker: {queue: name, input: value}` calls a counting provider and gives the input back.

use std::sync::{Arc, Mutex};

use semel::testing::Effects;
use semel::{Result, fatal};
use serde_json::Value as Json;

use crate::definitions::language::{DefinedStep, StepBody};
use crate::definitions::shape::Shape;
use crate::tasks::{Class, Executing, Kind, TaskCall, TaskEnd};

/// A provider, and in which order it did what. It survives every crash.
#[derive(Clone, Debug, Default)]
pub(super) struct Doings {
    pub(super) effects: Effects,
    order: Arc<Mutex<Vec<(String, String)>>>,
}

impl Doings {
    fn apply(&self, name: &str, key: &str) -> Result<()> {
        let done = (name.to_owned(), key.to_owned());
        let mut order = self.order.lock().unwrap();
        if !order.contains(&done) {
            order.push(done);
        }
        drop(order);
        self.effects.apply(name, key).map(drop)
    }

    /// The names of all effects, in the order in which they first took place.
    pub(super) fn order(&self) -> Vec<String> {
        self.order.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
    }
}

static EFFECT: Kind = Kind {
    name: "worker",
    about: "Calls a provider that counts.",
    args: Shape::Any,
    on: &[],
    tries: true,
    class: |_| Class::Keyed,
    check: |_, _| {},
    execute,
};

/// With the input `{fail: CODE}` nothing is done, and the step finally fails.
fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(async move {
        let doings = call.ctx.state::<Doings>();
        let done: Json = call
            .begin()
            .run(async |attempt| {
                let args = call.args_of(&attempt)?;
                let input = args.get("input").cloned().unwrap_or_default();
                if let Some(code) = input.get("fail").and_then(Json::as_str) {
                    return Err(fatal("it was told to fail").with_code(code));
                }
                doings.apply(args["queue"].as_str().unwrap(), attempt.key())?;
                Ok(input)
            })
            .await?;
        TaskEnd::value(&done)
    })
}

/// Makes the workers of all steps effects.
pub(super) fn replace_workers(steps: &mut [DefinedStep]) {
    for step in steps {
        replace_workers(&mut step.undo);
        match &mut step.body {
            StepBody::Task(kind, _) if kind.name == "worker" => *kind = &EFFECT,
            StepBody::Parallel(branches) => branches.iter_mut().for_each(|(_, steps)| replace_workers(steps)),
            StepBody::ForEach(each) => replace_workers(&mut each.steps),
            StepBody::Loop(looped) => replace_workers(&mut looped.steps),
            StepBody::Switch(cases) => cases.iter_mut().for_each(|case| replace_workers(&mut case.steps)),
            StepBody::Try(tried) => {
                replace_workers(&mut tried.steps);
                tried.catch.iter_mut().for_each(|case| replace_workers(&mut case.steps));
                replace_workers(&mut tried.finally);
            }
            _ => {}
        }
    }
}
