//! `GET /workflows` and `GET /queues`: what is served in a workspace, by what, and how much of it is open.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use semel::rules::status::Status;
use semel::store::{Capped, DueVersion, OpenVersions};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::answer::Answer;
use super::describe::Always;
use super::nodes::present;
use crate::access::Caller;
use crate::api::{CappedView, NodeView, Permission, QueueList, QueueView, WorkflowList, WorkflowView, time};
use crate::app::App;

/// Runs of each state that are read: their versions are not in the index.
const CAP: usize = 2_000;
/// Maximum number of definitions that are listed.
const DEFINITIONS: usize = 200;
/// Beginning of the names under which queues are served.
const QUEUE: &str = "queue:";

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(workflows)).routes(routes!(queues))
}

/// List workflows
///
/// Workflow versions that an engine or a worker serves, definitions, and versions with open runs.
#[utoipa::path(
    get,
    path = "/workflows",
    operation_id = "listWorkflows",
    tag = "runs",
    responses((status = 200, description = "The workflow versions of the workspace", body = WorkflowList), Always),
)]
async fn workflows(State(app): State<Arc<App>>, caller: Caller) -> Result<Answer<WorkflowList>, Problem> {
    list_workflows(&app, &caller).await.map(Answer::ok)
}

/// List queues
///
/// Queues of remote steps that a worker serves, or in which steps wait.
#[utoipa::path(
    get,
    path = "/queues",
    operation_id = "listQueues",
    tag = "workers",
    responses((status = 200, description = "The queues of the workspace", body = QueueList), Always),
)]
async fn queues(State(app): State<Arc<App>>, caller: Caller) -> Result<Answer<QueueList>, Problem> {
    list_queues(&app, &caller).await.map(Answer::ok)
}

/// The workflow versions of a workspace, as its caller may see them.
pub(crate) async fn list_workflows(app: &App, caller: &Caller) -> Result<WorkflowList, Problem> {
    caller.may(Permission::Read)?;
    let offers = Offers::read(app, caller).await?;
    let mut workflows = BTreeMap::new();
    let known = offers.versions().filter(|(name, _)| !name.starts_with(QUEUE));
    for (name, version) in known {
        workflows.insert((name.to_owned(), version.to_owned()), None);
    }
    for (name, version, schema) in definitions(app, caller).await? {
        workflows.insert((name, version), schema);
    }
    let view =
        |((name, version), input_schema): ((String, String), Option<serde_json::Value>)| WorkflowView {
            served_by: offers.served_by(&name, &version),
            open: offers.open(&name, &version, None),
            due: offers.due(&name, &version).map_or_else(CappedView::default, |due| due.due.into()),
            name,
            version,
            input_schema,
        };
    Ok(WorkflowList { workflows: workflows.into_iter().map(view).collect() })
}

/// The queues of a workspace, as its caller may see them.
pub(crate) async fn list_queues(app: &App, caller: &Caller) -> Result<QueueList, Problem> {
    caller.may(Permission::Read)?;
    let offers = Offers::read(app, caller).await?;
    let mut names: Vec<_> = offers.versions().filter(|(name, _)| name.starts_with(QUEUE)).collect();
    names.sort_unstable();
    names.dedup_by_key(|(name, _)| *name);
    let view = |(workflow, _): (&str, &str)| {
        let due = offers.due(workflow, "1");
        QueueView {
            name: workflow.trim_start_matches(QUEUE).to_owned(),
            depth: due.map_or_else(CappedView::default, |due| due.due.into()),
            oldest_at: due.and_then(|due| due.oldest).map(time),
            in_hand: offers.open(workflow, "1", Some(Status::Running)),
            served_by: offers.served_by(workflow, "1"),
        }
    };
    Ok(QueueList { queues: names.into_iter().map(view).collect() })
}

/// Current versions of the definitions, with the schemas of their inputs.
async fn definitions(
    app: &App,
    caller: &Caller,
) -> Result<Vec<(String, String, Option<serde_json::Value>)>, Problem> {
    let (names, _) = app.catalog.names(caller.workspace, None, DEFINITIONS).await?;
    let mut found = Vec::new();
    for (name, record) in names.iter().filter(|(_, record)| !record.archived) {
        let id = record.current.to_string();
        let definition = app.catalog.load(caller.workspace, &id).await?;
        let schema =
            definition.and_then(|definition| definition.input.as_ref().map(|input| input.json().clone()));
        found.push((name.clone(), id, schema));
    }
    Ok(found)
}

/// What is served in a workspace, and what is open in it.
struct Offers {
    nodes: Vec<NodeView>,
    versions: OpenVersions,
}

impl Offers {
    async fn read(app: &App, caller: &Caller) -> Result<Self, Problem> {
        let nodes = present(app, caller.workspace).await?;
        Ok(Self { nodes, versions: app.store.versions(caller.workspace, CAP).await? })
    }

    /// Names and versions that are served, open or due; one may occur several times.
    fn versions(&self) -> impl Iterator<Item = (&str, &str)> {
        let served = self.nodes.iter().flat_map(|node| &node.serves).filter(|title| !title.starts_with('*'));
        let served = served.filter_map(|title| match title.starts_with(QUEUE) {
            true => Some((title.as_str(), "1")),
            false => title.split_once('@'),
        });
        let open =
            self.versions.open.iter().map(|open| (open.workflow.as_str(), open.workflow_version.as_str()));
        let due = self.versions.due.iter().map(|due| (due.workflow.as_str(), due.workflow_version.as_str()));
        served.chain(open).chain(due)
    }

    /// Names of the nodes that serve a version, each once.
    fn served_by(&self, workflow: &str, version: &str) -> Vec<String> {
        let title = super::services::title(workflow, version);
        let family = |served: &String| {
            let prefix = served.strip_prefix("*@").and_then(|family| family.strip_suffix('*'));
            prefix.is_some_and(|prefix| version.starts_with(prefix))
        };
        let serves = |node: &&NodeView| node.serves.iter().any(|served| *served == title || family(served));
        let mut names: Vec<_> = self.nodes.iter().filter(serves).map(|node| node.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Open runs of a version, in any state or in one.
    fn open(&self, workflow: &str, version: &str, status: Option<Status>) -> CappedView {
        let of = self.versions.open.iter().filter(|open| {
            open.workflow.as_str() == workflow
                && open.workflow_version.as_str() == version
                && status.is_none_or(|status| open.status == status)
        });
        let capped = |state: &Status| status.is_none_or(|status| status == *state);
        let count = of.map(|open| open.count).sum();
        Capped { count, more: self.versions.capped.iter().any(capped) }.into()
    }

    fn due(&self, workflow: &str, version: &str) -> Option<&DueVersion> {
        let is =
            |due: &&DueVersion| due.workflow.as_str() == workflow && due.workflow_version.as_str() == version;
        self.versions.due.iter().find(is)
    }
}
