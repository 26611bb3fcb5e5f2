//! Registered workers: register, heartbeat, release, list.
//!
//! Each worker has a record in the store that lives as long as its lease, so that every server lists all workers.
//! What a worker has claimed here since its last heartbeat is in memory only until the next one.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use futures_util::{StreamExt as _, stream};
use semel::clock::Time;
use semel::id::{NodeId, RunId, WorkspaceId};
use semel::remote::wire::{
    self, AtWork, DrivenRun, Heartbeat, Join, Joined, Leased, Release, RunNews, StopReason, StopView,
};
use semel::rules::json::Payload;
use semel::rules::key::RecordId;
use semel::rules::node::WorkerNode;
use semel::rules::path::Name;
use semel::rules::queue::Assignment;
use semel::rules::record::{Keep, Look, LookBy, Record};
use semel::rules::status::Status;
use semel::sabotage::{self, Bug};
use semel::store::{Find, FindBy, Lease, LeaseAct, Sweep};
use serde::{Deserialize, Serialize};

use super::answer::{CallBody, Refusal, Told};
use super::request::ClaimRequest;
use super::{Shared, engines, node};
use crate::access::{Caller, Part};
use crate::api::{EngineView, Permission, WorkerList, WorkerView, time};
use crate::app::App;
use crate::http::Problem;
use crate::http::asked::{QueryOf, limit_of};
use crate::http::describe::{SpokenProtocol, WorkerProblems};
use crate::http::start::no_definition_version;

/// The longest lease: the runs of a dead worker must not be blocked for longer.
const LONGEST_LEASE_MS: u64 = 3_600_000;
/// The longest name, and the longest name of a served workflow or queue, in characters.
const LONGEST_NAME: usize = 500;
/// Number of workers read from the store at once.
const PAGE: usize = 16;
/// Maximum number of workers on one page of a list.
const MAX_SHOWN: usize = 500;
/// Maximum size of one registration, in bytes: a thousand workflows with names of ordinary length.
const REGISTRATION_BYTES: usize = 64 * 1024;
/// Approximate memory of a worker beside its texts, in bytes.
const WORKER_BYTES: usize = 256;
/// Approximate memory of one text beside its own bytes.
const TEXT_BYTES: usize = 32;
/// Workers on one page of a list, if no limit is given.
const SHOWN: usize = 100;
/// A page of a list is full when it has this many bytes.
const PAGE_BYTES: usize = 1024 * 1024;
/// How often workers with an expired lease are removed from memory.
const FORGET: Duration = Duration::from_secs(1);
/// Number of runs that the release of a worker frees at once; the next sweep frees the rest.
const FREED_AT_ONCE: usize = 1_000;
/// How long a worker that is registered at another server is cached.
const REMEMBERED: Duration = Duration::from_secs(10);
/// Maximum number of workflows and queues that one worker serves.
const MOST_SERVED: usize = 1_000;
/// Maximum number of remote steps that are remembered per worker.
const MOST_AT_WORK: usize = 1_000;
/// Number of remote steps that are looked up concurrently for a heartbeat.
const LOOKED_UP: usize = 16;

/// The record of a worker in the store.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct WorkerRecord {
    name: String,
    serves: BTreeSet<String>,
    /// The credential that the worker was registered with.
    #[serde(default)]
    credential: String,
    /// Length of the lease, in milliseconds.
    #[serde(default)]
    lease_ms: u64,
}

impl WorkerRecord {
    /// Approximate memory of the record, in bytes.
    fn bytes(&self) -> usize {
        let texts: usize = self.serves.iter().map(|text| text.len() + TEXT_BYTES).sum();
        WORKER_BYTES + self.name.len() + texts
    }
}

/// A worker in its workspace.
type WorkerKey = (WorkspaceId, NodeId);

/// The renewed lease of a worker whose claim waits.
pub(super) struct Renewed {
    /// Time of the next renewal: after a third of the lease.
    pub(super) next: Time,
}

impl Renewed {
    fn of(until: Time, ttl: Duration) -> Self {
        let left = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX) / 3 * 2;
        Self { next: Time(until.0.saturating_sub(left)) }
    }
}

/// A worker that this server knows.
struct Present {
    worker: WorkerRecord,
    /// Time at which the lease ends.
    until: Time,
    /// Remote steps that this server handed to the worker and that are not reported yet, with their fences.
    at_work: HashMap<RunId, u64>,
    /// Memory that the worker takes of its workspace's share.
    room: Part,
}

/// The workers that this server knows.
#[derive(Default)]
pub(super) struct Roster(Mutex<PresentWorkers>);

#[derive(Default)]
struct PresentWorkers {
    workers: HashMap<WorkerKey, Present>,
    /// Time of the last removal of expired workers.
    forgotten: Option<Time>,
}

impl Roster {
    fn lock(&self) -> MutexGuard<'_, PresentWorkers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a worker that this server did not know.
    fn enter(&self, place: WorkerKey, present: Present, now: Time) {
        let mut heard = self.lock();
        // Not at every call, because it scans all workers.
        if heard.forgotten.is_none_or(|last| now >= last.after(FORGET)) {
            heard.forgotten = Some(now);
            heard.workers.retain(|_, present| present.until > now);
        }
        heard.workers.insert(place, present);
    }

    /// Caches a worker that is registered at another server, if its workspace has memory left.
    fn enter_known(&self, app: &App, place: WorkerKey, worker: WorkerRecord, until: Time) {
        if let Ok(room) = app.bounds.registration(place.0, worker.bytes()) {
            self.enter(place, Present { worker, until, at_work: HashMap::new(), room }, app.clock.now());
        }
    }

    fn known(&self, place: WorkerKey) -> Option<WorkerRecord> {
        self.lock().workers.get(&place).map(|present| present.worker.clone())
    }

    fn remove(&self, place: WorkerKey) -> Option<WorkerRecord> {
        self.lock().workers.remove(&place).map(|present| present.worker)
    }

    /// The credential that a node was registered with; `None` if the node belongs to no live worker.
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
        // The worker was registered at another server, or before this one was started.
        let Some(worker) = recorded(app, place).await? else { return Ok(None) };
        let credential = worker.credential.clone();
        self.enter_known(app, place, worker, app.clock.now().after(REMEMBERED));
        Ok(Some(credential))
    }

    /// The lease of a worker whose claim waits; `None` if its length is not known here.
    pub(super) async fn lease_of(
        &self,
        app: &App,
        ask: &ClaimRequest,
    ) -> semel::error::Result<Option<Renewed>> {
        let place = (ask.workspace, ask.node);
        self.credential_of(app, place).await?;
        let known = self.lock().workers.get(&place).map(|present| (present.worker.lease_ms, present.until));
        let Some((millis, until)) = known.filter(|(millis, _)| *millis > 0) else { return Ok(None) };
        Ok(Some(Renewed::of(until, Duration::from_millis(millis))))
    }

    /// Renews the lease of a worker whose claim waits, for the length that the worker asked for.
    pub(super) async fn renew(&self, app: &App, ask: &ClaimRequest) -> semel::error::Result<Renewed> {
        let place = (ask.workspace, ask.node);
        let ttl = Duration::from_millis(self.known(place).unwrap_or_default().lease_ms);
        let until = self.beat(app, place, ttl, LeaseAct::Renew(ttl)).await?;
        Ok(Renewed::of(until, ttl))
    }

    /// Handles a heartbeat: renews the lease and the record, which lives as long.
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
            // The worker was registered at another server.
            None => {
                let worker = WorkerRecord { lease_ms, ..recorded(app, place).await?.unwrap_or_default() };
                self.enter_known(app, place, worker.clone(), until);
                worker
            }
        };
        app.services.worker(place.0, &worker.serves, until);
        note(app, place, &worker, ttl).await?;
        Ok(until)
    }

    /// Lengthens the leases of all workers by a time that is skipped, so that none of them ends by it.
    pub(super) async fn prolong(&self, app: &App, by: Duration) -> semel::error::Result<()> {
        let places: Vec<WorkerKey> = self.lock().workers.keys().copied().collect();
        for place in places {
            let Some(worker) = self.known(place) else { continue };
            let ttl = Duration::from_millis(worker.lease_ms) + by;
            let until = match app.store.lease(Lease { node: place.1, act: LeaseAct::Renew(ttl) }).await {
                Ok(until) => until,
                Err(semel::Error::NodeLost(_)) => continue,
                Err(error) => return Err(error),
            };
            if let Some(present) = self.lock().workers.get_mut(&place) {
                present.until = until;
            }
            app.services.worker(place.0, &worker.serves, until);
            note(app, place, &worker, ttl).await?;
        }
        Ok(())
    }

    /// Records that steps were handed to a worker.
    pub(super) fn handed(&self, place: (WorkspaceId, NodeId), steps: &[Assignment]) {
        if let Some(Present { at_work, .. }) = self.lock().workers.get_mut(&place) {
            // Beyond the limit the worker is not told what to stop; it can look up each step.
            let room = MOST_AT_WORK.saturating_sub(at_work.len());
            at_work.extend(steps.iter().take(room).map(|step| (step.run, step.fence)));
        }
    }

    /// Records that a worker has reported a step.
    pub(super) fn reported(&self, place: (WorkspaceId, NodeId), run: RunId) {
        if let Some(Present { at_work, .. }) = self.lock().workers.get_mut(&place) {
            at_work.remove(&run);
        }
    }

    /// The steps that a worker holds, as far as this server knows.
    fn at_work(&self, place: (WorkspaceId, NodeId)) -> Vec<AtWork> {
        let at = |(run, fence): (&RunId, &u64)| AtWork { run: *run, fence: *fence };
        self.lock()
            .workers
            .get(&place)
            .map(|present| present.at_work.iter().map(at).collect())
            .unwrap_or_default()
    }

    /// Records that a worker asks for runs of these: `name@version`, `queue:name`.
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

/// Record kind of a workspace's workers.
pub(in crate::http) fn kind(workspace: WorkspaceId) -> Name {
    Name::new(&format!("worker-{workspace}")).expect("an id is part of a name")
}

/// Workflow versions and queues that the worker of a record serves. Empty if the record cannot be read.
pub(in crate::http) fn served(record: &Record) -> BTreeSet<String> {
    read(record).map(|worker| worker.serves).unwrap_or_default()
}

fn record_id(node: NodeId) -> RecordId {
    RecordId::new(node.to_string()).expect("an id is one of a record")
}

/// Writes a worker's record, which expires with its lease.
async fn note(
    app: &App,
    (workspace, node): (WorkspaceId, NodeId),
    worker: &WorkerRecord,
    ttl: Duration,
) -> semel::error::Result<()> {
    let body = Payload::of(worker)?;
    let (kind, id) = (kind(workspace), record_id(node));
    app.store.keep(Keep { kind, id, body, expected: None, ttl: Some(ttl) }).await.map(drop)
}

/// Writes what is remembered of a worker if it is lost. The sweep removes it with the node.
async fn describe(
    app: &App,
    (workspace, node): (WorkspaceId, NodeId),
    worker: &WorkerRecord,
) -> semel::error::Result<()> {
    let (name, serves) = (worker.name.clone(), worker.serves.iter().cloned().collect());
    let body = Payload::of(&WorkerNode { name, workspace, serves })?;
    let (kind, id) = (WorkerNode::kind(), record_id(node));
    app.store.keep(Keep { kind, id, body, expected: None, ttl: None }).await.map(drop)
}

/// Name of the worker with this record, and what it serves.
pub(in crate::http) fn described(record: &Record) -> semel::error::Result<(String, Vec<String>)> {
    read(record).map(|worker| (worker.name, worker.serves.into_iter().collect()))
}

/// The stored record of a worker; `None` if its lease has ended.
async fn recorded(
    app: &App,
    (workspace, node): (WorkspaceId, NodeId),
) -> semel::error::Result<Option<WorkerRecord>> {
    let look = Look { kind: kind(workspace), by: LookBy::Id(record_id(node)) };
    app.store.records(look).await?.first().map(read).transpose()
}

fn read(record: &Record) -> semel::error::Result<WorkerRecord> {
    let at = || format!("record {} {}", record.kind, record.id);
    record.body.read().map_err(|e| semel::Error::Corrupt { at: at(), source: e.into() })
}

fn lease_of(millis: u64) -> Result<Duration, Problem> {
    match millis {
        0..=LONGEST_LEASE_MS => Ok(Duration::from_millis(millis)),
        _ => Err(Problem::validation(format!("a lease lasts at most {LONGEST_LEASE_MS} ms"))),
    }
}

/// Register a worker. The registration expires with its lease unless a heartbeat renews it.
#[utoipa::path(
    post, path = "/workers",
    operation_id = "workerRegister", tag = "workers",
    request_body(content = Join, content_type = "application/json", example = json!({"node": "node_01j0000000e00800000000007z", "name": "packing-1", "serves": ["order@1"], "leaseMs": 10000})),
    params(SpokenProtocol),
    responses((status = 200, body = Joined, description = "The node of the worker, and the end of its lease"), WorkerProblems),
)]
pub(super) async fn register(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    CallBody(join): CallBody<Join>,
) -> Result<Told<Joined>, Refusal> {
    caller.may(Permission::Worker)?;
    let long = join.serves.iter().chain([&join.name]).any(|text| text.len() > LONGEST_NAME);
    if long || join.serves.len() > MOST_SERVED {
        return Err(Problem::validation(format!(
            "a worker serves at most {MOST_SERVED} workflows and queues; names have at most {LONGEST_NAME} bytes"
        ))
        .into());
    }
    let versions = join.serves.iter().filter_map(|served| served.split_once('@'));
    versions.map(|(_, version)| version).try_for_each(no_definition_version)?;
    let (workspace, node) = (caller.workspace, node::of(caller.workspace, join.node));
    let ttl = lease_of(join.lease_ms)?;
    let (serves, credential) = (join.serves.into_iter().collect(), caller.title());
    let worker = WorkerRecord { name: join.name, serves, credential, lease_ms: join.lease_ms };
    if worker.bytes() > REGISTRATION_BYTES {
        return Err(Problem::too_large(format!(
            "the registration of a worker has at most {REGISTRATION_BYTES} bytes; serve less, or use shorter names"
        ))
        .into());
    }
    let place = (workspace, node);
    // A worker that registers again does not count twice.
    drop(workers.roster.remove(place));
    let room = app.bounds.registration(workspace, worker.bytes())?;
    let until = app.store.lease(Lease { node, act: LeaseAct::Enroll(ttl) }).await?;
    app.services.worker(workspace, &worker.serves, until);
    note(&app, place, &worker, ttl).await?;
    describe(&app, place, &worker).await?;
    let present = Present { worker, until, at_work: HashMap::new(), room };
    workers.roster.enter(place, present, app.clock.now());
    Ok(Told(Joined { node, workspace, until, now: before(until, ttl) }))
}

/// Renew a worker's lease.
#[utoipa::path(
    post, path = "/workers/heartbeat",
    operation_id = "workerHeartbeat", tag = "workers",
    request_body(content = Heartbeat, content_type = "application/json", example = json!({"node": "node_01j0000000e00800000000007z", "leaseMs": 10000})),
    params(SpokenProtocol),
    responses((status = 200, body = Leased, description = "The end of the lease, and the steps that the worker should stop"), WorkerProblems),
)]
pub(super) async fn heartbeat(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    CallBody(beat): CallBody<Heartbeat>,
) -> Result<Told<Leased>, Refusal> {
    caller.may(Permission::Worker)?;
    if beat.steps.as_ref().is_some_and(|steps| steps.len() > wire::MOST) {
        return Err(Problem::validation(format!("at most {} steps in one heartbeat", wire::MOST)).into());
    }
    if beat.runs.len() > wire::MOST {
        return Err(Problem::validation(format!("at most {} runs in one heartbeat", wire::MOST)).into());
    }
    let (drawn, node) = (beat.node, node::of(caller.workspace, beat.node));
    let ttl = lease_of(beat.lease_ms)?;
    let act =
        if sabotage::commits(Bug::BelieveZombies) { LeaseAct::Enroll(ttl) } else { LeaseAct::Renew(ttl) };
    let place = (caller.workspace, node);
    let until = workers.roster.beat(&app, place, ttl, act).await.map_err(|error| own(error, node, drawn))?;
    let steps = beat.steps.unwrap_or_else(|| workers.roster.at_work(place));
    let stop = to_stop(&app, place, steps).await?;
    Ok(Told(Leased { until, now: before(until, ttl), stop, news: news_of(&app, place, beat.runs).await? }))
}

/// Time of the store when it renewed a lease.
fn before(until: Time, ttl: Duration) -> Time {
    Time(until.0.saturating_sub(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)))
}

/// News of the runs that a worker has in memory.
async fn news_of(
    app: &App,
    (workspace, node): (WorkspaceId, NodeId),
    runs: Vec<DrivenRun>,
) -> semel::error::Result<Vec<RunNews>> {
    let each = runs.into_iter().map(|DrivenRun { run, fence, seen }| async move {
        let found = app.store.find(Find { workspace, by: FindBy::Id(run) }).await?;
        let held = found.filter(|(run, _)| run.state.node == Some(node) && run.state.version >= fence);
        Ok(match held {
            None => Some(RunNews { run, arrived: None, taken: true }),
            Some((found, _)) if found.arrivals > seen => {
                Some(RunNews { run, arrived: Some(found.arrivals), taken: false })
            }
            Some(_) => None,
        })
    });
    let news: Vec<semel::error::Result<Option<RunNews>>> =
        stream::iter(each).buffered(LOOKED_UP).collect().await;
    news.into_iter().filter_map(Result::transpose).collect()
}

/// Which of these steps the worker should stop.
async fn to_stop(
    app: &App,
    place: (WorkspaceId, NodeId),
    steps: Vec<AtWork>,
) -> semel::error::Result<Vec<StopView>> {
    let each = steps.into_iter().map(|step| async move {
        let reason = why_stop(app, place, step).await?;
        Ok(reason.map(|reason| StopView { run: step.run, reason }))
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
    // A run that no longer exists has ended long ago.
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

/// Release a worker: its lease ends and its runs become due.
#[utoipa::path(
    post, path = "/workers/release",
    operation_id = "workerRelease", tag = "workers",
    request_body(content = Release, content_type = "application/json", example = json!({"node": "node_01j0000000e00800000000007z"})),
    params(SpokenProtocol),
    responses((status = 200, body = Leased, description = "The time of the release"), WorkerProblems),
)]
pub(super) async fn release(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    CallBody(release): CallBody<Release>,
) -> Result<Told<Leased>, Refusal> {
    caller.may(Permission::Worker)?;
    let node = node::of(caller.workspace, release.node);
    let until = app.store.lease(Lease { node, act: LeaseAct::Leave }).await?;
    // Its runs become due now instead of with the next sweep.
    app.store.sweep(Sweep { limit: FREED_AT_ONCE }).await?;
    let place = (caller.workspace, node);
    if let Some(worker) = workers.roster.remove(place) {
        app.services.left(caller.workspace, &worker.serves);
    }
    note(&app, place, &WorkerRecord::default(), Duration::ZERO).await?;
    Ok(Told(Leased { until, now: until, stop: Vec::new(), news: Vec::new() }))
}

/// Query of `GET /workers`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListWorkers {
    /// The `next` of the previous page. Absent for the first page.
    cursor: Option<String>,
    /// Maximum number of workers on the page; 100 if absent. A page may have fewer and still have a `next`.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// List the workers of the workspace, ordered by node, and its engines that open the store themselves.
#[utoipa::path(
    get, path = "/workers",
    operation_id = "workers", tag = "workers",
    params(ListWorkers, SpokenProtocol),
    responses((status = 200, description = "A page of workers", body = WorkerList), WorkerProblems),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryOf(asked): QueryOf<ListWorkers>,
) -> Result<Told<WorkerList>, Refusal> {
    caller.may(Permission::Read)?;
    let limit = limit_of(asked.limit, SHOWN, MAX_SHOWN)?;
    let engines = match asked.cursor {
        Some(_) => Vec::new(),
        None => engines_of(&app, caller.workspace).await?,
    };
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
            return Ok(Told(WorkerList { engines, workers, next: None }));
        };
        if workers.len() >= limit || bytes > PAGE_BYTES {
            return Ok(Told(WorkerList { engines, workers, next: Some(last.id.to_string()) }));
        }
        after = Some(last.id.clone());
    }
}

/// The engines that drive workflows of a workspace.
async fn engines_of(app: &App, workspace: WorkspaceId) -> semel::error::Result<Vec<EngineView>> {
    let present = engines::present(app).await?;
    Ok(present.into_iter().filter(|(_, engine)| engine.workspace == workspace).map(engines::view).collect())
}

/// Replaces the internal node id in an error by the id that the worker uses.
pub(super) fn own(error: semel::Error, node: NodeId, drawn: NodeId) -> semel::Error {
    match error {
        semel::Error::NodeLost(lost) if lost == node => semel::Error::NodeLost(drawn),
        error => error,
    }
}
