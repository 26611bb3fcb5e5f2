//! `return`: ends the run with a result.

use semel::fatal;
use semel::rules::json::Payload;

use super::{Executing, Kind, TaskCall, TaskEnd, nothing, without_effect};
use crate::definitions::shape::Shape;

pub(super) static KIND: Kind = Kind {
    name: "return",
    about: "Ends the run with this result.",
    args: Shape::Any,
    on: &[],
    tries: false,
    class: without_effect,
    check: nothing,
    execute,
};

fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(async move {
        let result = Payload::of(&call.args()?).map_err(|refused| fatal(refused).with_code("TOO_LARGE"))?;
        Ok(TaskEnd::Return(result))
    })
}
