//! Numbers and times in words.

use jiff::Timestamp;

use crate::api::CappedView;

/// Milliseconds since 1970 of a time on the wire.
pub(super) fn millis(at: &str) -> Option<i64> {
    at.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

/// A length of time, as short as it is still true.
pub(super) fn took(ms: i64) -> String {
    let ms = ms.max(0);
    let seconds = ms / 1_000;
    match seconds {
        0 => format!("{ms} ms"),
        1..10 => format!("{}.{} s", seconds, ms % 1_000 / 100),
        10..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
    .replace(".0 s", " s")
}

/// The time between two points on the wire; until now if there is no second one.
pub(super) fn between(from: &str, to: Option<&str>, now: i64) -> String {
    let end = to.and_then(millis).unwrap_or(now);
    millis(from).map(|from| took(end.saturating_sub(from))).unwrap_or_default()
}

/// A size in bytes.
pub(super) fn bytes(count: usize) -> String {
    match count {
        1 => "1 byte".to_owned(),
        0..1_024 => format!("{count} bytes"),
        1_024..10_240 => format!("{}.{} KB", count / 1_024, count % 1_024 * 10 / 1_024),
        10_240..1_048_576 => format!("{} KB", count / 1_024),
        _ => format!("{}.{} MB", count / 1_048_576, count % 1_048_576 * 10 / 1_048_576),
    }
}

/// A number that was counted up to a bound.
pub(super) fn capped(counted: CappedView) -> String {
    format!("{}{}", counted.count, if counted.more { "+" } else { "" })
}

/// A number with a word that fits it.
pub(super) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_short() {
        let all = [0, 999, 1_000, 1_240, 7_900, 59_999, 60_000, 7_200_000, 172_800_000, -5].map(took);
        assert_eq!(
            all,
            ["0 ms", "999 ms", "1 s", "1.2 s", "7.9 s", "59 s", "1 min", "2 h", "2 days", "0 ms"]
        );
        assert_eq!(between("1970-01-01T00:00:01Z", None, 3_500), "2.5 s");
        assert_eq!(between("soon", None, 3_500), "");
    }

    #[test]
    fn sizes_and_numbers_have_their_words() {
        assert_eq!([12, 1_740, 65_536, 2_200_000].map(bytes), ["12 bytes", "1.6 KB", "64 KB", "2.0 MB"]);
        assert_eq!(
            (count(1, "run", "runs"), count(2, "run", "runs")),
            ("1 run".to_owned(), "2 runs".to_owned())
        );
    }
}
