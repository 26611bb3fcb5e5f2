//! What the store keeps of definitions: the document once, under its id; and for each name its versions, and which is current.

use semel::clock::Time;
use semel::rules::json::Payload;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::definitions::id::DefinitionId;
use crate::records::RecordKind;

/// A definition as it is stored. It never changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredDefinition {
    /// The canonical document, of which the id is made.
    pub document: Payload,
    /// The text as it was pushed for the first time.
    pub text: String,
    /// The caller that pushed it first, and the time.
    #[serde(flatten)]
    pub pushed: Pusher,
}

impl RecordKind for StoredDefinition {
    const KIND: &'static str = "definition";
}

/// Who pushed something, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pusher {
    /// Name of the API key, or `root`.
    pub by: String,
    /// Time of the push.
    pub at: Time,
    /// Random id of the call: of two equal pushes in the same millisecond, one is the first.
    pub call: Uuid,
}

/// A name, its versions, and which of them is current.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NameRecord {
    /// Id of the version that new starts of the name get.
    pub current: DefinitionId,
    /// Whether the name is hidden from lists and takes no new starts.
    pub archived: bool,
    /// All versions, in the order of their first push.
    pub versions: Vec<VersionRecord>,
}

impl RecordKind for NameRecord {
    const KIND: &'static str = "definition-name";
}

/// A version of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionRecord {
    /// Label of the version, unique under its name.
    pub label: String,
    /// Id of the definition.
    pub id: DefinitionId,
    /// The caller that pushed it first, and the time.
    #[serde(flatten)]
    pub pushed: Pusher,
}

impl NameRecord {
    /// The version with this id.
    pub fn with_id(&self, id: &DefinitionId) -> Option<&VersionRecord> {
        self.versions.iter().find(|version| version.id == *id)
    }

    /// The version with this label.
    pub fn with_label(&self, label: &str) -> Option<&VersionRecord> {
        self.versions.iter().find(|version| version.label == label)
    }

    /// The version that new starts get.
    pub fn current(&self) -> Option<&VersionRecord> {
        self.with_id(&self.current)
    }

    /// The next label that is a whole number. Labels that are longer than any count are no numbers.
    pub fn next_label(&self) -> String {
        const DIGITS: usize = 9;
        let numbers = self.versions.iter().filter(|version| version.label.len() <= DIGITS);
        let last = numbers.filter_map(|version| version.label.parse::<u64>().ok()).max();
        (last.unwrap_or(0) + 1).to_string()
    }
}
