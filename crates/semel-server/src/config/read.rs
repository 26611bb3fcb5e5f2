//! Values as a file, a variable and a flag write them: numbers and lists are texts in the latter two.

use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// A number, or its digits.
pub(super) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a whole number from 0 to 4294967295")]
    enum NumberOrDigits {
        Number(u32),
        Digits(String),
    }
    match NumberOrDigits::deserialize(deserializer)? {
        NumberOrDigits::Number(number) => Ok(number),
        NumberOrDigits::Digits(digits) => digits
            .parse()
            .map_err(|_| D::Error::custom(format!("{digits:?} is not a whole number from 0 to 4294967295"))),
    }
}

/// A number that may be absent.
pub(super) fn maybe_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    number(deserializer).map(Some)
}

/// Texts, or one text with commas.
pub(super) fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a list of texts")]
    enum ListOrCommas {
        List(Vec<String>),
        Commas(String),
    }
    Ok(match ListOrCommas::deserialize(deserializer)? {
        ListOrCommas::List(list) => list,
        ListOrCommas::Commas(text) => {
            text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
        }
    })
}

/// Yes or no.
pub(super) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "true or false")]
    enum FlagOrWord {
        Flag(bool),
        Word(String),
    }
    match FlagOrWord::deserialize(deserializer)? {
        FlagOrWord::Flag(flag) => Ok(flag),
        FlagOrWord::Word(word) => {
            word.parse().map_err(|_| D::Error::custom(format!("{word:?} is neither true nor false")))
        }
    }
}

/// A length of time as people write it.
pub(super) mod period {
    use std::time::Duration;

    use serde::de::{Deserialize, Deserializer, Error};
    use serde::{Serialize, Serializer};

    use crate::api::Period;

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        let period = Period::deserialize(deserializer)?;
        let text = &period.0;
        period
            .duration()
            .ok_or_else(|| D::Error::custom(format!("{text:?} is not a length of time such as `30s`")))
    }

    pub(in super::super) fn serialize<S: Serializer>(
        period: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let period = jiff::SignedDuration::try_from(*period).map_err(serde::ser::Error::custom)?;
        format!("{period:#}").serialize(serializer)
    }
}
