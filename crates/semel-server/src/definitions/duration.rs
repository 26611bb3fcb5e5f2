//! Durations as a definition writes them: `500ms`, `10s`, `1h30m`, `7d`.

use std::time::Duration;

use super::limits;

/// The units, in milliseconds.
const UNITS: [(&str, u64); 6] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];

/// Reads a duration; the error says what is wrong.
pub fn read(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration");
    let (mut rest, mut total) = (text, 0_u64);
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let unit = rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        let unit_text = &rest[digits..digits + unit];
        let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit_text).ok_or_else(wrong)?;
        total = number.checked_mul(*millis).and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
        rest = &rest[digits + unit..];
    }
    let duration = Duration::from_millis(total);
    match duration {
        Duration::ZERO => Err(format!("`{text}` is no time at all")),
        _ if duration > limits::DURATION => Err(format!("`{text}` is longer than ten years")),
        _ => Ok(duration),
    }
}

/// Hint for a text that is no duration.
pub const HINT: &str = "write a number with `ms`, `s`, `m`, `h`, `d` or `w`, such as `10s` or `1h30m`";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_numbers_with_units() {
        for (text, millis) in
            [("500ms", 500), ("10s", 10_000), ("1h30m", 5_400_000), ("7d", 604_800_000), ("1w", 604_800_000)]
        {
            assert_eq!(read(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "s", "10 s", "1.5h", "-1s", "0s", "11y", "600w", "99999999999999999999s", "ü"]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
