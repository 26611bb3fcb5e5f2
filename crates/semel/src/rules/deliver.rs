//! Deliveries: a payload for a token, accepted once per delivery id.

use serde::{Deserialize, Serialize};

use super::json::{MAX_BYTES, Payload};
use super::key::{CallId, Fingerprint, Token};
use super::start::{Handover, Start};
use crate::error::Error;
use crate::id::{NodeId, RunId, WorkspaceId};

/// Messages that a run may have unconsumed before deliveries to it are refused. Each of them is read when the run is
/// claimed.
pub const MOST_UNCONSUMED: u64 = 2_000;
/// Bytes of messages that a run may have unconsumed before deliveries to it are refused: sixteen of the largest payloads.
pub const UNCONSUMED_BYTES: u64 = 16 * MAX_BYTES as u64;

/// What a run has not consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unconsumed {
    /// How many messages.
    pub(crate) count: u64,
    /// How long they are together, in bytes.
    pub(crate) bytes: u64,
}

impl Unconsumed {
    /// Whether a run with so few arrivals has room whatever they were, so that the inbox need not be looked at.
    pub(crate) fn is_little(arrivals: u64) -> bool {
        arrivals < UNCONSUMED_BYTES / MAX_BYTES as u64
    }

    /// Refuses a delivery to an inbox that is full. Results of children and of remote steps are never refused: the run
    /// has asked for them.
    pub(crate) fn check(self, run: RunId) -> Result<(), Error> {
        let Self { count, bytes } = self;
        match count < MOST_UNCONSUMED && bytes < UNCONSUMED_BYTES {
            true => Ok(()),
            false => Err(Error::InboxFull { run, count, bytes }),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn an_inbox_is_full_by_number_or_by_bytes() {
        let full = |count, bytes| Unconsumed { count, bytes }.check(RunId(Uuid::nil())).is_err();
        assert!(!full(0, 0) && !full(MOST_UNCONSUMED - 1, UNCONSUMED_BYTES - 1));
        assert!(full(MOST_UNCONSUMED, 0) && full(1, UNCONSUMED_BYTES));
        // What is not looked at has room for certain.
        assert!(Unconsumed::is_little(15) && !Unconsumed::is_little(16));
        assert!(!full(15, 15 * MAX_BYTES as u64));
    }
}
