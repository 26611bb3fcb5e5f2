//! The workers that have been heard of lately: register, heartbeat, release, list.

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
use semel::rules::record::{Keep, Look, LookBy};
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
/// At most so much is served by one worker.
const MOST_SERVED: usize = 2_000;

/// How many workers are looked at at once.
const PAGE: usize = 1_000;

/// What is known of a worker, as it is kept.
#[derive(Clone, Serialize, Deserialize)]
struct Sheet {
    name: String,
    serves: BTreeSet<String>,
}

struct Seen {
    sheet: Sheet,
    lease: Duration,
    until: Time,
}

/// A worker: its workspace and its node.
type Who = (WorkspaceId, NodeId);

/// The workers that this server has heard of lately. The store has a record of each, which all servers see and which ends
/// with the lease; this here saves reading it.
#[derive(Default)]
pub(super) struct Roster(Mutex<HashMap<Who, Seen>>);

impl Roster {
    fn lock(&self) -> MutexGuard<'_, HashMap<Who, Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn enter(&self, app: &App, who: Who, seen: Seen) {
        let (sheet, lease, now) = (seen.sheet.clone(), seen.lease, app.clock.now());
        {
            let mut roster = self.lock();
            // Whoever's lease has ended is gone.
            roster.retain(|_, other| other.until > now);
            roster.insert(who, seen);
        }
        note(app, who, &sheet, lease).await;
    }

    /// A worker lives.
    async fn renew(&self, app: &App, who: Who, lease: Duration, until: Time) {
        let known = self.lock().get(&who).map(|seen| seen.sheet.clone());
        // It may have registered at another server, or here before a restart.
        let known = match known {
            Some(sheet) => Some(sheet),
            None => look(app, who).await,
        };
        if let Some(sheet) = known {
            self.enter(app, who, Seen { sheet, lease, until }).await;
        }
    }

    /// A worker asks for runs of these.
    pub(super) async fn serves(&self, app: &App, workspace: WorkspaceId, drawn: NodeId, workflows: &[Name]) {
        let who = (workspace, node::of(workspace, drawn));
        let changed = {
            let mut roster = self.lock();
            let Some(seen) = roster.get_mut(&who) else { return };
            let before = seen.sheet.serves.len();
            for name in workflows {
                if seen.sheet.serves.len() < MOST_SERVED && !seen.sheet.serves.contains(name.as_str()) {
                    seen.sheet.serves.insert(name.as_str().to_owned());
                }
            }
            (seen.sheet.serves.len() > before).then(|| (seen.sheet.clone(), seen.lease))
        };
        if let Some((sheet, lease)) = changed {
            note(app, who, &sheet, lease).await;
        }
    }
}

fn kind(workspace: WorkspaceId) -> Name {
    Name::new(&format!("worker-{workspace}")).expect("an id is a plain name")
}

fn id(node: NodeId) -> RecordId {
    RecordId::new(node.to_string()).expect("an id is plain text")
}

/// Keeps what is known of a worker for as long as its lease. The lease is what counts: a list that lacks a worker for a
/// moment harms nobody.
async fn note(app: &App, (workspace, node): Who, sheet: &Sheet, lease: Duration) {
    let kept = async {
        let body = Payload::of(sheet)?;
        let (kind, id) = (kind(workspace), id(node));
        app.store.keep(Keep { kind, id, body, expected: None, ttl: Some(lease) }).await
    };
    if let Err(error) = kept.await {
        tracing::warn!(%error, %node, "a worker is not listed for now");
    }
}

async fn look(app: &App, (workspace, node): Who) -> Option<Sheet> {
    let look = Look { kind: kind(workspace), by: LookBy::Id(id(node)) };
    let records = app.store.records(look).await.ok()?;
    records.first().and_then(|record| record.body.read().ok())
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
    let until = app.store.lease(Lease { node, act: LeaseAct::Join(ttl) }).await?;
    let sheet = Sheet { name: join.name, serves: join.serves.into_iter().collect() };
    workers.roster.enter(&app, (workspace, node), Seen { sheet, lease: ttl, until }).await;
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
    let renewed = app.store.lease(Lease { node, act: LeaseAct::Renew(ttl) }).await;
    let until = renewed.map_err(|error| own(error, node, beat.node))?;
    workers.roster.renew(&app, (caller.workspace, node), ttl, until).await;
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
    let who = (caller.workspace, node);
    let gone = workers.roster.lock().remove(&who);
    if let Some(seen) = gone {
        note(&app, who, &seen.sheet, Duration::ZERO).await;
    }
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
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let by = LookBy::Page { after: after.take(), limit: PAGE, newest_first: false };
        let page = app.store.records(Look { kind: kind(caller.workspace), by }).await?;
        after = page.last().map(|record| record.id.clone()).filter(|_| page.len() == PAGE);
        for record in page {
            if let Ok(Sheet { name, serves }) = record.body.read() {
                let (node, serves) = (record.id.to_string(), serves.into_iter().collect());
                found.push(WorkerView { node, name, serves, seen_at: time(record.at) });
            }
        }
        if after.is_none() {
            return Ok(Told(WorkerList { workers: found }));
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
