//! `wait`: a durable timer.

use std::time::Duration;

use semel::clock::Time;
use semel::{Result, fatal};
use serde_json::Value as Json;

use super::{Checks, Executing, Kind, TaskCall, TaskEnd, without_effect};
use crate::definitions::duration;
use crate::definitions::shape::{Field, Shape};
use crate::definitions::template::{Filled, Template};

pub(super) static KIND: Kind = Kind {
    name: "wait",
    about: "Waits: `wait: 5m`, or until a time. The run needs no memory meanwhile.",
    args: Shape::TextOr(
        &Shape::AnyDuration,
        &Shape::Object(&[
            Field::new("for", Shape::AnyDuration, "How long to wait."),
            Field::new(
                "until",
                Shape::Text,
                "Time until which to wait, in RFC 3339; a past one does not wait.",
            ),
        ]),
    ),
    on: &[],
    tries: false,
    class: without_effect,
    check,
    execute,
};

fn check(args: &Template, checks: &mut Checks<'_>) {
    if !matches!(args.value, Filled::Object(_)) {
        return;
    }
    let Some(("until", until)) = checks.exactly_one(args, &["for", "until"]) else { return };
    let Some(text) = until.text() else { return };
    if text.parse::<jiff::Timestamp>().is_err() {
        let hint = "write a time such as 2027-01-31T09:00:00Z";
        checks.refuse(&until.at, format!("`{text}` is no time in RFC 3339"), hint);
    }
}

fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(async move {
        let (args, name) = (call.args()?, &*call.step.name);
        match args.get("until") {
            Some(until) => call.ctx.sleep_until(name, time(until)?).await?,
            None => call.ctx.sleep(name, length(args.get("for").unwrap_or(&args))?).await?,
        }
        TaskEnd::value(&Json::Null)
    })
}

fn length(value: &Json) -> Result<Duration> {
    let text = value.as_str().ok_or_else(|| expression(value, "a duration such as `10s`"))?;
    duration::read(text).map_err(|why| fatal(why).with_code("EXPRESSION"))
}

fn time(value: &Json) -> Result<Time> {
    let wrong = || expression(value, "a time such as 2027-01-31T09:00:00Z");
    let time = value.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok()).ok_or_else(wrong)?;
    Ok(Time(time.as_millisecond()))
}

fn expression(value: &Json, expected: &str) -> semel::Fail {
    fatal(format!("{expected} is expected, and this is {value:.40}")).with_code("EXPRESSION")
}
