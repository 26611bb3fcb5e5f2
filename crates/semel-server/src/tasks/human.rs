//! `human`: a form that a person fills in.

use super::{Checks, Kind, people, without_effect};
use crate::definitions::shape::{Field, Shape};
use crate::definitions::template::Template;

pub(super) static KIND: Kind = Kind {
    name: "human",
    about: "Asks a person to fill in a form. Its value is `{content, comment?, by, at}`.",
    args: Shape::Object(&[
        Field::required("title", Shape::Text, "What is asked, in a line."),
        Field::required(
            "form",
            Shape::Schema,
            "JSON Schema of the answer; what does not fit is not accepted.",
        ),
        Field::new("content", Shape::Any, "What the person is shown."),
        Field::new(
            "by",
            Shape::List(&Shape::Name),
            "Roles that may answer; all that may decide at all if absent.",
        ),
        Field::new(
            "timeout",
            Shape::Duration,
            "Time after which the step fails with `TIMEOUT`; 90 days, which is also the maximum, if absent.",
        ),
    ]),
    on: &[],
    tries: false,
    class: without_effect,
    check,
    execute: people::execute,
};

fn check(args: &Template, checks: &mut Checks<'_>) {
    people::check_timeout(args, checks);
}
