//! Basic types that the other requests and answers use: values, times, periods, failures, problems.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use semel::clock::Time;
use semel::rules::json::Payload;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Any JSON value, kept byte for byte.
pub type Value = Box<RawValue>;

/// Converts a checked payload to its form on the wire.
pub fn value(payload: &Payload) -> Value {
    RawValue::from_string(payload.text().to_owned()).expect("a payload is JSON")
}

/// A point in time, as RFC 3339 in UTC with milliseconds.
pub fn time(at: Time) -> String {
    // A timer may be set beyond the last representable date.
    let far = if at.0 < 0 { Timestamp::MIN } else { Timestamp::MAX };
    let at = Timestamp::from_millisecond(at.0).unwrap_or(far);
    format!("{at:.3}")
}

/// A length of time, such as `90s`, `1h 30m` or `PT90S`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(value_type = String, example = "90s")]
#[serde(transparent)]
pub struct Period(pub String);

impl Period {
    /// The parsed period; `None` if it is malformed or negative.
    pub fn duration(&self) -> Option<Duration> {
        self.0.parse::<SignedDuration>().ok()?.try_into().ok()
    }
}

/// A failure of a run or step.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureView {
    /// Kind of the failure.
    #[schema(value_type = semel::rules::entry::FailureKind)]
    pub kind: semel::rules::entry::FailureKind,
    /// Error message of the failure, for people.
    pub message: String,
    /// Code of the error, for programs, such as `CARD_DECLINED`. Absent if the error has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Details of the error, as JSON. Absent if the error has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub data: Option<Value>,
}

/// Why a request was refused: `application/problem+json`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProblemView {
    /// URL of the page that explains the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// Short title of the code.
    pub title: String,
    /// HTTP status of the answer.
    pub status: u16,
    /// What was wrong, and what to do.
    pub detail: String,
    /// Error code, such as `KEY_REUSED`.
    pub code: String,
    /// Id of the run that the request conflicts with. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// JSON pointers to the fields in which two inputs or documents differ, or to those that do not fit their schema. Absent
    /// if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pointers: Vec<String>,
    /// Problems of a definition that was pushed, the worst first, at most 100. Absent if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<super::DocumentProblem>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_read_as_people_write_them() {
        let read = |text: &str| Period(text.to_owned()).duration();
        assert_eq!(read("90s"), Some(Duration::from_secs(90)));
        assert_eq!(read("1h 30m"), Some(Duration::from_mins(90)));
        assert_eq!(read("PT90S"), Some(Duration::from_secs(90)));
        assert_eq!(read("-1s"), None);
        assert_eq!(read("soon"), None);
    }

    #[test]
    fn times_are_rfc_3339_however_far() {
        assert_eq!(time(Time(0)), "1970-01-01T00:00:00.000Z");
        assert!(time(Time(i64::MAX)).starts_with("9999-"));
    }
}
