//! Limits on what callers hold at once. Each limit applies to one workspace and to all together, so that one tenant
//! takes neither the server's memory nor all of its connections.

use std::sync::{Arc, Mutex, PoisonError};

use semel::id::WorkspaceId;
use tokio::sync::Semaphore;

use super::open_runs::OpenRunsBound;
use super::share::{Part, Share};
use crate::config::Limits;
use crate::http::Problem;

/// Bytes of request bodies that one workspace may have on their way into the store. Four of the largest calls of workers,
/// or thirty of the largest values.
const BODY_BYTES: usize = 64 * 1024 * 1024;
/// The same of all workspaces.
const BODY_BYTES_IN_ALL: usize = 256 * 1024 * 1024;
/// Bytes of events that were read for one workspace and not sent yet.
const EVENT_BYTES: usize = 16 * 1024 * 1024;
/// The same of all workspaces.
const EVENT_BYTES_IN_ALL: usize = 64 * 1024 * 1024;
/// Bytes of the registrations of one workspace's workers: their names, and what they serve.
const REGISTRATION_BYTES: usize = 8 * 1024 * 1024;
/// The same of all workspaces.
const REGISTRATION_BYTES_IN_ALL: usize = 64 * 1024 * 1024;
/// How many parts of ledgers are read at the same time for streams of events.
const LEDGER_READS: usize = 2;

/// Maximum number of runs that are replayed at the same time.
const REPLAYS: usize = 2;

/// The limits, and what callers hold now.
#[derive(Debug)]
pub struct Bounds {
    streams: Arc<Share>,
    waits: Arc<Share>,
    bodies: Arc<Share>,
    events: Arc<Share>,
    registrations: Arc<Share>,
    /// Open runs of each workspace.
    pub(crate) open_runs: OpenRunsBound,
    /// Permits to replay runs, each with its whole history in memory.
    pub(crate) replays: Semaphore,
    /// Permits to read ledgers for streams.
    pub(crate) ledger_reads: Semaphore,
}

impl Bounds {
    /// The bounds that follow from settings. Streams take at most half of the connections, and calls that wait a
    /// quarter: the rest is left to calls that are answered at once, health checks among them. One workspace has at
    /// most a quarter of the calls that wait.
    pub fn new(limits: &Limits) -> Self {
        let connections = limits.connections as usize;
        let waits = (connections / 4).max(1);
        Self {
            streams: Share::new(limits.streams as usize, (connections / 2).max(1)),
            waits: Share::new((waits / 4).max(1), waits),
            bodies: Share::new(BODY_BYTES, BODY_BYTES_IN_ALL),
            events: Share::new(EVENT_BYTES, EVENT_BYTES_IN_ALL),
            registrations: Share::new(REGISTRATION_BYTES, REGISTRATION_BYTES_IN_ALL),
            open_runs: OpenRunsBound::new(limits.max_open_runs),
            replays: Semaphore::new(REPLAYS),
            ledger_reads: Semaphore::new(LEDGER_READS),
        }
    }

    /// A place for a stream of events or wakes.
    pub(crate) fn stream(&self, workspace: WorkspaceId) -> Result<Part, Problem> {
        self.streams.take(workspace, 1).ok_or_else(|| {
            Problem::rate_limited(format!(
                "this workspace has {} streams open at this server, or all together have too many; close some, or set \
                 `limits.streams`",
                self.streams.each()
            ))
        })
    }

    /// A place for a call that waits.
    pub(crate) fn wait(&self, workspace: WorkspaceId) -> Result<Part, Problem> {
        self.waits.take(workspace, 1).ok_or_else(|| {
            Problem::rate_limited(format!(
                "this workspace has {} calls that wait at this server, or all together have too many; wait with fewer, repeat \
                 the call without a wait, or set `limits.connections`",
                self.waits.each()
            ))
        })
    }

    /// Room for the body of a request, which grows as the body comes.
    pub(crate) fn intake(&self, workspace: WorkspaceId) -> Intake {
        Intake(Arc::new(Mutex::new(self.bodies.take(workspace, 0).expect("nothing always fits"))))
    }

    /// Room for the registrations of workers.
    pub(crate) fn registration(&self, workspace: WorkspaceId, bytes: usize) -> Result<Part, Problem> {
        self.registrations.take(workspace, bytes).ok_or_else(|| {
            Problem::rate_limited(
                "the registrations of the workers of this workspace, or of all workspaces, are too large; register fewer workers",
            )
        })
    }

    /// Room for events that were read and not sent yet.
    pub(crate) fn events(&self, workspace: WorkspaceId) -> Part {
        self.events.take(workspace, 0).expect("nothing always fits")
    }
}

/// Room for the body of one request. The gate leaves it with the request, and keeps it until the request is answered.
#[derive(Clone, Debug)]
pub(crate) struct Intake(Arc<Mutex<Part>>);

impl Intake {
    /// Takes more; false if that would exceed the limit of the workspace or of all.
    pub(crate) fn grow(&self, bytes: usize) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).grow(bytes)
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self::new(&Limits::default())
    }
}
