//! Ids of definitions: a hash of their content.

use std::fmt;

use semel::id::base32;
use semel::rules::json::{InvalidJson, Json};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::document::Node;

/// What the ids of this language begin with. A server that does not know a language leaves its runs to others.
pub const FAMILY: &str = "def1_";
/// Characters of the hash: 130 bits.
const LENGTH: usize = 26;

/// Id of a definition. YAML and JSON of the same content have the same one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DefinitionId(String);

/// The part of an id that differs from others, for tables in memory.
pub(super) type IdKey = [u8; LENGTH];

impl DefinitionId {
    /// The id that a text is, if it is one.
    pub fn parse(text: &str) -> Option<Self> {
        let hash = text.strip_prefix(FAMILY)?;
        let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z') && !b"ilou".contains(&byte);
        (hash.len() == LENGTH && hash.bytes().all(digit)).then(|| Self(text.to_owned()))
    }

    /// The part of the id that differs from others.
    pub(super) fn key(&self) -> IdKey {
        let mut key = [0; LENGTH];
        for (place, byte) in key.iter_mut().zip(self.0.bytes().skip(FAMILY.len())) {
            *place = byte;
        }
        key
    }

    /// The id of a canonical document.
    pub(super) fn of_canonical(canonical: &str) -> Self {
        let mut hash = base32(&Sha256::digest(canonical));
        hash.truncate(LENGTH);
        Self(format!("{FAMILY}{hash}"))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DefinitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The canonical JSON of a document, and its id.
pub fn identify(node: &Node) -> Result<(String, DefinitionId), InvalidJson> {
    let canonical = Json::parse(&node.json())?.canonical();
    let id = DefinitionId::of_canonical(&canonical);
    Ok((canonical, id))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::definitions::document;

    #[derive(Deserialize)]
    struct Vector {
        why: String,
        given: Given,
        expected: Expected,
    }

    #[derive(Deserialize)]
    struct Given {
        yaml: String,
        json: String,
    }

    #[derive(Deserialize)]
    struct Expected {
        canonical: String,
        id: String,
    }

    #[test]
    fn an_id_is_told_from_a_name() {
        let id = format!("{FAMILY}{}", "0123456789abcdefghjkmnpqrs");
        assert_eq!(DefinitionId::parse(&id).map(|id| id.to_string()), Some(id.clone()));
        for other in [
            "",
            "def1_",
            "order",
            &id[1..],
            &id[..30],
            &format!("{id}0"),
            &id.to_uppercase(),
            &id.replace('a', "u"),
        ] {
            assert_eq!(DefinitionId::parse(other), None, "{other}");
        }
    }

    #[test]
    fn ids_are_those_of_the_golden_vectors() {
        let text = include_str!("../../../../vectors/definition_ids.json");
        let vectors: Vec<Vector> = serde_json::from_str(text).unwrap();
        assert!(vectors.len() >= 4);
        for Vector { why, given, expected } in vectors {
            for text in [given.yaml, given.json] {
                let (canonical, id) = identify(&document::read(&text).unwrap()).unwrap();
                assert_eq!((&canonical, id.as_str()), (&expected.canonical, &*expected.id), "{why}");
            }
        }
    }
}
