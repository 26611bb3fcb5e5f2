//! State that all routes share.

use std::sync::Arc;

use semel::Engine;
use semel::clock::{Clock, ForwardClock};
use semel::id::WorkspaceId;
use semel::rules::ledger::LedgerBounds;
use semel::rules::path::Name;
use semel::rules::start::default_version;
use semel::store::Store;

use crate::access::{Access, Bounds, ChildBounds};
use crate::config::ClockMode;
use crate::connections::Connections;
use crate::definitions::catalog::Catalog;
use crate::http::Services;
use crate::senders::Senders;
use crate::serve::Stop;

/// State of the server behind the routes.
pub struct App {
    /// Store of the runs.
    pub store: Arc<dyn Store>,
    /// Source of time and fresh ids.
    pub clock: Arc<dyn Clock>,
    /// The same clock, if callers may move it forward.
    pub forward: Option<Arc<ForwardClock>>,
    /// Authentication, permissions, rate limits and audit.
    pub access: Access,
    /// Stop signal; long polls and streams answer early when it is given.
    pub stop: Stop,
    /// Limits on what callers may hold at once.
    pub bounds: Arc<Bounds>,
    /// Bounds on the ledgers of runs that remote workers drive.
    pub ledgers: LedgerBounds,
    /// Limits on the children of runs.
    pub children: Arc<ChildBounds>,
    /// Engine of this process: what it hosts is driven in all workspaces. None if the routes stand alone.
    pub engine: Option<Engine>,
    /// Which workflows are served by workers.
    pub services: Services,
    /// Definitions of all workspaces.
    pub catalog: Arc<Catalog>,
    /// Other systems that definitions call. None if the routes stand alone: then connections are not checked at a push.
    pub connections: Option<Arc<Connections>>,
    /// Addresses of hooks that were used lately.
    pub senders: Senders,
}

impl App {
    /// A server without authentication that never receives the stop signal.
    pub fn open(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        let bounds = Arc::<Bounds>::default();
        Self {
            catalog: Arc::new(Catalog::new(store.clone())),
            children: Arc::new(ChildBounds::new(store.clone(), clock.clone(), bounds.clone())),
            store,
            clock,
            forward: None,
            access: Access::Open,
            stop: Stop::default(),
            bounds,
            ledgers: LedgerBounds::default(),
            engine: None,
            services: Services::default(),
            connections: None,
            senders: Senders::default(),
        }
    }

    /// The clock that the routes are offered with.
    pub(crate) fn clock_mode(&self) -> ClockMode {
        if self.forward.is_some() { ClockMode::Manual } else { ClockMode::Machine }
    }

    /// Version of a start that names none: the one that is current where this process hosts the workflow, or `1`.
    pub(crate) async fn current_version(
        &self,
        workspace: WorkspaceId,
        workflow: &Name,
    ) -> Result<Name, semel::Error> {
        match &self.engine {
            Some(engine) => engine.in_workspace(workspace).current_version(workflow).await,
            None => Ok(default_version()),
        }
    }

    /// Whether the engine of this process drives runs of a workflow version.
    pub(crate) fn drives(&self, workspace: WorkspaceId, workflow: &str, version: &str) -> bool {
        match (&self.engine, Name::new(workflow), Name::new(version)) {
            (Some(engine), Ok(workflow), Ok(version)) => {
                engine.in_workspace(workspace).drives(&workflow, &version)
            }
            _ => false,
        }
    }
}
