//! Failures of steps, as a definition sees them.

use semel::error::failure_code;
use semel::rules::entry::FailureKind;
use semel::rules::json::Payload;
use semel::{Fail, fatal};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

/// A failure on its way through the blocks around the step that failed.
#[derive(Debug)]
pub(super) struct Broken {
    fail: Fail,
    /// Path of the step that failed.
    step: String,
}

/// A failure as `error` in a `catch`, and as it is recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Caught {
    /// Code for programs, such as `DECLINED` or `TIMEOUT`.
    code: String,
    /// What went wrong, for people.
    message: String,
    /// Path of the step that failed.
    step: String,
    /// HTTP status; absent if the failure has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<Json>,
    /// What else the step said about it; absent if nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<Json>,
}

impl Broken {
    pub(super) fn new(fail: Fail, step: impl Into<String>) -> Self {
        Self { fail, step: step.into() }
    }

    /// Whether the run was asked to end; that is not caught.
    pub(super) fn is_cancelled(&self) -> bool {
        self.fail.is_cancelled()
    }

    /// The failure as it is caught.
    pub(super) fn caught(&self) -> Caught {
        let data: Option<Json> = self.fail.data().and_then(|data| data.read().ok());
        Caught {
            code: self.fail.code().map_or_else(|| code_of(self.fail.kind()).to_owned(), str::to_owned),
            message: self.fail.to_string(),
            step: self.step.clone(),
            status: data.as_ref().and_then(|data| data.get("status").cloned()),
            data,
        }
    }

    /// Path of the step, and what went wrong there.
    pub(super) fn told(&self) -> String {
        format!("{}: {}", self.step, self.fail)
    }

    /// The failure of the run. `undo` tells what could not be undone.
    pub(super) fn into_fail(self, undo: &[String]) -> Fail {
        let Caught { code, message, step, status: _, data } = self.caught();
        if self.fail.is_cancelled() {
            // The run is cancelled all the same, and its reason says what is left.
            let left = undo.join("; ");
            return if left.is_empty() {
                self.fail
            } else {
                self.fail.with_more(format_args!("; not undone: {left}"))
            };
        }
        if undo.is_empty() {
            return if self.fail.code().is_some() { self.fail } else { self.fail.with_code(code) };
        }
        let told = format!("{message}; not undone: {}", undo.join("; "));
        fatal(told).with_code(code).with_data(&json!({"step": step, "data": data, "notUndone": undo}))
    }
}

impl Caught {
    /// The failure again, if nothing has caught it.
    pub(super) fn into_broken(self) -> Broken {
        let Self { code, message, step, status: _, data } = self;
        let fail = fatal(message).with_code(code);
        let fail = match data {
            Some(data) => fail.with_data(&data),
            None => fail,
        };
        Broken { fail, step }
    }

    /// The failure as a value of expressions.
    pub(super) fn json(&self) -> Json {
        serde_json::to_value(self).unwrap_or(Json::Null)
    }
}

/// Code of a failure that was given none.
fn code_of(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Timeout => failure_code::TIMEOUT,
        FailureKind::Cancelled => failure_code::CANCELLED,
        _ => failure_code::FAILED,
    }
}

/// A value that cannot be kept.
pub(super) fn too_large(value: &Json) -> Result<Payload, Fail> {
    Payload::of(value).map_err(|refused| fatal(refused).with_code(failure_code::TOO_LARGE))
}
