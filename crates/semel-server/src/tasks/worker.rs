//! `worker`: a step that a worker of a queue does, in any language.

use semel::rules::json::Payload;
use serde_json::Value as Json;

use super::{Checks, Executing, Kind, TaskCall, keyed};
use crate::definitions::shape::{Field, Shape};
use crate::definitions::template::{Template, check_name};

pub(super) static KIND: Kind = Kind {
    name: "worker",
    about: "Hands the step to any worker of a queue. Its value is the worker's result.",
    args: Shape::Object(&[
        Field::required("queue", Shape::Fixed, "Queue that the workers serve."),
        Field::new("input", Shape::Any, "Input of the task; null if absent."),
    ]),
    on: &[],
    tries: true,
    class: keyed,
    check,
    execute,
};

fn check(args: &Template, checks: &mut Checks<'_>) {
    if checks.step.at_most_once {
        let hint =
            "a worker that dies is followed by another one: let it pass the effect key on to what it calls";
        checks.refuse(
            &checks.step.at.clone(),
            "the step cannot be at most once: a queue hands it out again",
            hint,
        );
    }
    let Some((queue, text)) = args.get("queue").and_then(|queue| Some((queue, queue.text()?))) else {
        return;
    };
    if let Err(why) = check_name(text) {
        checks.refuse(&queue.at, why, "name the queue as its workers do");
    }
}

fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(async move {
        let args = call.args_before()?;
        let queue = args["queue"].as_str().unwrap_or_default();
        let input = args.get("input").unwrap_or(&Json::Null);
        let mut remote = call.ctx.remote::<Payload>(&*call.step.name, queue, input);
        if let Some(retry) = &call.step.retry {
            remote = remote.retry(*retry);
        }
        if let Some(timeout) = call.step.timeout {
            remote = remote.timeout(timeout);
        }
        Ok(call.of_recorded(remote.await?))
    })
}
