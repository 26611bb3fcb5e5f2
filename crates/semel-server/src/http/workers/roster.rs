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
/// So many runs of a worker that leaves are freed with its call; the rest by the next sweep.
const FREED_AT_ONCE: usize = 1_000;
/// So long a worker that is registered at another server is remembered without another look.
const REMEMBERED: Duration = Duration::from_secs(10);
/// At most so much is served by one worker.
const MOST_SERVED: usize = 2_000;
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
}

/// The workers that have been heard of here lately, by workspace and node.
#[derive(Default)]
pub(super) struct Roster(Mutex<HashMap<(WorkspaceId, NodeId), Present>>);

impl Roster {
    fn lock(&self) -> MutexGuard<'_, HashMap<(WorkspaceId, NodeId), Present>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, place: (WorkspaceId, NodeId), worker: Worker, now: Time, until: Time) {
        let mut roster = self.lock();
        // Whoever's lease has ended is gone.
        roster.retain(|_, present| present.until > now);
        match roster.get_mut(&place) {
            Some(present) => (present.worker, present.until) = (worker, until),
            None => drop(roster.insert(place, Present { worker, until, at_work: HashMap::new() })),
        }
    }

    fn known(&self, place: (WorkspaceId, NodeId)) -> Option<Worker> {
        self.lock().get(&place).map(|present| present.worker.clone())
    }

    /// The credential that a node was registered with; none if it is no node of a living worker.
    pub(super) async fn credential_of(
        &self,
        app: &App,
        place: (WorkspaceId, NodeId),
    ) -> semel::error::Result<Option<String>> {
        if let Some(credential) = self.lock().get(&place).map(|present| present.worker.credential.clone()) {
            return Ok(Some(credential));
        }
        // It has registered at another server, or before this one was started.
        let Some(worker) = recorded(app, place).await? else { return Ok(None) };
        let now = app.clock.now();
        self.enter(place, worker.clone(), now, now.after(REMEMBERED));
        Ok(Some(worker.credential))
    }

    /// The lease of a worker whose claim waits; none if it is not known here how long it lasts.
    pub(super) async fn lease_of(&self, app: &App, ask: &Ask) -> semel::error::Result<Option<Renewed>> {
        let place = (ask.workspace, ask.node);
        self.credential_of(app, place).await?;
        let known = self.lock().get(&place).map(|present| (present.worker.lease_ms, present.until));
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
        let worker = match self.known(place) {
            Some(worker) => worker,
            // It has registered at another server.
            None => recorded(app, place).await?.unwrap_or_default(),
        };
        let worker = Worker { lease_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX), ..worker };
        note(app, place, &worker, ttl).await?;
        self.enter(place, worker, app.clock.now(), until);
        Ok(until)
    }

    /// Steps were handed to a worker.
    pub(super) fn handed(&self, place: (WorkspaceId, NodeId), tasks: &[Task]) {
        if let Some(Present { at_work, .. }) = self.lock().get_mut(&place) {
            // Beyond the bound a worker is not told: it can ask for each.
            let room = MOST_AT_WORK.saturating_sub(at_work.len());
            at_work.extend(tasks.iter().take(room).map(|task| (task.run, task.fence)));
        }
    }

    /// A worker has reported on a step.
    pub(super) fn reported(&self, place: (WorkspaceId, NodeId), run: RunId) {
        if let Some(Present { at_work, .. }) = self.lock().get_mut(&place) {
            at_work.remove(&run);
        }
    }

    /// The steps that a worker has, for all we know.
    fn at_work(&self, place: (WorkspaceId, NodeId)) -> Vec<AtWork> {
        let at = |(run, fence): (&RunId, &u64)| AtWork { run: *run, fence: *fence };
        self.lock().get(&place).map(|present| present.at_work.iter().map(at).collect()).unwrap_or_default()
    }

    /// A worker asks for runs of these: `name@version`, `queue:name`.
    pub(super) fn serves(
        &self,
        workspace: WorkspaceId,
        drawn: NodeId,
        served: impl IntoIterator<Item = String>,
    ) {
        if let Some(Present { worker, .. }) = self.lock().get_mut(&(workspace, node::of(workspace, drawn))) {
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
    let until = app.store.lease(Lease { node, act: LeaseAct::Join(ttl) }).await?;
    let (serves, credential) = (join.serves.into_iter().collect(), caller.title());
    let worker = Worker { name: join.name, serves, credential, lease_ms: join.lease_ms };
    note(&app, (workspace, node), &worker, ttl).await?;
    workers.roster.enter((workspace, node), worker, app.clock.now(), until);
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
    let act = if sabotage::commits(Bug::BelieveZombies) { LeaseAct::Join(ttl) } else { LeaseAct::Renew(ttl) };
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
    workers.roster.lock().remove(&place);
    note(&app, place, &Worker::default(), Duration::ZERO).await?;
    Ok(Told(Leased { until, stop: Vec::new() }))
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
            let Worker { name, serves, .. } = read(record)?;
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
