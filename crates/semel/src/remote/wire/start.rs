//! Starts and deliveries as they travel.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::run::RunHeader;
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::deliver::{Deliver, Delivered};
use crate::rules::entry::{Entry, Outcome};
use crate::rules::json::Payload;
use crate::rules::key::{CallId, Key, KeyScope, Token};
use crate::rules::millis;
use crate::rules::path::Name;
use crate::rules::run::Retention;
use crate::rules::start::{Handover, Policy, Start, StartVerdict, default_version};
use crate::store::Started;

/// A call that starts many runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StartCall {
    /// The starts; each has its own answer.
    pub starts: Vec<StartItem>,
}

/// A request to start a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Start))]
#[serde(rename_all = "camelCase")]
pub struct StartItem {
    /// Id of the run if it is created. A repeated request with the same id finds the run it created.
    pub run: RunId,
    /// Name of the workflow to execute.
    pub workflow: Name,
    /// Version of the workflow; `1` if absent.
    #[serde(default = "default_version")]
    pub workflow_version: Name,
    /// Input of the run.
    pub input: Payload,
    /// Idempotency key of the run.
    pub key: Key,
    /// Scope in which the key is unique; the workspace by default.
    #[serde(default)]
    pub scope: KeyScope,
    /// What to do if the key is in use: the name of a preset, or a matrix. `attach` by default.
    #[serde(default)]
    pub policy: Policy,
    /// How long the run is remembered after its end; 90 days by default.
    #[serde(default)]
    pub retention: Retention,
    /// JSON pointers into the input that are ignored when two inputs are compared. None by default.
    #[serde(default)]
    pub excluded: Vec<String>,
    /// Delay before the run may begin; none by default.
    #[serde(rename = "delayMs", alias = "delay", with = "millis", default)]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub delay: Duration,
    /// Time limit of the run, counted from its creation; none: no limit.
    #[serde(rename = "timeoutMs", alias = "timeout", with = "millis::option", default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub timeout: Option<Duration>,
    /// A payload for the owner of a token, or for the started run if no run owns it.
    pub deliver: Option<HandoverItem>,
    /// A node with a free slot that drives the run right away, if its lease is alive.
    pub claim: Option<NodeId>,
}

/// The delivery that comes with a start.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Handover))]
#[serde(rename_all = "camelCase")]
pub struct HandoverItem {
    /// Token of the hook that receives the payload.
    pub token: Token,
    /// JSON value to deliver.
    pub payload: Payload,
    /// Id under which the delivery may be repeated. If absent, the same payload for the same token is absorbed when
    /// it comes again with the same workflow, key and scope while the key belongs to the same run.
    pub id: Option<CallId>,
}

/// The result of a start.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Started))]
#[serde(rename_all = "camelCase")]
pub struct StartedRun {
    /// The run: the new one, or the one that owns the key.
    pub run: RunHeader,
    /// What the start turned out to be.
    pub verdict: StartVerdict,
    /// How that run ended, if it has.
    pub outcome: Option<Outcome>,
    /// Where the payload that came with the start was delivered. None if there was none, or if the run had already ended.
    pub delivered: Option<DeliveredPayload>,
    /// The run that was cancelled for this one.
    pub superseded: Option<RunId>,
    /// The ledger of a run that this start created: with it, a node that claimed the run at once can drive it.
    pub entries: Vec<Entry>,
}

/// A payload for the run that owns a token.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Deliver))]
#[serde(rename_all = "camelCase")]
pub struct DeliverCall {
    /// Token of the hook that receives the payload.
    pub token: Token,
    /// JSON value to deliver.
    pub payload: Payload,
    /// Id under which the delivery may be repeated: a second one under the same id is absorbed.
    pub id: Option<CallId>,
}

/// Result of a delivery.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Delivered))]
#[serde(rename_all = "camelCase")]
pub struct DeliveredPayload {
    /// The run that owns the token.
    pub run: RunId,
    /// Number of the message in the owner's inbox.
    pub arrival: u64,
    /// The node that drives the owner and should read the inbox. None if no node does.
    pub node: Option<NodeId>,
    /// Whether the same delivery had been made before.
    pub absorbed: bool,
}

impl StartItem {
    /// The start, in the workspace of the caller.
    pub fn start(self, workspace: WorkspaceId) -> Start {
        let Self {
            run,
            workflow,
            workflow_version,
            input,
            key,
            scope,
            policy,
            retention,
            excluded,
            delay,
            timeout,
            deliver,
            claim,
        } = self;
        let deliver = deliver.map(|HandoverItem { token, payload, id }| Handover { token, payload, id });
        Start {
            workspace,
            run,
            workflow,
            workflow_version,
            input,
            key,
            scope,
            policy,
            retention,
            excluded,
            delay,
            timeout,
            deliver,
            claim,
        }
    }
}

impl From<Start> for StartItem {
    fn from(start: Start) -> Self {
        let Start {
            workspace: _,
            run,
            workflow,
            workflow_version,
            input,
            key,
            scope,
            policy,
            retention,
            excluded,
            delay,
            timeout,
            deliver,
            claim,
        } = start;
        let deliver = deliver.map(|Handover { token, payload, id }| HandoverItem { token, payload, id });
        Self {
            run,
            workflow,
            workflow_version,
            input,
            key,
            scope,
            policy,
            retention,
            excluded,
            delay,
            timeout,
            deliver,
            claim,
        }
    }
}

impl From<Started> for StartedRun {
    fn from(started: Started) -> Self {
        let Started { run, verdict, outcome, delivered, superseded, entries } = started;
        let (run, delivered) = (run.into(), delivered.map(Into::into));
        Self { run, verdict, outcome, delivered, superseded, entries }
    }
}

impl From<StartedRun> for Started {
    fn from(started: StartedRun) -> Self {
        let StartedRun { run, verdict, outcome, delivered, superseded, entries } = started;
        let (run, delivered) = (run.into(), delivered.map(Into::into));
        Self { run, verdict, outcome, delivered, superseded, entries }
    }
}

impl DeliverCall {
    /// The delivery, in the workspace of the caller.
    pub fn deliver(self, workspace: WorkspaceId) -> Deliver {
        let Self { token, payload, id } = self;
        Deliver { workspace, token, payload, id }
    }
}

impl From<Deliver> for DeliverCall {
    fn from(deliver: Deliver) -> Self {
        let Deliver { workspace: _, token, payload, id } = deliver;
        Self { token, payload, id }
    }
}

same_members! { Delivered = DeliveredPayload { run, arrival, node, absorbed } }
