//! The record of an approval.

use semel::clock::Time;
use semel::id::{RunId, WorkspaceId};
use semel::rules::json::Payload;
use semel::rules::key::Token;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::api::{ApprovalStatus, Choice, time};
use crate::records::RecordKind;

/// A question to a person, with its decision once there is one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// Workspace of the run that asks.
    pub workspace: WorkspaceId,
    /// Id of the run that asks.
    pub run: RunId,
    /// Path of the step that asks.
    pub step: String,
    /// Token of the hook at which the run waits.
    pub token: Token,
    /// The question in a line.
    pub title: String,
    /// What is to be decided upon, or shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Payload>,
    /// JSON Schema of the answer; only a `human` step has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<Payload>,
    /// Roles that may decide; empty if a role is not needed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
    /// Time at which the run began to ask.
    pub opened_at: Time,
    /// Time at which the run stops waiting.
    pub expires_at: Time,
    /// The decision, as soon as there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
    /// How the step ended, as soon as it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<ApprovalEnd>,
}

impl RecordKind for Approval {
    const KIND: &'static str = "approval";
}

/// How a step that asked has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalEnd {
    /// The run has the decision.
    Decided,
    /// The time for a decision has passed.
    TimedOut,
    /// The run that asked was cancelled.
    Cancelled,
}

/// A decision, with its author.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decided {
    /// The decision of an `approval`; a `human` step has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Choice>,
    /// The changed content, or the answer to the form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Payload>,
    /// Comment of the person who decided; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Name of the API key that decided, or `link`, or `link:` and the person for whom the link was made.
    pub by: String,
    /// Time at which it was decided.
    pub at: Time,
    /// Tells this decision from an equal one by another call in the same millisecond.
    pub call: Uuid,
}

impl Decided {
    /// Whether another decision says the same, whatever its author and time.
    pub(crate) fn says_as(&self, other: &Self) -> bool {
        let same_content = match (&self.content, &other.content) {
            (Some(one), Some(two)) => one.is_same(two),
            (one, two) => one.is_none() && two.is_none(),
        };
        same_content && self.decision == other.decision && self.comment == other.comment
    }

    /// The decision as the value of the step.
    pub fn settled(&self) -> Settled {
        let Self { decision, content, comment, by, at, call: _ } = self.clone();
        Settled { decision, content, comment, by, at: time(at) }
    }

    fn status(&self) -> ApprovalStatus {
        match self.decision {
            Some(Choice::Approved) => ApprovalStatus::Approved,
            Some(Choice::Rejected) => ApprovalStatus::Rejected,
            Some(Choice::Edited) => ApprovalStatus::Edited,
            None => ApprovalStatus::Answered,
        }
    }
}

/// The value of a step that asked a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// The decision of an `approval`; a `human` step has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Choice>,
    /// The changed content, or the answer to the form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Payload>,
    /// Comment of the person who decided; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Name of the person or API key that decided.
    pub by: String,
    /// Time of the decision, RFC 3339.
    pub at: String,
}

impl Approval {
    /// The state of the approval.
    pub fn status(&self) -> ApprovalStatus {
        match (&self.decided, self.ended) {
            (Some(decided), _) => decided.status(),
            (None, Some(ApprovalEnd::TimedOut)) => ApprovalStatus::TimedOut,
            (None, Some(ApprovalEnd::Cancelled)) => ApprovalStatus::Cancelled,
            (None, Some(ApprovalEnd::Decided)) => ApprovalStatus::Answered,
            (None, None) => ApprovalStatus::Open,
        }
    }
}
