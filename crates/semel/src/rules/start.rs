//! Starting a run: one policy matrix decides what happens if the key is in use.

use serde::{Deserialize, Serialize};

use super::entry::{Created, Entry};
use super::json::{self, Payload};
use super::key::{CallId, Fingerprint, Key, KeyScope, Scope, Token};
use super::path::Name;
use super::run::{NewRun, Parent, Retention, Run, RunState};
use super::status::Status;
use crate::clock::Time;
use crate::error::Error;
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::sabotage::{self, Bug};
use std::time::Duration;

/// A request to start a run. [`Start::new`] fills in the defaults; set the public fields to change them.
#[derive(Clone, Debug)]
pub struct Start {
    /// Workspace in which the run is created.
    pub workspace: WorkspaceId,
    /// Id of the run if it is created. A repeated request with the same id finds the run it created.
    pub run: RunId,
    /// Name of the workflow to execute.
    pub workflow: Name,
    /// Version of the workflow; `1` if absent.
    pub workflow_version: Name,
    /// JSON input of the workflow.
    pub input: Payload,
    /// Idempotency key of the run.
    pub key: Key,
    /// Scope in which the key is unique; the workspace by default.
    pub scope: KeyScope,
    /// What to do if the key is in use: the name of a preset, or a matrix. `attach` by default.
    pub policy: Policy,
    /// How long the run is remembered after its end; 90 days by default.
    pub retention: Retention,
    /// JSON pointers into the input that are ignored when two inputs are compared. None by default.
    pub excluded: Vec<String>,
    /// Delay before the run may begin; none by default.
    pub delay: Duration,
    /// Time limit of the run, counted from its creation; none: no limit.
    pub timeout: Option<Duration>,
    /// A payload for the owner of a token, or for the started run if no run owns it.
    pub deliver: Option<Handover>,
    /// A node with a free slot that drives the run right away, if its lease is alive.
    pub claim: Option<NodeId>,
}

/// The delivery that comes with a start.
#[derive(Clone, Debug)]
pub struct Handover {
    /// Token of the hook that receives the payload.
    pub token: Token,
    /// JSON value for the owner of the token.
    pub payload: Payload,
    /// Id under which the delivery may be repeated. If absent, the same payload for the same token is absorbed when
    /// it comes again with the same workflow, key and scope while the key belongs to the same run.
    pub id: Option<CallId>,
}

/// Workflow version if none is given.
pub const DEFAULT_VERSION: &str = "1";

/// Maximum delay of a start: 100 years. A longer one could overflow when added to the present time.
pub const MAX_DELAY: Duration = Duration::from_hours(100 * 365 * 24);

/// [`DEFAULT_VERSION`] as a name.
pub fn default_version() -> Name {
    Name::new(DEFAULT_VERSION).expect("a plain name")
}

impl Start {
    /// A start with the defaults: scope workspace, policy attach, retention of 90 days, no delay. Without a key, the
    /// run's id is the key.
    pub fn new(workspace: WorkspaceId, run: RunId, workflow: Name, input: Payload, key: Option<Key>) -> Self {
        Self {
            workspace,
            run,
            workflow,
            workflow_version: default_version(),
            input,
            key: key.unwrap_or_else(|| Key::new(run.to_string()).expect("an id is a key")),
            scope: KeyScope::default(),
            policy: Policy::ATTACH,
            retention: Retention::default(),
            excluded: Vec::new(),
            delay: Duration::ZERO,
            timeout: None,
            deliver: None,
            claim: None,
        }
    }

    /// Refuses impossible parameters: an impossible policy, an exclusion that is not a JSON pointer, a delay of
    /// centuries.
    pub fn check(&self) -> Result<(), Error> {
        self.policy.check()?;
        if let Some(text) = self.excluded.iter().find(|text| !json::is_pointer(text)) {
            return Err(Error::Validation(format!(
                "{text:?} is no JSON pointer into the input: a pointer begins with /, as in \"/sentAt\", and has ~0 for ~ \
                 and ~1 for / in a name"
            )));
        }
        if self.delay > MAX_DELAY {
            let days = MAX_DELAY.as_secs() / (24 * 60 * 60);
            return Err(Error::Validation(format!(
                "the delay is too long; at most {days} days are accepted"
            )));
        }
        Ok(())
    }

    /// Whether the key is the id that was drawn for this very start, so that no other request can have used it.
    pub(crate) fn is_keyless(&self) -> bool {
        self.run.is_spelled(self.key.as_str())
    }

    /// Whether the run's first entries do not depend on the time at which it is created.
    #[cfg(feature = "postgres")]
    pub(crate) fn tells_no_time(&self) -> bool {
        self.delay.is_zero() && self.timeout.is_none()
    }

    /// Scope in which the key is unique, as stored.
    pub(crate) fn key_scope(&self) -> Scope {
        Scope::of(self.scope, &self.workflow, &self.workflow_version)
    }

    /// Fingerprint of the request. Computed once per request, outside of any transaction.
    pub(crate) fn fingerprint(&self) -> Result<Fingerprint, Error> {
        Ok(Fingerprint::of_start(&self.workflow, &self.input, &self.excluded)?)
    }
}

/// Action of a policy on an existing run under the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum StartAction {
    /// Answer with the existing run.
    Attach,
    /// Refuse: `DUPLICATE_RUN`, naming the run.
    Reject,
    /// Refuse: `KEY_REUSED`, naming what differs.
    Refuse,
    /// Restart that run, under the same lineage. Only a failed or timed-out run can be.
    Restart,
    /// Start a new run under the key; an open one is cancelled with it.
    Replace,
}

/// One row of the matrix: what to do, by the status of the existing run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyRow {
    /// If the existing run is pending, running, waiting or paused.
    pub open: StartAction,
    /// If the existing run has completed.
    pub completed: StartAction,
    /// If the existing run has failed.
    pub failed: StartAction,
    /// If the existing run was cancelled.
    pub cancelled: StartAction,
    /// If the existing run has timed out.
    pub timed_out: StartAction,
}

impl PolicyRow {
    const fn all(action: StartAction) -> Self {
        Self { open: action, completed: action, failed: action, cancelled: action, timed_out: action }
    }

    pub(crate) fn action(self, status: Status) -> StartAction {
        match status {
            Status::Completed => self.completed,
            Status::Failed => self.failed,
            Status::Cancelled => self.cancelled,
            Status::TimedOut => self.timed_out,
            Status::Pending | Status::Running | Status::Waiting | Status::Paused => self.open,
        }
    }
}

/// The matrix: status of the existing run × same or different payload → what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "PolicyText")]
pub struct Policy {
    /// If the same is asked for again.
    pub same: PolicyRow,
    /// If something else is asked for under the same key.
    pub other: PolicyRow,
}

/// A policy as it is read: the name of a preset, or the whole matrix.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a policy is the name of a preset, or `same` and `other`, each with an action for `open`, `completed`, `failed`, \
                 `cancelled` and `timedOut`"
)]
enum PolicyText {
    Preset(String),
    Matrix(PolicyMatrix),
}

/// Both rows of a policy, as they are read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(crate) struct PolicyMatrix {
    /// If the same is asked for again.
    same: PolicyRow,
    /// If something else is asked for under the same key.
    other: PolicyRow,
}

impl TryFrom<PolicyText> for Policy {
    type Error = Error;

    fn try_from(text: PolicyText) -> Result<Self, Error> {
        match text {
            PolicyText::Preset(name) => Self::preset(&name),
            PolicyText::Matrix(PolicyMatrix { same, other }) => Ok(Self { same, other }),
        }
    }
}

impl Policy {
    /// Every duplicate gets the existing run. The default.
    pub const ATTACH: Self =
        Self { same: PolicyRow::all(StartAction::Attach), other: PolicyRow::all(StartAction::Refuse) };
    /// A completed run is returned, any other refused with its state.
    pub const STRICT: Self = Self {
        same: PolicyRow { completed: StartAction::Attach, ..PolicyRow::all(StartAction::Reject) },
        other: PolicyRow::all(StartAction::Refuse),
    };
    /// Every duplicate is refused.
    pub const REJECT: Self =
        Self { same: PolicyRow::all(StartAction::Reject), other: PolicyRow::all(StartAction::Refuse) };
    /// A finished run frees the key.
    pub const UNIQUE_WHILE_OPEN: Self = Self {
        same: PolicyRow { open: StartAction::Attach, ..PolicyRow::all(StartAction::Replace) },
        other: PolicyRow { open: StartAction::Refuse, ..PolicyRow::all(StartAction::Replace) },
    };
    /// A failed or timed-out run is restarted.
    pub const RETRY_FAILED: Self = Self {
        same: PolicyRow {
            failed: StartAction::Restart,
            timed_out: StartAction::Restart,
            ..PolicyRow::all(StartAction::Attach)
        },
        other: PolicyRow::all(StartAction::Refuse),
    };
    /// The newest request wins: an open run that was asked for something else is cancelled. The same request again
    /// is a duplicate, not news: it attaches, so that a repeated start never cancels the run it started.
    pub const SUPERSEDE: Self =
        Self { same: PolicyRow::all(StartAction::Attach), other: PolicyRow::all(StartAction::Replace) };

    /// The presets by their names on the wire.
    pub const PRESETS: [(&'static str, Self); 6] = [
        ("attach", Self::ATTACH),
        ("strict", Self::STRICT),
        ("reject", Self::REJECT),
        ("unique-while-open", Self::UNIQUE_WHILE_OPEN),
        ("retry-failed", Self::RETRY_FAILED),
        ("supersede", Self::SUPERSEDE),
    ];

    /// The preset of this name.
    pub fn preset(name: &str) -> Result<Self, Error> {
        let known = Self::PRESETS.into_iter().find(|(preset, _)| *preset == name);
        known.map(|(_, policy)| policy).ok_or_else(|| {
            let names = Self::PRESETS.map(|(preset, _)| preset).join(", ");
            Error::Validation(format!("{name:?} is not the name of a policy; choose one of {names}"))
        })
    }

    /// Refuses a matrix that asks for impossible actions.
    pub fn check(&self) -> Result<(), Error> {
        let restarts =
            |row: &PolicyRow| [row.open, row.completed, row.cancelled].contains(&StartAction::Restart);
        if restarts(&self.same) || restarts(&self.other) {
            return Err(Error::Validation(
                "only failed and timed-out runs can be restarted; choose another action".to_owned(),
            ));
        }
        let refuses = |row: &PolicyRow| {
            [row.open, row.completed, row.failed, row.cancelled, row.timed_out].contains(&StartAction::Refuse)
        };
        if refuses(&self.same) {
            return Err(Error::Validation(
                "`refuse` is for other payloads; use `reject` for the same one".to_owned(),
            ));
        }
        Ok(())
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::ATTACH
    }
}

/// How a start was answered: with a new run, or with an existing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum StartVerdict {
    /// A new run was created.
    Created,
    /// An existing run that has not completed is the answer.
    Attached,
    /// An existing run that has completed is the answer, with its result.
    Replayed,
    /// An existing failed run was restarted.
    Restarted,
    /// A new run was created, and the open one before it was cancelled.
    Superseded,
}

/// Decision about a start, for the store to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Insert a new run.
    Create,
    /// Answer with the existing run.
    Attach(StartVerdict),
    /// Restart the existing run.
    Restart,
    /// Take the key from the existing run, cancelling it if it is open, and insert a new one.
    Replace,
    /// Refuse, because the run exists.
    Reject,
    /// Refuse, because the key belongs to a different request.
    Refuse,
}

/// Decides a start by the run that holds the key now, if any.
pub fn decide(start: &Start, fingerprint: Fingerprint, holder: Option<&Run>, now: Time) -> Decision {
    let Some(holder) = holder else { return Decision::Create };
    let same = holder.new.fingerprint == fingerprint || sabotage::commits(Bug::IgnoreFingerprint);
    if holder.id() == start.run {
        // The very request that created it, repeated because its answer was lost; or another one under the same id.
        return if same { Decision::Attach(StartVerdict::Created) } else { Decision::Refuse };
    }
    if holder.key_expired(now) {
        return Decision::Replace;
    }
    let row = if same { start.policy.same } else { start.policy.other };
    match row.action(holder.status()) {
        StartAction::Attach if holder.status() == Status::Completed => {
            Decision::Attach(StartVerdict::Replayed)
        }
        StartAction::Attach if sabotage::commits(Bug::DuplicateSaysCreated) => {
            Decision::Attach(StartVerdict::Created)
        }
        StartAction::Attach => Decision::Attach(StartVerdict::Attached),
        StartAction::Replace => Decision::Replace,
        StartAction::Refuse => Decision::Refuse,
        // What has been forgotten cannot go on.
        StartAction::Restart if !holder.purged => Decision::Restart,
        StartAction::Reject | StartAction::Restart => Decision::Reject,
    }
}

/// The header, the state and the first entries of a run that is to be created; `claim` is the node that drives it at
/// once, if there is one and it is alive.
pub fn create(
    start: &Start,
    claim: Option<NodeId>,
    fingerprint: Fingerprint,
    now: Time,
) -> (NewRun, RunState, Vec<Entry>) {
    let scope = start.key_scope();
    let created = Created {
        workflow: start.workflow.clone(),
        workflow_version: start.workflow_version.clone(),
        input: start.input.clone(),
        key: start.key.clone(),
        scope: scope.clone(),
        lineage: start.run,
        not_before: (!start.delay.is_zero()).then(|| now.after(start.delay)),
        deadline: start.timeout.map(|limit| now.after(limit)),
        parent: None,
        forked_from: None,
    };
    // A delayed run is not claimed yet.
    let claim = claim.filter(|_| start.delay.is_zero());
    created_run(
        created,
        &Frame { id: start.run, workspace: start.workspace, fingerprint, retention: start.retention },
        now,
        if sabotage::commits(Bug::IgnoreDelay) { now } else { now.after(start.delay) },
        claim,
    )
}

/// Parts of a new run that are not in its first entry.
pub(crate) struct Frame {
    pub(crate) id: RunId,
    pub(crate) workspace: WorkspaceId,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) retention: Retention,
}

/// Makes a run as `Created` describes it. For starts, children and forks alike.
pub(crate) fn created_run(
    created: Created,
    frame: &Frame,
    now: Time,
    due: Time,
    claim: Option<NodeId>,
) -> (NewRun, RunState, Vec<Entry>) {
    let new = NewRun {
        id: frame.id,
        workspace: frame.workspace,
        workflow: created.workflow.clone(),
        workflow_version: created.workflow_version.clone(),
        scope: created.scope.clone(),
        key: created.key.clone(),
        fingerprint: frame.fingerprint,
        lineage: created.lineage,
        parent: created.parent.as_ref().map(|Parent { run, .. }| *run),
        retention: frame.retention,
        created: now,
    };
    let deadline = created.deadline;
    let mut entries = vec![Entry::Created(Box::new(created))];
    entries.extend(claim.map(|node| Entry::Claimed { node }));
    let state = RunState {
        status: if claim.is_some() { Status::Running } else { Status::Pending },
        version: entries.len() as u64,
        due: claim.is_none().then_some(due),
        node: claim,
        stalls: 0,
        ended: None,
        purge: None,
        deadline,
        holds_key: true,
        ties: false,
        attention: None,
    };
    (new, state, entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::run::tests::run;
    use uuid::Uuid;

    const SAME: Fingerprint = Fingerprint([0; 32]);
    const OTHER: Fingerprint = Fingerprint([1; 32]);

    fn start(policy: Policy) -> Start {
        let mut start = Start::new(
            WorkspaceId::DEFAULT,
            RunId(Uuid::from_u128(99)),
            Name::new("order").unwrap(),
            Payload::null(),
            None,
        );
        start.policy = policy;
        start
    }

    fn row(policy: Policy, fingerprint: Fingerprint) -> Vec<Decision> {
        [Status::Paused, Status::Completed, Status::Failed, Status::Cancelled, Status::TimedOut]
            .map(|status| decide(&start(policy), fingerprint, Some(&run(status)), Time(2_000)))
            .to_vec()
    }

    #[test]
    fn the_matrix_of_every_preset() {
        use Decision::{Attach, Refuse, Reject, Replace, Restart};
        let (attached, replayed) = (|| Attach(StartVerdict::Attached), || Attach(StartVerdict::Replayed));
        let refused = vec![Refuse; 5];
        let table: [(Policy, Vec<Decision>, Vec<Decision>); 6] = [
            (
                Policy::ATTACH,
                vec![attached(), replayed(), attached(), attached(), attached()],
                refused.clone(),
            ),
            (Policy::STRICT, vec![Reject, replayed(), Reject, Reject, Reject], refused.clone()),
            (Policy::REJECT, vec![Reject; 5], refused.clone()),
            (
                Policy::UNIQUE_WHILE_OPEN,
                vec![attached(), Replace, Replace, Replace, Replace],
                vec![Refuse, Replace, Replace, Replace, Replace],
            ),
            (Policy::RETRY_FAILED, vec![attached(), replayed(), Restart, attached(), Restart], refused),
            (
                Policy::SUPERSEDE,
                vec![attached(), replayed(), attached(), attached(), attached()],
                vec![Replace; 5],
            ),
        ];
        for (policy, same, other) in table {
            assert_eq!(row(policy, SAME), same, "{policy:?}");
            assert_eq!(row(policy, OTHER), other, "{policy:?}");
            assert!(policy.check().is_ok());
        }
    }

    #[test]
    fn a_free_key_creates() {
        assert_eq!(decide(&start(Policy::REJECT), SAME, None, Time(0)), Decision::Create);
    }

    #[test]
    fn a_forgotten_key_is_free_whatever_the_policy() {
        let far = Time(2_000).after(Duration::from_hours(91 * 24));
        for (_, policy) in Policy::PRESETS {
            assert_eq!(decide(&start(policy), OTHER, Some(&run(Status::Failed)), far), Decision::Replace);
        }
    }

    #[test]
    fn the_repeated_request_finds_its_own_run() {
        for (_, policy) in Policy::PRESETS {
            let mut start = start(policy);
            start.run = run(Status::Running).id();
            let decision = decide(&start, SAME, Some(&run(Status::Running)), Time(0));
            assert_eq!(decision, Decision::Attach(StartVerdict::Created));
        }
    }

    #[test]
    fn a_purged_run_is_not_restarted() {
        let mut holder = run(Status::Failed);
        holder.purged = true;
        assert_eq!(decide(&start(Policy::RETRY_FAILED), SAME, Some(&holder), Time(0)), Decision::Reject);
    }

    #[test]
    fn another_request_under_the_same_run_id_is_refused() {
        for (_, policy) in Policy::PRESETS {
            let mut start = start(policy);
            start.run = run(Status::Running).id();
            assert_eq!(decide(&start, OTHER, Some(&run(Status::Running)), Time(0)), Decision::Refuse);
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let refused = |change: &dyn Fn(&mut Start)| {
            let mut start = start(Policy::ATTACH);
            change(&mut start);
            start.check().map_err(|error| error.to_string()).err()
        };
        assert_eq!(refused(&|start| start.excluded = vec!["/sentAt".to_owned()]), None);
        let pointer = refused(&|start| start.excluded = vec!["/a".to_owned(), "sentAt".to_owned()]);
        assert!(pointer.is_some_and(|text| text.contains("\"sentAt\" is no JSON pointer")));
        assert_eq!(refused(&|start| start.delay = MAX_DELAY), None);
        let delay = refused(&|start| start.delay = MAX_DELAY + Duration::from_millis(1));
        assert!(delay.is_some_and(|text| text.contains("at most 36500 days")));
    }

    #[test]
    fn an_impossible_matrix_is_refused() {
        let mut policy = Policy::ATTACH;
        policy.same.completed = StartAction::Restart;
        assert!(policy.check().is_err());
        policy = Policy::ATTACH;
        policy.same.open = StartAction::Refuse;
        assert!(policy.check().is_err());
    }

    #[test]
    fn a_delayed_run_has_no_claim() {
        let mut start = start(Policy::ATTACH);
        let node = Some(NodeId(Uuid::from_u128(5)));
        let (_, state, entries) = create(&start, node, SAME, Time(10));
        assert_eq!((state.status, state.due, entries.len()), (Status::Running, None, 2));
        start.delay = Duration::from_millis(5);
        let (_, state, entries) = create(&start, node, SAME, Time(10));
        assert_eq!((state.status, state.due, entries.len()), (Status::Pending, Some(Time(15)), 1));
    }
}
