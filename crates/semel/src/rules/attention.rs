//! What a paused run needs from a person, as a code that lists and counts are asked for.

use serde::{Deserialize, Serialize};

use super::entry::PauseReason;

/// Kind of the reason for which a run is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Attention {
    /// A step is in doubt: a person has to say what happened.
    InDoubt,
    /// The code no longer fits the ledger.
    Diverged,
    /// Its nodes kept dying without progress.
    Poisoned,
    /// An operator has paused the run.
    Operator,
}

impl Attention {
    /// All kinds, in order.
    pub const ALL: [Self; 4] = [Self::InDoubt, Self::Diverged, Self::Poisoned, Self::Operator];

    /// Kind of a reason.
    pub fn of(reason: &PauseReason) -> Self {
        match reason {
            PauseReason::InDoubt => Self::InDoubt,
            PauseReason::Diverged(_) => Self::Diverged,
            PauseReason::Poisoned => Self::Poisoned,
            PauseReason::Operator { .. } => Self::Operator,
        }
    }

    /// Code under which stores keep it, from 1.
    pub(crate) fn code(self) -> i16 {
        self as i16 + 1
    }

    /// The kind with this code.
    pub(crate) fn from_code(code: i16) -> Option<Self> {
        Self::ALL.get(usize::try_from(code.checked_sub(1)?).ok()?).copied()
    }
}

/// The kind as it is written on the wire.
impl std::fmt::Display for Attention {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::InDoubt => "in-doubt",
            Self::Diverged => "diverged",
            Self::Poisoned => "poisoned",
            Self::Operator => "operator",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_are_one_to_one() {
        for kind in Attention::ALL {
            assert_eq!(Attention::from_code(kind.code()), Some(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
        assert_eq!([0, 5, -1].map(Attention::from_code), [None; 3]);
    }
}
