//! Which workflows are served: by the engine of this process, by workers known here, by workers registered at other
//! servers, and by engines in other processes on the same store. A run that nothing serves waits, and its caller is told.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use semel::clock::Time;
use semel::id::WorkspaceId;
use semel::rules::family::Family;
use semel::rules::node::EngineRecord;
use semel::rules::path::Name;
use semel::rules::record::{Look, LookBy};
use semel::rules::status::Status;

use super::workers;
use crate::api::{NowKind, NowView, RunView};
use crate::app::App;

/// How long the list of workers at other servers, and of engines in other processes, is cached.
const BELIEVED: Duration = Duration::from_secs(2);
/// Maximum number of workers at other servers that are examined. With more, everything is assumed to be served.
const LOOKED_AT: usize = 500;

/// Workflows that workers serve, by workspace.
#[derive(Debug, Default)]
pub struct Services(Mutex<HashMap<WorkspaceId, Service>>);

#[derive(Debug, Default)]
struct Service {
    /// Served by workers and by engines in other processes, with the end of the last lease.
    workers: HashMap<String, Time>,
    /// Families of versions that engines in other processes serve, and until when that is believed.
    families: HashMap<String, Time>,
    /// Time at which the workers of other servers were last read.
    looked: Option<Time>,
    /// Whether there are more workers than are examined.
    many: bool,
}

/// Name under which a workflow is served: `name@version`, or `queue:name` for queues, which have one version.
pub(super) fn title(workflow: &str, version: &str) -> String {
    match workflow.starts_with("queue:") {
        true => workflow.to_owned(),
        false => format!("{workflow}@{version}"),
    }
}

/// A workflow version that something should serve.
#[derive(Debug)]
struct WantedVersion {
    title: String,
    /// Prefix of its version, if that is one of a family.
    family: Option<Family>,
}

impl WantedVersion {
    fn of(workflow: &str, version: &str) -> Self {
        let family = Name::new(version).ok().and_then(|version| Family::of(&version));
        Self { title: title(workflow, version), family }
    }
}

impl Service {
    fn serves(&self, wanted: &WantedVersion, now: Time) -> bool {
        let later = |until: &Time| *until > now;
        self.workers.get(&wanted.title).is_some_and(later)
            || wanted.family.as_ref().and_then(|family| self.families.get(family.as_str())).is_some_and(later)
    }
}

impl Services {
    fn lock(&self) -> MutexGuard<'_, HashMap<WorkspaceId, Service>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records what a worker serves until its lease ends.
    pub(super) fn worker<'a>(
        &self,
        workspace: WorkspaceId,
        titles: impl IntoIterator<Item = &'a String>,
        until: Time,
    ) {
        let mut services = self.lock();
        let workers = &mut services.entry(workspace).or_default().workers;
        for title in titles {
            match workers.get_mut(title) {
                Some(known) => *known = until.max(*known),
                None => drop(workers.insert(title.clone(), until)),
            }
        }
    }

    /// Records that a worker has left. Other workers may serve the same, so they are read again.
    pub(super) fn left<'a>(&self, workspace: WorkspaceId, titles: impl IntoIterator<Item = &'a String>) {
        if let Some(service) = self.lock().get_mut(&workspace) {
            for title in titles {
                service.workers.remove(title);
            }
            service.looked = None;
        }
    }

    /// Records what an engine in another process serves in a workspace.
    fn elsewhere(&self, workspace: WorkspaceId, engine: &EngineRecord, until: Time) {
        if engine.workspace == workspace {
            self.worker(workspace, &engine.serves, until);
        }
        let families = engine.families.iter().map(|family| (family.clone(), until));
        self.lock().entry(workspace).or_default().families.extend(families);
    }

    /// Whether it is served, as far as is known; `None` if the workers of other servers should be read.
    fn known(&self, workspace: WorkspaceId, wanted: &WantedVersion, now: Time) -> Option<bool> {
        let mut services = self.lock();
        let service = services.entry(workspace).or_default();
        if service.serves(wanted, now) {
            return Some(true);
        }
        let fresh = service.looked.is_some_and(|looked| now < looked.after(BELIEVED));
        if !fresh {
            // The caller that finds it outdated reads; meanwhile the others answer from the cache.
            service.looked = Some(now);
            service.workers.retain(|_, until| *until > now);
            service.families.retain(|_, until| *until > now);
            return None;
        }
        Some(service.many)
    }

    /// Whether something serves this workflow version. Mostly answered from memory; every few seconds, and only if it
    /// is not known to be served, the workers of other servers are read.
    async fn serve(&self, app: &App, workspace: WorkspaceId, wanted: &WantedVersion) -> bool {
        let now = app.clock.now();
        if let Some(known) = self.known(workspace, wanted, now) {
            return known;
        }
        let by = LookBy::Page { after: None, limit: LOOKED_AT, newest_first: true };
        let workers = app.store.records(Look { kind: workers::kind(workspace), by }).await;
        let (Ok(page), Ok(engines)) = (workers, workers::engines::present(app).await) else {
            // A store that does not answer says nothing about workers.
            return true;
        };
        for record in &page {
            let titles = workers::served(record);
            self.worker(workspace, &titles, record.expires.unwrap_or(now.after(BELIEVED)));
        }
        for (_, engine) in &engines {
            self.elsewhere(workspace, engine, now.after(BELIEVED));
        }
        let mut services = self.lock();
        let service = services.entry(workspace).or_default();
        service.many = page.len() == LOOKED_AT || engines.len() == workers::engines::MOST_ENGINES;
        service.many || service.serves(wanted, now)
    }

    /// Whether something here serves this workflow in any version, or may do so.
    pub(super) async fn serves_any(&self, app: &App, workspace: WorkspaceId, workflow: &str) -> bool {
        // Reads the workers of other servers, if that was long ago.
        if self.serve(app, workspace, &WantedVersion::of(workflow, "1")).await {
            return true;
        }
        let now = app.clock.now();
        let prefix = format!("{workflow}@");
        let services = self.lock();
        let mut workers = services.get(&workspace).into_iter().flat_map(|service| &service.workers);
        workers.any(|(title, until)| title.starts_with(&prefix) && *until > now)
    }

    /// Marks a run that cannot go on because nothing serves it: one that has not begun, or one whose wait is over.
    pub(super) async fn mark(&self, app: &App, workspace: WorkspaceId, run: &mut RunView) {
        if wants_driver(run, app.clock.now()) {
            let (workflow, version) = (&run.workflow, &run.workflow_version);
            run.unserved = !self.is_served(app, workspace, workflow, version).await;
            if run.unserved && run.now.is_none() {
                let kind = NowKind::Unserved;
                run.now =
                    Some(NowView { kind, path: None, token: None, run: None, until: None, attempt: None });
            }
        }
    }

    /// Whether something is known to serve a workflow version: an engine of this process, or what has registered.
    pub(super) async fn is_served(
        &self,
        app: &App,
        workspace: WorkspaceId,
        workflow: &str,
        version: &str,
    ) -> bool {
        app.drives(workspace, workflow, version)
            || self.serve(app, workspace, &WantedVersion::of(workflow, version)).await
    }
}

/// Whether the run waits for nothing but a driver, or has not begun, so that its caller should know if there is none.
fn wants_driver(run: &RunView, now: Time) -> bool {
    let is_due = || {
        let due = run.due_at.as_deref().and_then(|due| due.parse::<Timestamp>().ok());
        due.is_some_and(|due| due.as_millisecond() <= now.0)
    };
    run.status == Status::Pending || run.status == Status::Waiting && is_due()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: WorkspaceId = WorkspaceId::DEFAULT;

    #[test]
    fn what_is_served_is_known_until_the_lease_ends() {
        let services = Services::default();
        assert_eq!(
            services.known(HERE, &WantedVersion::of("a", "1"), Time(0)),
            None,
            "the caller has to look"
        );
        assert_eq!(
            services.known(HERE, &WantedVersion::of("a", "1"), Time(1)),
            Some(false),
            "another caller is looking"
        );
        services.worker(HERE, &["a@1".to_owned()], Time(1_000));
        services.worker(HERE, &["a@1".to_owned()], Time(500));
        assert_eq!(services.known(HERE, &WantedVersion::of("a", "1"), Time(999)), Some(true));
        assert_eq!(services.known(HERE, &WantedVersion::of("a", "2"), Time(999)), Some(false));
        assert_eq!(services.known(HERE, &WantedVersion::of("a", "1"), Time(1_000)), Some(false));
        assert_eq!(
            services.known(HERE, &WantedVersion::of("a", "1"), Time(2_000)),
            None,
            "what was found is old"
        );
        let other = WorkspaceId(uuid::Uuid::from_u128(7));
        services.worker(HERE, &["a@1".to_owned()], Time(9_000));
        assert_ne!(
            services.known(other, &WantedVersion::of("a", "1"), Time(2_000)),
            Some(true),
            "workspaces do not share workers"
        );
    }

    #[test]
    fn what_a_worker_that_left_had_served_is_looked_for_again() {
        let services = Services::default();
        services.worker(HERE, &["a@1".to_owned()], Time(1_000));
        services.left(HERE, &["a@1".to_owned()]);
        assert_eq!(services.known(HERE, &WantedVersion::of("a", "1"), Time(1)), None);
    }

    #[test]
    fn a_queue_has_one_version() {
        assert_eq!(
            (title("order", "2"), title("queue:pay", "1")),
            ("order@2".to_owned(), "queue:pay".to_owned())
        );
    }

    #[test]
    fn an_engine_elsewhere_serves_its_workspace_and_its_families_everywhere() {
        let services = Services::default();
        let other = WorkspaceId(uuid::Uuid::from_u128(7));
        let engine = EngineRecord {
            name: "shop".to_owned(),
            host: String::new(),
            pid: 1,
            workspace: HERE,
            serves: vec!["order@1".to_owned()],
            families: vec!["doc1_".to_owned()],
            since: Time(0),
        };
        for workspace in [HERE, other] {
            services.elsewhere(workspace, &engine, Time(1_000));
        }
        let table = [
            (HERE, "order", "1", true),
            (HERE, "order", "2", false),
            (HERE, "any", "doc1_7f", true),
            (other, "any", "doc1_7f", true),
            (other, "any", "doc2_7f", false),
            (other, "order", "1", false),
        ];
        for (workspace, workflow, version, served) in table {
            let known = services.known(workspace, &WantedVersion::of(workflow, version), Time(999));
            assert_eq!(known == Some(true), served, "{workflow}@{version}");
        }
        assert_ne!(
            services.known(other, &WantedVersion::of("any", "doc1_7f"), Time(1_000)),
            Some(true),
            "it is old"
        );
    }
}
