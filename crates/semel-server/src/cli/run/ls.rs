//! `semel run ls`: lists runs, newest first.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::RunView;
use crate::cli::client::{ApiCall, Client, ServerArgs};
use crate::cli::exit::{Done, Exit, Failure};
use crate::cli::output::{Format, Rows, ago, json, note, plain, print, status};

/// List runs, newest first unless `--order oldest` is given.
#[derive(Debug, clap::Args)]
#[command(
    visible_alias = "list",
    after_help = "Examples:
  semel run ls
  semel run ls --status FAILED --status TIMED_OUT --workflow demo-order
  semel run ls --attention in-doubt --order oldest
  semel run ls --key-prefix order- --until 2026-01-31T12:00:00Z
  semel run ls --all -o ndjson | jq -r .id"
)]
pub(in crate::cli) struct Ls {
    /// Only runs in this state: `PENDING`, `RUNNING`, `WAITING`, `PAUSED`, `COMPLETED`, `FAILED`, `CANCELLED`,
    /// `TIMED_OUT`. May be repeated.
    #[arg(long, value_parser = status_name)]
    status: Vec<String>,
    /// Only runs of this workflow. May be repeated, up to ten times.
    #[arg(long)]
    workflow: Vec<String>,
    /// Only runs of this version of their workflow.
    #[arg(long, value_name = "VERSION")]
    workflow_version: Option<String>,
    /// Only the run that holds this key.
    #[arg(long)]
    key: Option<String>,
    /// Only runs whose key begins like this.
    #[arg(long, value_name = "PREFIX")]
    key_prefix: Option<String>,
    /// Scope of `--key` and `--key-prefix`, as runs show it: `*` (default), `w/order`, `v/order/1`, `child`.
    #[arg(long)]
    scope: Option<String>,
    /// Only runs created at this time or later, such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only runs created before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only runs that ended at this time or later.
    #[arg(long, value_name = "TIME")]
    ended_since: Option<String>,
    /// Only runs that this run has started.
    #[arg(long, value_name = "RUN")]
    parent: Option<String>,
    /// Only runs that share the effect keys of this run: itself, and its forks without fresh keys.
    #[arg(long, value_name = "RUN")]
    lineage: Option<String>,
    /// Only runs that this node drives.
    #[arg(long)]
    node: Option<String>,
    /// Only runs that are paused for a reason of this kind.
    #[arg(long, value_parser = ["in-doubt", "diverged", "poisoned", "operator"], value_name = "KIND")]
    attention: Option<String>,
    /// Order by the time of creation.
    #[arg(long, value_parser = ["newest", "oldest"], default_value = "newest")]
    order: String,
    /// Maximum number of runs to list.
    #[arg(long, default_value_t = 50, conflicts_with = "all")]
    limit: usize,
    /// The `next` of the previous page.
    #[arg(long)]
    cursor: Option<String>,
    /// All runs, page by page.
    #[arg(long)]
    all: bool,
}

fn status_name(text: &str) -> Result<String, String> {
    let name = text.to_uppercase().replace('-', "_");
    let known = semel::rules::status::Status::ALL.map(|status| status.to_string());
    if known.contains(&name) { Ok(name) } else { Err(format!("one of {}", known.join(", "))) }
}

/// A page, with its runs as received.
#[derive(Deserialize)]
struct Page {
    runs: Vec<Box<RawValue>>,
    next: Option<String>,
}

/// Maximum number of runs per page.
const PAGE: usize = 500;

impl Ls {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let client = Client::new(server)?;
        let (mut runs, mut next) = (Vec::new(), self.cursor.clone());
        loop {
            let left = if self.all { PAGE } else { self.limit - runs.len() };
            let page: Page = client.call(&self.page(left.min(PAGE), next.as_deref())).await?.read()?;
            next = page.next;
            if server.output == Format::Ndjson {
                page.runs.iter().try_for_each(|run| print(&line(run)))?;
            }
            runs.extend(page.runs);
            if next.is_none() || (!self.all && runs.len() >= self.limit) {
                break;
            }
        }
        match server.output {
            Format::Table => table(&runs, next.as_deref()),
            Format::Json => {
                print(&line(&serde_json::value::to_raw_value(&ListedRuns { runs, next }).expect("JSON")))
            }
            Format::Ndjson => Ok(()),
        }
    }

    fn page<'a>(&'a self, limit: usize, cursor: Option<&'a str>) -> ApiCall<'a> {
        let several = |call: ApiCall<'a>, name, values: &'a [String]| {
            values.iter().fold(call, |call, value| call.query(name, Some(value)))
        };
        let call = several(ApiCall::get(["workflow-runs"]), "status", &self.status);
        several(call, "workflow", &self.workflow)
            .query("workflowVersion", self.workflow_version.as_ref())
            .query("key", self.key.as_ref())
            .query("keyPrefix", self.key_prefix.as_ref())
            .query("scope", self.scope.as_ref())
            .query("since", self.since.as_ref())
            .query("until", self.until.as_ref())
            .query("endedSince", self.ended_since.as_ref())
            .query("parent", self.parent.as_ref())
            .query("lineage", self.lineage.as_ref())
            .query("node", self.node.as_ref())
            .query("attention", self.attention.as_ref())
            .query("order", Some(&self.order).filter(|order| *order != "newest"))
            .query("cursor", cursor)
            .query("limit", Some(limit))
    }
}

/// The list as one JSON document.
#[derive(serde::Serialize)]
struct ListedRuns {
    runs: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A JSON value on one line. Line ends occur only between its tokens, never within them.
fn line(value: &RawValue) -> String {
    value.get().replace(['\n', '\r'], " ")
}

/// Column of the reasons.
const REASON: usize = 6;

fn table(runs: &[Box<RawValue>], next: Option<&str>) -> Done {
    let columns = ["RUN", "STATUS", "WORKFLOW", "KEY", "CREATED", "ENDED", "REASON"];
    let mut rows = Rows::new(columns, "no runs").whole([0, 1, 4, 5]).only_from(100, [5]);
    let mut has_reason = false;
    for run in runs {
        let run: RunView = serde_json::from_str(run.get()).map_err(|error| {
            Failure::new(Exit::Failed, format!("the server's answer is not understood: {error}"))
        })?;
        let reason = reason(&run);
        has_reason |= !reason.is_empty();
        rows.add([
            run.id.clone(),
            status(&run.status.to_string()),
            plain(&format!("{}@{}", run.workflow, run.workflow_version)),
            plain(&run.key),
            ago(&run.created_at),
            run.ended_at.as_deref().map(ago).unwrap_or_default(),
            reason,
        ]);
    }
    if !has_reason {
        rows.hide(REASON);
    }
    rows.print()?;
    if let Some(next) = next {
        note(&format!("there are more: --all, or --cursor {}", json(next)));
    }
    Ok(())
}

/// Why an open run does not go on, in a few words; empty if nothing is known. `semel run show` has the whole reason.
fn reason(run: &RunView) -> String {
    match &run.pause_reason {
        // What follows is the advice, or the details.
        Some(reason) => plain(reason.split([';', ':']).next().unwrap_or(reason)),
        None if run.unserved => "unserved".to_owned(),
        None => String::new(),
    }
}
