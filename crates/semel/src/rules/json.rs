//! Values: JSON kept exactly as it was written, checked once when it is accepted.
//!
//! A [`Payload`] keeps its text, so every digit survives. A [`Json`] tree exists only for comparing: fingerprints are
//! computed from it, and it names the pointers at which two inputs differ.

mod finite;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::{self, Write as _};

use serde::de::{self, DeserializeOwned, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};
use serde_json::value::RawValue;
use smol_str::SmolStr;

/// Maximum size of a value in bytes; equal to the limit of an HTTP body.
pub const MAX_BYTES: usize = 2 * 1024 * 1024;
/// Maximum nesting depth: far above real data, far below the limit of any parser's stack.
pub const MAX_DEPTH: usize = 64;
/// Maximum number of differing pointers in an answer: enough to see the mistake, bounded for hostile input.
const MAX_POINTERS: usize = 20;

/// Why a value was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum InvalidJson {
    /// The value has more than [`MAX_BYTES`].
    #[error("the value has {0} bytes; at most {MAX_BYTES} are accepted")]
    TooLarge(usize),
    /// Not JSON, or JSON that cannot be kept exactly (duplicate members, `\u0000`, numbers out of range, too deep).
    #[error("the value is refused: {0}")]
    Refused(String),
}

/// Maximum capacity of a buffer that is kept for the next value, in bytes.
const MAX_SCRATCH: usize = 4096;

thread_local! {
    /// Reused buffer in which the text of a value is written, so that short values need no allocation of their own.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A checked JSON value, kept as the text it came as. Clones share it; a short one needs no memory of its own.
#[derive(Clone)]
pub struct Payload(SmolStr);

impl Payload {
    /// Accepts a JSON text if it can be kept exactly.
    pub fn parse(text: &str) -> Result<Self, InvalidJson> {
        check(text)?;
        Ok(Self(text.trim().into()))
    }

    /// Serialises a value to JSON.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, InvalidJson> {
        let mut scratch = SCRATCH.take();
        let written = serde_json::to_writer(&mut scratch, value);
        let payload = written.map_err(|e| InvalidJson::Refused(e.to_string())).and_then(|()| {
            let text = std::str::from_utf8(&scratch).map_err(|e| InvalidJson::Refused(e.to_string()))?;
            let payload = Self(text.into());
            payload.check()?;
            if text.contains("null") {
                // A `null` may be a number that JSON cannot express.
                finite::check(value).map_err(|e| InvalidJson::Refused(e.to_string()))?;
            }
            Ok(payload)
        });
        if scratch.capacity() <= MAX_SCRATCH {
            scratch.clear();
            SCRATCH.set(scratch);
        }
        payload
    }

    /// Refuses a value that could not be kept exactly. A payload that was read as part of something larger is not
    /// checked yet: values from a store were checked before, values from outside must be.
    pub fn check(&self) -> Result<(), InvalidJson> {
        match is_simple(self.text()) {
            true => Ok(()),
            false => check(self.text()),
        }
    }

    /// The JSON value `null`.
    pub fn null() -> Self {
        Self(SmolStr::new_static("null"))
    }

    /// The value for comparing. Text that is not checked yet, and would be refused, counts as a string.
    pub(crate) fn json(&self) -> Json {
        Json::parse(self.text()).unwrap_or_else(|_| Json::text(self.text()))
    }

    /// Whether both are the same value, however they are written: `1.0` is `1`.
    pub fn is_same(&self, other: &Self) -> bool {
        self == other || self.json().canonical() == other.json().canonical()
    }

    /// Reads it as a Rust value.
    pub fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(&self.0)
    }

    /// The text, byte for byte as it was accepted.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// Written as it is. Only checked text counts as raw JSON, and this text is checked.
impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw: Box<RawValue> = Deserialize::deserialize(deserializer)?;
        Ok(Self(raw.get().into()))
    }
}

/// Whether a text that is JSON needs no further check: a keyword, a plain number in range, a string without escapes.
/// Most results of steps are one of these.
fn is_simple(text: &str) -> bool {
    match text.as_bytes().first() {
        Some(b'"') => text.len() <= MAX_BYTES && !text.contains('\\'),
        Some(b'-' | b'0'..=b'9') => {
            text.len() <= 18 && text.bytes().skip(1).all(|byte| byte.is_ascii_digit())
        }
        Some(b't' | b'f' | b'n') => true,
        _ => false,
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Two payloads are equal if their texts are: what was written is what is read.
impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Payload {}

/// A parsed JSON value, for comparing.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// The JSON value `null`.
    Null,
    /// `true` or `false`, as JSON has them.
    Bool(bool),
    /// An integer of 64 bits, compared exactly.
    Integer(i128),
    /// Any other number, compared as a double.
    Double(f64),
    /// A string, without its escapes.
    Text(String),
    /// An array, in its order.
    List(Vec<Json>),
    /// An object; `BTreeMap` orders by UTF-8, [`Json::canonical`] by UTF-16 as RFC 8785 wants.
    Object(BTreeMap<String, Json>),
}

impl Json {
    /// Parses, and refuses what could not be kept or compared exactly.
    pub fn parse(text: &str) -> Result<Self, InvalidJson> {
        if text.len() > MAX_BYTES {
            return Err(InvalidJson::TooLarge(text.len()));
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let value =
            JsonSeed { depth: 0 }.deserialize(&mut deserializer).and_then(|v| deserializer.end().map(|()| v));
        value.map_err(|e| InvalidJson::Refused(e.to_string()))
    }

    /// A JSON string of this text.
    pub(crate) fn text(text: &(impl ToString + ?Sized)) -> Self {
        Self::Text(text.to_string())
    }

    /// A JSON object with these members.
    pub(crate) fn object<'a>(members: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        Self::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// The RFC 8785 form, with one difference: integers of 64 bits keep all their digits. The RFC would round them to
    /// doubles, and so treat two different amounts as equal.
    pub fn canonical(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    /// Removes the value at an RFC 6901 pointer, if there is one.
    pub fn remove(&mut self, pointer: &str) {
        let Some((parent, last)) = pointer.strip_prefix('/').map(|p| p.rsplit_once('/').unwrap_or(("", p)))
        else {
            return;
        };
        let mut here = self;
        // `/a` has no parent parts, `//a` one that is empty.
        let parents = pointer.len() > last.len() + 1;
        for part in parent.split('/').filter(|_| parents) {
            let Some(next) = here.member(&unescape(part)) else { return };
            here = next;
        }
        match here {
            Self::Object(members) => drop(members.remove(&unescape(last))),
            // An array keeps its length, so that its other elements keep their pointers.
            Self::List(items) => {
                if let Some(item) = index(last).and_then(|i| items.get_mut(i)) {
                    *item = Self::Null;
                }
            }
            _ => {}
        }
    }

    /// The value at an RFC 6901 pointer, if there is one.
    pub fn at(&self, pointer: &str) -> Option<&Self> {
        let mut parts = pointer.split('/').skip(1);
        parts.try_fold(self, |here, part| match here {
            Self::Object(members) => members.get(&unescape(part)),
            Self::List(items) => index(part).and_then(|i| items.get(i)),
            _ => None,
        })
    }

    /// The pointers at which two values differ, the first few in document order.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut pointers = Vec::new();
        diff(self, other, &mut String::new(), &mut pointers);
        pointers
    }

    fn member(&mut self, part: &str) -> Option<&mut Self> {
        match self {
            Self::Object(members) => members.get_mut(part),
            Self::List(items) => index(part).and_then(|i| items.get_mut(i)),
            _ => None,
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Integer(value) => write!(out, "{value}").expect("a String takes every write"),
            Self::Double(value) => out.push_str(ryu_js::Buffer::new().format_finite(*value)),
            Self::Text(text) => write_text(text, out),
            Self::List(items) => {
                for (i, item) in items.iter().enumerate() {
                    out.push(if i == 0 { '[' } else { ',' });
                    item.write(out);
                }
                out.push_str(if items.is_empty() { "[]" } else { "]" });
            }
            Self::Object(members) => {
                let mut sorted: Vec<_> = members.iter().collect();
                sorted.sort_by(|a, b| a.0.encode_utf16().cmp(b.0.encode_utf16()));
                for (i, (name, value)) in sorted.into_iter().enumerate() {
                    out.push(if i == 0 { '{' } else { ',' });
                    write_text(name, out);
                    out.push(':');
                    value.write(out);
                }
                out.push_str(if members.is_empty() { "{}" } else { "}" });
            }
        }
    }
}

/// `serde_json` escapes just what RFC 8785 escapes, in the same way.
fn write_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).expect("a string is always JSON"));
}

/// Whether a text is a JSON pointer (RFC 6901): empty, or parts that each begin with `/`, with `~` only as `~0` and `~1`.
pub fn is_pointer(text: &str) -> bool {
    let escapes = |text: &str| text.split('~').skip(1).all(|after| after.starts_with(['0', '1']));
    (text.is_empty() || text.starts_with('/')) && escapes(text)
}

fn escape(part: &str) -> String {
    part.replace('~', "~0").replace('/', "~1")
}

/// An index into an array: digits without a leading zero.
fn index(part: &str) -> Option<usize> {
    let plain = part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
    part.parse().ok().filter(|_| plain)
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

fn diff(a: &Json, b: &Json, at: &mut String, found: &mut Vec<String>) {
    if found.len() >= MAX_POINTERS || a == b {
        return;
    }
    let here = at.len();
    match (a, b) {
        (Json::Object(left), Json::Object(right)) => {
            let names = left.keys().chain(right.keys().filter(|name| !left.contains_key(*name)));
            for name in names {
                at.push('/');
                at.push_str(&escape(name));
                match (left.get(name), right.get(name)) {
                    (Some(a), Some(b)) => diff(a, b, at, found),
                    _ if found.len() < MAX_POINTERS => found.push(at.clone()),
                    _ => {}
                }
                at.truncate(here);
            }
        }
        (Json::List(left), Json::List(right)) if left.len() == right.len() => {
            for (i, (a, b)) in left.iter().zip(right).enumerate() {
                write!(at, "/{i}").expect("a String takes every write");
                diff(a, b, at, found);
                at.truncate(here);
            }
        }
        // A number beyond 2^53 may be parsed as an integer here and as a double there, and still be equal.
        (Json::Integer(_), Json::Double(_)) | (Json::Double(_), Json::Integer(_))
            if a.canonical() == b.canonical() => {}
        _ => found.push(at.clone()),
    }
}

/// Refuses a text that could not be kept exactly. Builds nothing.
pub fn check(text: &str) -> Result<(), InvalidJson> {
    if text.len() > MAX_BYTES {
        return Err(InvalidJson::TooLarge(text.len()));
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let checked = JsonCheck { depth: 0 }.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    checked.map_err(|e| InvalidJson::Refused(e.to_string()))
}

/// Builds a [`Json`], knowing how deep it is.
struct JsonSeed {
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for JsonSeed {
    type Value = Json;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

fn deeper<E: de::Error>(depth: usize) -> Result<usize, E> {
    match depth {
        MAX_DEPTH => Err(E::custom(format!("nested deeper than {MAX_DEPTH}"))),
        _ => Ok(depth + 1),
    }
}

fn without_nul<E: de::Error>(text: &str) -> Result<(), E> {
    // PostgreSQL text, C strings and many readers end at NUL: the value would not arrive as it was sent.
    if text.contains('\0') { Err(E::custom("\\u0000 in a string")) } else { Ok(()) }
}

fn twice<E: de::Error>(name: &str) -> E {
    E::custom(format!("the member {name:?} stands twice"))
}

impl<'de> Visitor<'de> for JsonSeed {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Integer(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Integer(value.into()))
    }

    #[expect(
        clippy::float_cmp,
        reason = "`1.0` and `1` are one number: exactly integral doubles become integers"
    )]
    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        let integral = value.trunc() == value && value.abs() <= EXACT;
        Ok(if integral { Json::Integer(value as i128) } else { Json::Double(value) })
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Json, E> {
        without_nul(value).map(|()| Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Self { depth: deeper(self.depth)? })? {
            items.push(item);
        }
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut members = BTreeMap::new();
        while let Some(name) = map.next_key::<String>()? {
            without_nul(&name)?;
            let value = map.next_value_seed(Self { depth: deeper(self.depth)? })?;
            match members.entry(name) {
                Entry::Occupied(there) => return Err(twice(there.key())),
                Entry::Vacant(free) => drop(free.insert(value)),
            }
        }
        Ok(Json::Object(members))
    }
}

/// Refuses what [`JsonSeed`] refuses, and builds nothing: for values that are kept as text.
struct JsonCheck {
    depth: usize,
}

/// The name of a member, borrowed unless it is written with escapes.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> DeserializeSeed<'de> for JsonCheck {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonCheck {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<(), E> {
        without_nul(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Self { depth: deeper(self.depth)? })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut names: Vec<MemberName<'de>> = Vec::new();
        while let Some(name) = map.next_key::<MemberName<'de>>()? {
            without_nul(&name.0)?;
            map.next_value_seed(Self { depth: deeper(self.depth)? })?;
            names.push(name);
        }
        // Sorted once at the end, so that a hostile object of many members costs little more than its length.
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(twice(&pair[0].0)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        Json::parse(text).unwrap().canonical()
    }

    #[test]
    fn spacing_order_and_number_spelling_do_not_matter() {
        assert_eq!(canonical(r#" { "b" : [ 1 , 2.50 ] , "a" : 1e2 } "#), r#"{"a":100,"b":[1,2.5]}"#);
        assert_eq!(canonical("-0.0"), "0");
        assert_eq!(canonical(r#""\u00e9\u000a\/""#), "\"é\\n/\"");
        assert_eq!(canonical("[[],{}]"), "[[],{}]");
    }

    #[test]
    fn members_sort_by_utf16() {
        // U+FB33 sorts after U+1F600 by UTF-16 code units, before it by code points.
        assert_eq!(canonical("{\"\u{fb33}\":1,\"\u{1f600}\":2}"), "{\"\u{1f600}\":2,\"\u{fb33}\":1}");
    }

    #[test]
    fn sixty_four_bit_integers_stay_apart() {
        assert_ne!(canonical("9007199254740993"), canonical("9007199254740992"));
        assert_eq!(canonical("18446744073709551615"), "18446744073709551615");
        assert_eq!(canonical("-9223372036854775808"), "-9223372036854775808");
    }

    #[test]
    fn what_cannot_be_kept_exactly_is_refused() {
        let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(Payload::parse(&deep(MAX_DEPTH)).is_ok());
        for (text, why) in [
            (r#"{"a":1,"a":2}"#.to_owned(), "stands twice"),
            (r#""a\u0000b""#.to_owned(), "\\u0000"),
            (r#"{"a\u0000":1}"#.to_owned(), "\\u0000"),
            (r#""\ud800""#.to_owned(), "hex escape"),
            (r#""\ud800\u0041""#.to_owned(), "surrogate"),
            ("1e400".to_owned(), "out of range"),
            ("NaN".to_owned(), "expected"),
            ("1 2".to_owned(), "trailing"),
            (String::new(), "EOF"),
            (deep(MAX_DEPTH + 1), "deeper than 64"),
            (deep(100_000), "deeper than 64"),
        ] {
            let error = Payload::parse(&text).unwrap_err();
            assert_eq!(Json::parse(&text), Err(error.clone()), "with a tree and without");
            if let Ok(read) = serde_json::from_str::<Payload>(&text) {
                assert_eq!(read.check(), Err(error.clone()), "as a part of something larger");
            }
            let error = error.to_string();
            assert!(error.contains(why), "{error} should say {why}");
        }
        assert_eq!(Payload::parse(&" ".repeat(MAX_BYTES + 1)), Err(InvalidJson::TooLarge(MAX_BYTES + 1)));
    }

    #[test]
    fn a_payload_keeps_its_text() {
        for text in ["9007199254740993", "0.10000000000000000001", r#"{"b":1,  "a":"\u00e9"}"#] {
            assert_eq!(Payload::parse(text).unwrap().text(), text);
        }
    }

    #[test]
    fn the_same_value_may_be_spelt_otherwise() {
        let same = |a, b| Payload::parse(a).unwrap().is_same(&Payload::parse(b).unwrap());
        assert!(same(r#"{"v":1.0}"#, r#"{ "v": 1 }"#));
        assert!(same(r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#));
        assert!(!same(r#"{"v":1.5}"#, r#"{"v":1}"#));
        assert!(!same("9007199254740993", "9007199254740992"));
    }

    #[test]
    fn differences_are_named_by_pointer() {
        let a = Json::parse(r#"{"a":{"x/y":1,"z":[1,2]},"gone":true,"same":0}"#).unwrap();
        let b = Json::parse(r#"{"a":{"x/y":2,"z":[1,3]},"new":true,"same":0}"#).unwrap();
        assert_eq!(a.differences(&b), ["/a/x~1y", "/a/z/1", "/gone", "/new"]);
        assert_eq!(Json::Null.differences(&Json::Bool(true)), [""]);
        assert!(a.differences(&a).is_empty());
        let (integer, double) = (Json::parse("100000000000000000").unwrap(), Json::parse("1e17").unwrap());
        assert!(integer.differences(&double).is_empty(), "two spellings of one number");
    }

    #[test]
    fn a_pointer_begins_with_a_slash() {
        for valid in ["", "/", "/a", "/a/0", "/a~0b", "/a~1b", "/a b", "/é"] {
            assert!(is_pointer(valid), "{valid:?}");
        }
        for bad in ["a", "sentAt", " /a", "#/a", "/a~", "/a~2", "/~a"] {
            assert!(!is_pointer(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_removed_pointer_no_longer_differs() {
        let mut value = Json::parse(r#"{"a":{"x/y":1},"list":[1,2]}"#).unwrap();
        value.remove("/a/x~1y");
        value.remove("/list/0");
        value.remove("/not/there");
        value.remove("no-pointer");
        value.remove("a/list");
        value.remove("/list/01");
        value.remove("//list");
        assert_eq!(value.canonical(), r#"{"a":{},"list":[null,2]}"#);
    }
}
