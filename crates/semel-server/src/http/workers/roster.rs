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
use crate::access::{Caller, Part};
use crate::api::{Permission, WorkerList, WorkerView, time};
use crate::app::App;
use crate::http::Problem;
use crate::http::asked::{Asked, limit_of};
use crate::http::describe::{Always, Changes, OfRun};

/// The longest lease: a worker that is gone must not hold its runs for longer.
const LONGEST_LEASE_MS: u64 = 3_600_000;
/// The longest name, and the longest of what a worker serves.
const LONGEST_NAME: usize = 500;
/// So many workers are read from the store at once.
const PAGE: usize = 16;
/// Most workers of one page of a list.
const MAX_SHOWN: usize = 500;
/// What one worker may say of itself, in bytes: a thousand workflows with names of ordinary length.
const REGISTRATION_BYTES: usize = 64 * 1024;
/// At most so much is served by one worker.
const MOST_SERVED: usize = 1_000;
/// What a worker takes in memory beside its texts, about.
const WORKER_BYTES: usize = 256;
/// What one text takes beside its bytes, about.
const TEXT_BYTES: usize = 32;
/// Workers of one page of a list, if nothing is said.
const SHOWN: usize = 100;
/// A page of a list that has so many bytes is full.
const PAGE_BYTES: usize = 1024 * 1024;
/// How often workers whose lease has ended are forgotten.
const FORGET: Duration = Duration::from_secs(1);

/// What is kept of a worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Worker {
    name: String,
    serves: BTreeSet<String>,
}

impl Worker {
    /// About what it takes in memory.
    fn bytes(&self) -> usize {
        let texts: usize = self.serves.iter().map(|text| text.len() + TEXT_BYTES).sum();
        WORKER_BYTES + self.name.len() + texts
    }
}

/// A worker in its workspace.
type Place = (WorkspaceId, NodeId);

/// Workers that have been heard of here lately.
#[derive(Default)]
pub(super) struct Roster(Mutex<Heard>);

#[derive(Default)]
struct Heard {
    workers: HashMap<Place, Entry>,
    /// When those whose lease had ended were forgotten.
    forgotten: Option<Time>,
}

struct Entry {
    worker: Worker,
    /// When its lease ends.
    until: Time,
    /// The memory that it takes of its workspace's.
    room: Part,
}

impl Roster {
    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, place: Place, entry: Entry, now: Time) {
        let mut heard = self.lock();
        // Not at every call, because it looks at all of them.
        if heard.forgotten.is_none_or(|last| now >= last.after(FORGET)) {
            heard.forgotten = Some(now);
            heard.workers.retain(|_, entry| entry.until > now);
        }
        heard.workers.insert(place, entry);
    }

    /// A worker that is known here has renewed its lease.
    fn renew(&self, place: Place, until: Time) -> Option<Worker> {
        let mut heard = self.lock();
        let entry = heard.workers.get_mut(&place)?;
        entry.until = until;
        Some(entry.worker.clone())
    }

    fn remove(&self, place: Place) -> Option<Worker> {
        self.lock().workers.remove(&place).map(|entry| entry.worker)
    }

    /// A worker asks for runs of these: `name@version`, `queue:name`.
    pub(super) fn serves(
        &self,
        app: &App,
        workspace: WorkspaceId,
        drawn: NodeId,
        served: impl IntoIterator<Item = String>,
    ) {
        let mut heard = self.lock();
        let Some(entry) = heard.workers.get_mut(&(workspace, node::of(workspace, drawn))) else { return };
        for name in served {
            let titles = &mut entry.worker.serves;
            let is_new = titles.len() < MOST_SERVED && !titles.contains(&name);
            if is_new && entry.room.grow(name.len() + TEXT_BYTES) {
                app.services.worker(workspace, [&name], entry.until);
                titles.insert(name);
            }
        }
    }
}

/// The kind of the records of a workspace's workers.
pub(in crate::http) fn kind(workspace: WorkspaceId) -> Name {
    Name::new(&format!("worker-{workspace}")).expect("an id is part of a name")
}

/// What the worker of a record serves; nothing if the record cannot be read.
pub(in crate::http) fn served(record: &Record) -> BTreeSet<String> {
    read(record).map(|worker| worker.serves).unwrap_or_default()
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
    let worker = Worker { name: join.name, serves: join.serves.into_iter().collect() };
    if worker.bytes() > REGISTRATION_BYTES {
        return Err(Problem::too_large(format!(
            "what a worker serves has at most {REGISTRATION_BYTES} bytes together; serve less, or under shorter names"
        ))
        .into());
    }
    // One that registers again needs no second place.
    drop(workers.roster.remove((workspace, node)));
    let room = app.bounds.registration(workspace, worker.bytes())?;
    let until = app.store.lease(Lease { node, act: LeaseAct::Join(ttl) }).await?;
    app.services.worker(workspace, &worker.serves, until);
    note(&app, (workspace, node), &worker, ttl).await?;
    workers.roster.enter((workspace, node), Entry { worker, until, room }, app.clock.now());
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
    let act = if sabotage::commits(Bug::BelieveZombies) { LeaseAct::Join(ttl) } else { LeaseAct::Renew(ttl) };
    let renewed = app.store.lease(Lease { node, act }).await;
    let until = renewed.map_err(|error| own(error, node, beat.node))?;
    let place = (caller.workspace, node);
    let worker = match workers.roster.renew(place, until) {
        Some(worker) => worker,
        // It has registered at another server.
        None => {
            let look = Look { kind: kind(caller.workspace), by: LookBy::Id(record_id(node)) };
            let found = app.store.records(look).await?;
            let worker = found.first().map(read).transpose()?.unwrap_or_default();
            let room = app.bounds.registration(caller.workspace, worker.bytes())?;
            workers.roster.enter(place, Entry { worker: worker.clone(), until, room }, app.clock.now());
            worker
        }
    };
    app.services.worker(caller.workspace, &worker.serves, until);
    note(&app, place, &worker, ttl).await?;
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
    if let Some(worker) = workers.roster.remove(place) {
        app.services.left(caller.workspace, &worker.serves);
    }
    note(&app, place, &Worker::default(), Duration::ZERO).await?;
    Ok(Told(Leased { until }))
}

/// Which workers are listed.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListWorkers {
    /// The `next` of the page before.
    cursor: Option<String>,
    /// At most this many; 100 if not given. A page may have fewer, and a `next` all the same.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// List the workers of the workspace, in the order of their nodes.
#[utoipa::path(
    get, path = "/workers",
    operation_id = "workers", tag = "workers",
    params(ListWorkers),
    responses((status = 200, description = "A page of those of the workspace", body = WorkerList), Always),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Asked(asked): Asked<ListWorkers>,
) -> Result<Told<WorkerList>, Refusal> {
    caller.may(Permission::Read)?;
    let limit = limit_of(asked.limit, SHOWN, MAX_SHOWN)?;
    let mut after = asked.cursor.map(RecordId::new).transpose().map_err(semel::Error::from)?;
    let (kind, mut workers, mut bytes) = (kind(caller.workspace), Vec::new(), 0);
    loop {
        let size = PAGE.min(limit - workers.len());
        let by = LookBy::Page { after: after.take(), limit: size, newest_first: false };
        let page = app.store.records(Look { kind: kind.clone(), by }).await?;
        for record in &page {
            let worker = read(record)?;
            bytes += worker.bytes();
            let (node, serves) = (record.id.to_string(), worker.serves.into_iter().collect());
            workers.push(WorkerView { node, name: worker.name, serves, seen_at: time(record.at) });
        }
        let Some(last) = page.last().filter(|_| page.len() == size) else {
            return Ok(Told(WorkerList { workers, next: None }));
        };
        if workers.len() >= limit || bytes > PAGE_BYTES {
            return Ok(Told(WorkerList { workers, next: Some(last.id.to_string()) }));
        }
        after = Some(last.id.clone());
    }
}

/// An error that names the node, told in the worker's own words.
pub(super) fn own(error: semel::Error, node: NodeId, drawn: NodeId) -> semel::Error {
    match error {
        semel::Error::NodeLost(lost) if lost == node => semel::Error::NodeLost(drawn),
        error => error,
    }
}
