//! A claimed run with its ledger folded: for workers in other languages, which then need no fold of their own.
//!
//! The names and members here are a contract with published SDKs. A new kind of record may be added; what is there stays.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ArrivedMessage;
use crate::clock::Time;
use crate::id::{RunId, WorkspaceId};
use crate::rules::entry::{Class, Failure, Outcome};
use crate::rules::json::Payload;
use crate::rules::key::{Key, Label, Scope, Token};
use crate::rules::ledger::{HookState, Ledger, VisitRecord};
use crate::rules::path::{Name, Visit};
use crate::rules::step::StepState;

/// A claimed run: what it was started with, and what stands at each visit of its code.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FoldedRun {
    /// Id of the run.
    pub run: RunId,
    /// Workspace of the run; goes into its effect keys.
    pub workspace: WorkspaceId,
    /// The workflow it executes.
    pub workflow: Name,
    /// Version of that workflow.
    pub workflow_version: Name,
    /// Idempotency key of the run.
    pub key: Key,
    /// Scope in which the key is unique: `*` is the workspace.
    pub scope: Scope,
    /// Run id that goes into the effect keys.
    pub lineage: RunId,
    /// Length of the ledger: `expected` of the next commit.
    pub version: u64,
    /// Version of this claim, which user code gets as its fence.
    pub fence: u64,
    /// Number of claims so far. More than one: an earlier owner may still be at work in a body.
    pub claims: u32,
    /// Time of the start, in milliseconds since 1970.
    pub created: Time,
    /// Time by which the run must have ended; absent if it has no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// Set if the run was asked to end and has recorded it: only clean-up may begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelling: Option<CancellingView>,
    /// Input of the run.
    pub input: Payload,
    /// Records of the run, by `path` or `path#tick`.
    pub records: BTreeMap<String, RecordView>,
    /// Values of `run_once` that the run has recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub once: Vec<OnceRecordView>,
    /// Visits from before a restart or a fork: the code that goes on need not reach them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carried: Vec<String>,
    /// Number of the latest message in its inbox, consumed or not; 0 if none has ever arrived.
    #[serde(default)]
    pub arrivals: u64,
    /// Messages that the run has not consumed, or as many as fit into the answer.
    pub inbox: Vec<ArrivedMessage>,
    /// Number of the first message that did not fit: read the inbox from there on. Absent if all of them are in the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox_from: Option<u64>,
}

/// That a run was asked to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CancellingView {
    /// Why it was asked to end.
    pub reason: String,
    /// Name of the caller that asked for it.
    pub by: String,
}

/// A recorded value of `run_once`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct OnceRecordView {
    /// Label of the value.
    pub label: Label,
    /// Scope that it shares with other runs; empty if it is the run's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scope: String,
    /// Value that the run has recorded.
    pub value: Payload,
}

/// Record at one visit of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the fields say what they are; each kind has its line")]
pub enum RecordView {
    /// A step that has begun an attempt whose end is not recorded.
    Started { attempt: u32, class: Class },
    /// A step between two attempts; the next one may begin at `at`.
    Retrying { attempt: u32, at: Time, error: Failure },
    /// A step with a result.
    Completed(Payload),
    /// A step that has finally failed.
    Failed(Failure),
    /// A step that was not needed.
    Skipped,
    /// A step of which it is not known whether its effect took place: an operator has to say it.
    InDoubt { attempt: u32, class: Class },
    /// A step whose last attempt had no effect, as an operator has said: the next attempt may begin.
    Cleared { attempt: u32 },
    /// A timer, and whether it has fired.
    Timer { at: Time, fired: bool },
    /// A hook that the run has opened.
    Hook {
        token: Token,
        state: HookStateView,
        /// Payloads that were received, in their order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        received: Vec<Payload>,
        /// Run that owns the token, if the hook is in conflict.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<RunId>,
    },
    /// A child run; `outcome` is absent until its end is recorded.
    Child {
        run: RunId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
    },
    /// A value that the run has recorded.
    Value(Payload),
}

/// Recorded state of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum HookStateView {
    /// The run owns the token.
    Open,
    /// Another run owns the token.
    Conflicted,
    /// The token is free again.
    Closed,
    /// It was open when the run ended, before a restart: open it again.
    Released,
}

impl FoldedRun {
    /// A folded ledger as it travels. Messages are added by the caller.
    pub fn of(ledger: &Ledger) -> Self {
        let (run, created) = (ledger.run(), ledger.created());
        let records: BTreeMap<_, _> = ledger
            .records()
            .filter_map(|(at, record)| Some((at.to_string(), RecordView::of(record)?)))
            .collect();
        let carried = ledger.records().map(|(at, _)| at).filter(|at| ledger.is_carried(at));
        let once = ledger.once_values().map(|(scope, label, value)| OnceRecordView {
            label: label.clone(),
            scope: scope.to_owned(),
            value: value.clone(),
        });
        Self {
            run: run.id(),
            workspace: run.new.workspace,
            workflow: created.workflow.clone(),
            workflow_version: created.workflow_version.clone(),
            key: created.key.clone(),
            scope: created.scope.clone(),
            lineage: created.lineage,
            version: run.state.version,
            fence: ledger.fence(),
            claims: ledger.claims(),
            created: run.new.created,
            deadline: ledger.deadline(),
            cancelling: ledger
                .cancelling()
                .map(|(reason, by)| CancellingView { reason: reason.to_owned(), by: by.to_owned() }),
            input: created.input.clone(),
            carried: carried.map(Visit::to_string).collect(),
            once: once.collect(),
            records,
            arrivals: run.arrivals,
            inbox: Vec::new(),
            inbox_from: None,
        }
    }
}

impl RecordView {
    /// A record as it travels. None for what the store has not settled: a claimed run has nothing of that kind.
    fn of(record: &VisitRecord) -> Option<Self> {
        Some(match record {
            VisitRecord::Step(step) => Self::of_step(step),
            VisitRecord::Timer { at, fired } => Self::Timer { at: *at, fired: *fired },
            VisitRecord::Hook { token, state } => {
                let (state, received, owner) = match state {
                    HookState::Opening(_) => return None,
                    HookState::Open(all) => (HookStateView::Open, all.clone(), None),
                    HookState::Conflicted(owner) => (HookStateView::Conflicted, Vec::new(), Some(*owner)),
                    HookState::Closed(all) => (HookStateView::Closed, all.clone(), None),
                    HookState::Released(all) => (HookStateView::Released, all.clone(), None),
                };
                Self::Hook { token: token.clone(), state, received, owner }
            }
            VisitRecord::Child { run, outcome } => Self::Child { run: (*run)?, outcome: outcome.clone() },
            VisitRecord::Value(value) => Self::Value(value.clone()),
        })
    }

    fn of_step(step: &StepState) -> Self {
        match step {
            StepState::Started { attempt, class } => Self::Started { attempt: *attempt, class: *class },
            StepState::Retrying { attempt, error, at } => {
                Self::Retrying { attempt: *attempt, at: *at, error: error.clone() }
            }
            StepState::Completed(value) => Self::Completed(value.clone()),
            StepState::Failed(error) | StepState::GivenUp { error, .. } => Self::Failed(error.clone()),
            StepState::Skipped => Self::Skipped,
            StepState::InDoubt { attempt, class } => Self::InDoubt { attempt: *attempt, class: *class },
            StepState::Cleared { attempt } => Self::Cleared { attempt: *attempt },
        }
    }
}
