//! Operator actions: cancel, pause, resume, restart, release of the key, resolution of a doubt, fork.
//!
//! Each appends to the ledger, and so takes the run away from its driver. The exceptions are a requested cancel and
//! the release of a driven run's key, which are messages to the driver. Each may be repeated: an action that changes
//! nothing is absorbed.

pub(crate) mod again;
pub(crate) mod fork;
pub(crate) mod resolve;

use serde::{Deserialize, Serialize};

use super::attention::Attention;
use super::deliver::PastCall;
use super::entry::{Entry, Failure, PauseReason, Resolution, RestartFrom};
use super::json::Json;
use super::key::{CallId, Fingerprint, Key};
use super::ledger::{Lineage, RefusedEntry};
use super::path::Visit;
use super::run::{Run, RunState};
use super::status::Status;
use crate::clock::Time;
use crate::error::Error;
use crate::id::{RunId, WorkspaceId};

/// An operator action on a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Control {
    /// Workspace to which the run must belong.
    #[serde(skip, default = "WorkspaceId::unsaid")]
    pub workspace: WorkspaceId,
    /// The run to act on.
    pub run: RunId,
    /// The action to take.
    pub action: ControlAction,
    /// Who asks; recorded in the ledger.
    pub by: String,
    /// Id under which the call may be repeated. None: a repeated call is a new one.
    pub id: Option<CallId>,
    /// If given, the action is refused unless the run has this version.
    pub expected: Option<u64>,
}

/// The actions that an operator can take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ControlAction {
    /// Ends the run now, without running its clean-up.
    Cancel {
        /// Reason, recorded in the ledger.
        reason: String,
    },
    /// Asks the run to end: its clean-up runs first, then it is cancelled.
    RequestCancel {
        /// Reason, recorded in the ledger.
        reason: String,
    },
    /// Stops the run until a resume.
    Pause,
    /// Lets a paused run go on.
    Resume,
    /// Lets a failed or timed-out run begin again.
    Restart(RestartFrom),
    /// Frees the run's key for another start.
    ReleaseKey,
    /// Settles a step that is in doubt.
    Resolve {
        /// Visit of the step.
        step: Visit,
        /// What happened to its effect.
        resolution: Resolution,
    },
    /// Starts a new run that takes over this run's ledger up to a version.
    Fork(Fork),
}

/// A new run that begins with the recorded steps of this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ForkCall))]
#[serde(rename_all = "camelCase")]
pub struct Fork {
    /// Id of the new run.
    pub run: RunId,
    /// Key of the new run; its id if absent.
    pub key: Option<Key>,
    /// Number of entries that the new run takes over; all of them if absent.
    pub at: Option<u64>,
    /// Whether the new run keeps the effect keys of the old one.
    pub lineage: Lineage,
}

impl ControlAction {
    /// Whether a run in this state hears of it by a message in its inbox, so that it stays with its driver.
    pub(crate) fn goes_to_inbox(&self, status: Status) -> bool {
        match self {
            Self::RequestCancel { .. } => true,
            Self::ReleaseKey => status == Status::Running,
            _ => false,
        }
    }

    /// The action in its wire form, without the id that a fork draws.
    fn asked(&self) -> Json {
        let because = |reason: &String| Json::object([("reason", Json::text(reason))]);
        match self {
            Self::Cancel { reason } => Json::object([("cancel", because(reason))]),
            Self::RequestCancel { reason } => Json::object([("requestCancel", because(reason))]),
            Self::Pause => Json::text("pause"),
            Self::Resume => Json::text("resume"),
            Self::Restart(RestartFrom::Failure) => Json::object([("restart", Json::text("failure"))]),
            Self::Restart(RestartFrom::Beginning) => Json::object([("restart", Json::text("beginning"))]),
            Self::ReleaseKey => Json::text("releaseKey"),
            Self::Resolve { step, resolution } => {
                let resolution = match resolution {
                    Resolution::Happened(value) => Json::object([("happened", value.json())]),
                    Resolution::DidNotHappen => Json::text("didNotHappen"),
                    Resolution::GiveUp(Failure { kind, message, code, data }) => {
                        let failure = [("kind", Json::text(kind)), ("message", Json::text(message))];
                        let code = code.iter().map(|code| ("code", Json::text(code)));
                        let data = data.iter().map(|data| ("data", data.json()));
                        Json::object([("giveUp", Json::object(failure.into_iter().chain(code).chain(data)))])
                    }
                };
                let resolve = [("step", Json::text(step)), ("resolution", resolution)];
                Json::object([("resolve", Json::object(resolve))])
            }
            Self::Fork(Fork { run: _, key, at, lineage }) => {
                let lineage = match lineage {
                    Lineage::Inherited => "inherited",
                    Lineage::Fresh => "fresh",
                };
                let fork = [
                    ("key", key.as_ref().map_or(Json::Null, Json::text)),
                    ("at", at.map_or(Json::Null, |at| Json::Integer(at.into()))),
                    ("lineage", Json::text(lineage)),
                ];
                Json::object([("fork", Json::object(fork))])
            }
        }
    }

    /// Text of the action in a receipt.
    fn words(&self) -> String {
        match self {
            Self::Cancel { reason } => format!("cancel: {reason}"),
            Self::RequestCancel { reason } => format!("request to cancel: {reason}"),
            Self::Pause => "pause".to_owned(),
            Self::Resume => "resume".to_owned(),
            Self::Restart(RestartFrom::Failure) => "retry".to_owned(),
            Self::Restart(RestartFrom::Beginning) => "restart".to_owned(),
            Self::ReleaseKey => "release of the key".to_owned(),
            Self::Resolve { step, resolution } => match resolution {
                Resolution::Happened(_) => format!("resolution of {step}: it happened"),
                Resolution::DidNotHappen => format!("resolution of {step}: it did not happen"),
                Resolution::GiveUp(_) => format!("resolution of {step}: given up"),
            },
            Self::Fork(Fork { at: Some(at), .. }) => format!("fork at version {at}"),
            Self::Fork(_) => "fork".to_owned(),
        }
    }
}

impl Control {
    /// Text of a receipt: the action, and who asked for it.
    pub(crate) fn words(&self) -> String {
        format!("{}, by {}", self.action.words(), self.by)
    }

    /// Scope under which its call id is remembered.
    pub(crate) const CALL_SCOPE: &'static str = "control";

    /// The part of the request that a repeated call must agree with: the run and the action, in their wire form. The
    /// id of a run to be made is left out, because each call draws a new one.
    pub fn asked(&self) -> Json {
        Json::object([("run", Json::text(&self.run)), ("action", self.action.asked())])
    }

    /// Fingerprint of the [request](Self::asked), under which its answer is remembered.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.asked())
    }

    /// Fingerprint under which releases up to 0.1 remembered the request; their stores still answer a repeated call.
    /// The text is Rust's debug format of the action; a test pins it.
    fn early_fingerprint(&self) -> Fingerprint {
        let mut action = self.action.clone();
        if let ControlAction::Fork(fork) = &mut action {
            fork.run = self.run;
        }
        Fingerprint::of_texts([self.run.to_string(), format!("{action:?}")])
    }

    /// The remembered call if it is this one; refused if it is another one under the same id.
    pub(crate) fn repeats<'a>(&self, past: &'a PastCall, id: &CallId) -> Result<&'a PastCall, Error> {
        past.repeated(id, self.fingerprint()).or_else(|_| past.repeated(id, self.early_fingerprint()))
    }
}

/// Result of an operator action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controlled {
    /// The run after the action; for a fork, the new run.
    pub run: Run,
    /// Whether this call changed the run. A cancel that came too late did not: the run's status says how it ended.
    pub changed: bool,
    /// Whether the call had been made before under its id, so that this is the answer to the first one.
    pub repeated: bool,
}

/// Decides an action that needs nothing but the header: the entry to append and the state after it, or nothing if it is
/// already so.
pub fn decide(
    run: &Run,
    action: &ControlAction,
    by: &str,
    now: Time,
) -> Result<Option<(Entry, RunState)>, Error> {
    let (by, status) = (by.to_owned(), run.status());
    let (next, entry) = match action {
        // The first end of a run wins; the answer names it.
        ControlAction::Cancel { .. } if status.is_terminal() => return Ok(None),
        ControlAction::Cancel { reason } => {
            (Status::Cancelled, Entry::Cancelled { reason: reason.clone(), by })
        }
        ControlAction::Pause if status == Status::Paused => return Ok(None),
        ControlAction::Pause => (Status::Paused, Entry::Paused { reason: PauseReason::Operator { by } }),
        ControlAction::Resume if !status.is_terminal() && status != Status::Paused => return Ok(None),
        ControlAction::Resume => (Status::Pending, Entry::Resumed { by }),
        // `again::complete` adds the deadline, which is in the ledger.
        ControlAction::Restart(from) => {
            (Status::Pending, Entry::Restarted { from: *from, by, deadline: None })
        }
        ControlAction::ReleaseKey if !run.state.holds_key => return Ok(None),
        ControlAction::ReleaseKey => (status, Entry::KeyReleased { by, arrival: None }),
        ControlAction::RequestCancel { .. } | ControlAction::Resolve { .. } | ControlAction::Fork(_) => {
            unreachable!("these need more than the header")
        }
    };
    if matches!(action, ControlAction::ReleaseKey) {
        return Ok(Some((entry, RunState { holds_key: false, ..noted(run, 1, now) })));
    }
    // Resume and restart both lead to PENDING, but from different statuses.
    let allowed = match action {
        ControlAction::Restart(_) => status.may_restart(),
        _ => status.may_become(next) && !status.is_terminal(),
    };
    if !allowed || run.purged {
        return Err(refused(run, &entry));
    }
    Ok(Some((entry, moved(run, next, now))))
}

/// The state of a run that an operator moved: no node drives it, and it is due at once if it may go on.
pub fn moved(run: &Run, status: Status, now: Time) -> RunState {
    let version = run.state.version + 1;
    if status.is_terminal() {
        return super::finish::ended(run, status, version, now);
    }
    RunState {
        status,
        version,
        due: (status == Status::Pending).then_some(now),
        node: None,
        stalls: 0,
        ended: None,
        purge: None,
        // An operator pauses nothing for another reason.
        attention: (status == Status::Paused).then_some(Attention::Operator),
        ..run.state.clone()
    }
}

/// The state of a run that stays as it is while an operator adds entries to its ledger. Its driver has lost it
/// by that, so the run must become due for another claim.
pub fn noted(run: &Run, entries: u64, now: Time) -> RunState {
    let version = run.state.version + entries;
    match run.status() {
        Status::Running => RunState { version, node: None, due: Some(now), stalls: 0, ..run.state.clone() },
        _ => RunState { version, ..run.state.clone() },
    }
}

fn refused(run: &Run, entry: &Entry) -> Error {
    let status = run.status();
    if status.is_terminal() {
        return Error::RunFinished { run: run.id(), status };
    }
    Error::Refused {
        run: run.id(),
        source: RefusedEntry::Status { from: status, entry: entry.kind().into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::entry::{Created, FailureKind};
    use crate::rules::json::Payload;
    use crate::rules::key::Scope;
    use crate::rules::path::Name;
    use crate::rules::run::tests::run;

    /// The first entry of a run, for the tables of this folder.
    pub(super) fn created() -> Created {
        Created {
            workflow: Name::new("order").unwrap(),
            workflow_version: Name::new("order").unwrap(),
            input: Payload::parse("{\"n\":1}").unwrap(),
            key: Key::new("k").unwrap(),
            scope: Scope::children(),
            lineage: run(Status::Pending).new.lineage,
            not_before: None,
            deadline: None,
            parent: None,
            forked_from: None,
        }
    }

    fn outcome(status: Status, action: &ControlAction) -> String {
        match decide(&run(status), action, "me", Time(5)) {
            Ok(None) => "absorbed".to_owned(),
            Ok(Some((entry, state))) => format!("{} {}", entry.kind(), state.status),
            Err(error) => error.code().to_owned(),
        }
    }

    #[test]
    fn every_action_in_every_state() {
        let cancel = ControlAction::Cancel { reason: "r".to_owned() };
        let restart = ControlAction::Restart(RestartFrom::Failure);
        let table = [
            (Status::Pending, ["cancelled CANCELLED", "paused PAUSED", "absorbed", "INVALID_TRANSITION"]),
            (Status::Running, ["cancelled CANCELLED", "paused PAUSED", "absorbed", "INVALID_TRANSITION"]),
            (Status::Waiting, ["cancelled CANCELLED", "paused PAUSED", "absorbed", "INVALID_TRANSITION"]),
            (Status::Paused, ["cancelled CANCELLED", "absorbed", "resumed PENDING", "INVALID_TRANSITION"]),
            (Status::Completed, ["absorbed", "RUN_FINISHED", "RUN_FINISHED", "RUN_FINISHED"]),
            (Status::Failed, ["absorbed", "RUN_FINISHED", "RUN_FINISHED", "restarted PENDING"]),
            (Status::Cancelled, ["absorbed", "RUN_FINISHED", "RUN_FINISHED", "RUN_FINISHED"]),
            (Status::TimedOut, ["absorbed", "RUN_FINISHED", "RUN_FINISHED", "restarted PENDING"]),
        ];
        for (status, expected) in table {
            let found = [&cancel, &ControlAction::Pause, &ControlAction::Resume, &restart]
                .map(|action| outcome(status, action));
            assert_eq!(found, expected, "{status}");
        }
    }

    #[test]
    fn a_run_that_cannot_be_restarted_says_which_can() {
        let table = [(Status::Waiting, "let it end"), (Status::Paused, "resume it")];
        for (status, instead) in table {
            let run = run(status);
            let error =
                decide(&run, &ControlAction::Restart(RestartFrom::Failure), "me", Time(5)).unwrap_err();
            let expected = format!(
                "{}: a run that is {status} cannot be retried or restarted: only FAILED and TIMED_OUT runs can; {instead}, \
                 or fork it",
                run.id()
            );
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn a_restarted_run_is_due_and_no_longer_ended() {
        let (_, state) =
            decide(&run(Status::Failed), &ControlAction::Restart(RestartFrom::Beginning), "me", Time(5))
                .unwrap()
                .unwrap();
        assert_eq!((state.due, state.ended, state.purge), (Some(Time(5)), None, None));
    }

    #[test]
    fn a_purged_run_takes_no_restart() {
        let mut purged = run(Status::Failed);
        purged.purged = true;
        let error =
            decide(&purged, &ControlAction::Restart(RestartFrom::Beginning), "me", Time(5)).unwrap_err();
        assert_eq!(error.code(), "RUN_FINISHED");
    }

    fn control(action: ControlAction) -> Control {
        let run = run(Status::Failed).id();
        Control {
            workspace: WorkspaceId::DEFAULT,
            run,
            action,
            by: "ann".to_owned(),
            id: None,
            expected: None,
        }
    }

    fn fork(run: u128) -> ControlAction {
        let run = RunId(uuid::Uuid::from_u128(run));
        ControlAction::Fork(Fork {
            run,
            key: Some(Key::new("k").unwrap()),
            at: Some(3),
            lineage: Lineage::Fresh,
        })
    }

    fn resolve(resolution: Resolution) -> ControlAction {
        ControlAction::Resolve { step: Visit::parse("left/pay#2").unwrap(), resolution }
    }

    fn every_action() -> [ControlAction; 11] {
        let failure = Failure::new(FailureKind::Fatal, "no \"answer\"");
        [
            ControlAction::Cancel { reason: "ill".to_owned() },
            ControlAction::RequestCancel { reason: "ill".to_owned() },
            ControlAction::Pause,
            ControlAction::Resume,
            ControlAction::Restart(RestartFrom::Failure),
            ControlAction::Restart(RestartFrom::Beginning),
            ControlAction::ReleaseKey,
            resolve(Resolution::Happened(Payload::parse("{\"v\": 1}").unwrap())),
            resolve(Resolution::DidNotHappen),
            resolve(Resolution::GiveUp(failure)),
            fork(1),
        ]
    }

    #[test]
    fn a_repeated_fork_is_the_same_call() {
        assert_eq!(control(fork(5)).fingerprint(), control(fork(6)).fingerprint());
    }

    #[test]
    fn what_is_asked_is_what_travels() {
        for action in every_action() {
            let mut travels = Json::parse(&serde_json::to_string(&action).unwrap()).unwrap();
            travels.remove("/fork/run");
            assert_eq!(action.asked().canonical(), travels.canonical());
        }
    }

    /// Stores of 0.1 hold these. The last one is a fork of the run itself: each call drew the new run's id.
    #[test]
    fn a_call_that_an_earlier_release_remembered_is_answered() {
        let texts = [
            r#"Cancel { reason: "ill" }"#,
            r#"RequestCancel { reason: "ill" }"#,
            "Pause",
            "Resume",
            "Restart(Failure)",
            "Restart(Beginning)",
            "ReleaseKey",
            r#"Resolve { step: Visit { path: Path("left/pay"), tick: 2 }, resolution: Happened({"v": 1}) }"#,
            r#"Resolve { step: Visit { path: Path("left/pay"), tick: 2 }, resolution: DidNotHappen }"#,
            r#"Resolve { step: Visit { path: Path("left/pay"), tick: 2 }, resolution: GiveUp(Failure { kind: Fatal, message: "no \"answer\"" }) }"#,
            r#"Fork(Fork { run: run_00000000000000000000000001, key: Some(Key("k")), at: Some(3), lineage: Fresh })"#,
        ];
        let id = CallId::new("c").unwrap();
        for (action, text) in every_action().into_iter().zip(texts) {
            let control = control(action);
            let fingerprint = Fingerprint::of_texts([control.run.to_string(), text.to_owned()]);
            let past = PastCall { run: control.run, fingerprint, result: 1 };
            assert!(control.repeats(&past, &id).is_ok(), "{text} is not {:?}", control.action);
            let now = PastCall { fingerprint: control.fingerprint(), ..past.clone() };
            assert!(control.repeats(&now, &id).is_ok(), "{text}");
            let other = Control { action: ControlAction::Cancel { reason: "well".to_owned() }, ..control };
            assert_eq!(other.repeats(&past, &id).unwrap_err().code(), "KEY_REUSED", "{text}");
        }
    }

    #[test]
    fn a_receipt_is_in_plain_words() {
        let words = every_action().map(|action| control(action).words());
        let expected = [
            "cancel: ill, by ann",
            "request to cancel: ill, by ann",
            "pause, by ann",
            "resume, by ann",
            "retry, by ann",
            "restart, by ann",
            "release of the key, by ann",
            "resolution of left/pay#2: it happened, by ann",
            "resolution of left/pay#2: it did not happen, by ann",
            "resolution of left/pay#2: given up, by ann",
            "fork at version 3, by ann",
        ];
        assert_eq!(words, expected);
    }
}
