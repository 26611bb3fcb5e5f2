//! Families of workflow versions: runs that one program drives, whatever their workflow and workspace.
//!
//! A server hosts programs that are not known when it is compiled: definitions, schedules. All runs of such a kind share
//! the first five characters of their workflow version, for example `def1_`. One index entry per due run and one question
//! per claim find them, however many definitions and workspaces there are.

use std::fmt;

use super::path::{InvalidPath, Name};

/// Number of characters of a family's prefix. The stores' index has this number in it.
const LENGTH: usize = 5;

/// A prefix of workflow versions: four lower-case letters or digits and an underscore, such as `def1_`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Family(Name);

/// The text is no prefix of a family.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no family of workflow versions: give four lower-case letters or digits and an underscore, such as `def1_`"
)]
pub struct InvalidFamily(String);

impl Family {
    /// Checks the text and makes it a family.
    pub fn new(prefix: &str) -> Result<Self, InvalidFamily> {
        let invalid = |_: InvalidPath| InvalidFamily(prefix.to_owned());
        match is_prefix(prefix) {
            true => Name::new(prefix).map(Self).map_err(invalid),
            false => Err(InvalidFamily(prefix.to_owned())),
        }
    }

    /// The family of a workflow version; none if the version begins with no such prefix.
    pub fn of(version: &Name) -> Option<Self> {
        version.as_str().get(..LENGTH).and_then(|prefix| Self::new(prefix).ok())
    }

    /// The prefix of its versions, such as `doc1_`.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

fn is_prefix(text: &str) -> bool {
    let (letters, end) = text.as_bytes().split_at(text.len().min(LENGTH - 1));
    end == b"_" && letters.iter().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_four_characters_and_an_underscore() {
        for right in ["def1_", "code_", "0000_"] {
            assert_eq!(Family::new(right).unwrap().as_str(), right);
        }
        for wrong in ["", "def_", "def1", "def12_", "DEF1_", "dé1_", "de-1_", "def1_x"] {
            assert!(Family::new(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_version_belongs_to_the_family_that_it_begins_with() {
        let of = |version| Family::of(&Name::new(version).unwrap()).map(|family| family.to_string());
        assert_eq!(of("def1_0a1b"), Some("def1_".to_owned()));
        assert_eq!(of("def1_"), Some("def1_".to_owned()));
        for other in ["1", "2024-01_x", "dé1_x", "def1", "Def1_x"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
