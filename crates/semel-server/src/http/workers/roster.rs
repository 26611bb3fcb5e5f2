//! The workers that have been heard of lately: register, heartbeat, release, list.
//!
//! Each has a record in the store that lives as long as its lease, so that every server lists the workers of all. What a
//! worker has claimed here since its last heartbeat is only in memory until the next one.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use futures_util::{StreamExt as _, stream};
use semel::clock::Time;
use semel::id::{NodeId, RunId, WorkspaceId};
use semel::remote::wire::{self, AtWork, Heartbeat, Join, Joined, Leased, Release, StopReason, StopView};
use semel::rules::json::Payload;
use semel::rules::key::RecordId;
use semel::rules::path::Name;
use semel::rules::queue::Task;
use semel::rules::record::{Keep, Look, LookBy, Record};
use semel::rules::status::Status;
use semel::sabotage::{self, Bug};
use semel::store::{Find, FindBy, Lease, LeaseAct, Sweep};
use serde::{Deserialize, Serialize};

use super::answer::{Call, Refusal, Told};
use super::waiting::Ask;
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
/// Workers that are read from the store at once.
const PAGE: usize = 16;
/// Most workers of one page of a list.
const MAX_SHOWN: usize = 500;
/// What one worker may say of itself, in bytes: a thousand workflows with names of ordinary length.
const REGISTRATION_BYTES: usize = 64 * 1024;
/// What a worker takes in memory beside its texts, about.
const WORKER_BYTES: usize = 256;
/// What one text takes beside its bytes, about.
const TEXT_BYTES: usize = 32;
/// Workers of one page of a list, if no limit is given.
const SHOWN: usize = 100;
/// A page of a list is full when it has this many bytes.
const PAGE_BYTES: usize = 1024 * 1024;
/// How often workers whose lease has ended are forgotten.
const FORGET: Duration = Duration::from_secs(1);
/// So many runs of a worker that leaves are freed with its call; the rest by the next sweep.
const FREED_AT_ONCE: usize = 1_000;
/// So long a worker that is registered at another server is remembered without another look.
const REMEMBERED: Duration = Duration::from_secs(10);
/// At most so much is served by one worker.
const MOST_SERVED: usize = 1_000;
/// So many steps of one worker are remembered.
const MOST_AT_WORK: usize = 1_000;
/// So many steps are looked up at once for a heartbeat.
const LOOKED_UP: usize = 16;

/// What is kept of a worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Worker {
    name: String,
    serves: BTreeSet<String>,
    /// The credential that it was registered with.
    #[serde(default)]
    credential: String,
    /// How long its lease lasts without a sign of life.
    #[serde(default)]
    lease_ms: u64,
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

/// The lease of a worker whose claim waits.
pub(super) struct Renewed {
    /// When it is to be renewed: when a third of it is over.
    pub(super) next: Time,
}

impl Renewed {
    fn of(until: Time, ttl: Duration) -> Self {
        let left = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX) / 3 * 2;
        Self { next: Time(until.0.saturating_sub(left)) }
    }
}

/// A worker that has been heard of here.
struct Present {
    worker: Worker,
    /// When its lease ends.
    until: Time,
    /// The steps of queues that were handed to it here and not reported yet, with their fences.
    at_work: HashMap<RunId, u64>,
    /// The memory that it takes of its workspace's share.
    room: Part,
}

/// The workers that have been heard of here lately.
#[derive(Default)]
pub(super) struct Roster(Mutex<Heard>);

#[derive(Default)]
struct Heard {
    workers: HashMap<Place, Present>,
    /// When those whose lease had ended were forgotten.
    forgotten: Option<Time>,
}

impl Roster {
    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a worker that was not known here.
    fn enter(&self, place: Place, present: Present, now: Time) {
        let mut heard = self.lock();
        // Not at every call, because it looks at all of them.
        if heard.forgotten.is_none_or(|last| now >= last.after(FORGET)) {
            heard.forgotten = Some(now);
            heard.workers.retain(|_, present| present.until > now);
        }
        heard.workers.insert(place, present);
    }

    /// Remembers a worker that has registered at another server, if its workspace has room for it.
    fn enter_known(&self, app: &App, place: Place, worker: Worker, until: Time) {
        if let Ok(room) = app.bounds.registration(place.0, worker.bytes()) {
            self.enter(place, Present { worker, until, at_work: HashMap::new(), room }, app.clock.now());
        }
    }

    fn known(&self, place: Place) -> Option<Worker> {
        self.lock().workers.get(&place).map(|present| present.worker.clone())
    }

    fn remove(&self, place: Place) -> Option<Worker> {
        self.lock().workers.remove(&place).map(|present| present.worker)
    }

    /// The credential that a node was registered with; none if it is no node of a living worker.
    pub(super) async fn credential_of(
        &self,
        app: &App,
        place: (WorkspaceId, NodeId),
    ) -> semel::error::Result<Option<String>> {
        if let Some(credential) =
            self.lock().workers.get(&place).map(|present| present.worker.credential.clone())
        {
            return Ok(Some(credential));
        }
        // It has registered at another server, or before this one was started.
        let Some(worker) = recorded(app, place).await? else { return Ok(None) };
        let credential = worker.credential.clone();
        self.enter_known(app, place, worker, app.clock.now().after(REMEMBERED));
        Ok(Some(credential))
    }

    /// The lease of a worker whose claim waits; none if it is not known here how long it lasts.
    pub(super) async fn lease_of(&self, app: &App, ask: &Ask) -> semel::error::Result<Option<Renewed>> {
        let place = (ask.workspace, ask.node);
        self.credential_of(app, place).await?;
        let known = self.lock().workers.get(&place).map(|present| (present.worker.lease_ms, present.until));
        let Some((millis, until)) = known.filter(|(millis, _)| *millis > 0) else { return Ok(None) };
        Ok(Some(Renewed::of(until, Duration::from_millis(millis))))
    }

    /// Renews the lease of a worker whose claim waits, for as long as the worker has asked for.
    pub(super) async fn renew(&self, app: &App, ask: &Ask) -> semel::error::Result<Renewed> {
        let place = (ask.workspace, ask.node);
        let ttl = Duration::from_millis(self.known(place).unwrap_or_default().lease_ms);
        let until = self.beat(app, place, ttl, LeaseAct::Renew(ttl)).await?;
        Ok(Renewed::of(until, ttl))
    }

    /// A sign of life: renews the lease, and the record that lives as long.
    async fn beat(
        &self,
        app: &App,
        place: (WorkspaceId, NodeId),
        ttl: Duration,
        act: LeaseAct,
    ) -> semel::error::Result<Time> {
        let until = app.store.lease(Lease { node: place.1, act }).await?;
        let lease_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let renewed = self.lock().workers.get_mut(&place).map(|present| {
            (present.until, present.worker.lease_ms) = (until, lease_ms);
            present.worker.clone()
        });
        let worker = match renewed {
            Some(worker) => worker,
            // It has registered at another server.
            None => {
                let worker = Worker { lease_ms, ..recorded(app, place).await?.unwrap_or_default() };
                self.enter_known(app, place, worker.clone(), until);
                worker
            }
        };
        app.services.worker(place.0, &worker.serves, until);
        note(app, place, &worker, ttl).await?;
        Ok(until)
    }

    /// Steps were handed to a worker.
    pub(super) fn handed(&self, place: (WorkspaceId, NodeId), tasks: &[Task]) {
        if let Some(Present { at_work, .. }) = self.lock().workers.get_mut(&place) {
            // Beyond the bound a worker is not told: it can ask for each.
            let room = MOST_AT_WORK.saturating_sub(at_work.len());
            at_work.extend(tasks.iter().take(room).map(|task| (task.run, task.fence)));
        }
    }

    /// A worker has reported on a step.
    pub(super) fn reported(&self, place: (WorkspaceId, NodeId), run: RunId) {
        if let Some(Present { at_work, .. }) = self.lock().workers.get_mut(&place) {
            at_work.remove(&run);
        }
    }

    /// The steps that a worker has, for all we know.
    fn at_work(&self, place: (WorkspaceId, NodeId)) -> Vec<AtWork> {
        let at = |(run, fence): (&RunId, &u64)| AtWork { run: *run, fence: *fence };
        self.lock()
            .workers
            .get(&place)
            .map(|present| present.at_work.iter().map(at).collect())
            .unwrap_or_default()
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

/// What is written of a worker; none if its lease has ended.
async fn recorded(
    app: &App,
    (workspace, node): (WorkspaceId, NodeId),
) -> semel::error::Result<Option<Worker>> {
    let look = Look { kind: kind(workspace), by: LookBy::Id(record_id(node)) };
    app.store.records(look).await?.first().map(read).transpose()
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
    let (serves, credential) = (join.serves.into_iter().collect(), caller.title());
    let worker = Worker { name: join.name, serves, credential, lease_ms: join.lease_ms };
    if worker.bytes() > REGISTRATION_BYTES {
        return Err(Problem::too_large(format!(
            "what a worker serves has at most {REGISTRATION_BYTES} bytes together; serve less, or under shorter names"
        ))
        .into());
    }
    let place = (workspace, node);
    // One that registers again needs no second place.
    drop(workers.roster.remove(place));
    let room = app.bounds.registration(workspace, worker.bytes())?;
    let until = app.store.lease(Lease { node, act: LeaseAct::Enroll(ttl) }).await?;
    app.services.worker(workspace, &worker.serves, until);
    note(&app, place, &worker, ttl).await?;
    let present = Present { worker, until, at_work: HashMap::new(), room };
    workers.roster.enter(place, present, app.clock.now());
    Ok(Told(Joined { node, workspace, until }))
}

/// Renew a worker's lease.
#[utoipa::path(
    post, path = "/workers/heartbeat",
    operation_id = "workerHeartbeat", tag = "workers",
    request_body(content = Object, content_type = "application/json", example = json!({"node": "node_01j0000000e00800000000007z", "leaseMs": 10000})),
    responses((status = 200, body = Object, description = "Until when it is believed in, and which steps it should stop"), Always, OfRun, Changes),
)]
pub(super) async fn heartbeat(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    Call(beat): Call<Heartbeat>,
) -> Result<Told<Leased>, Refusal> {
    caller.may(Permission::Worker)?;
    if beat.tasks.as_ref().is_some_and(|tasks| tasks.len() > wire::MOST) {
        return Err(Problem::validation(format!("at most {} steps in one heartbeat", wire::MOST)).into());
    }
    let (drawn, node) = (beat.node, node::of(caller.workspace, beat.node));
    let ttl = lease_of(beat.lease_ms)?;
    let act =
        if sabotage::commits(Bug::BelieveZombies) { LeaseAct::Enroll(ttl) } else { LeaseAct::Renew(ttl) };
    let place = (caller.workspace, node);
    let until = workers.roster.beat(&app, place, ttl, act).await.map_err(|error| own(error, node, drawn))?;
    let tasks = beat.tasks.unwrap_or_else(|| workers.roster.at_work(place));
    Ok(Told(Leased { until, stop: to_stop(&app, place, tasks).await? }))
}

/// Which of these steps a worker should stop.
async fn to_stop(
    app: &App,
    place: (WorkspaceId, NodeId),
    tasks: Vec<AtWork>,
) -> semel::error::Result<Vec<StopView>> {
    let each = tasks.into_iter().map(|task| async move {
        let reason = why_stop(app, place, task).await?;
        Ok(reason.map(|reason| StopView { run: task.run, reason }))
    });
    let stop: Vec<semel::error::Result<Option<StopView>>> =
        stream::iter(each).buffered(LOOKED_UP).collect().await;
    stop.into_iter().filter_map(Result::transpose).collect()
}

async fn why_stop(
    app: &App,
    (workspace, node): (WorkspaceId, NodeId),
    AtWork { run, fence }: AtWork,
) -> semel::error::Result<Option<StopReason>> {
    let found = app.store.find(Find { workspace, by: FindBy::Id(run) }).await?;
    // What there is no more has ended long ago.
    let Some((run, _)) = found else { return Ok(Some(StopReason::Ended)) };
    match run.status() {
        Status::Cancelled => return Ok(Some(StopReason::Cancelled)),
        status if status.is_terminal() => return Ok(Some(StopReason::Ended)),
        _ if run.state.node != Some(node) || run.state.version != fence => return Ok(Some(StopReason::Lost)),
        _ if run.arrivals == 0 => return Ok(None),
        _ => {}
    }
    let inbox = app.store.inbox(workspace, run.id(), 1).await?;
    let cancelled = inbox.iter().any(|arrival| arrival.message.wishes_end().is_some());
    Ok(cancelled.then_some(StopReason::Cancelled))
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
    // What it held is due for others now, and not only with the next sweep.
    app.store.sweep(Sweep { limit: FREED_AT_ONCE }).await?;
    let place = (caller.workspace, node);
    if let Some(worker) = workers.roster.remove(place) {
        app.services.left(caller.workspace, &worker.serves);
    }
    note(&app, place, &Worker::default(), Duration::ZERO).await?;
    Ok(Told(Leased { until, stop: Vec::new() }))
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
