//! Requests and answers about definitions.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Value;
use crate::definitions::catalog::{NamedVersion, VersionRecord};
use crate::definitions::problem::{Problem, Severity, TextPosition};

/// A problem in a definition, or a warning about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocumentProblem {
    /// How bad it is: `syntax`, `structure`, `meaning` or `warning`. Only a warning lets the document pass.
    pub severity: String,
    /// JSON pointer (RFC 6901) to the value in question; empty for the whole document.
    pub pointer: String,
    /// Line in the text as sent, the first one is 1.
    pub line: u32,
    /// Column in characters, the first one is 1.
    pub column: u32,
    /// What is wrong, as a sentence.
    pub message: String,
    /// What to do about it. Absent if the message says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl From<Problem> for DocumentProblem {
    fn from(problem: Problem) -> Self {
        let Problem { severity, pointer, place: TextPosition { line, column }, message, hint } = problem;
        let severity = match severity {
            Severity::Syntax => "syntax",
            Severity::Structure => "structure",
            Severity::Meaning => "meaning",
            Severity::Warning => "warning",
        };
        Self { severity: severity.to_owned(), pointer, line, column, message, hint }
    }
}

/// A line as compilers show it, without the file.
impl fmt::Display for DocumentProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.severity == "warning" { "warning: " } else { "" };
        write!(f, "{}:{}: {word}{}", self.line, self.column, self.message)?;
        if !self.pointer.is_empty() {
            write!(f, " ({})", self.pointer)?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\n    {hint}"),
            None => Ok(()),
        }
    }
}

/// Result of a push: a new version, or one that was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PushedAs {
    /// A new version of the definition.
    Created,
    /// This version had been pushed before.
    Unchanged,
    /// Nothing was written: it was only checked.
    Checked,
}

/// Answer of `POST /workflow-definitions`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PushAnswer {
    /// Whether the pushed version is new.
    pub verdict: PushedAs,
    /// Id of the definition: a hash of its content.
    pub id: String,
    /// Name of the definition.
    pub name: String,
    /// Label of the version; with `check=true`, the one that it has or would get.
    pub version: String,
    /// Whether new starts of the name get this version now.
    pub current: bool,
    /// Id of the version that was current before, if this push has changed that. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// What is accepted, but probably a mistake. Absent if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<DocumentProblem>,
}

/// A version of a definition.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionVersion {
    /// Label of the version, unique under its name.
    pub version: String,
    /// Id of the definition: a hash of its content.
    pub id: String,
    /// Name of the API key that pushed it first.
    pub pushed_by: String,
    /// Time of the first push, RFC 3339.
    #[schema(format = DateTime)]
    pub pushed_at: String,
}

impl From<&VersionRecord> for DefinitionVersion {
    fn from(record: &VersionRecord) -> Self {
        Self {
            version: record.label.clone(),
            id: record.id.to_string(),
            pushed_by: record.pushed.by.clone(),
            pushed_at: super::time(record.pushed.at),
        }
    }
}

/// A definition in a list.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionSummary {
    /// Name of the definition; its runs have it as their workflow.
    pub name: String,
    /// The version that new starts of the name get.
    pub current: DefinitionVersion,
    /// Number of versions that were pushed under the name.
    pub versions: usize,
    /// Whether the name is archived: it takes no new starts.
    pub archived: bool,
}

/// Answer of `GET /workflow-definitions`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionList {
    /// Definitions of this page, by name.
    pub definitions: Vec<DefinitionSummary>,
    /// Cursor of the next page: pass it as `cursor`. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Answer of `GET /workflow-definitions/{id}`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionDetail {
    /// The version, and its name.
    #[serde(flatten)]
    pub named: NamedDefinition,
    /// The canonical document, of which the id is made.
    #[schema(value_type = serde_json::Value)]
    pub document: Value,
    /// The text as it was pushed for the first time.
    pub text: String,
    /// The latest versions of the name, the newest first, at most 100.
    pub versions: Vec<DefinitionVersion>,
}

/// A version of a definition, and the state of its name: the answer to `use` and `archive`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamedDefinition {
    /// Name of the definition.
    pub name: String,
    /// The version: the one that was asked for, else the current one.
    #[serde(flatten)]
    pub version: DefinitionVersion,
    /// Whether new starts of the name get this version.
    pub current: bool,
    /// Whether the name is archived: it takes no new starts.
    pub archived: bool,
}

impl From<&NamedVersion> for NamedDefinition {
    fn from(named: &NamedVersion) -> Self {
        Self {
            name: named.name.clone(),
            version: (&named.version).into(),
            current: named.record.current == named.version.id,
            archived: named.record.archived,
        }
    }
}

/// Answer of `POST /workflow-definitions/{name}/use` and `archive`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NameChanged {
    /// The name with its current version.
    #[serde(flatten)]
    pub named: NamedDefinition,
    /// Whether this call changed anything.
    pub changed: bool,
}

/// Body of `POST /workflow-definitions/{name}/use`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UseVersion {
    /// Label or id of the version that becomes the current one.
    pub version: String,
}

/// Body of `POST /workflow-definitions/{name}/archive`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ArchiveName {}
