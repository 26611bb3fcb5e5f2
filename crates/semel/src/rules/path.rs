//! Places in a run: a path such as `left/pack[item-3]`, and the number of its visit.

use std::borrow::Borrow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use smol_str::{SmolStr, SmolStrBuilder, format_smolstr};

use crate::id::base32;

/// Maximum length of a part, in characters: fits an index entry, and is longer than any sensible name.
pub const MAX_PART: usize = 200;
/// Maximum length of a path, in characters: twenty full parts. A path is copied into every entry of its step.
pub const MAX_PATH: usize = 4_000;

/// Name under which `ctx.patched` records its answers.
pub(crate) const PATCH: &str = "@patch";
/// Name under which the time before the first try of a step is recorded.
pub(crate) const FIRST_TRY: &str = "@first-try";
/// Name under which the decision to commit a transaction over several databases is recorded, inside the path of its block.
pub(crate) const DECISION: &str = "@decision";

/// Why a name or path was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPath {
    /// A part is empty or too long.
    #[error("{0:?} has {1} characters; a name has 1 to {MAX_PART}")]
    Length(String, usize),
    /// A part contains a character that has a meaning in paths, or a control character.
    #[error("{0:?} contains {1:?}; names have no control characters and none of / [ ] #")]
    Character(String, char),
    /// The whole path is too long.
    #[error("the path has {0} characters; at most {MAX_PATH} are accepted")]
    TooLong(usize),
    /// A path was visited again without a key or index, so it cannot be told which of the two results is meant.
    #[error(
        "{0} is visited a second time in this run; add a key (`.key(..)`) or count the visits (`.indexed()`)"
    )]
    DuplicateStep(Path),
}

/// A name: of a workflow, a workflow version, a step, a key of a step. 1 to 200 characters, none of `/ [ ] #`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(SmolStr);

impl Name {
    /// Checks the text and makes it a name.
    pub fn new(text: &str) -> Result<Self, InvalidPath> {
        Self::check(text)?;
        Ok(Self(text.into()))
    }

    fn check(text: &str) -> Result<(), InvalidPath> {
        let (mut length, mut wrong) = (0, None);
        for c in text.chars() {
            length += 1;
            if c.is_control() || matches!(c, '/' | '[' | ']' | '#') {
                wrong = wrong.or(Some(c));
            }
        }
        match wrong {
            _ if length == 0 || length > MAX_PART => Err(InvalidPath::Length(text.to_owned(), length)),
            Some(wrong) => Err(InvalidPath::Character(text.to_owned(), wrong)),
            None => Ok(()),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Scopes, a name and an optional key: `left/pack[item-3]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Path(SmolStr);

impl Path {
    /// The path of a name without scope or key.
    pub fn of(name: &Name) -> Self {
        Self(name.0.clone())
    }

    /// Builds the path of a name with an optional key, inside an optional scope.
    pub fn build(scope: Option<&Self>, name: &str, key: Option<&str>) -> Result<Self, InvalidPath> {
        Name::check(name)?;
        if scope.is_none() && key.is_none() {
            return Ok(Self(name.into()));
        }
        let mut text = SmolStrBuilder::with_capacity(
            scope.map_or(0, |scope| scope.0.len() + 1) + name.len() + key.map_or(0, |key| key.len() + 2),
        );
        if let Some(scope) = scope {
            text.push_str(&scope.0);
            text.push('/');
        }
        text.push_str(name);
        if let Some(key) = key {
            Name::check(key)?;
            text.push('[');
            text.push_str(key);
            text.push(']');
        }
        Self::bounded(text.finish())
    }

    /// Parses text of the form `scope/name[key]`.
    pub fn parse(text: &str) -> Result<Self, InvalidPath> {
        let whole = Self::bounded(text.into())?;
        for part in text.split('/') {
            match part.strip_suffix(']').and_then(|p| p.split_once('[')) {
                Some((name, key)) => Name::new(name).and(Name::new(key))?,
                None => Name::new(part)?,
            };
        }
        Ok(whole)
    }

    /// This path with a key: `pack` → `pack[item-3]`.
    pub fn keyed(&self, key: &Name) -> Result<Self, InvalidPath> {
        Self::bounded(format_smolstr!("{self}[{key}]"))
    }

    /// A name inside this path taken as a scope: `left` → `left/pack`.
    pub fn join(&self, name: &Name) -> Result<Self, InvalidPath> {
        Self::bounded(format_smolstr!("{self}/{name}"))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether an execution may leave this path out although it is recorded: an answer of `ctx.patched`, a time of
    /// `ctx.first_try`, which code asks for only as long as it needs it, and a decision, which belongs to its step.
    pub(crate) fn is_optional(&self) -> bool {
        matches!(self.last_name(), Some(PATCH | FIRST_TRY | DECISION))
    }

    /// Whether a decision to commit is recorded here.
    pub(crate) fn is_decision(&self) -> bool {
        self.last_name() == Some(DECISION)
    }

    fn last_name(&self) -> Option<&str> {
        self.0.rsplit('/').next().and_then(|last| last.split('[').next())
    }

    /// Whether the path has a name that the user gave. Names that the SDK gives begin with `@`.
    pub(crate) fn is_users(&self) -> bool {
        self.0.rsplit('/').next().is_some_and(|name| !name.starts_with('@'))
    }

    fn bounded(text: SmolStr) -> Result<Self, InvalidPath> {
        let length = text.chars().count();
        if length > MAX_PATH { Err(InvalidPath::TooLong(length)) } else { Ok(Self(text)) }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for Path {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// One visit of a path: a loop's second pass has tick 2. A retry keeps its tick.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Visit {
    /// Path of the visited place.
    pub path: Path,
    /// Number of the visit, from 1.
    pub tick: u32,
}

impl Visit {
    /// The first visit of a path.
    pub fn first(path: Path) -> Self {
        Self { path, tick: 1 }
    }

    /// Parses `path` or `path#tick`, one spelling each.
    pub fn parse(text: &str) -> Option<Self> {
        let visit = Self::split(text)?;
        let proper = visit.tick > 0 && Path::parse(visit.path.as_str()).is_ok();
        (proper && visit.to_string() == text).then_some(visit)
    }

    fn split(text: &str) -> Option<Self> {
        let (path, tick) = match text.rsplit_once('#') {
            Some((path, tick)) => (path, tick.parse().ok()?),
            None => (text, 1),
        };
        Some(Self { path: Path(path.into()), tick })
    }
}

impl fmt::Display for Visit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tick == 1 { self.path.fmt(f) } else { write!(f, "{}#{}", self.path, self.tick) }
    }
}

/// Written as `path`, or `path#tick` from the second visit on. Paths contain no `#`.
impl Serialize for Visit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.tick == 1 { self.path.serialize(serializer) } else { serializer.collect_str(self) }
    }
}

/// Visits in the ledger were checked when they were made; reading a long ledger does not check them again.
impl<'de> Deserialize<'de> for Visit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::split(&text).ok_or_else(|| serde::de::Error::custom(format!("{text:?} is not a visit")))
    }
}

/// A text as the key of a path: as it is if that is possible, else by its hash.
pub fn path_key(text: &str) -> String {
    let plain = !text.chars().any(|c| c.is_control() || matches!(c, '/' | '[' | ']' | '#' | '~'))
        && (1..=MAX_PART).contains(&text.chars().count());
    if plain { text.to_owned() } else { format!("~{}", base32(&Sha256::digest(text.as_bytes())[..20])) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_limits() {
        for valid in ["a", "é".repeat(200).as_str(), "order:7", "a b", "..", "%2F"] {
            assert!(Name::new(valid).is_ok(), "{valid}");
        }
        for bad in ["", "é".repeat(201).as_str(), "a/b", "a[b", "a]", "a#2", "a\n", "\0"] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_path_is_scopes_name_and_key() {
        let pack = Path::of(&Name::new("left").unwrap()).join(&Name::new("pack").unwrap()).unwrap();
        let path = pack.keyed(&Name::new("item-3").unwrap()).unwrap();
        assert_eq!(path.as_str(), "left/pack[item-3]");
        assert_eq!(Path::parse("left/pack[item-3]"), Ok(path));
        for bad in ["", "/a", "a/", "a//b", "a[b", "a]b", "a[b]c", "a[]", "a[b][c]", "a#2"] {
            assert!(Path::parse(bad).is_err(), "{bad:?}");
        }
        assert!(matches!(Path::parse(&"abc/".repeat(1001)), Err(InvalidPath::TooLong(_))));
    }

    #[test]
    fn a_visit_has_one_spelling() {
        for valid in ["pay", "pay#2", "left/pack[a]#10"] {
            assert_eq!(Visit::parse(valid).unwrap().to_string(), valid);
        }
        for bad in ["pay#1", "pay#0", "pay#02", "pay#", "#2", "pay#2#3", "pay#x"] {
            assert_eq!(Visit::parse(bad), None, "{bad}");
        }
    }
}
