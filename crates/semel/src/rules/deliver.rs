//! Deliveries: a payload for a token, accepted once per delivery id.

use serde::{Deserialize, Serialize};

use super::json::Payload;
use super::key::{CallId, Fingerprint, Token};
use super::start::{Handover, Start};
use crate::error::Error;
use crate::id::{NodeId, RunId, WorkspaceId};

/// A payload for the owner of a token.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deliver {
    /// The tenant.
    #[serde(skip, default = "WorkspaceId::unsaid")]
    pub workspace: WorkspaceId,
    /// To whom.
    pub token: Token,
    /// What.
    pub payload: Payload,
    /// The id under which it may be repeated: the second time it is absorbed.
    pub id: Option<CallId>,
}

impl Deliver {
    /// The delivery that comes with a start. The start may be repeated as a whole under its run's id, so its payload has
    /// an id in any case.
    pub(crate) fn of(start: &Start, handover: &Handover) -> Self {
        let Handover { token, payload, id } = handover.clone();
        let own = || CallId::new(start.run.to_string()).expect("an id is a call id");
        Self { workspace: start.workspace, token, payload, id: Some(id.unwrap_or_else(own)) }
    }

    /// Under which its id is remembered: ids of different tokens do not meet.
    pub(crate) fn call_scope(&self) -> String {
        format!("deliver/{}", self.token)
    }

    pub(crate) fn fingerprint(&self) -> Result<Fingerprint, Error> {
        Ok(Fingerprint::of_payload(&self.payload)?)
    }
}

/// What became of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivered {
    /// The owner of the token.
    pub run: RunId,
    /// Its number in the owner's inbox.
    pub arrival: u64,
    /// The node that drives the owner and should look into the inbox.
    pub node: Option<NodeId>,
    /// Whether it had been delivered before.
    pub absorbed: bool,
}

/// A call that was accepted under an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastCall {
    /// The run it changed.
    pub run: RunId,
    /// What was asked.
    pub fingerprint: Fingerprint,
    /// What it came to: the arrival of a delivery, the version after a control.
    pub result: u64,
}

impl PastCall {
    /// Whether this is the same call again. The same id for something else is refused.
    pub fn repeated(&self, id: &CallId, fingerprint: Fingerprint) -> Result<&Self, Error> {
        if self.fingerprint == fingerprint {
            return Ok(self);
        }
        Err(Error::CallReused { id: id.clone(), owner: self.run })
    }
}
