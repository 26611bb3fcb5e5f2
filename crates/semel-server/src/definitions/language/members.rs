//! The members of the language's own objects.

use crate::definitions::limits;
use crate::definitions::shape::{Field, Shape};

/// Members of a definition.
pub(crate) const DEFINITION: [Field; 10] = [
    Field::required("semel", Shape::Integer(1, 1), "Version of the language: 1."),
    Field::required("name", Shape::Name, "Name of the definition; its runs have it as their workflow."),
    Field::new("version", Shape::Fixed, "Label of this version; the next whole number if absent."),
    Field::new("description", Shape::Fixed, "What it is for."),
    Field::new("input", Shape::Schema, "JSON Schema of the input; a start that does not fit is refused."),
    Field::new(
        "hooks",
        Shape::Map(&Shape::Text),
        "Hooks that are open from the start of the run: names and tokens.",
    ),
    Field::new("timeout", Shape::Duration, "Time after which the run fails; never if absent."),
    Field::new(
        "retention",
        Shape::Duration,
        "How long key and history are remembered after the end of the run.",
    ),
    Field::required("steps", Shape::Steps, "What it does, one step after the other."),
    Field::new("return", Shape::Any, "Result of the run; the value of the last step if absent."),
];

/// Members of every step, beside its task or block.
pub(crate) const STEP: [Field; 10] = [
    Field::required(
        "name",
        Shape::Name,
        "Name of the step, unique in its list. It is the identity of its effect.",
    ),
    Field::new("if", Shape::Condition, "Condition; the step is skipped if it is false."),
    Field::new("retry", Shape::Object(&RETRY), "Attempts and pauses after failures that may pass."),
    Field::new("timeout", Shape::Duration, "Maximum duration of an attempt."),
    Field::new("keep", Shape::Any, "What is recorded, made of `this`; all of the value if absent."),
    Field::new(
        "undo",
        Shape::Steps,
        "Steps that undo this one if the run fails or is cancelled gracefully later.",
    ),
    Field::new("class", Shape::Word(&["at-most-once"]), "Makes the effect stricter: it is never repeated."),
    Field::new("steps", Shape::Steps, "Steps of a pass, with `for_each` and `loop`."),
    Field::new("catch", Shape::List(&Shape::Object(&CATCH)), "What is done about a failure, with `try`."),
    Field::new("finally", Shape::Steps, "What is done in any case, with `try`."),
];

/// Members of `retry`.
pub(crate) const RETRY: [Field; 5] = [
    Field::new(
        "attempts",
        Shape::TextOr(&Shape::Word(&["for-ever"]), &Shape::Integer(1, limits::ATTEMPTS)),
        "Maximum number of attempts, the first included, or `for-ever`; 3 if absent.",
    ),
    Field::new("first", Shape::Duration, "Pause after the first attempt; 1s if absent."),
    Field::new("factor", Shape::Number(1.0, 10.0), "Factor by which each pause is longer; 2 if absent."),
    Field::new("most", Shape::Duration, "Maximum length of a pause; 1m if absent."),
    Field::new("jitter", Shape::Number(0.0, 1.0), "Share of a pause that is random; 0.5 if absent."),
];

/// Members of `for_each`.
pub(crate) const FOR_EACH: [Field; 5] = [
    Field::required("in", Shape::Items, "The list."),
    Field::new("as", Shape::Fixed, "Name of the element in expressions; `item` if absent."),
    Field::new("key", Shape::Text, "Key of a pass, which must be unique; the index if absent."),
    Field::new(
        "parallel",
        Shape::Integer(1, limits::PARALLEL as i64),
        "Passes at the same time; 1 if absent.",
    ),
    Field::new(
        "most",
        Shape::Integer(1, limits::PASSES as i64),
        "Maximum number of passes; 10,000 if absent.",
    ),
];

/// Members of `loop`.
pub(crate) const LOOP: [Field; 3] = [
    Field::new("while", Shape::Condition, "Looked at before each pass: goes on while it is true."),
    Field::new("until", Shape::Condition, "Looked at after each pass: ends when it is true."),
    Field::required("most", Shape::Integer(1, limits::PASSES as i64), "Maximum number of passes."),
];

/// Members of a case of `switch`.
pub(crate) const CASE: [Field; 2] = [
    Field::new("when", Shape::Condition, "Condition; only the last case may have none."),
    Field::required("steps", Shape::Steps, "Steps of the case."),
];

/// Members of a case of `catch`.
pub(crate) const CATCH: [Field; 2] = [
    Field::new("when", Shape::Condition, "Condition on `error`; any failure if absent."),
    Field::required("steps", Shape::Steps, "Steps of the case."),
];

/// The blocks, with what stands under their names.
pub(crate) const BLOCKS: [Field; 6] = [
    Field::new(
        "parallel",
        Shape::Map(&Shape::Steps),
        "Branches side by side; its value is an object by their names.",
    ),
    Field::new(
        "for_each",
        Shape::Object(&FOR_EACH),
        "`steps` for each element of a list; its value is a list.",
    ),
    Field::new("loop", Shape::Object(&LOOP), "`steps` again and again; its value is a list."),
    Field::new("switch", Shape::List(&Shape::Object(&CASE)), "The first case whose condition is true."),
    Field::new(
        "try",
        Shape::Steps,
        "Steps whose failure is caught by `catch`; `finally` is done in any case.",
    ),
    Field::new("transaction", Shape::Steps, "Statements that take place together or not at all."),
];
