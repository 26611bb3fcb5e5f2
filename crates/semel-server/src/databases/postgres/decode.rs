//! Values of PostgreSQL in their binary form, as JSON.

use std::error::Error as StdError;

use jiff::civil::{Date, Time};
use jiff::{Span, Timestamp};
use semel::tx::tokio_postgres::types::{FromSql, Kind, Type};

use super::super::rows::Cell;

type Decoded<T> = Result<T, Box<dyn StdError + Sync + Send>>;

/// Microseconds from 1970 to 2000, from where PostgreSQL counts.
const EPOCH: i64 = 946_684_800_000_000;

/// The value of a type; none if it has no form in JSON.
pub(super) fn cell(ty: &Type, raw: &[u8]) -> Decoded<Option<Cell>> {
    Ok(Some(match ty.kind() {
        Kind::Domain(base) => return cell(base, raw),
        Kind::Enum(_) => text(raw)?,
        Kind::Array(element) => return array(element, raw),
        Kind::Composite(fields) => {
            let mut at = Bytes(raw);
            at.number::<4>()?;
            let mut members = Vec::new();
            for field in fields {
                let ty = at.oid()?;
                debug_assert_eq!(ty, field.type_().oid(), "a row has the fields of its type");
                let Some(value) = at.value(field.type_())? else { return Ok(None) };
                members.push((field.name().to_owned(), value));
            }
            Cell::Object(members)
        }
        Kind::Simple | Kind::Pseudo => return simple(ty, raw),
        _ => return Ok(None),
    }))
}

fn simple(ty: &Type, raw: &[u8]) -> Decoded<Option<Cell>> {
    Ok(Some(match *ty {
        Type::BOOL => Cell::Bool(bool::from_sql(ty, raw)?),
        Type::INT2 => Cell::integer(i16::from_sql(ty, raw)?),
        Type::INT4 => Cell::integer(i32::from_sql(ty, raw)?),
        Type::INT8 => Cell::integer(i64::from_sql(ty, raw)?),
        Type::OID => Cell::integer(u32::from_sql(ty, raw)?),
        Type::FLOAT4 => float4(f32::from_sql(ty, raw)?),
        Type::FLOAT8 => Cell::double(f64::from_sql(ty, raw)?),
        Type::NUMERIC => Cell::decimal(&numeric(raw)?),
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN | Type::XML => text(raw)?,
        Type::JSON => Cell::Json(std::str::from_utf8(raw)?.to_owned()),
        // The first byte is the version of the form.
        Type::JSONB => Cell::Json(std::str::from_utf8(raw.get(1..).unwrap_or_default())?.to_owned()),
        Type::UUID => Cell::Text(uuid::Uuid::from_slice(raw)?.to_string()),
        Type::BYTEA => Cell::bytes(raw),
        Type::VOID => Cell::Null,
        Type::TIMESTAMPTZ => return moment(raw, true),
        Type::TIMESTAMP => return moment(raw, false),
        Type::DATE => return date(raw),
        Type::TIME => Cell::Text(time(i64::from_be_bytes(raw.try_into()?))?.to_string()),
        Type::TIMETZ => {
            let mut at = Bytes(raw);
            let micros = i64::from_be_bytes(at.number()?);
            // Counted to the west.
            let offset = -i32::from_be_bytes(at.number()?);
            let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 60);
            Cell::Text(format!("{}{sign}{:02}:{:02}", time(micros)?, minutes / 60, minutes % 60))
        }
        Type::INTERVAL => Cell::Text(interval(raw)?),
        _ => return Ok(None),
    }))
}

fn text(raw: &[u8]) -> Decoded<Cell> {
    Ok(Cell::Text(std::str::from_utf8(raw)?.to_owned()))
}

/// Its own shortest digits, not those of the double that it would become.
fn float4(number: f32) -> Cell {
    match number.is_finite() {
        true => Cell::decimal(&number.to_string()),
        false => Cell::double(number.into()),
    }
}

/// What is left to be read.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn number<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let (number, rest) = self.0.split_first_chunk::<N>().ok_or("a value ends early")?;
        self.0 = rest;
        Ok(*number)
    }

    fn oid(&mut self) -> Decoded<u32> {
        Ok(u32::from_be_bytes(self.number()?))
    }

    /// A value with its length before it; a negative one is null.
    fn value(&mut self, ty: &Type) -> Decoded<Option<Cell>> {
        let Ok(length) = usize::try_from(i32::from_be_bytes(self.number()?)) else {
            return Ok(Some(Cell::Null));
        };
        let (raw, rest) = self.0.split_at_checked(length).ok_or("a value ends early")?;
        self.0 = rest;
        cell(ty, raw)
    }
}

/// An array, with lists in it for each further dimension.
fn array(element: &Type, raw: &[u8]) -> Decoded<Option<Cell>> {
    let mut at = Bytes(raw);
    let dimensions = i32::from_be_bytes(at.number()?);
    at.number::<8>()?;
    let mut lengths = Vec::new();
    for _ in 0..dimensions {
        lengths.push(usize::try_from(i32::from_be_bytes(at.number()?))?);
        at.number::<4>()?;
    }
    if lengths.is_empty() {
        return Ok(Some(Cell::List(Vec::new())));
    }
    level(&mut at, element, &lengths)
}

fn level(at: &mut Bytes<'_>, element: &Type, lengths: &[usize]) -> Decoded<Option<Cell>> {
    let Some((length, inner)) = lengths.split_first() else { return at.value(element) };
    let mut items = Vec::new();
    for _ in 0..*length {
        let Some(item) = level(at, element, inner)? else { return Ok(None) };
        items.push(item);
    }
    Ok(Some(Cell::List(items)))
}

/// A decimal: groups of four digits, with the number of digits that are shown after the point.
fn numeric(raw: &[u8]) -> Decoded<String> {
    let mut at = Bytes(raw);
    let groups = i16::from_be_bytes(at.number()?);
    let weight = i32::from(i16::from_be_bytes(at.number()?));
    let (sign, scale) = (u16::from_be_bytes(at.number()?), usize::from(u16::from_be_bytes(at.number()?)));
    match sign {
        0xC000 => return Ok("NaN".to_owned()),
        0xD000 => return Ok("Infinity".to_owned()),
        0xF000 => return Ok("-Infinity".to_owned()),
        _ => {}
    }
    let mut digits = Vec::new();
    for _ in 0..groups {
        digits.push(i16::from_be_bytes(at.number()?));
    }
    let group =
        |index: i32| usize::try_from(index).ok().and_then(|index| digits.get(index)).copied().unwrap_or(0);
    let mut whole: String = (0..=weight).map(|index| format!("{:04}", group(index))).collect();
    whole = whole.trim_start_matches('0').to_owned();
    if whole.is_empty() {
        whole.push('0');
    }
    let fraction: String = (0..scale.div_ceil(4))
        .map(|index| format!("{:04}", group(weight + 1 + i32::try_from(index).unwrap_or(i32::MAX - 40_000))))
        .collect();
    let minus = if sign == 0x4000 { "-" } else { "" };
    match scale {
        0 => Ok(format!("{minus}{whole}")),
        _ => Ok(format!("{minus}{whole}.{}", &fraction[..scale])),
    }
}

/// A time stamp: microseconds since 2000, with time zone or without.
fn moment(raw: &[u8], has_zone: bool) -> Decoded<Option<Cell>> {
    let micros = i64::from_be_bytes(raw.try_into()?);
    let text = match micros {
        i64::MAX => "infinity".to_owned(),
        i64::MIN => "-infinity".to_owned(),
        _ => {
            let Some(Ok(at)) = micros.checked_add(EPOCH).map(Timestamp::from_microsecond) else {
                return Ok(None);
            };
            match has_zone {
                true => at.to_string(),
                false => at.to_zoned(jiff::tz::TimeZone::UTC).datetime().to_string(),
            }
        }
    };
    Ok(Some(Cell::Text(text)))
}

fn date(raw: &[u8]) -> Decoded<Option<Cell>> {
    let days = i32::from_be_bytes(raw.try_into()?);
    let text = match days {
        i32::MAX => "infinity".to_owned(),
        i32::MIN => "-infinity".to_owned(),
        _ => {
            let span = Span::new().try_days(days);
            let Ok(date) = span.and_then(|span| Date::constant(2000, 1, 1).checked_add(span)) else {
                return Ok(None);
            };
            date.to_string()
        }
    };
    Ok(Some(Cell::Text(text)))
}

/// A time of the day, in microseconds.
fn time(micros: i64) -> Decoded<Time> {
    // 24:00:00 is a value of PostgreSQL.
    let micros = micros.rem_euclid(86_400_000_000);
    Ok(Time::midnight().checked_add(Span::new().try_microseconds(micros)?)?)
}

/// An interval as ISO 8601 writes it.
fn interval(raw: &[u8]) -> Decoded<String> {
    let mut at = Bytes(raw);
    let micros = i64::from_be_bytes(at.number()?);
    let (days, months) = (i32::from_be_bytes(at.number()?), i32::from_be_bytes(at.number()?));
    let mut text = String::from("P");
    for (count, unit) in [(months / 12, 'Y'), (months % 12, 'M'), (days, 'D')] {
        if count != 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    }
    let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
    if micros != 0 {
        text.push('T');
    }
    for (count, unit) in [(seconds / 3600, 'H'), (seconds / 60 % 60, 'M')] {
        if count != 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    }
    if seconds % 60 != 0 || rest != 0 {
        let minus = if micros < 0 { "-" } else { "" };
        let fraction = format!(".{:06}", rest.abs());
        text.push_str(&format!(
            "{minus}{}{}S",
            seconds.abs() % 60,
            fraction.trim_end_matches('0').trim_end_matches('.')
        ));
    }
    if text == "P" {
        text.push_str("T0S");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(groups: &[i16], weight: i16, sign: u16, scale: u16) -> Vec<u8> {
        let mut raw = (groups.len() as i16).to_be_bytes().to_vec();
        raw.extend(weight.to_be_bytes());
        raw.extend(sign.to_be_bytes());
        raw.extend(scale.to_be_bytes());
        raw.extend(groups.iter().flat_map(|group| group.to_be_bytes()));
        raw
    }

    #[test]
    fn decimals_have_all_their_digits() {
        for (groups, weight, sign, scale, text) in [
            (&[][..], 0, 0, 0, "0"),
            (&[], 0, 0, 2, "0.00"),
            (&[1, 5000], 0, 0x4000, 1, "-1.5"),
            (&[12, 3456], 1, 0, 0, "123456"),
            (&[1], 2, 0, 0, "100000000"),
            (&[5], -2, 0, 8, "0.00000005"),
            (&[1, 1000], 0, 0, 5, "1.10000"),
            (&[], 0, 0xC000, 0, "NaN"),
        ] {
            assert_eq!(numeric(&wire(groups, weight, sign, scale)).unwrap(), text);
        }
    }

    #[test]
    fn intervals_are_iso_8601() {
        let raw = |micros: i64, days: i32, months: i32| {
            [&micros.to_be_bytes()[..], &days.to_be_bytes(), &months.to_be_bytes()].concat()
        };
        for (micros, days, months, text) in [
            (0, 0, 0, "PT0S"),
            (3_661_500_000, 2, 14, "P1Y2M2DT1H1M1.5S"),
            (-500_000, 0, 0, "PT-0.5S"),
            (60_000_000, -1, 0, "P-1DT1M"),
        ] {
            assert_eq!(interval(&raw(micros, days, months)).unwrap(), text);
        }
    }

    proptest::proptest! {
        /// Bytes of a broken server are an error, never a panic.
        #[test]
        fn any_bytes_are_a_value_or_an_error(raw in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40)) {
            for ty in [Type::NUMERIC, Type::INT4_ARRAY, Type::TIMESTAMPTZ, Type::TIMETZ, Type::INTERVAL, Type::JSONB, Type::DATE, Type::UUID] {
                drop(cell(&ty, &raw));
            }
        }
    }
}
