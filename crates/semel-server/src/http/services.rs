//! Which workflows are served: by engines in this process, by workers that were heard of here, and by those that have
//! registered at other servers. A run that nothing serves waits; its caller is told so.
//!
//! An engine that is embedded in another process on the same database is not known here.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel::clock::Time;
use semel::id::WorkspaceId;
use semel::rules::record::{Look, LookBy};
use semel::rules::status::Status;

use super::workers;
use crate::api::RunView;
use crate::app::App;

/// How long it is believed that the workers of other servers serve no more than was found.
const BELIEVED: Duration = Duration::from_secs(2);
/// Workers of other servers that are looked at. With more of them it is taken for granted that all is served.
const LOOKED_AT: usize = 500;

/// What is served, by workspace.
#[derive(Debug, Default)]
pub struct Services(Mutex<HashMap<WorkspaceId, Service>>);

#[derive(Debug, Default)]
struct Service {
    /// By engines in this process.
    engines: HashSet<String>,
    /// By workers: until when the last of their leases ends.
    workers: HashMap<String, Time>,
    /// When the workers of other servers were looked for.
    looked: Option<Time>,
    /// Whether there are more workers than are looked at.
    many: bool,
}

/// What a worker or an engine says that it serves: `name@version`, and `queue:name` for queues, which have one version.
pub(crate) fn title(workflow: &str, version: &str) -> String {
    match workflow.starts_with("queue:") {
        true => workflow.to_owned(),
        false => format!("{workflow}@{version}"),
    }
}

impl Services {
    fn lock(&self) -> MutexGuard<'_, HashMap<WorkspaceId, Service>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An engine in this process serves these.
    pub(crate) fn engine(&self, workspace: WorkspaceId, titles: impl IntoIterator<Item = String>) {
        self.lock().entry(workspace).or_default().engines.extend(titles);
    }

    /// A worker serves these until its lease ends.
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

    /// A worker has gone. What it served may be served by others: they are looked for again.
    pub(super) fn left<'a>(&self, workspace: WorkspaceId, titles: impl IntoIterator<Item = &'a String>) {
        if let Some(service) = self.lock().get_mut(&workspace) {
            for title in titles {
                service.workers.remove(title);
            }
            service.looked = None;
        }
    }

    /// Whether it is served, as far as is known; none if the workers of other servers should be looked for.
    fn known(&self, workspace: WorkspaceId, title: &str, now: Time) -> Option<bool> {
        let mut services = self.lock();
        let service = services.entry(workspace).or_default();
        if service.engines.contains(title) || service.workers.get(title).is_some_and(|until| *until > now) {
            return Some(true);
        }
        let fresh = service.looked.is_some_and(|looked| now < looked.after(BELIEVED));
        if !fresh {
            // The one that finds it old looks; meanwhile the others answer by what is known.
            service.looked = Some(now);
            service.workers.retain(|_, until| *until > now);
            return None;
        }
        Some(service.many)
    }

    /// Whether something serves this version of a workflow. Mostly a look into memory; every few seconds, and only if
    /// it is not known to be served, a look at the workers that have registered at other servers.
    async fn serve(&self, app: &App, workspace: WorkspaceId, title: &str) -> bool {
        let now = app.clock.now();
        if let Some(known) = self.known(workspace, title, now) {
            return known;
        }
        let by = LookBy::Page { after: None, limit: LOOKED_AT, newest_first: true };
        let Ok(page) = app.store.records(Look { kind: workers::kind(workspace), by }).await else {
            // A store that does not answer now says nothing about workers.
            return true;
        };
        for record in &page {
            let titles = workers::served(record);
            self.worker(workspace, &titles, record.expires.unwrap_or(now.after(BELIEVED)));
        }
        let mut services = self.lock();
        let service = services.entry(workspace).or_default();
        service.many = page.len() == LOOKED_AT;
        service.many || service.workers.get(title).is_some_and(|until| *until > now)
    }

    /// Marks a run that waits for its first claim and that nothing serves.
    pub(super) async fn mark(&self, app: &App, workspace: WorkspaceId, run: &mut RunView) {
        if run.status == Status::Pending {
            run.unserved = !self.serve(app, workspace, &title(&run.workflow, &run.workflow_version)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: WorkspaceId = WorkspaceId::DEFAULT;

    #[test]
    fn what_is_served_is_known_until_the_lease_ends() {
        let services = Services::default();
        assert_eq!(services.known(HERE, "a@1", Time(0)), None, "somebody has to look");
        assert_eq!(services.known(HERE, "a@1", Time(1)), Some(false), "somebody is looking");
        services.worker(HERE, &["a@1".to_owned()], Time(1_000));
        services.worker(HERE, &["a@1".to_owned()], Time(500));
        assert_eq!(services.known(HERE, "a@1", Time(999)), Some(true));
        assert_eq!(services.known(HERE, "a@2", Time(999)), Some(false));
        assert_eq!(services.known(HERE, "a@1", Time(1_000)), Some(false));
        assert_eq!(services.known(HERE, "a@1", Time(2_000)), None, "what was found is old");
        let other = WorkspaceId(uuid::Uuid::from_u128(7));
        services.engine(HERE, ["e@1".to_owned()]);
        assert_eq!(services.known(HERE, "e@1", Time(i64::MAX)), Some(true));
        assert_ne!(services.known(other, "e@1", Time(2_000)), Some(true), "workspaces do not share workers");
    }

    #[test]
    fn what_a_worker_that_left_had_served_is_looked_for_again() {
        let services = Services::default();
        services.worker(HERE, &["a@1".to_owned()], Time(1_000));
        services.left(HERE, &["a@1".to_owned()]);
        assert_eq!(services.known(HERE, "a@1", Time(1)), None);
    }

    #[test]
    fn a_queue_has_one_version() {
        assert_eq!(
            (title("order", "2"), title("queue:pay", "1")),
            ("order@2".to_owned(), "queue:pay".to_owned())
        );
    }
}
