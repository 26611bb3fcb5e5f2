//! The small parts of which the others are made.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use semel::clock::Time;
use semel::rules::json::Payload;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Any JSON value, kept as it was written.
pub type Value = Box<RawValue>;

/// A checked value as it travels.
pub fn value(payload: &Payload) -> Value {
    RawValue::from_string(payload.text().to_owned()).expect("a payload is JSON")
}

/// A point in time, as RFC 3339 in UTC with milliseconds.
pub fn time(at: Time) -> String {
    // A timer may be set for the far end of time, which has no date.
    let far = if at.0 < 0 { Timestamp::MIN } else { Timestamp::MAX };
    let at = Timestamp::from_millisecond(at.0).unwrap_or(far);
    format!("{at:.3}")
}

/// A length of time: `90s`, `1h 30m`, `PT90S`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(value_type = String, example = "90s")]
#[serde(transparent)]
pub struct Period(pub String);

impl Period {
    /// How long it is; none if it is not a period, or less than nothing.
    pub fn duration(&self) -> Option<Duration> {
        self.0.parse::<SignedDuration>().ok()?.try_into().ok()
    }
}

/// How something went wrong.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureView {
    /// `retryable`, `fatal`, `uncertain`, `panic`, `timeout`, `cancelled`.
    #[schema(value_type = String)]
    pub kind: semel::rules::entry::FailureKind,
    /// What it said.
    pub message: String,
}

/// What went wrong with a request: `application/problem+json`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProblemView {
    /// The page that explains the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What was wrong and what to do.
    pub detail: String,
    /// The upper-case word for it.
    pub code: String,
    /// The run that stands in the way, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Where two inputs differ, as JSON pointers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pointers: Vec<String>,
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
