//! Operator actions: cancel, pause, resume, restart, release of the key, resolution of a doubt, fork.
//!
//! Each appends to the ledger, and so takes the run away from its driver; but for a requested cancel and the release of a
//! driven run's key, which are messages to the driver. Each may be repeated: what is already so is absorbed.

use serde::{Deserialize, Serialize};

use super::deliver::PastCall;
use super::entry::{Entry, Failure, PauseReason, Resolution, RestartFrom};
use super::json::Json;
use super::key::{CallId, Fingerprint, Key};
use super::ledger::{Lineage, Refused};
use super::path::Visit;
use super::run::{Run, State};
use super::status::Status;
use crate::clock::Time;
use crate::error::Error;
use crate::id::{RunId, WorkspaceId};

/// An operator action on a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Control {
    /// The tenant.
    #[serde(skip, default = "WorkspaceId::unsaid")]
    pub workspace: WorkspaceId,
    /// The run.
    pub run: RunId,
    /// What to do.
    pub action: Action,
    /// Who asks; recorded in the ledger.
    pub by: String,
    /// The id under which it may be repeated.
    pub id: Option<CallId>,
    /// Only if the run still has this version.
    pub expected: Option<u64>,
}

/// What an operator can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Action {
    /// End it now.
    Cancel {
        /// Why; recorded.
        reason: String,
    },
    /// Ask it to end: its clean-up goes on, then it is cancelled.
    RequestCancel {
        /// Why; recorded.
        reason: String,
    },
    /// Stop it until a resume.
    Pause,
    /// Let it go on.
    Resume,
    /// Let a failed run begin again.
    Restart(RestartFrom),
    /// Free its key.
    ReleaseKey,
    /// Say what became of a step in doubt.
    Resolve {
        /// Which.
        step: Visit,
        /// What became of it.
        resolution: Resolution,
    },
    /// Start another run that has done what this one had done at a version.
    Fork(Fork),
}

/// How to fork.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fork {
    /// The id of the new run.
    pub run: RunId,
    /// Its key; its id if none is given.
    pub key: Option<Key>,
    /// The number of entries after which the new run goes its own way; all of them if not given.
    pub at: Option<u64>,
    /// Whose effects it has.
    pub lineage: Lineage,
}

impl Action {
    /// Whether a run in this state hears of it by a message in its inbox, so that it stays with its driver.
    pub(crate) fn goes_to_inbox(&self, status: Status) -> bool {
        match self {
            Self::RequestCancel { .. } => true,
            Self::ReleaseKey => status == Status::Running,
            _ => false,
        }
    }

    /// The action as it travels, without the id that a fork draws.
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
                    Resolution::GiveUp(Failure { kind, message }) => {
                        let failure = [("kind", Json::text(kind)), ("message", Json::text(message))];
                        Json::object([("giveUp", Json::object(failure))])
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

    /// The action in the words of a receipt.
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
    /// What is asked and by whom, in the words of a receipt.
    pub(crate) fn words(&self) -> String {
        format!("{}, by {}", self.action.words(), self.by)
    }

    /// Under which its id is remembered.
    pub(crate) const CALL_SCOPE: &'static str = "control";

    /// What is asked, as far as a repeated call must agree: the run and the action as they travel. The id of a run to be
    /// made is not part of it: it is drawn anew by each call.
    pub fn asked(&self) -> Json {
        Json::object([("run", Json::text(&self.run)), ("action", self.action.asked())])
    }

    /// The hash of [what is asked](Self::asked), under which its answer is remembered.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.asked())
    }

    /// The hash under which releases up to 0.1 remembered it. Their stores still answer a repeated call. The text is
    /// Rust's debug format of the action; a test pins it.
    fn early_fingerprint(&self) -> Fingerprint {
        let mut action = self.action.clone();
        if let Action::Fork(fork) = &mut action {
            fork.run = self.run;
        }
        Fingerprint::of_texts([self.run.to_string(), format!("{action:?}")])
    }

    /// Whether a remembered call is this one; another one under the same id is refused.
    pub(crate) fn repeats<'a>(&self, past: &'a PastCall, id: &CallId) -> Result<&'a PastCall, Error> {
        past.repeated(id, self.fingerprint()).or_else(|_| past.repeated(id, self.early_fingerprint()))
    }
}

/// What a control came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Controlled {
    /// The run (with a fork: the new one) as it is now.
    pub run: Run,
    /// Whether this call changed it. A cancel that came too late did not: the run's status says who won.
    pub changed: bool,
    /// Whether the call had been made before under its id, and this is its answer once more.
    pub repeated: bool,
}

/// Decides an action that needs nothing but the header: the entry to append and the state after it, or nothing if it is
/// already so.
pub fn decide(run: &Run, action: &Action, by: &str, now: Time) -> Result<Option<(Entry, State)>, Error> {
    let (by, status) = (by.to_owned(), run.status());
    let (next, entry) = match action {
        // Whoever ended the run first has won; the answer says so.
        Action::Cancel { .. } if status.is_terminal() => return Ok(None),
        Action::Cancel { reason } => (Status::Cancelled, Entry::Cancelled { reason: reason.clone(), by }),
        Action::Pause if status == Status::Paused => return Ok(None),
        Action::Pause => (Status::Paused, Entry::Paused { reason: PauseReason::Operator { by } }),
        Action::Resume if !status.is_terminal() && status != Status::Paused => return Ok(None),
        Action::Resume => (Status::Pending, Entry::Resumed { by }),
        // The store adds the deadline, which stands in the ledger.
        Action::Restart(from) => (Status::Pending, Entry::Restarted { from: *from, by, deadline: None }),
        Action::ReleaseKey if !run.state.holds_key => return Ok(None),
        Action::ReleaseKey => (status, Entry::KeyReleased { by, arrival: None }),
        Action::RequestCancel { .. } | Action::Resolve { .. } | Action::Fork(_) => {
            unreachable!("these need more than the header")
        }
    };
    if matches!(action, Action::ReleaseKey) {
        return Ok(Some((entry, State { holds_key: false, ..noted(run, 1, now) })));
    }
    // Resume and restart both lead to PENDING, but each from its own states.
    let allowed = match action {
        Action::Restart(_) => status.may_restart(),
        _ => status.may_become(next) && !status.is_terminal(),
    };
    if !allowed || run.purged {
        return Err(refused(run, &entry));
    }
    Ok(Some((entry, moved(run, next, now))))
}

/// The state of a run that an operator moved: nobody drives it, and it is due at once if it may go on.
pub fn moved(run: &Run, status: Status, now: Time) -> State {
    let version = run.state.version + 1;
    if status.is_terminal() {
        return super::finish::ended(run, status, version, now);
    }
    State {
        status,
        version,
        due: (status == Status::Pending).then_some(now),
        node: None,
        stalls: 0,
        ended: None,
        purge: None,
        ..run.state.clone()
    }
}

/// The state of a run that stays as it is while an operator adds entries to its ledger. Whoever drives it has lost it
/// by that, so that it must be there for somebody to claim.
pub fn noted(run: &Run, entries: u64, now: Time) -> State {
    let version = run.state.version + entries;
    match run.status() {
        Status::Running => State { version, node: None, due: Some(now), stalls: 0, ..run.state.clone() },
        _ => State { version, ..run.state.clone() },
    }
}

fn refused(run: &Run, entry: &Entry) -> Error {
    let status = run.status();
    if status.is_terminal() {
        return Error::RunFinished { run: run.id(), status };
    }
    Error::Refused { run: run.id(), source: Refused::Status { from: status, entry: entry.kind().into() } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::entry::FailureKind;
    use crate::rules::json::Payload;
    use crate::rules::run::tests::run;

    fn outcome(status: Status, action: &Action) -> String {
        match decide(&run(status), action, "me", Time(5)) {
            Ok(None) => "absorbed".to_owned(),
            Ok(Some((entry, state))) => format!("{} {}", entry.kind(), state.status),
            Err(error) => error.code().to_owned(),
        }
    }

    #[test]
    fn every_action_in_every_state() {
        let cancel = Action::Cancel { reason: "r".to_owned() };
        let restart = Action::Restart(RestartFrom::Failure);
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
            let found =
                [&cancel, &Action::Pause, &Action::Resume, &restart].map(|action| outcome(status, action));
            assert_eq!(found, expected, "{status}");
        }
    }

    #[test]
    fn a_run_that_cannot_be_restarted_says_which_can() {
        let table = [(Status::Waiting, "let it end"), (Status::Paused, "resume it")];
        for (status, instead) in table {
            let run = run(status);
            let error = decide(&run, &Action::Restart(RestartFrom::Failure), "me", Time(5)).unwrap_err();
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
            decide(&run(Status::Failed), &Action::Restart(RestartFrom::Beginning), "me", Time(5))
                .unwrap()
                .unwrap();
        assert_eq!((state.due, state.ended, state.purge), (Some(Time(5)), None, None));
    }

    #[test]
    fn a_purged_run_takes_no_restart() {
        let mut purged = run(Status::Failed);
        purged.purged = true;
        let error = decide(&purged, &Action::Restart(RestartFrom::Beginning), "me", Time(5)).unwrap_err();
        assert_eq!(error.code(), "RUN_FINISHED");
    }

    fn control(action: Action) -> Control {
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

    fn fork(run: u128) -> Action {
        let run = RunId(uuid::Uuid::from_u128(run));
        Action::Fork(Fork { run, key: Some(Key::new("k").unwrap()), at: Some(3), lineage: Lineage::Fresh })
    }

    fn resolve(resolution: Resolution) -> Action {
        Action::Resolve { step: Visit::parse("left/pay#2").unwrap(), resolution }
    }

    fn every_action() -> [Action; 11] {
        let failure = Failure { kind: FailureKind::Fatal, message: "no \"answer\"".to_owned() };
        [
            Action::Cancel { reason: "ill".to_owned() },
            Action::RequestCancel { reason: "ill".to_owned() },
            Action::Pause,
            Action::Resume,
            Action::Restart(RestartFrom::Failure),
            Action::Restart(RestartFrom::Beginning),
            Action::ReleaseKey,
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

    /// Stores of 0.1 hold these. The last one stands for a fork of the very run: its own id was drawn by each call.
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
            let other = Control { action: Action::Cancel { reason: "well".to_owned() }, ..control };
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
