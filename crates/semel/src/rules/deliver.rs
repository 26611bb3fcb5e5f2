//! Deliveries: a payload for a token, accepted once per delivery id.

use super::json::{MAX_BYTES, Payload};
use super::key::{CallId, Fingerprint, Token};
use super::start::{Handover, Start, StartAction};
use super::status::Status;
use crate::error::Error;
use crate::id::{NodeId, RunId, WorkspaceId};

/// Maximum number of unconsumed messages of a run; further deliveries are refused. All of them are read when the run
/// is claimed.
pub const MOST_UNCONSUMED: u64 = 2_000;
/// Maximum size of a run's unconsumed messages in bytes, equal to sixteen of the largest payloads; further deliveries
/// are refused.
pub const UNCONSUMED_BYTES: u64 = 16 * MAX_BYTES as u64;

/// Size of a run's unconsumed messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unconsumed {
    /// Number of messages.
    pub(crate) count: u64,
    /// Their total length in bytes.
    pub(crate) bytes: u64,
}

impl Unconsumed {
    /// Whether a run with so few arrivals certainly has room, so that the inbox need not be measured.
    pub(crate) fn is_little(arrivals: u64) -> bool {
        arrivals < UNCONSUMED_BYTES / MAX_BYTES as u64
    }

    /// Refuses a delivery to a full inbox. Results of children and of remote steps are never refused: the run has
    /// asked for them.
    pub(crate) fn check(self, run: RunId) -> Result<(), Error> {
        let Self { count, bytes } = self;
        match count < MOST_UNCONSUMED && bytes < UNCONSUMED_BYTES {
            true => Ok(()),
            false => Err(Error::InboxFull { run, count, bytes }),
        }
    }
}

/// A payload for the run that owns a token.
#[derive(Clone, Debug)]
pub struct Deliver {
    /// Workspace in which the token is looked up.
    pub workspace: WorkspaceId,
    /// Token of the hook that receives the payload.
    pub token: Token,
    /// JSON value for the owner of the token.
    pub payload: Payload,
    /// Id under which the delivery may be repeated: a second one under the same id is absorbed.
    pub id: Option<CallId>,
}

impl Deliver {
    /// The delivery that comes with a start, under the id that the caller gave.
    pub(crate) fn of(start: &Start, handover: &Handover) -> Self {
        let Handover { token, payload, id } = handover.clone();
        Self { workspace: start.workspace, token, payload, id }
    }

    /// Scope under which its call id is remembered. Each token has its own.
    pub(crate) fn call_scope(&self) -> String {
        format!("deliver/{}", self.token)
    }

    pub(crate) fn fingerprint(&self) -> Result<Fingerprint, Error> {
        Ok(Fingerprint::of_payload(&self.payload)?)
    }
}

/// Result of a start that brings a payload. It is part of the identity of that delivery: the same request is a
/// repetition only while it has the same result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CameTo {
    /// This run holds the key: the start made it, or found it.
    Holder(RunId),
    /// No run was made, because another run owns the token and got the payload. Holds the run that had the key then,
    /// if any.
    NoRun(Option<RunId>),
}

impl Start {
    /// Scope under which [`handover_id`](Self::handover_id) is remembered.
    pub(crate) const HANDOVER_SCOPE: &'static str = "start";

    /// Id under which the delivery of a start is remembered, whether or not the caller gave it one. A repetition of
    /// the whole request has the same run as its result, and so finds it; a start that makes, replaces or finds
    /// another run does not.
    pub(crate) fn handover_id(&self, handover: &Handover, came_to: CameTo) -> Result<CallId, Error> {
        let (kind, run) = match came_to {
            CameTo::Holder(run) => ("holder", Some(run)),
            CameTo::NoRun(held) => ("no-run", held),
        };
        let asked = Fingerprint::of_texts([
            "handover".to_owned(),
            self.key_scope().as_str().to_owned(),
            self.workflow.to_string(),
            self.key.to_string(),
            handover.token.to_string(),
            Fingerprint::of_payload(&handover.payload)?.to_string(),
            handover.id.as_ref().map(ToString::to_string).unwrap_or_default(),
            kind.to_owned(),
            run.map(|run| run.to_string()).unwrap_or_default(),
        ]);
        Ok(CallId::new(asked.to_string()).expect("64 plain characters"))
    }

    /// Whether a start whose payload went to another run, and which therefore made none, is still answered with that
    /// run. Not if that run has ended and the policy lets a new run replace an ended one.
    pub(crate) fn is_answered_by(&self, got: Status) -> bool {
        !got.is_terminal() || self.policy.same.action(got) != StartAction::Replace
    }
}

/// Result of a delivery: the run that got the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The run that owns the token.
    pub run: RunId,
    /// Number of the message in the owner's inbox.
    pub arrival: u64,
    /// The node that drives the owner and should read the inbox. None if no node does.
    pub node: Option<NodeId>,
    /// Whether the same delivery had been made before.
    pub absorbed: bool,
}

/// A call that was accepted under a call id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastCall {
    /// The run that the call changed.
    pub run: RunId,
    /// Fingerprint of the accepted call. A call with the same id and another fingerprint is refused.
    pub fingerprint: Fingerprint,
    /// Result of the call: the arrival of a delivery, or the version after a control.
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

    /// Whether its call id still belongs to the same delivery. An id belongs to the run that got the payload; when
    /// that run has ended and another one owns the token, the id is free again.
    pub fn is_kept(&self, has_ended: bool, owner: Option<RunId>) -> bool {
        !has_ended || owner.is_none_or(|owner| owner == self.run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::key::{Key, KeyScope};
    use crate::rules::path::Name;
    use crate::rules::start::Policy;
    use uuid::Uuid;

    fn id(n: u128) -> RunId {
        RunId(Uuid::from_u128(n))
    }

    fn start() -> Start {
        let (workflow, key) = (Name::new("order").unwrap(), Key::new("k").unwrap());
        let mut start = Start::new(WorkspaceId::DEFAULT, id(9), workflow, Payload::null(), Some(key));
        start.deliver = Some(handover("1"));
        start
    }

    fn handover(payload: &str) -> Handover {
        Handover { token: Token::new("t").unwrap(), payload: Payload::parse(payload).unwrap(), id: None }
    }

    fn named(start: &Start, handover: &Handover, came_to: CameTo) -> String {
        start.handover_id(handover, came_to).unwrap().to_string()
    }

    #[test]
    fn a_repeated_request_has_the_same_handover_id() {
        let mut again = start();
        again.run = id(10);
        again.policy = Policy::RETRY_FAILED;
        let ids = [&start(), &again].map(|start| named(start, &handover("1"), CameTo::Holder(id(1))));
        assert_eq!(ids[0], ids[1]);
        assert_eq!(ids[0], named(&start(), &handover("1.0"), CameTo::Holder(id(1))));
        // Stored: a release that derives another one delivers again what was delivered.
        assert_eq!(ids[0], "6f4d3747eb182de50c00161a1fd7bb2ab2f9f855208d4cf49c74255ff9dd9167");
    }

    #[test]
    fn every_part_of_a_request_counts() {
        let at = CameTo::Holder(id(1));
        let changed = |change: fn(&mut Start)| {
            let mut start = start();
            change(&mut start);
            named(&start, &handover("1"), at)
        };
        let other_token = Handover { token: Token::new("u").unwrap(), ..handover("1") };
        let with_id = Handover { id: Some(CallId::new("d").unwrap()), ..handover("1") };
        let ids = [
            changed(|_| ()),
            changed(|start| start.key = Key::new("l").unwrap()),
            changed(|start| start.workflow = Name::new("refund").unwrap()),
            changed(|start| start.scope = KeyScope::Workflow),
            named(&start(), &handover("2"), at),
            named(&start(), &other_token, at),
            named(&start(), &with_id, at),
            named(&start(), &handover("1"), CameTo::Holder(id(2))),
            named(&start(), &handover("1"), CameTo::NoRun(Some(id(1)))),
            named(&start(), &handover("1"), CameTo::NoRun(None)),
        ];
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
    }

    #[test]
    fn a_run_that_has_ended_answers_unless_the_policy_replaces_it() {
        let answers = |policy, status| Start { policy, ..start() }.is_answered_by(status);
        assert!(answers(Policy::ATTACH, Status::Completed));
        assert!(answers(Policy::UNIQUE_WHILE_OPEN, Status::Running));
        assert!(!answers(Policy::UNIQUE_WHILE_OPEN, Status::Completed));
    }

    #[test]
    fn a_delivery_id_belongs_to_the_run_that_got_the_payload() {
        let past = PastCall { run: id(1), fingerprint: Fingerprint([0; 32]), result: 1 };
        let table = [
            ((false, None), true),
            ((false, Some(id(1))), true),
            ((false, Some(id(2))), true),
            ((true, None), true),
            ((true, Some(id(1))), true),
            ((true, Some(id(2))), false),
        ];
        for ((has_ended, owner), kept) in table {
            assert_eq!(past.is_kept(has_ended, owner), kept, "{has_ended} {owner:?}");
        }
    }

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
