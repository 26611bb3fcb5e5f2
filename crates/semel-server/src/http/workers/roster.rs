//! The workers that have been heard of lately: register, heartbeat, release, list.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use semel::clock::Time;
use semel::id::{NodeId, WorkspaceId};
use semel::remote::wire::{Heartbeat, Join, Joined, Leased, Release};
use semel::rules::path::Name;
use semel::store::{Lease, LeaseAct};

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

struct Seen {
    name: String,
    serves: BTreeSet<String>,
    at: Time,
    until: Time,
}

/// Who has been heard of lately, by workspace and node.
#[derive(Default)]
pub(super) struct Roster(Mutex<HashMap<(WorkspaceId, NodeId), Seen>>);

impl Roster {
    fn lock(&self) -> MutexGuard<'_, HashMap<(WorkspaceId, NodeId), Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, place: (WorkspaceId, NodeId), seen: Seen) {
        let mut roster = self.lock();
        // Whoever's lease has ended is gone.
        roster.retain(|_, other| other.until > seen.at);
        roster.insert(place, seen);
    }

    fn seen(&self, place: (WorkspaceId, NodeId), at: Time, until: Time) {
        if let Some(seen) = self.lock().get_mut(&place) {
            (seen.at, seen.until) = (at, until);
        }
    }

    /// A worker asks for runs of these.
    pub(super) fn serves(&self, workspace: WorkspaceId, drawn: NodeId, workflows: &[Name]) {
        if let Some(seen) = self.lock().get_mut(&(workspace, node::of(workspace, drawn))) {
            for name in workflows {
                if seen.serves.len() < MOST_SERVED && !seen.serves.contains(name.as_str()) {
                    seen.serves.insert(name.as_str().to_owned());
                }
            }
        }
    }
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
    let serves = join.serves.into_iter().collect();
    let seen = Seen { name: join.name, serves, at: app.clock.now(), until };
    workers.roster.enter((workspace, node), seen);
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
    workers.roster.seen((caller.workspace, node), app.clock.now(), until);
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
    workers.roster.lock().remove(&(caller.workspace, node));
    Ok(Told(Leased { until }))
}

/// List the workers of the workspace.
#[utoipa::path(
    get, path = "/workers",
    operation_id = "workers", tag = "workers",
    responses((status = 200, description = "Those of the workspace", body = WorkerList), Always),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
) -> Result<Told<WorkerList>, Refusal> {
    caller.may(Permission::Read)?;
    let now = app.clock.now();
    let roster = workers.roster.lock();
    let mut found: Vec<_> = roster
        .iter()
        .filter(|((workspace, _), seen)| *workspace == caller.workspace && seen.until > now)
        .map(|((_, node), seen)| WorkerView {
            node: node.to_string(),
            name: seen.name.clone(),
            serves: seen.serves.iter().cloned().collect(),
            seen_at: time(seen.at),
        })
        .collect();
    found.sort_by(|one, other| one.node.cmp(&other.node));
    Ok(Told(WorkerList { workers: found }))
}

/// An error that names the node, told in the worker's own words.
pub(super) fn own(error: semel::Error, node: NodeId, drawn: NodeId) -> semel::Error {
    match error {
        semel::Error::NodeLost(lost) if lost == node => semel::Error::NodeLost(drawn),
        error => error,
    }
}
