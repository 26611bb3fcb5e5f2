//! `now`: the time, recorded.

use jiff::Timestamp;
use semel::fatal;
use serde_json::Value as Json;

use super::{Executing, Kind, TaskCall, TaskEnd, nothing, without_effect};
use crate::definitions::shape::Shape;

pub(super) static KIND: Kind = Kind {
    name: "now",
    about: "Records the time. Its value is a text in RFC 3339, the same in every replay.",
    args: Shape::Nothing,
    on: &[],
    tries: false,
    class: without_effect,
    check: nothing,
    execute,
};

fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(async move {
        let now = call.ctx.now(&*call.step.name).await?;
        let time = Timestamp::from_millisecond(now.0).map_err(fatal)?;
        TaskEnd::value(&Json::String(time.to_string()))
    })
}
