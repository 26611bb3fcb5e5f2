//! Receipts: absorbed duplicates and refused calls are kept with the run that owns the original, and counted.

use serde::{Deserialize, Serialize};

use super::json::Json;
use crate::clock::Time;

/// Number of latest receipts of one kind on one run that are kept in full; older ones are only counted.
pub const RECENT: usize = 50;

/// Maximum number of bytes kept of the words of a receipt: any key or token, not a whole payload.
pub const DETAIL: usize = 1_200;

/// Maximum number of bytes kept of a pointer, a value or a name in a receipt.
pub const EXCERPT: usize = 200;

/// Maximum number of differing places that a receipt names.
pub const PLACES: usize = 8;

/// Kind of an absorbed or refused call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReceiptKind {
    /// A start under a key in use.
    Start,
    /// A delivery under an id that had been delivered before.
    Delivery,
    /// A result from an owner that had lost the run.
    Result,
    /// An operator action that had already been done.
    Control,
    /// A call that was refused because this run owns its key, call id or token.
    Refused,
}

impl ReceiptKind {
    /// All kinds, in order.
    pub const ALL: [Self; 5] = [Self::Start, Self::Delivery, Self::Result, Self::Control, Self::Refused];

    pub(crate) fn code(self) -> i16 {
        self as i16
    }

    pub(crate) fn from_code(code: i16) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }
}

/// Answer that a call got which changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReceiptVerdict {
    /// The start got the run that has its key.
    Attached,
    /// The start got the run that has its key, and the recorded result.
    Replayed,
    /// The call got the first answer again, or nothing was left to do.
    Absorbed,
    /// The call got an error; see `code`.
    Refused,
}

/// A duplicate call that was absorbed, or a call that was refused, for the receipts of a run. Members are absent where they
/// mean nothing, and in receipts of earlier releases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Absorbed {
    /// Time at which the call came.
    pub at: Time,
    /// Short text of what it asked for.
    pub detail: String,
    /// Answer that the call got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<ReceiptVerdict>,
    /// Error code of a refused call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Name of the caller: of its API key, of an operator, or the id of a node or run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Id of the HTTP request: the header `X-Request-Id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Of a start: whether it asked for the same as the start that made the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same: Option<bool>,
    /// Of a start that asked for something else: the first places at which the two differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pointers: Vec<DifferingValue>,
    /// Id of the delivery or of the call, as the caller gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<String>,
    /// Of a late result: the fence under which it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// Version of the run that the call expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<u64>,
}

/// A place at which two requests under one key differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DifferingValue {
    /// JSON pointer of the place, such as `/input/amount`.
    pub pointer: String,
    /// First bytes of the value that the run was started with, as JSON. Absent if it has none there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// First bytes of the value that the refused start has there, as JSON. Absent if it has none there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
}

impl Absorbed {
    /// Notes a call; its text is cut off at [`DETAIL`] bytes.
    pub fn new(at: Time, detail: String) -> Self {
        Self { at, detail: cut(detail, DETAIL), ..Self::default() }
    }
}

/// The first places at which two requests differ, with the beginnings of both values: nothing else of a refused request is
/// kept.
pub(crate) fn differing(held: &Json, asked: &Json) -> Vec<DifferingValue> {
    let excerpt = |value: &Json| cut(value.canonical(), EXCERPT);
    let place = |pointer: String| DifferingValue {
        held: held.at(&pointer).map(excerpt),
        asked: asked.at(&pointer).map(excerpt),
        pointer: cut(pointer, EXCERPT),
    };
    held.differences(asked).into_iter().take(PLACES).map(place).collect()
}

/// The first bytes of a text, whole characters.
pub(crate) fn cut(mut text: String, bytes: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes));
    text
}

/// All absorbed or refused calls of one kind on one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Receipts {
    /// Number of calls that were absorbed or refused.
    pub count: u64,
    /// Time of the first one.
    pub first: Time,
    /// Time of the latest one.
    pub last: Time,
    /// The latest [`RECENT`] calls, oldest first.
    pub recent: Vec<Absorbed>,
}

impl Receipts {
    /// The receipts after the first absorbed call.
    pub fn one(absorbed: Absorbed) -> Self {
        Self { count: 1, first: absorbed.at, last: absorbed.at, recent: vec![absorbed] }
    }

    /// Adds receipts that came later.
    pub fn merge(&mut self, later: Self) {
        self.count += later.count;
        self.first = self.first.min(later.first);
        self.last = self.last.max(later.last);
        self.recent.extend(later.recent);
        let excess = self.recent.len().saturating_sub(RECENT);
        self.recent.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_counted_and_the_latest_kept() {
        let one = |at| Receipts::one(Absorbed::new(Time(at), at.to_string()));
        let mut all = one(1);
        for at in 2..=100 {
            all.merge(one(at));
        }
        assert_eq!((all.count, all.first, all.last), (100, Time(1), Time(100)));
        assert_eq!(all.recent.iter().map(|r| r.at.0).collect::<Vec<_>>(), (51..=100).collect::<Vec<_>>());
    }

    #[test]
    fn codes_are_one_to_one() {
        for kind in ReceiptKind::ALL {
            assert_eq!(ReceiptKind::from_code(kind.code()), Some(kind));
        }
    }

    #[test]
    fn a_receipt_of_an_earlier_release_is_read() {
        let earlier = r#"{"at":7,"detail":"start order-7"}"#;
        let read: Absorbed = serde_json::from_str(earlier).unwrap();
        assert_eq!(read, Absorbed::new(Time(7), "start order-7".to_owned()));
        assert_eq!(serde_json::to_string(&read).unwrap(), earlier, "and absent members stay absent");
    }

    #[test]
    fn of_a_refused_start_the_places_and_the_beginnings_of_both_values_are_kept() {
        let parse = |text: &str| Json::parse(text).unwrap();
        let long = format!("\"{}\"", "ä".repeat(500));
        let held = parse(&format!(r#"{{"amount":1999,"note":{long},"old":[1,2],"a/b":1}}"#));
        let asked = parse(r#"{"amount":2999,"note":"","new":{"x":null},"a/b":2}"#);
        let places = differing(&held, &asked);
        let shown =
            |n: usize| (places[n].pointer.as_str(), places[n].held.as_deref(), places[n].asked.as_deref());
        assert_eq!(shown(0), ("/a~1b", Some("1"), Some("2")));
        assert_eq!(shown(1), ("/amount", Some("1999"), Some("2999")));
        assert_eq!(
            (places[2].pointer.as_str(), places[2].held.as_ref().unwrap().len()),
            ("/note", EXCERPT - 1)
        );
        assert_eq!(shown(3), ("/old", Some("[1,2]"), None));
        assert_eq!(shown(4), ("/new", None, Some(r#"{"x":null}"#)));
        let many = |from: u32| parse(&serde_json::to_string(&(from..from + 20).collect::<Vec<_>>()).unwrap());
        assert_eq!(differing(&many(0), &many(100)).len(), PLACES);
    }
}
