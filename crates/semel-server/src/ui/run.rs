//! One run: its head, the decision about a step in doubt, and the tabs below.

mod deeds;
pub(super) mod tabs;

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use semel::rules::entry::Class;
use semel::rules::status::Status;
use serde::Deserialize;

pub(super) use self::deeds::{act, fork, json, resolve};
use self::tabs::{DuplicateRow, EntryRow, Lineage, MessageRow, StepPane};
use super::Ui;
use super::desk::{PageRefusal, read};
use super::frame::{self, PageFrame, Section};
use super::gate::Visitor;
use super::parts::{Markup, Shown, age, pill, shown, when};
use super::query::{Fields, encoded};
use super::runs::doing;
use super::timeline::{RunDrawing, Timeline, icon_of};
use super::words::millis;
use crate::api::{
    ChildView, DuplicatesView, Permission, RunView, SpanList, SpanView, StepDetail, TimerView, Value,
};

/// Rows of the timeline that a page has; the script asks for more while it is scrolled.
const ROWS: usize = 50;

/// The members of a run's answer beside its header. The header is read by itself, because serde cannot keep the text of values
/// that are flattened.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RunRest {
    #[serde(default)]
    input: Option<Value>,
    #[serde(default)]
    deadline: Option<String>,
    hooks: Vec<String>,
    #[serde(default)]
    children: Vec<ChildView>,
    #[serde(default)]
    timers: Vec<TimerView>,
    unconsumed: u64,
    duplicates: Vec<DuplicatesView>,
}

/// A tab of the page.
struct RunTab {
    title: &'static str,
    to: String,
    here: bool,
    count: Option<u64>,
}

/// A step that waits for the decision of a person.
struct PendingDoubt {
    path: String,
    tick: u32,
    effect_key: String,
    known: Markup,
    reason: String,
    /// What the step was for, as the workflow has noted it.
    note: Option<String>,
    rule: &'static str,
    /// Whether "it did not" has to be confirmed by the path.
    confirms: bool,
}

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    frame: PageFrame,
    here: String,
    run: RunView,
    pill: Markup,
    doing: String,
    started: Markup,
    age: Markup,
    ended: Option<Markup>,
    deadline: Option<Markup>,
    absorbed: u64,
    doubts: Vec<PendingDoubt>,
    may_operate: bool,
    tab: &'static str,
    tabs: Vec<RunTab>,
    timeline: Option<Timeline>,
    exact: bool,
    step: Option<StepPane>,
    entries: Vec<EntryRow>,
    older: Option<String>,
    newer: Option<String>,
    duplicates: Vec<DuplicateRow>,
    unconsumed: u64,
    messages: Vec<MessageRow>,
    hooks: Vec<String>,
    timers: Vec<TimerView>,
    input: Option<Shown>,
    result: Option<Shown>,
    error: Option<Shown>,
    lineage: Option<Lineage>,
}

impl RunPage {
    /// Whether a control call makes sense now.
    fn can(&self, action: &str) -> bool {
        let status = self.run.status;
        match action {
            "cancel" => !status.is_terminal(),
            "pause" => !status.is_terminal() && status != Status::Paused,
            "resume" => status == Status::Paused && self.doubts.is_empty(),
            "retry" => matches!(status, Status::Failed | Status::TimedOut),
            _ => false,
        }
    }
}

/// `GET /w/{workspace}/runs/{id}`.
pub(super) async fn page(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    Path((_, id)): Path<(String, String)>,
    asked: Fields,
) -> Result<Response, PageRefusal> {
    let (run, rest) = found(&ui, &visitor, &id).await?;
    let tab = tabs::named(asked.get("tab"));
    let api = format!("/workflow-runs/{}", encoded(&run.id));
    let here = visitor.to(&format!("/runs/{}", encoded(&run.id)));
    let spans: SpanList = ui.get(&visitor, &format!("{api}/spans?limit={ROWS}")).await?;
    let doubts = doubts(&ui, &visitor, &api, &here, &spans).await?;
    let now = ui.app.clock.now().0;
    let step = tabs::step(&ui, &visitor, &api, &asked).await?;
    let (entries, older, newer) = tabs::ledger(&ui, &visitor, &run, &asked, tab).await?;
    let lineage =
        if tab == "lineage" { Some(tabs::lineage(&ui, &visitor, &run, &rest).await?) } else { None };
    let messages = if tab == "inbox" { tabs::messages(&ui, &visitor, &api).await? } else { Vec::new() };
    let exact = asked.get("scale").is_some();
    let timeline = (tab == "timeline").then(|| {
        let drawing = RunDrawing {
            list: &spans,
            duplicates: &rest.duplicates,
            from: millis(&run.created_at).unwrap_or(now),
            to: run.ended_at.as_deref().and_then(millis).unwrap_or(now),
            ended: run.ended_at.is_some(),
            exact,
            page: if exact { format!("{here}?scale=true") } else { here.clone() },
            selected: step.as_ref().map(|step| (step.path.as_str(), step.tick)),
        };
        drawing.draw()
    });
    // The stream of a run ends with it. A later restart is told by that of the workspace.
    let stream = match run.ended_at {
        None => format!("{api}/events?after={}", run.version),
        Some(_) => format!("/events?runs={}", run.id),
    };
    let page = RunPage {
        frame: PageFrame::of(&ui, &visitor, Section::Runs, &run.key).follows(&stream),
        pill: pill(&run),
        doing: doing(&run),
        started: when(&run.created_at),
        age: age(&run.created_at, now),
        ended: run.ended_at.as_deref().map(when),
        deadline: rest.deadline.as_deref().map(when),
        absorbed: rest.duplicates.iter().map(|kind| kind.count).sum(),
        doubts,
        may_operate: visitor.may(Permission::Operate),
        tab,
        tabs: tabs::all(&here, tab, &run, &rest),
        timeline,
        exact,
        step,
        entries,
        older,
        newer,
        duplicates: tabs::duplicates(&rest.duplicates),
        unconsumed: rest.unconsumed,
        messages,
        hooks: rest.hooks,
        timers: rest.timers,
        input: rest.input.as_ref().map(|input| shown(input.get())),
        result: run.result.as_ref().map(|result| shown(result.get())),
        error: run.error.as_ref().map(|error| shown(&serde_json::to_string(error).unwrap_or_default())),
        lineage,
        here,
        run,
    };
    Ok(frame::page(&page))
}

/// A run without its steps.
async fn found(ui: &Ui, visitor: &Visitor, id: &str) -> Result<(RunView, RunRest), PageRefusal> {
    let text = ui.text(visitor, &format!("/workflow-runs/{}?steps=none", encoded(id))).await?;
    Ok((read(&text)?, read(&text)?))
}

/// The steps in doubt, with what is known about them.
async fn doubts(
    ui: &Ui,
    visitor: &Visitor,
    api: &str,
    here: &str,
    spans: &SpanList,
) -> Result<Vec<PendingDoubt>, PageRefusal> {
    if spans.totals.in_doubt == 0 {
        return Ok(Vec::new());
    }
    let list: SpanList = ui.get(visitor, &format!("{api}/spans?status=in-doubt&limit=20")).await?;
    let mut doubts = Vec::new();
    for span in &list.spans {
        let path = format!("{api}/steps/{}?tick={}", encoded(&span.path), span.tick);
        let step: Option<StepDetail> = ui.look(visitor, &path).await?;
        let note = step.and_then(|step| step.note).map(|note| note.get().to_owned());
        doubts.push(PendingDoubt { note, ..doubt(span, here) });
    }
    Ok(doubts)
}

fn doubt(span: &SpanView, here: &str) -> PendingDoubt {
    let known = match span.attempts.last() {
        None => String::from("The step is in doubt; no attempt is recorded."),
        Some(attempt) => {
            let node = attempt
                .node
                .as_deref()
                .map_or_else(String::new, |node| format!(" by <code>{}</code>", crate::http::escaped(node)));
            let fence = attempt.fence.map_or_else(String::new, |fence| format!(" under fence {fence}"));
            format!(
                r#"The intent was recorded at <b class="n">{}</b> (<a href="{here}?tab=ledger&amp;from={entry}">entry {entry}</a>){node}{fence}. No outcome was recorded."#,
                when(&attempt.started_at),
                entry = attempt.entry,
            )
        }
    };
    let class = span.class.unwrap_or_default();
    PendingDoubt {
        path: span.path.clone(),
        tick: span.tick,
        effect_key: span.effect_key.clone().unwrap_or_default(),
        known: Markup::made(known),
        reason: span.reason.clone().unwrap_or_default(),
        note: None,
        rule: match class {
            Class::AtMostOnce => "At most once: Semel never runs it again by itself",
            Class::Reconcile => "Reconciled: the provider was asked, and has not said it",
            Class::Keyed => "Keyed: a provider that knows the effect key does nothing twice",
            Class::Tx => "Transactional: the fence table of your database tells it",
        },
        confirms: class == Class::AtMostOnce,
    }
}

/// `GET /w/{workspace}/runs/{id}/value?of=input`: a value as a file.
pub(super) async fn value(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    Path((_, id)): Path<(String, String)>,
    asked: Fields,
) -> Result<Response, PageRefusal> {
    let (run, rest) = found(&ui, &visitor, &id).await?;
    let of = asked.get("of").unwrap_or("input");
    let value = match of {
        "result" => run.result,
        _ => rest.input,
    };
    let text = value.map_or_else(|| "null".to_owned(), |value| value.get().to_owned());
    let name =
        format!("attachment; filename=\"{}-{}.json\"", run.id, if of == "result" { of } else { "input" });
    Ok(([(header::CONTENT_TYPE, "application/json".to_owned()), (header::CONTENT_DISPOSITION, name)], text)
        .into_response())
}
