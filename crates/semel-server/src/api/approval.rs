//! Requests and answers of approvals.

use serde::{Deserialize, Serialize};

use super::Value;

/// What a person decides in an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// The content is accepted as it is.
    Approved,
    /// The content is not accepted.
    Rejected,
    /// The content is accepted with changes, which come along.
    Edited,
}

impl Choice {
    /// The choice as text, as it is written on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Edited => "edited",
        }
    }
}

/// State of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalStatus {
    /// The run waits for a decision.
    Open,
    /// The content was accepted as it is.
    Approved,
    /// The content was not accepted.
    Rejected,
    /// The content was accepted with changes.
    Edited,
    /// The form was filled in.
    Answered,
    /// The time for a decision has passed.
    TimedOut,
    /// The run was cancelled before a decision.
    Cancelled,
}

impl ApprovalStatus {
    /// The state as text, as it is written on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Edited => "edited",
            Self::Answered => "answered",
            Self::TimedOut => "timed-out",
            Self::Cancelled => "cancelled",
        }
    }
}

/// An approval, or another question to a person, for which a run waits.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalView {
    /// Id of the approval (`apr_…`).
    pub id: String,
    /// Task that asks: `approval`, or `human` if a form is to be filled in.
    pub task: String,
    /// State of the approval.
    pub status: ApprovalStatus,
    /// The question in a line.
    pub title: String,
    /// Roles that may decide. Absent if a role is not needed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
    /// Id of the run that asks.
    pub run: String,
    /// Path of the step that asks, such as `large/approve`.
    pub step: String,
    /// Time at which the run began to ask, RFC 3339.
    #[schema(format = DateTime)]
    pub opened_at: String,
    /// Time at which the run stops waiting, RFC 3339.
    #[schema(format = DateTime)]
    pub expires_at: String,
    /// What is to be decided upon, or shown. Absent in lists, and if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub content: Option<Value>,
    /// JSON Schema of the answer to a `human` task. Absent in lists, and in an `approval`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub form: Option<Value>,
    /// The decision. Absent as long as there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<DecidedView>,
}

/// The decision of an approval, with its author.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecidedView {
    /// The decision. Absent in a `human` task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Choice>,
    /// The changed content, or the answer to the form. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub content: Option<Value>,
    /// Comment on the decision. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Name of the API key that decided; `link`, or `link:` and a name, if it was decided by a link.
    pub by: String,
    /// Time of the decision, RFC 3339.
    #[schema(format = DateTime)]
    pub at: String,
}

/// Answer of `GET /approvals`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalList {
    /// Open approvals on this page, the oldest first. There may be fewer than the limit although more pages follow.
    pub approvals: Vec<ApprovalView>,
    /// Cursor of the next page: pass it as `cursor`. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Body of `POST /approvals/{id}/decide`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DecideApproval {
    /// The decision. Required in an `approval`, and absent in a `human` task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Choice>,
    /// The changed content of the decision `edited`, or the answer to the form of a `human` task. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub content: Option<Value>,
    /// Comment on the decision, at most 10,000 characters. None if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// Body of `POST /approvals/{id}/links`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MakeLinks {
    /// Decisions for which a link is made: `approved`, `rejected` or both.
    pub choices: Vec<Choice>,
    /// Time at which the links expire, RFC 3339; that of the approval if absent or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// Person for whom the links are made, such as a mail address; shown as the author of the decision. None if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// Answer of `POST /approvals/{id}/links`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinksMade {
    /// One link for each choice, in the same order.
    pub links: Vec<LinkView>,
}

/// A link with which a person decides an approval without an API key.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkView {
    /// The decision that the link takes.
    pub choice: Choice,
    /// Path and query of the link, at the public address of the server.
    pub path: String,
    /// Time at which the link expires, RFC 3339.
    #[schema(format = DateTime)]
    pub expires_at: String,
}
