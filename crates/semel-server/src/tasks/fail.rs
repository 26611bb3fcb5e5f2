//! `fail`: an error of the author's own.

use semel::fatal;

use super::{Checks, Executing, Kind, TaskCall, without_effect};
use crate::definitions::shape::{Field, Shape};
use crate::definitions::template::Template;

/// Maximum length of a code, which is shown in lists and compared in `catch`.
const CODE: usize = 64;

pub(super) static KIND: Kind = Kind {
    name: "fail",
    about: "Fails with a code of the author's, up to the next `try`.",
    args: Shape::Object(&[
        Field::required("code", Shape::Fixed, "Code of the error, such as `REFUSED`."),
        Field::new("message", Shape::Text, "What went wrong, for people."),
        Field::new("data", Shape::Any, "What else a `catch` may want to know."),
    ]),
    on: &[],
    tries: false,
    class: without_effect,
    check,
    execute,
};

fn check(args: &Template, checks: &mut Checks<'_>) {
    let Some((code, text)) = args.get("code").and_then(|code| Some((code, code.text()?))) else { return };
    let spelled = text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    if !spelled || text.len() > CODE || !text.starts_with(|c: char| c.is_ascii_uppercase()) {
        let hint = "write it in capitals, such as `OUT_OF_STOCK`; at most 64 characters";
        checks.refuse(&code.at, format!("`{text}` is no code of an error"), hint);
    }
}

fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(async move {
        let args = call.args()?;
        let code = args["code"].as_str().unwrap_or_default();
        let fail = fatal(args["message"].as_str().unwrap_or(code)).with_code(code);
        Err(match args.get("data") {
            Some(data) => fail.with_data(data),
            None => fail,
        })
    })
}
