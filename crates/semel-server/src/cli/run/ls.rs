//! `semel run ls`.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::RunView;
use crate::cli::client::{Call, Client, Server};
use crate::cli::exit::{Done, Exit, Failure};
use crate::cli::output::{Format, Rows, json, note, plain, print, status, when};

/// List runs, the newest first.
#[derive(Debug, clap::Args)]
#[command(
    visible_alias = "list",
    after_help = "Examples:
  semel run ls
  semel run ls --status FAILED --workflow demo-order
  semel run ls --all -o ndjson | jq -r .id"
)]
pub(in crate::cli) struct Ls {
    /// Only in this state: `PENDING`, `RUNNING`, `WAITING`, `PAUSED`, `COMPLETED`, `FAILED`, `CANCELLED`, `TIMED_OUT`.
    #[arg(long, value_parser = status_name)]
    status: Option<String>,
    /// Only of this workflow.
    #[arg(long)]
    workflow: Option<String>,
    /// Only the run that holds this key.
    #[arg(long)]
    key: Option<String>,
    /// Only created at this time or later, as in 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// At most this many.
    #[arg(long, default_value_t = 50, conflicts_with = "all")]
    limit: usize,
    /// The `next` of the page before.
    #[arg(long)]
    cursor: Option<String>,
    /// All of them, page by page.
    #[arg(long)]
    all: bool,
}

fn status_name(text: &str) -> Result<String, String> {
    let name = text.to_uppercase().replace('-', "_");
    let known = semel::rules::status::Status::ALL.map(|status| status.to_string());
    if known.contains(&name) { Ok(name) } else { Err(format!("one of {}", known.join(", "))) }
}

/// A page, with its runs as they came.
#[derive(Deserialize)]
struct Page {
    runs: Vec<Box<RawValue>>,
    next: Option<String>,
}

/// Most runs of one page.
const PAGE: usize = 500;

impl Ls {
    pub(super) async fn execute(self, server: &Server) -> Done {
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
                print(&line(&serde_json::value::to_raw_value(&Listed { runs, next }).expect("JSON")))
            }
            Format::Ndjson => Ok(()),
        }
    }

    fn page<'a>(&'a self, limit: usize, cursor: Option<&'a str>) -> Call<'a> {
        Call::get(["workflow-runs"])
            .query("status", self.status.as_ref())
            .query("workflow", self.workflow.as_ref())
            .query("key", self.key.as_ref())
            .query("since", self.since.as_ref())
            .query("cursor", cursor)
            .query("limit", Some(limit))
    }
}

/// What is printed as one document.
#[derive(serde::Serialize)]
struct Listed {
    runs: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A value on one line: between its parts there may be line ends, within them not.
fn line(value: &RawValue) -> String {
    value.get().replace(['\n', '\r'], " ")
}

fn table(runs: &[Box<RawValue>], next: Option<&str>) -> Done {
    let mut rows = Rows::new(["RUN", "STATUS", "WORKFLOW", "KEY", "CREATED", "ENDED"], "no runs");
    for run in runs {
        let run: RunView = serde_json::from_str(run.get()).map_err(|error| {
            Failure::new(Exit::Failed, format!("the server's answer is not understood: {error}"))
        })?;
        rows.add([
            run.id.clone(),
            match run.unserved {
                true => format!("{} (unserved)", status(&run.status.to_string())),
                false => status(&run.status.to_string()),
            },
            plain(&format!("{}@{}", run.workflow, run.workflow_version)),
            plain(&run.key),
            when(&run.created_at),
            run.ended_at.as_deref().map(when).unwrap_or_default(),
        ]);
    }
    rows.print()?;
    if let Some(next) = next {
        note(&format!("there are more: --all, or --cursor {}", json(next)));
    }
    Ok(())
}
