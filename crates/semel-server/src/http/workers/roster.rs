//! The workers that have been heard of lately: register, heartbeat, release, list.
//!
//! Each has a record in the store that lives as long as its lease, so that every server lists the workers of all. What a
//! worker has claimed here since its last heartbeat is only in memory until the next one.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use semel::clock::Time;
use semel::id::{NodeId, WorkspaceId};
use semel::remote::wire::{Heartbeat, Join, Joined, Leased, Release};
use semel::rules::json::Payload;
use semel::rules::key::RecordId;
use semel::rules::path::Name;
use semel::rules::record::{Keep, Look, LookBy, Record};
use semel::sabotage::{self, Bug};
use semel::store::{Lease, LeaseAct};
use serde::{Deserialize, Serialize};

use super::answer::{Call, Refusal, Told};
use super::{Shared, node};
use crate::access::Caller;
use crate::api::{Permission, WorkerList, WorkerView, time};
use crate::app::App;
use crate::http::Problem;
use crate::http::describe::{Always, Changes, OfRun};

/// The longest lease: a worker that is gone must not hold its runs for longer.
const LONGEST_LEASE_MS: u64 = 3_600_000;
/// The longest name, and the longest of what a worker serves.
const LONGEST_NAME: usize = 500;
/// So many workers are looked up at once.
const PAGE: usize = 500;
/// At most so much is served by one worker.
const MOST_SERVED: usize = 2_000;

/// What is kept of a worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Worker {
    name: String,
    serves: BTreeSet<String>,
}

/// Who has been heard of here lately, by workspace and node, and until when.
#[derive(Default)]
pub(super) struct Roster(Mutex<HashMap<(WorkspaceId, NodeId), (Worker, Time)>>);

impl Roster {
    fn lock(&self) -> MutexGuard<'_, HashMap<(WorkspaceId, NodeId), (Worker, Time)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, place: (WorkspaceId, NodeId), worker: Worker, now: Time, until: Time) {
        let mut roster = self.lock();
        // Whoever's lease has ended is gone.
        roster.retain(|_, (_, until)| *until > now);
        roster.insert(place, (worker, until));
    }

    fn known(&self, place: (WorkspaceId, NodeId)) -> Option<Worker> {
        self.lock().get(&place).map(|(worker, _)| worker.clone())
    }

    /// A worker asks for runs of these: `name@version`, `queue:name`.
    pub(super) fn serves(
        &self,
        workspace: WorkspaceId,
        drawn: NodeId,
        served: impl IntoIterator<Item = String>,
    ) {
        if let Some((worker, _)) = self.lock().get_mut(&(workspace, node::of(workspace, drawn))) {
            for name in served {
                if worker.serves.len() < MOST_SERVED {
                    worker.serves.insert(name);
                }
            }
        }
    }
}

fn kind(workspace: WorkspaceId) -> Name {
    Name::new(&format!("worker-{workspace}")).expect("an id is part of a name")
}

fn record_id(node: NodeId) -> RecordId {
    RecordId::new(node.to_string()).expect("an id is one of a record")
}

/// Writes what is known of a worker, for as long as it is believed in.
async fn note(
    app: &App,
    (workspace, node): (WorkspaceId, NodeId),
    worker: &Worker,
    ttl: Duration,
) -> semel::error::Result<()> {
    let body = Payload::of(worker)?;
    let (kind, id) = (kind(workspace), record_id(node));
    app.store.keep(Keep { kind, id, body, expected: None, ttl: Some(ttl) }).await.map(drop)
}

fn read(record: &Record) -> semel::error::Result<Worker> {
    let at = || format!("record {} {}", record.kind, record.id);
    record.body.read().map_err(|e| semel::Error::Corrupt { at: at(), source: e.into() })
}

fn lease_of(millis: u64) -> Result<Duration, Problem> {
    match millis {
        0..=LONGEST_LEASE_MS => Ok(Duration::from_millis(millis)),
        _ => Err(Problem::validation(format!("a lease lasts at most {LONGEST_LEASE_MS} ms"))),
    }
}

/// Register a worker; it lives until its lease ends, unless it says that it does.
#[utoipa::path(
    post, path = "/workers",
    operation_id = "workerRegister", tag = "workers",
    request_body(content = Object, content_type = "application/json", example = json!({"node": "node_01j0000000e00800000000007z", "name": "packing-1", "serves": ["order@1"], "leaseMs": 10000})),
    responses((status = 200, body = Object, description = "Its node, and until when it is believed in"), Always, OfRun, Changes),
)]
pub(super) async fn register(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    Call(join): Call<Join>,
) -> Result<Told<Joined>, Refusal> {
    caller.may(Permission::Worker)?;
    let long = join.serves.iter().chain([&join.name]).any(|text| text.len() > LONGEST_NAME);
    if long || join.serves.len() > MOST_SERVED {
        return Err(Problem::validation(format!(
            "a worker has a name, and serves at most {MOST_SERVED} of at most {LONGEST_NAME} bytes"
        ))
        .into());
    }
    let (workspace, node) = (caller.workspace, node::of(caller.workspace, join.node));
    let ttl = lease_of(join.lease_ms)?;
    let until = app.store.lease(Lease { node, act: LeaseAct::Enroll(ttl) }).await?;
    let worker = Worker { name: join.name, serves: join.serves.into_iter().collect() };
    note(&app, (workspace, node), &worker, ttl).await?;
    workers.roster.enter((workspace, node), worker, app.clock.now(), until);
    Ok(Told(Joined { node, workspace, until }))
}

/// Renew a worker's lease.
#[utoipa::path(
    post, path = "/workers/heartbeat",
    operation_id = "workerHeartbeat", tag = "workers",
    request_body(content = Object, content_type = "application/json", example = json!({"node": "node_01j0000000e00800000000007z", "leaseMs": 10000})),
    responses((status = 200, body = Object, description = "Until when it is believed in"), Always, OfRun, Changes),
)]
pub(super) async fn heartbeat(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    Call(beat): Call<Heartbeat>,
) -> Result<Told<Leased>, Refusal> {
    caller.may(Permission::Worker)?;
    let node = node::of(caller.workspace, beat.node);
    let ttl = lease_of(beat.lease_ms)?;
    let act =
        if sabotage::commits(Bug::BelieveZombies) { LeaseAct::Enroll(ttl) } else { LeaseAct::Renew(ttl) };
    let renewed = app.store.lease(Lease { node, act }).await;
    let until = renewed.map_err(|error| own(error, node, beat.node))?;
    let place = (caller.workspace, node);
    let worker = match workers.roster.known(place) {
        Some(worker) => worker,
        // It has registered at another server.
        None => {
            let look = Look { kind: kind(caller.workspace), by: LookBy::Id(record_id(node)) };
            let found = app.store.records(look).await?;
            found.first().map(read).transpose()?.unwrap_or_default()
        }
    };
    note(&app, place, &worker, ttl).await?;
    workers.roster.enter(place, worker, app.clock.now(), until);
    Ok(Told(Leased { until }))
}

/// Give a worker's lease up: its runs are free.
#[utoipa::path(
    post, path = "/workers/release",
    operation_id = "workerRelease", tag = "workers",
    request_body(content = Object, content_type = "application/json", example = json!({"node": "node_01j0000000e00800000000007z"})),
    responses((status = 200, body = Object, description = "When that was"), Always, OfRun, Changes),
)]
pub(super) async fn release(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    Call(release): Call<Release>,
) -> Result<Told<Leased>, Refusal> {
    caller.may(Permission::Worker)?;
    let node = node::of(caller.workspace, release.node);
    let until = app.store.lease(Lease { node, act: LeaseAct::Leave }).await?;
    let place = (caller.workspace, node);
    workers.roster.lock().remove(&place);
    note(&app, place, &Worker::default(), Duration::ZERO).await?;
    Ok(Told(Leased { until }))
}

/// List the workers of the workspace.
#[utoipa::path(
    get, path = "/workers",
    operation_id = "workers", tag = "workers",
    responses((status = 200, description = "Those of the workspace", body = WorkerList), Always),
)]
pub(super) async fn list(State(app): State<Arc<App>>, caller: Caller) -> Result<Told<WorkerList>, Refusal> {
    caller.may(Permission::Read)?;
    let (kind, mut after, mut workers) = (kind(caller.workspace), None, Vec::new());
    loop {
        let by = LookBy::Page { after: after.take(), limit: PAGE, newest_first: false };
        let page = app.store.records(Look { kind: kind.clone(), by }).await?;
        for record in &page {
            let Worker { name, serves } = read(record)?;
            let (node, serves) = (record.id.to_string(), serves.into_iter().collect());
            workers.push(WorkerView { node, name, serves, seen_at: time(record.at) });
        }
        match page.last() {
            Some(last) if page.len() == PAGE => after = Some(last.id.clone()),
            _ => return Ok(Told(WorkerList { workers })),
        }
    }
}

/// An error that names the node, told in the worker's own words.
pub(super) fn own(error: semel::Error, node: NodeId, drawn: NodeId) -> semel::Error {
    match error {
        semel::Error::NodeLost(lost) if lost == node => semel::Error::NodeLost(drawn),
        error => error,
    }
}
