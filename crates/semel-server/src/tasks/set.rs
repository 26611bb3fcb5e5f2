//! `set`: values under names of the author's choice.

use serde_json::Value as Json;

use super::{Checks, Executing, Kind, TaskCall, TaskEnd, without_effect};
use crate::definitions::shape::Shape;
use crate::definitions::template::{Filled, Template};

pub(super) static KIND: Kind = Kind {
    name: "set",
    about: "Sets variables: `set: {total: \"{{ … }}\"}` is read as `vars.total`. Its value is the object.",
    args: Shape::Map(&Shape::Any),
    on: &[],
    tries: false,
    class: without_effect,
    check,
    execute,
};

fn check(args: &Template, checks: &mut Checks<'_>) {
    let Filled::Object(members) = &args.value else { return };
    if members.is_empty() {
        checks.refuse(&args.at, "nothing is set", "write names with their values");
    }
    for (name, value) in members {
        if !crate::definitions::language::is_identifier(name) {
            let hint = "a variable has letters, digits and `_`, and does not begin with a digit";
            checks.refuse(&value.at, format!("`{name}` is no name of a variable"), hint);
        }
    }
}

/// Recorded, so that the values stay as they were whatever the engine of expressions does later.
fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(async move {
        match call.ctx.record_with(&*call.step.name, || call.args()).await? {
            Json::Object(members) => Ok(TaskEnd::Set(members)),
            other => TaskEnd::value(&other),
        }
    })
}
