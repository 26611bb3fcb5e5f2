//! `event`: input from outside.

use semel::fatal;

use super::{Checks, Executing, Kind, TaskCall, without_effect};
use crate::definitions::interpret::{receive, token_text};
use crate::definitions::shape::{Field, Shape};
use crate::definitions::template::{Template, is_it};

pub(super) static KIND: Kind = Kind {
    name: "event",
    about: "Waits for a delivery. Its value is the payload.",
    args: Shape::Object(&[
        Field::new("hook", Shape::Name, "Hook of the definition, which is open from the start of the run."),
        Field::new("token", Shape::Text, "Token of a hook that is open only while the step waits."),
        Field::new(
            "timeout",
            Shape::Duration,
            "Time after which the step fails with `TIMEOUT`; never if absent.",
        ),
    ]),
    on: &[],
    tries: false,
    class: without_effect,
    check,
    execute,
};

fn check(args: &Template, checks: &mut Checks<'_>) {
    let Some(("hook", hook)) = checks.exactly_one(args, &["hook", "token"]) else { return };
    let Some(name) = hook.text().filter(|name| !checks.hooks.contains(name)) else { return };
    let near = crate::definitions::problem::nearest(name, checks.hooks.iter().copied());
    let hint =
        is_it(near).unwrap_or_else(|| "name it in `hooks` of the definition, with its token".to_owned());
    checks.refuse(&hook.at, format!("there is no hook `{name}`"), hint);
}

fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(async move {
        let limit = call.args.get("timeout").and_then(Template::duration);
        let payload = match call.args.get("hook").and_then(Template::text) {
            Some(hook) => call.hooks.next(hook, limit).await?,
            None => {
                let token = token_text(&call.args()?["token"])?;
                receive(&call.ctx.scope(&call.step.name), &token, limit).await?
            }
        };
        let payload = payload.ok_or_else(|| fatal("nothing was delivered in time").with_code("TIMEOUT"))?;
        Ok(call.of_recorded(payload))
    })
}
