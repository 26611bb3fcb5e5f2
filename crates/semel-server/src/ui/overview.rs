//! Overview: what needs a person first, then what goes on. A new server shows how to start the first run.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;

use super::Ui;
use super::approvals::ApprovalRow;
use super::desk::PageRefusal;
use super::doubts::{self, DoubtRow, PausedRow};
use super::frame::{self, PageFrame, Section};
use super::gate::Visitor;
use super::parts::{Markup, age, in_doubt};
use super::runs::RunRow;
use super::workers::{self, WorkerRow};
use crate::access::site::host_of;
use crate::api::{ApprovalList, CountsView, DoubtList, NodeList, RunList, UnservedVersion};

/// Runs that need a person, and runs of each list.
const SHOWN: usize = 8;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: PageFrame,
    doubts: Vec<DoubtRow>,
    paused: Vec<PausedRow>,
    stuck: Vec<StuckRow>,
    approvals: Vec<ApprovalRow>,
    failed: Vec<RunRow>,
    latest: Vec<RunRow>,
    absorbed: Markup,
    workers: Vec<WorkerRow>,
    /// The call that starts the first run; none if there are runs.
    curl: Option<String>,
}

/// `GET /w/{workspace}/`.
pub(super) async fn page(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    uri: axum::http::Uri,
    headers: HeaderMap,
) -> Result<Response, PageRefusal> {
    let now = ui.app.clock.now().0;
    let list = async |query: &str| -> Result<RunList, PageRefusal> {
        ui.get(&visitor, &format!("/workflow-runs?limit={SHOWN}{query}")).await
    };
    let latest = list("").await?;
    let (paused, failed) = (list("&status=PAUSED").await?, list("&status=FAILED").await?);
    let open_doubts: DoubtList = ui.get(&visitor, &format!("/doubts?limit={SHOWN}")).await?;
    let counts: CountsView = ui.get(&visitor, "/counts").await?;
    let open: Option<ApprovalList> = ui.look(&visitor, "/approvals?limit=5").await?;
    let present: Option<NodeList> = ui.look(&visitor, "/nodes").await?;
    let row = |run: &crate::api::RunView| RunRow::of(&visitor, run, now);
    let few = latest.runs.len() <= 1;
    let host = host_of(&uri, &headers).map_or_else(|| "127.0.0.1:7700".to_owned(), |host| host.to_string());
    let page = OverviewPage {
        frame: PageFrame::of(&ui, &visitor, Section::Overview, "Overview"),
        doubts: open_doubts.doubts.iter().map(|doubt| doubts::doubt_row(&visitor, doubt, now)).collect(),
        paused: paused
            .runs
            .iter()
            .filter(|run| !in_doubt(run))
            .map(|run| doubts::row(&visitor, run, now))
            .collect(),
        stuck: counts.unserved.iter().map(|version| stuck(&visitor, version, now)).collect(),
        approvals: super::approvals::rows(&visitor, open.map(|list| list.approvals).unwrap_or_default(), now),
        failed: failed.runs.iter().map(row).collect(),
        absorbed: first_duplicate(&ui, &visitor, &latest).await?,
        latest: latest.runs.iter().map(row).collect(),
        workers: present.as_ref().map(|list| workers::rows(&visitor, list, now)).unwrap_or_default(),
        curl: few.then(|| curl(&host, visitor.signed_in)),
    };
    Ok(frame::page(&page))
}

/// Runs that wait for a workflow version that nothing serves.
struct StuckRow {
    workflow: String,
    workflow_version: String,
    to: String,
    count: String,
    age: Markup,
}

fn stuck(visitor: &Visitor, version: &UnservedVersion, now: i64) -> StuckRow {
    let filter =
        [("workflow", version.workflow.as_str()), ("workflowVersion", version.workflow_version.as_str())];
    StuckRow {
        workflow: version.workflow.clone(),
        workflow_version: version.workflow_version.clone(),
        to: visitor.to(&format!("/runs{}", super::query::query(filter))),
        count: super::words::capped(version.due),
        age: version.oldest_due_at.as_deref().map(|since| age(since, now)).unwrap_or_default(),
    }
}

/// What the only run has absorbed: the second press of a newcomer.
async fn first_duplicate(ui: &Ui, visitor: &Visitor, latest: &RunList) -> Result<Markup, PageRefusal> {
    let [only] = latest.runs.as_slice() else { return Ok(Markup::default()) };
    let path =
        format!("/keys/{}?scope={}", super::query::encoded(&only.key), super::query::encoded(&only.scope));
    let key: Option<crate::api::KeyView> = ui.look(visitor, &path).await?;
    let count: u64 = key.map_or(0, |key| key.duplicates.iter().map(|kind| kind.count).sum());
    Ok(match count {
        0 => Markup::default(),
        count => Markup::made(format!(
            r#"<span class="tag dup">{}{} absorbed: one run, as it should be</span>"#,
            super::icon("dup"),
            super::words::count(count, "duplicate", "duplicates")
        )),
    })
}

/// The call of the first minute.
fn curl(host: &str, keyed: bool) -> String {
    let key = if keyed { " -H \"authorization: Bearer $SEMEL_TOKEN\"" } else { "" };
    let scheme = if keyed { "https" } else { "http" };
    format!(
        "curl -s {scheme}://{host}/api/v1/workflow-runs{key} -H 'content-type: application/json' -H 'idempotency-key: order-7' \
         -d '{{\"workflow\": \"demo-order\", \"input\": {{\"order\": \"7\", \"amount\": 1999}}}}'"
    )
}
