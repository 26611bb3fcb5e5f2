//! `POST /workflow-runs`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use semel::id::RunId;
use semel::rules::json::Payload;
use semel::rules::key::{CallId, Fingerprint, Key, Token};
use semel::rules::path::Name;
use semel::rules::run::Retention;
use semel::rules::start::{Handover, Policy, Start, Verdict};
use semel::store::Started;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::{APPLIED, Answer};
use super::asked::{CallKey, Prefer};
use super::describe::{Always, Changes};
use super::view::{delivered_view, run_view};
use super::wait::until;
use super::{Body, Problem};
use crate::access::Caller;
use crate::api::{
    DeliverWithStart, OnConflict, Period, Permission, RetentionView, StartAnswer, StartRun, Value,
};
use crate::app::App;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(start))
}

/// Start a run
///
/// Or find the one its key stands for: the same request again is answered with the same run, whatever happened to the
/// first answer. With `Prefer: wait=30` the answer waits for the run's end.
#[utoipa::path(
    post,
    path = "/workflow-runs",
    operation_id = "startRun",
    tag = "runs",
    params(super::describe::IdempotencyKey, super::describe::PreferWait),
    request_body(content = StartRun, example = json!({"workflow": "demo-order", "input": {"order": "7", "amount": 1999}, "idempotencyKey": "order-7"})),
    responses(
        (status = 201, description = "A new run", body = StartAnswer, headers(
            ("Location" = String, description = "The run"),
            ("Preference-Applied" = String, description = "How long the answer would have waited"),
        )),
        (status = 200, description = "The run that the key stands for", body = StartAnswer, headers(
            ("Location" = String, description = "The run"),
            ("Idempotent-Replayed" = String, description = "`true`: this was asked before"),
            ("Preference-Applied" = String, description = "How long the answer would have waited"),
        )),
        Always,
        Changes,
    ),
)]
async fn start(
    State(app): State<Arc<App>>,
    caller: Caller,
    key: CallKey,
    Prefer(wait): Prefer,
    Body(asked): Body<StartRun>,
) -> Result<Answer<StartAnswer>, Problem> {
    caller.may(Permission::Start)?;
    let key = key.or(asked.idempotency_key.clone(), "idempotencyKey")?;
    let start = start_of(&app, &caller, asked, key)?;
    let mut started = app.store.start(start).await?;
    if let Some(wait) = wait {
        // The start has taken place, whatever becomes of the wait; what went wrong with that is in the log.
        if let Ok(ended) = until(&app, caller.workspace, started.run.id(), wait, |_| false).await {
            (started.run, started.outcome) = ended;
        }
    }
    let mut view = start_view(&started);
    app.services.mark(&app, caller.workspace, &mut view.run).await;
    let answer =
        Answer::ok(view).made(started.created(), &started.run.id().to_string()).replayed(absorbed(&started));
    Ok(match wait {
        Some(wait) => answer.with(APPLIED, &format!("wait={}", wait.as_secs())),
        None => answer,
    })
}

/// Whether the start came to nothing new.
pub(super) fn absorbed(started: &Started) -> bool {
    matches!(started.verdict, Verdict::Attached | Verdict::Replayed)
}

/// What a start came to.
pub(super) fn start_view(started: &Started) -> StartAnswer {
    StartAnswer {
        run: run_view(&started.run, started.outcome.as_ref()),
        created: started.created(),
        verdict: started.verdict,
        superseded: started.superseded.map(|run| run.to_string()),
        delivered: started.delivered.as_ref().map(delivered_view),
    }
}

/// The start that is asked for, under a key or under none.
pub(super) fn start_of(
    app: &App,
    caller: &Caller,
    asked: StartRun,
    key: Option<String>,
) -> Result<Start, Problem> {
    let run = RunId(app.clock.uuid());
    let key = key.map(Key::new).transpose().map_err(semel::Error::from)?;
    let input = match &asked.input {
        Some(input) => payload(input)?,
        None => Payload::parse("{}").expect("an empty object is JSON"),
    };
    let mut start = Start::new(caller.workspace, run, name(&asked.workflow)?, input, key);
    if let Some(version) = asked.workflow_version {
        start.workflow_version = name(&version)?;
    }
    start.scope = asked.scope.unwrap_or_default();
    start.policy = asked.on_conflict.map_or(Ok(Policy::default()), policy)?;
    start.retention = retention(asked.retention)?;
    start.excluded = asked.exclude;
    start.delay = period(asked.delay, "delay")?.unwrap_or_default();
    start.timeout = period(asked.timeout, "timeout")?;
    start.deliver = asked.deliver.map(handover).transpose()?;
    Ok(start)
}

/// A part of a checked body: nothing in it needs another look.
pub(super) fn payload(value: &Value) -> Result<Payload, Problem> {
    serde_json::from_str(value.get()).map_err(|refused| Problem::validation(refused.to_string()))
}

/// The name of a workflow or of its version.
pub(super) fn name(text: &str) -> Result<Name, Problem> {
    Name::new(text).map_err(|refused| semel::Error::from(refused).into())
}

fn policy(asked: OnConflict) -> Result<Policy, Problem> {
    let preset = match asked {
        OnConflict::Matrix(policy) => return Ok(policy),
        OnConflict::Preset(preset) => preset,
    };
    let known = Policy::PRESETS.into_iter().find(|(name, _)| *name == preset);
    known.map(|(_, policy)| policy).ok_or_else(|| {
        let names = Policy::PRESETS.map(|(name, _)| name).join(", ");
        Problem::validation(format!("{preset:?} is no policy for `onConflict`; choose one of {names}"))
    })
}

fn retention(asked: Option<RetentionView>) -> Result<Retention, Problem> {
    let usual = Retention::default();
    let Some(RetentionView { history, key }) = asked else { return Ok(usual) };
    Ok(Retention {
        history: period(history, "retention.history")?.unwrap_or(usual.history),
        key: period(key, "retention.key")?.unwrap_or(usual.key),
    })
}

fn period(asked: Option<Period>, name: &str) -> Result<Option<Duration>, Problem> {
    let Some(asked) = asked else { return Ok(None) };
    asked.duration().map(Some).ok_or_else(|| {
        Problem::validation(format!("{:?} is no period for `{name}`; write 90s, 1h 30m or PT90S", asked.0))
    })
}

/// The payload that comes with a start.
fn handover(with: DeliverWithStart) -> Result<Handover, Problem> {
    let payload = payload(&with.payload)?;
    let token = Token::new(with.token).map_err(semel::Error::from)?;
    let id = with.id.map(CallId::new).transpose().map_err(semel::Error::from)?;
    Ok(Handover { token, payload, id })
}

/// A key or call id that stands for several texts together: the same for the same, and never for others.
pub(super) fn derived(texts: &[&str]) -> Result<String, Problem> {
    let all = Payload::of(texts).and_then(|all| Fingerprint::of_payload(&all)).map_err(semel::Error::from)?;
    Ok(all.to_string())
}
