//! Runs: the list with its tabs and filters.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};

use super::Ui;
use super::desk::PageRefusal;
use super::frame::{self, PageFrame, Section};
use super::gate::Visitor;
use super::parts::{Markup, mark, when};
use super::query::{Fields, encoded, query};
use super::words;
use crate::api::{CountsView, NowKind, NowView, RunList, RunView};

/// Runs on a page.
const PAGE: &str = "50";
/// Filters of the list, as the API has them.
const FILTERS: [&str; 13] = [
    "workflow",
    "workflowVersion",
    "key",
    "keyPrefix",
    "scope",
    "since",
    "until",
    "endedSince",
    "parent",
    "lineage",
    "node",
    "attention",
    "order",
];
/// Tabs: word and the state that the list is asked for.
const TABS: [(&str, &str); 9] = [
    ("All", ""),
    ("Pending", "PENDING"),
    ("Running", "RUNNING"),
    ("Waiting", "WAITING"),
    ("Paused", "PAUSED"),
    ("Failed", "FAILED"),
    ("Completed", "COMPLETED"),
    ("Cancelled", "CANCELLED"),
    ("Timed out", "TIMED_OUT"),
];

/// A run in a list.
pub(super) struct RunRow {
    pub(super) id: String,
    pub(super) key: String,
    pub(super) to: String,
    pub(super) mark: Markup,
    pub(super) workflow: String,
    pub(super) workflow_version: String,
    pub(super) now: String,
    pub(super) started: Markup,
    pub(super) took: String,
    pub(super) version: u64,
    /// Duplicates that it has absorbed, as far as they were looked up.
    pub(super) duplicates: u64,
}

impl RunRow {
    /// A row for a run.
    pub(super) fn of(visitor: &Visitor, run: &RunView, now: i64) -> Self {
        Self {
            to: visitor.to(&format!("/runs/{}", encoded(&run.id))),
            mark: mark(run),
            now: doing(run),
            started: when(&run.created_at),
            took: words::between(&run.created_at, run.ended_at.as_deref(), now),
            id: run.id.clone(),
            key: run.key.clone(),
            workflow: run.workflow.clone(),
            workflow_version: run.workflow_version.clone(),
            version: run.version,
            duplicates: run.duplicate_count.unwrap_or(0),
        }
    }
}

/// What a run does or waits for, as far as it is known.
pub(super) fn doing(run: &RunView) -> String {
    let reason = run.pause_reason.as_ref().or(run.cancel_reason.as_ref());
    match (reason, &run.error, &run.now) {
        (Some(reason), ..) => reason.clone(),
        (_, Some(error), _) => error.message.clone(),
        (.., Some(now)) => now_words(now, run),
        _ if run.unserved => unserved(run),
        _ => String::new(),
    }
}

fn unserved(run: &RunView) -> String {
    format!("nothing serves version {} of {}", run.workflow_version, run.workflow)
}

fn now_words(now: &NowView, run: &RunView) -> String {
    let path = now.path.as_deref().unwrap_or_default();
    let until =
        now.until.as_deref().map(|until| format!(" until {}", until.replace('T', " "))).unwrap_or_default();
    let attempt = now.attempt.filter(|attempt| *attempt > 1);
    let attempt = attempt.map(|attempt| format!(" · attempt {attempt}")).unwrap_or_default();
    match now.kind {
        NowKind::Step => format!("{path}{attempt}"),
        NowKind::Hook => format!("hook {}{until}", now.token.as_deref().unwrap_or(path)),
        NowKind::Timer => format!("timer {path}{until}"),
        NowKind::Retry => format!("{path} again{until}{attempt}"),
        NowKind::Child => format!("child {path}"),
        NowKind::Doubt => format!("{path} · did it take place?"),
        NowKind::Unserved => unserved(run),
    }
}

/// A tab of the list.
struct StatusTab {
    title: &'static str,
    to: String,
    here: bool,
    count: String,
}

/// A filter that is set, with the address of the list without it.
struct Chip {
    name: &'static str,
    value: String,
    without: String,
}

#[derive(Template)]
#[template(path = "runs.html")]
struct RunsPage {
    frame: PageFrame,
    tabs: Vec<StatusTab>,
    status: String,
    chips: Vec<Chip>,
    rows: Vec<RunRow>,
    older: Option<String>,
    first: Option<String>,
    partial: bool,
    filtered: bool,
}

/// `GET /w/{workspace}/runs`.
pub(super) async fn page(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    asked: Fields,
) -> Result<Response, PageRefusal> {
    let here = visitor.to("/runs");
    if let Some(text) = asked.get("add") {
        return Ok(Redirect::to(&added(&here, &asked, text)).into_response());
    }
    let status = asked.get("status").unwrap_or_default();
    let set: Vec<_> = FILTERS.iter().filter_map(|name| Some((*name, asked.get(name)?))).collect();
    let mut pairs = set.clone();
    pairs.extend(Some(("status", status)).filter(|(_, status)| !status.is_empty()));
    let cursor = asked.get("cursor").map(|cursor| ("cursor", cursor));
    let path = query(pairs.iter().copied().chain(cursor).chain([("limit", PAGE)]));
    let list: RunList = ui.get(&visitor, &format!("/workflow-runs{path}")).await?;
    let counts: CountsView = ui.get(&visitor, "/counts").await?;
    let now = ui.app.clock.now().0;
    let tab = |(title, of): (&'static str, &str)| {
        let of_tab = set.iter().copied().chain(Some(("status", of)).filter(|(_, of)| !of.is_empty()));
        StatusTab {
            title,
            to: format!("{here}{}", query(of_tab)),
            here: of == status,
            count: counted(&counts, of),
        }
    };
    let chip = |(name, value): &(&'static str, &str)| Chip {
        name,
        value: (*value).to_owned(),
        without: format!("{here}{}", query(pairs.iter().copied().filter(|(other, _)| other != name))),
    };
    let page = RunsPage {
        frame: PageFrame::of(&ui, &visitor, Section::Runs, "Runs"),
        tabs: TABS.into_iter().map(tab).collect(),
        status: status.to_owned(),
        chips: set.iter().map(chip).collect(),
        rows: list.runs.iter().map(|run| RunRow::of(&visitor, run, now)).collect(),
        older: list
            .next
            .map(|next| format!("{here}{}", query(pairs.iter().copied().chain([("cursor", next.as_str())])))),
        first: cursor.map(|_| format!("{here}{}", query(pairs.iter().copied()))),
        partial: list.partial,
        filtered: !pairs.is_empty(),
    };
    Ok(frame::page(&page))
}

/// The number of runs with a status, for its tab; nothing for the statuses of which there are ever more.
fn counted(counts: &CountsView, status: &str) -> String {
    let found = counts
        .statuses
        .iter()
        .find(|one| format!("{:?}", one.status).eq_ignore_ascii_case(&status.replace('_', "")));
    match found.map(|one| one.runs) {
        Some(runs) if runs.count > 0 && !matches!(status, "COMPLETED" | "CANCELLED") => words::capped(runs),
        _ => String::new(),
    }
}

/// The address of the list with one more filter: `key:order-7`, or a key alone.
fn added(here: &str, asked: &Fields, text: &str) -> String {
    let known = text.split_once(':').filter(|(name, _)| FILTERS.contains(name) || *name == "status");
    let (name, value) = known.unwrap_or(("key", text));
    // `order-48*` is a beginning.
    let (name, value) = match value.strip_suffix('*').filter(|_| name == "key") {
        Some(prefix) => ("keyPrefix", prefix),
        None => (name, value),
    };
    let kept = FILTERS.iter().chain(&["status"]).filter(|other| **other != name);
    let mut pairs: Vec<_> = kept.filter_map(|name| Some((*name, asked.get(name)?))).collect();
    let value = if name == "status" { value.to_uppercase() } else { value.to_owned() };
    pairs.push((name, &value));
    format!("{here}{}", query(pairs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_added_to_those_that_are_set() {
        let asked = Fields::of_query(Some("workflow=ship&status=FAILED&cursor=x"));
        assert_eq!(added("/r", &asked, "key:a b"), "/r?workflow=ship&status=FAILED&key=a%20b");
        assert_eq!(added("/r", &asked, "stripe:evt_1"), "/r?workflow=ship&status=FAILED&key=stripe%3Aevt_1");
        assert_eq!(added("/r", &asked, "key:order-4*"), "/r?workflow=ship&status=FAILED&keyPrefix=order-4");
        assert_eq!(added("/r", &asked, "status:waiting"), "/r?workflow=ship&status=WAITING");
    }
}
