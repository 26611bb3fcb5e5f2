//! Numbers of a document, digit by digit.

/// A number as JSON spells it, with all its digits. A double holds it exactly, or it is an integer of 64 bits: canonical JSON
/// and expressions lose nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number(String);

/// Why a text is no number of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoNumber {
    /// JSON spells no number like this: the text is a text.
    Text,
    /// An integer of more than 64 bits.
    Large,
    /// A decimal with more digits than a double holds.
    Digits,
}

impl NoNumber {
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Text => "not a number",
            Self::Large => "integers have at most 64 bits",
            Self::Digits => "the number has more digits than a double holds",
        }
    }
}

impl Number {
    pub(super) fn new(text: &str) -> Result<Self, NoNumber> {
        if !is_number(text) {
            return Err(NoNumber::Text);
        }
        if is_integer(text) {
            let fits = text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok();
            return if fits { Ok(Self(text.to_owned())) } else { Err(NoNumber::Large) };
        }
        if holds(text) { Ok(Self(text.to_owned())) } else { Err(NoNumber::Digits) }
    }

    /// The number as it was written.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The integer, if it is one.
    pub fn integer(&self) -> Option<i128> {
        self.0.parse().ok()
    }

    /// The nearest double to the number.
    pub fn double(&self) -> f64 {
        self.0.parse().expect("every JSON number is one for Rust")
    }
}

/// Whether JSON spells a number like this.
fn is_number(text: &str) -> bool {
    let rest = text.strip_prefix('-').unwrap_or(text);
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 || (digits > 1 && rest.starts_with('0')) {
        return false;
    }
    let mut rest = &rest[digits..];
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return false;
        }
        rest = &fraction[digits..];
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        return !exponent.is_empty() && exponent.bytes().all(|byte| byte.is_ascii_digit());
    }
    rest.is_empty()
}

fn is_integer(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

/// Whether a double holds the decimal: it is written back with the same digits.
pub fn holds(text: &str) -> bool {
    let Ok(double) = text.parse::<f64>() else { return false };
    double.is_finite() && scientific(text) == scientific(&format!("{double:e}"))
}

/// Significant digits, and the exponent of the first one. An exponent that no double has counts as none.
fn scientific(text: &str) -> Option<(String, i64)> {
    let text = text.trim_start_matches('-');
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Some((String::new(), 0));
    }
    let leading = (digits.len() - significant.len()) as i64;
    let exponent = exponent.trim_start_matches('+').parse::<i64>().ok().filter(|e| e.abs() < 10_000)?;
    Some((significant.trim_end_matches('0').to_owned(), whole.len() as i64 - leading + exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_double_holds_a_decimal_if_it_writes_the_same_digits() {
        for text in ["0.5", "0.10", "1e2", "-0.0", "0.1", "1.7976931348623157e308", "100.25e-2", "0e0"] {
            assert!(holds(text), "{text}");
        }
        for text in ["0.1000000000000000055", "1e309", "123456789.123456789123", "1e-400", "1e99999999999"] {
            assert!(!holds(text), "{text}");
        }
    }

    #[test]
    fn numbers_are_spelled_as_in_json() {
        for text in ["0", "-1", "1.5", "1E+2", "18446744073709551615", "-9223372036854775808"] {
            assert_eq!(Number::new(text).map(|number| number.text().to_owned()), Ok(text.to_owned()));
        }
        for text in ["", "-", "01", "1.", ".5", "+1", "1e", "0x1", "1 ", "NaN", "1.5.2", "1e2.5"] {
            assert_eq!(Number::new(text), Err(NoNumber::Text), "{text}");
        }
        assert_eq!(Number::new("18446744073709551616"), Err(NoNumber::Large));
    }
}
