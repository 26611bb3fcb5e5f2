//! `approval`: a person's yes or no.

use super::{Checks, Kind, people, without_effect};
use crate::definitions::shape::{Field, Shape};
use crate::definitions::template::Template;

pub(super) static KIND: Kind = Kind {
    name: "approval",
    about: "Asks a person. Its value is `{decision: approved | rejected | edited, content?, comment?, by, at}`.",
    args: Shape::Object(&[
        Field::required("title", Shape::Text, "What is asked, in a line."),
        Field::new("content", Shape::Any, "What is to be decided upon; `edited` gives it back changed."),
        Field::new(
            "by",
            Shape::List(&Shape::Name),
            "Roles that may decide; all that may decide at all if absent.",
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
