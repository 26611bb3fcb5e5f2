//! Receipts: absorbed duplicates are kept with the run that owns the original, and counted.

use serde::{Deserialize, Serialize};

use crate::clock::Time;

/// Number of latest receipts that are kept in full; older ones are only counted.
pub const RECENT: usize = 5;

/// Maximum number of bytes kept of an absorbed request: any key or token, not a whole payload.
pub const DETAIL: usize = 1_200;

/// Kind of an absorbed call.
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
}

impl ReceiptKind {
    /// All kinds, in order.
    pub const ALL: [Self; 4] = [Self::Start, Self::Delivery, Self::Result, Self::Control];

    pub(crate) fn code(self) -> i16 {
        self as i16
    }

    pub(crate) fn from_code(code: i16) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }
}

/// A duplicate call that was absorbed, for the receipts of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Absorbed {
    /// Time at which the duplicate came.
    pub at: Time,
    /// Short text of what it asked for.
    pub detail: String,
}

impl Absorbed {
    /// Notes a call; its text is cut off at [`DETAIL`] bytes.
    pub fn new(at: Time, mut detail: String) -> Self {
        detail.truncate(detail.floor_char_boundary(DETAIL));
        Self { at, detail }
    }
}

/// All absorbed calls of one kind on one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Receipts {
    /// Number of duplicates that were absorbed.
    pub count: u64,
    /// Time of the first one.
    pub first: Time,
    /// Time of the latest one.
    pub last: Time,
    /// The latest few calls, oldest first.
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
        let one = |at| Receipts::one(Absorbed { at: Time(at), detail: at.to_string() });
        let mut all = one(1);
        for at in 2..=100 {
            all.merge(one(at));
        }
        assert_eq!((all.count, all.first, all.last), (100, Time(1), Time(100)));
        assert_eq!(all.recent.iter().map(|r| r.at.0).collect::<Vec<_>>(), [96, 97, 98, 99, 100]);
    }

    #[test]
    fn codes_are_one_to_one() {
        for kind in ReceiptKind::ALL {
            assert_eq!(ReceiptKind::from_code(kind.code()), Some(kind));
        }
    }
}
