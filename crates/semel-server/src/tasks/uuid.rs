//! `uuid`: an id, recorded.

use serde_json::Value as Json;

use super::{Executing, Kind, TaskCall, TaskEnd, nothing, without_effect};
use crate::definitions::shape::Shape;

pub(super) static KIND: Kind = Kind {
    name: "uuid",
    about: "Records a new UUID. Its value is a text, the same in every replay.",
    args: Shape::Nothing,
    on: &[],
    tries: false,
    class: without_effect,
    check: nothing,
    execute,
};

fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(async move {
        let id = call.ctx.uuid(&*call.step.name).await?;
        TaskEnd::value(&Json::String(id.to_string()))
    })
}
