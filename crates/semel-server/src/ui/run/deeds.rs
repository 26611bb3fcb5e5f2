//! What the forms of a run's page do.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::value::RawValue;

use super::found;
use crate::api::{
    CancelRun, ControlAnswer, ControlRun, ForkRun, Permission, ResolutionView, ResolveStep, RunView,
    SpanKind, SpanList, SpanStatus, Value,
};
use crate::http::Problem;
use crate::ui::Ui;
use crate::ui::desk::{Call, CallAnswer, PageRefusal};
use crate::ui::frame::{self, PageFrame, Section};
use crate::ui::gate::Visitor;
use crate::ui::parts::{Markup, icon};
use crate::ui::query::{Fields, SentForm, encoded};
use crate::ui::timeline::icon_of;

/// Steps that the page of a fork lists.
const LISTED: usize = 500;

/// `POST /w/{workspace}/runs/{id}/act`: a control call.
pub(in crate::ui) async fn act(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    Path((_, id)): Path<(String, String)>,
    SentForm(form): SentForm,
) -> Result<Response, PageRefusal> {
    let action = form.get("action").unwrap_or_default();
    let api = format!("/workflow-runs/{}/{action}", encoded(&id));
    // A run that is driven has a new version in every moment, and the first call to end or pause it wins in any case. The other
    // actions are about a run at rest: they must meet it as the page has shown it.
    let expected_version = form.number("version")?;
    let call = match action {
        "cancel" => {
            let reason = form.get("reason").map(str::to_owned);
            let graceful = form.get("graceful").is_some();
            Call::post(api, form.call(), &CancelRun { reason, graceful, expected_version: None })
        }
        "pause" => Call::post(api, form.call(), &ControlRun { expected_version: None }),
        "resume" | "retry" => Call::post(api, form.call(), &ControlRun { expected_version }),
        "fork" => Call::post(api, form.call(), &fork_of(&form)?),
        _ => return Err(Problem::validation("the form names no action; reload the page").into()),
    };
    let answered: CallAnswer<ControlAnswer> = ui.send(&visitor, call).await?;
    let done = match (answered.replayed, answered.value.changed, action) {
        (true, ..) => "again",
        (_, false, "cancel") => "late",
        _ => "yes",
    };
    let to = visitor.to(&format!("/runs/{}", encoded(&answered.value.run.id)));
    Ok(frame::back(&to, done))
}

fn fork_of(form: &Fields) -> Result<ForkRun, PageRefusal> {
    Ok(ForkRun {
        at: form.number("at")?,
        key: form.get("key").map(str::to_owned),
        fresh_keys: form.get("keys") == Some("fresh"),
        expected_version: form.number("version")?,
    })
}

/// `POST /w/{workspace}/runs/{id}/resolve`: the decision about a step in doubt.
pub(in crate::ui) async fn resolve(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    Path((_, id)): Path<(String, String)>,
    SentForm(form): SentForm,
) -> Result<Response, PageRefusal> {
    let step = form.get("step").unwrap_or_default();
    let resolution = match form.get("decision") {
        Some("happened") => ResolutionView::Happened,
        Some("did-not-happen") => ResolutionView::DidNotHappen,
        Some("give-up") => ResolutionView::GiveUp,
        _ => return Err(Problem::validation("choose what happened to the step").into()),
    };
    if resolution == ResolutionView::DidNotHappen
        && form.get("confirms").is_some()
        && form.get("path") != Some(step)
    {
        return Err(Problem::validation(format!(
            "the effect may take place twice if you are wrong: type the path of the step, {step}, to confirm it"
        ))
        .into());
    }
    let happened = resolution == ResolutionView::Happened;
    let body = ResolveStep {
        resolution,
        tick: form.number("tick")?.and_then(|tick| u32::try_from(tick).ok()),
        value: form.get("value").filter(|_| happened).map(json).transpose()?,
        message: form.get("message").filter(|_| resolution == ResolutionView::GiveUp).map(str::to_owned),
        code: None,
        data: None,
    };
    let api = format!("/workflow-runs/{}/steps/{}/resolve", encoded(&id), encoded(step));
    let answered: CallAnswer<ControlAnswer> = ui.send(&visitor, Call::post(api, form.call(), &body)).await?;
    let done = if answered.replayed { "again" } else { "yes" };
    Ok(frame::back(&visitor.to(&format!("/runs/{}", encoded(&id))), done))
}

/// A text of a form as a JSON value, which keeps its digits.
pub(in crate::ui) fn json(text: &str) -> Result<Value, PageRefusal> {
    RawValue::from_string(text.to_owned()).map_err(|error| {
        Problem::validation(format!("the value is not JSON ({error}); a text has quotes, as in \"done\""))
            .into()
    })
}

/// What a fork does with a step.
struct ForkRow {
    icon: Markup,
    path: String,
    kept: bool,
    in_doubt: bool,
    effect_key: String,
}

#[derive(Template)]
#[template(path = "fork.html")]
struct ForkPage {
    frame: PageFrame,
    here: String,
    run: RunView,
    at: u64,
    rows: Vec<ForkRow>,
    more: bool,
    may_operate: bool,
}

/// `GET /w/{workspace}/runs/{id}/fork`: what a fork would do, before it does anything.
pub(in crate::ui) async fn fork(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    Path((_, id)): Path<(String, String)>,
    asked: Fields,
) -> Result<Response, PageRefusal> {
    let (run, _) = found(&ui, &visitor, &id).await?;
    let at = asked.number("at")?.unwrap_or(run.version).clamp(1, run.version);
    let api = format!("/workflow-runs/{}/spans?limit={LISTED}", encoded(&run.id));
    let list: SpanList = ui.get(&visitor, &api).await?;
    let steps = list.spans.iter().filter(|span| span.kind == SpanKind::Step);
    let row = |span: &crate::api::SpanView| ForkRow {
        icon: icon(icon_of(span)),
        path: span.path.clone(),
        // The entry of the result is the last one of a completed step.
        kept: span.status == SpanStatus::Completed && span.last_entry <= at,
        in_doubt: span.status == SpanStatus::InDoubt,
        effect_key: span.effect_key.clone().unwrap_or_default(),
    };
    let page = ForkPage {
        frame: PageFrame::of(&ui, &visitor, Section::Runs, &format!("Fork {}", run.key)),
        here: visitor.to(&format!("/runs/{}", encoded(&run.id))),
        rows: steps.map(row).collect(),
        more: list.next.is_some(),
        may_operate: visitor.may(Permission::Operate),
        at,
        run,
    };
    Ok(frame::page(&page))
}
