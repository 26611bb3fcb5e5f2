//! Durations as milliseconds on the wire.
//!
//! Seconds and nanoseconds (`{"secs": 1, "nanos": 0}`), as earlier workers write durations, are read as well.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

#[derive(Deserialize)]
#[serde(untagged, expecting = "a duration is a whole number of milliseconds")]
enum DurationText {
    Millis(u64),
    Parts(Duration),
}

impl From<DurationText> for Duration {
    fn from(text: DurationText) -> Self {
        match text {
            // Longer than a number can say: for ever.
            DurationText::Millis(u64::MAX) => Self::MAX,
            DurationText::Millis(millis) => Self::from_millis(millis),
            DurationText::Parts(duration) => duration,
        }
    }
}

pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    DurationText::deserialize(deserializer).map(Into::into)
}

/// The same for a duration that may be absent.
pub(crate) mod option {
    use super::{Deserialize as _, Deserializer, Duration, DurationText, Serializer};

    #[expect(clippy::ref_option, reason = "serde calls it with a reference")]
    pub(crate) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Option::<DurationText>::deserialize(deserializer).map(|text| text.map(Into::into))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize, serde::Serialize)]
    struct Sample {
        #[serde(rename = "waitMs", alias = "wait", with = "super")]
        wait: Duration,
        #[serde(rename = "limitMs", alias = "limit", with = "option", default)]
        limit: Option<Duration>,
    }

    #[test]
    fn durations_are_milliseconds_and_earlier_forms_are_read() {
        let sample = Sample { wait: Duration::from_millis(1_500), limit: Some(Duration::from_secs(2)) };
        let text = r#"{"waitMs":1500,"limitMs":2000}"#;
        assert_eq!(serde_json::to_string(&sample).unwrap(), text);
        let earlier = r#"{"wait":{"secs":1,"nanos":500000000},"limit":{"secs":2,"nanos":0}}"#;
        for text in [text, earlier] {
            assert_eq!(serde_json::from_str::<Sample>(text).unwrap(), sample);
        }
        let longest = Sample { wait: Duration::MAX, limit: None };
        let text = serde_json::to_string(&longest).unwrap();
        assert_eq!(serde_json::from_str::<Sample>(&text).unwrap(), longest);
        let none = serde_json::from_str::<Sample>(r#"{"waitMs":0,"limitMs":null}"#).unwrap();
        assert_eq!(none, Sample { wait: Duration::ZERO, limit: None });
        assert!(serde_json::from_str::<Sample>(r#"{"waitMs":-1}"#).is_err());
    }
}
