//! Receipts: what was absorbed is kept on its owner and counted.

use serde::{Deserialize, Serialize};

use crate::clock::Time;

/// How many of the latest receipts are kept in full; older ones are only counted.
pub const RECENT: usize = 5;

/// How many bytes are kept of what an absorbed call asked: any key or token, not a whole payload.
pub const DETAIL: usize = 1_200;

/// What kind of call was absorbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiptKind {
    /// A start under a key in use.
    Start,
    /// A delivery under an id that was delivered.
    Delivery,
    /// A result of an owner that had lost the run.
    Result,
    /// An operator action that was already done.
    Control,
}

impl ReceiptKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Start, Self::Delivery, Self::Result, Self::Control];

    pub(crate) fn code(self) -> i16 {
        self as i16
    }

    pub(crate) fn from_code(code: i16) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }
}

/// One absorbed call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absorbed {
    /// When.
    pub at: Time,
    /// What it asked, in short.
    pub detail: String,
}

impl Absorbed {
    /// Notes a call; what it asked is cut off at [`DETAIL`].
    pub fn new(at: Time, mut detail: String) -> Self {
        detail.truncate(detail.floor_char_boundary(DETAIL));
        Self { at, detail }
    }
}

/// All absorbed calls of one kind on one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipts {
    /// How many.
    pub count: u64,
    /// When the first came.
    pub first: Time,
    /// When the last came.
    pub last: Time,
    /// The latest few, oldest first.
    pub recent: Vec<Absorbed>,
}

impl Receipts {
    /// The first of its kind.
    pub fn one(absorbed: Absorbed) -> Self {
        Self { count: 1, first: absorbed.at, last: absorbed.at, recent: vec![absorbed] }
    }

    /// Takes in later ones.
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
