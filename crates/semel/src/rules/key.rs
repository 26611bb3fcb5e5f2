//! Identities: the key of a run and where it is unique, effect keys, fingerprints.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::json::{InvalidJson, Json, Payload};
use super::path::{Name, Visit};
use crate::id::{RunId, WorkspaceId, base32};

/// Maximum length of keys and tokens, in characters; the best-known providers and proxies accept as much.
pub const MAX_KEY: usize = 255;

/// Why a key or token was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} has {length} characters{blank}; give 1 to {MAX_KEY} that are not all blank, without control characters"
)]
pub struct InvalidKey {
    what: &'static str,
    length: usize,
    blank: &'static str,
}

fn check(what: &'static str, text: &str) -> Result<(), InvalidKey> {
    let length = text.chars().count();
    let control = text.chars().any(char::is_control);
    if text.trim().is_empty() || length > MAX_KEY || control {
        let blank = if control { ", some of them control characters" } else { "" };
        return Err(InvalidKey { what, length, blank });
    }
    Ok(())
}

macro_rules! key_text {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text. It is kept unchanged: no case folding, no normalising, no trimming.
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidKey> {
                let text = text.into();
                check($what, &text)?;
                Ok(Self(text.into()))
            }

            /// The value as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

key_text!(
    /// The caller's idempotency key of a run.
    Key, "the key"
);
key_text!(
    /// The public address of a hook.
    Token, "the token"
);
key_text!(
    /// The id under which a caller may repeat a delivery or an operator action.
    CallId, "the call id"
);
key_text!(
    /// The label under which a `run_once` value is remembered.
    Label, "the label"
);
key_text!(
    /// Identifies a record among those of its kind.
    RecordId, "the record id"
);

/// Scope in which a key is unique, always inside one workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum KeyScope {
    /// The key is unique in the workspace.
    #[default]
    Workspace,
    /// The key is unique among the runs of one workflow.
    Workflow,
    /// The key is unique among the runs of one workflow version.
    WorkflowVersion,
}

/// A key scope with its names filled in, as the unique index holds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scope(Arc<str>);

impl Scope {
    /// The scope of a run's key. Names contain no `/`, so two different scopes never have the same text.
    pub fn of(scope: KeyScope, workflow: &Name, version: &Name) -> Self {
        Self(match scope {
            KeyScope::Workspace => "*".into(),
            KeyScope::Workflow => format!("w/{workflow}").into(),
            KeyScope::WorkflowVersion => format!("v/{workflow}/{version}").into(),
        })
    }

    /// Reads the text form of a scope: `*` (the workspace), `w/order`, `v/order/1`, `child`.
    pub fn parse(text: &str) -> Option<Self> {
        let named = |names: &str, count| {
            let names: Vec<_> = names.split('/').collect();
            names.len() == count && names.iter().all(|name| Name::new(name).is_ok())
        };
        let proper = match text.split_once('/') {
            None => text == "*" || text == "child",
            Some(("w", workflow)) => named(workflow, 1),
            Some(("v", version)) => named(version, 2),
            Some(_) => false,
        };
        proper.then(|| Self(text.into()))
    }

    /// The scope of children, whose keys are effect keys.
    pub fn children() -> Self {
        Self("child".into())
    }

    /// The scope as stored text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn stored(text: String) -> Self {
        Self(text.into())
    }
}

/// SHA-256 over length-prefixed parts. Plain concatenation would treat `("a", "bc")` and `("ab", "c")` as equal.
fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// The stable identity of an effect: the same on every attempt, after every crash, restart and fork.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EffectKey([u8; 20]);

impl EffectKey {
    /// The key of a visit in a lineage. `label` distinguishes several effects of one step; it is empty for the first.
    pub fn of(workspace: WorkspaceId, lineage: RunId, visit: &Visit, label: &str) -> Self {
        let full = digest([
            b"semel/effect/v1".as_slice(),
            workspace.to_string().as_bytes(),
            lineage.to_string().as_bytes(),
            visit.path.as_str().as_bytes(),
            visit.tick.to_string().as_bytes(),
            label.as_bytes(),
        ]);
        Self(full[..20].try_into().expect("20 of 32 bytes"))
    }

    /// The same identity as a UUID (version 8), for providers that require one.
    pub fn uuid(&self) -> Uuid {
        Uuid::new_v8(self.0[..16].try_into().expect("16 of 20 bytes"))
    }
}

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e1{}", base32(&self.0))
    }
}

impl fmt::Debug for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A SHA-256 hash of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

/// Written as 64 hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let pairs = text.as_bytes().chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(pair, 16).ok().filter(|_| pair.len() == 2 && !pair.starts_with('+'))
        });
        let bytes: Option<Vec<u8>> = pairs.collect();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| de::Error::custom("a fingerprint is 64 hexadecimal digits"))
    }
}

impl Fingerprint {
    /// Fingerprint of a start: the workflow's name and its input, without the excluded pointers of the input.
    pub fn of_start(workflow: &Name, input: &Payload, excluded: &[String]) -> Result<Self, InvalidJson> {
        Ok(Self::of(&asked(workflow, input, excluded)?))
    }

    /// Fingerprint of a JSON value. Equal values have equal fingerprints, whatever the order of their members.
    pub fn of_payload(payload: &Payload) -> Result<Self, InvalidJson> {
        Ok(Self::of(&Json::parse(payload.text())?))
    }

    /// Fingerprint of texts of any length.
    pub(crate) fn of_texts(texts: impl IntoIterator<Item = String>) -> Self {
        Self::of(&Json::List(texts.into_iter().map(Json::Text).collect()))
    }

    pub(crate) fn of(value: &Json) -> Self {
        Self(digest([b"semel/fingerprint/v1".as_slice(), value.canonical().as_bytes()]))
    }
}

/// The pointers at which two starts differ: `/workflow`, `/input/…`.
pub fn differences(
    first: (&Name, &Payload),
    second: (&Name, &Payload),
    excluded: &[String],
) -> Result<Vec<String>, InvalidJson> {
    Ok(asked(first.0, first.1, excluded)?.differences(&asked(second.0, second.1, excluded)?))
}

/// The part of a start that the fingerprint covers, as one document.
pub(crate) fn asked(workflow: &Name, input: &Payload, excluded: &[String]) -> Result<Json, InvalidJson> {
    let mut input = Json::parse(input.text())?;
    for pointer in excluded {
        input.remove(pointer);
    }
    let workflow = Json::Text(workflow.as_str().to_owned());
    Ok(Json::Object([("workflow".to_owned(), workflow), ("input".to_owned(), input)].into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::path::Path;

    fn visit(path: &str, tick: u32) -> Visit {
        Visit { path: Path::parse(path).unwrap(), tick }
    }

    #[test]
    fn an_effect_key_has_34_characters_and_a_uuid() {
        let key = EffectKey::of(WorkspaceId::DEFAULT, RunId(Uuid::from_u128(7)), &visit("pay", 1), "");
        assert_eq!(key.to_string().len(), 34);
        assert!(key.to_string().starts_with("e1"));
        assert_eq!(key.uuid().get_version_num(), 8);
    }

    #[test]
    fn every_part_of_an_effect_counts() {
        let (ws, run) = (WorkspaceId::DEFAULT, RunId(Uuid::from_u128(7)));
        let keys = [
            EffectKey::of(ws, run, &visit("a", 1), "bc"),
            EffectKey::of(ws, run, &visit("ab", 1), "c"),
            EffectKey::of(ws, run, &visit("abc", 1), ""),
            EffectKey::of(ws, run, &visit("a", 2), "bc"),
            EffectKey::of(ws, RunId(Uuid::from_u128(8)), &visit("a", 1), "bc"),
            EffectKey::of(WorkspaceId(Uuid::from_u128(1)), run, &visit("a", 1), "bc"),
        ];
        let distinct: std::collections::HashSet<_> = keys.iter().map(ToString::to_string).collect();
        assert_eq!(distinct.len(), keys.len());
    }

    #[test]
    fn keys_are_taken_as_they_are() {
        for valid in ["a", " a", "ä", "a:b/c|d%", "é".repeat(255).as_str(), "null"] {
            assert_eq!(Key::new(valid).unwrap().as_str(), valid);
        }
        for bad in ["", "  ", "\t", "é".repeat(256).as_str(), "a\0b"] {
            assert!(Key::new(bad).is_err(), "{bad:?}");
        }
        assert_ne!(Key::new("a").unwrap(), Key::new("A").unwrap());
        // Composed and decomposed é are two keys.
        assert_ne!(Key::new("\u{e9}").unwrap(), Key::new("e\u{301}").unwrap());
    }

    #[test]
    fn scopes_do_not_meet() {
        let name = |text| Name::new(text).unwrap();
        assert_ne!(
            Scope::of(KeyScope::WorkflowVersion, &name("a"), &name("b")),
            Scope::of(KeyScope::Workflow, &name("a"), &name("b"))
        );
        assert_ne!(
            Scope::of(KeyScope::WorkflowVersion, &name("a"), &name("bc")),
            Scope::of(KeyScope::WorkflowVersion, &name("ab"), &name("c"))
        );
    }

    #[test]
    fn a_scope_is_read_as_it_is_shown() {
        let name = Name::new("a").unwrap();
        for scope in [KeyScope::Workspace, KeyScope::Workflow, KeyScope::WorkflowVersion] {
            let scope = Scope::of(scope, &name, &name);
            assert_eq!(Scope::parse(scope.as_str()), Some(scope));
        }
        assert_eq!(Scope::parse("child"), Some(Scope::children()));
        for bad in ["", "workspace", "w", "w/", "w/a/b", "v/a", "v/a/", "v/a/b/c", "x/a", "w/a#2"] {
            assert_eq!(Scope::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_fingerprint_is_of_the_meaning_not_the_spelling() {
        let name = Name::new("order").unwrap();
        let print = |text: &str, excluded: &[&str]| {
            let excluded: Vec<_> = excluded.iter().map(ToString::to_string).collect();
            Fingerprint::of_start(&name, &Payload::parse(text).unwrap(), &excluded).unwrap()
        };
        assert_eq!(print(r#"{"a":1,"b":2.0}"#, &[]), print(r#"{ "b":2, "a":1e0 }"#, &[]));
        assert_ne!(print(r#"{"a":1}"#, &[]), print(r#"{"a":2}"#, &[]));
        assert_eq!(print(r#"{"a":1,"t":5}"#, &["/t"]), print(r#"{"a":1,"t":6}"#, &["/t"]));
        assert_ne!(print("9007199254740993", &[]), print("9007199254740992", &[]));
    }
}
