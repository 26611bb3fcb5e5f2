//! `POST /workflow-runs`: starts a run, with a payload for a hook if there is one.

mod definition;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use semel::id::RunId;
use semel::rules::json::Payload;
use semel::rules::key::{CallId, Fingerprint, Key};
use semel::rules::path::Name;
use semel::rules::run::Retention;
use semel::rules::start::{Handover, Policy, Start, StartVerdict};
use semel::store::Started;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::{APPLIED, Answer};
use super::asked::{CallKey, Prefer};
use super::describe::{Always, Changes};
use super::hooks::deliverable;
use super::view::{delivered_view, run_view};
use super::wait::until;
use super::{Body, Problem};
use crate::access::Caller;
use crate::api::{
    DeliverWithStart, OnConflict, Period, Permission, RetentionView, StartAnswer, StartRun, Value,
};
use crate::app::App;
use crate::definitions::id::FAMILY;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(start))
}

/// Start a run
///
/// Or find the run that holds the key: a repeated request gets the same run, even if the first answer was lost, and also if another
/// version of a definition is current by now. With `Prefer: wait=30` the answer waits for the run's end.
#[utoipa::path(
    post,
    path = "/workflow-runs",
    operation_id = "startRun",
    tag = "runs",
    params(super::describe::IdempotencyKey, super::describe::PreferWait),
    request_body(content = StartRun, example = json!({"workflow": "demo-order", "input": {"order": "7", "amount": 1999}, "idempotencyKey": "order-7"})),
    responses(
        (status = 201, description = "A new run", body = StartAnswer, headers(
            ("Location" = String, description = "URL of the run"),
            ("Preference-Applied" = String, description = "The applied `Prefer`"),
        )),
        (status = 200, description = "The run that holds the key", body = StartAnswer, headers(
            ("Location" = String, description = "URL of the run"),
            ("Idempotent-Replayed" = String, description = "`true` if the start was a repetition"),
            ("Preference-Applied" = String, description = "The applied `Prefer`"),
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
    let mut started = begin(&app, &caller, asked, key).await?;
    if let Some(wait) = wait {
        // The start has taken place even if the wait fails; its error is in the log.
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

/// Whether the start was absorbed.
pub(super) fn absorbed(started: &Started) -> bool {
    matches!(started.verdict, StartVerdict::Attached | StartVerdict::Replayed)
}

/// The answer to a start.
pub(super) fn start_view(started: &Started) -> StartAnswer {
    StartAnswer {
        run: run_view(&started.run, started.outcome.as_ref()),
        created: started.created(),
        verdict: started.verdict,
        superseded: started.superseded.map(|run| run.to_string()),
        delivered: started.delivered.as_ref().map(delivered_view),
    }
}

/// Starts a run as a request says, or finds the one that holds the key.
pub(super) async fn begin(
    app: &App,
    caller: &Caller,
    asked: StartRun,
    key: Option<String>,
) -> Result<Started, Problem> {
    let StartWish { start, refused } = start_of(app, caller, asked, key).await?;
    if let Some(refused) = refused {
        return definition::attached(app, start, refused).await;
    }
    Ok(app.bounds.open_runs.start(&*app.store, app.clock.now(), start).await?)
}

/// The start that a request asks for.
struct StartWish {
    start: Start,
    /// Why it creates no new run. The run that holds the key is found nevertheless: it was accepted then.
    refused: Option<Problem>,
}

/// Builds the start from a request, with or without a key.
async fn start_of(
    app: &App,
    caller: &Caller,
    asked: StartRun,
    key: Option<String>,
) -> Result<StartWish, Problem> {
    let run = RunId(app.clock.uuid());
    let key = key.map(Key::new).transpose().map_err(semel::Error::from)?;
    let input = match &asked.input {
        Some(input) => payload(input)?,
        None => Payload::parse("{}").expect("an empty object is JSON"),
    };
    let program = program_of(app, caller, &asked, &input).await?;
    let mut start = Start::new(caller.workspace, run, program.workflow, input, key);
    start.workflow_version = program.version;
    start.scope = asked.scope.unwrap_or_default();
    start.policy = asked.on_conflict.map_or(Ok(Policy::default()), policy)?;
    start.retention = retention(asked.retention, program.retention)?;
    start.excluded = asked.exclude;
    start.delay = period(asked.delay, "delay")?.unwrap_or_default();
    start.timeout = period(asked.timeout, "timeout")?.or(program.timeout);
    start.deliver = asked.deliver.map(handover).transpose()?;
    Ok(StartWish { start, refused: program.refused })
}

/// What a start is to run: a workflow in code, or a definition.
struct StartProgram {
    workflow: Name,
    version: Name,
    /// Time limit, if the start says none.
    timeout: Option<Duration>,
    /// How long the run is remembered, as far as the start does not say it.
    retention: Retention,
    /// Why it takes no new run.
    refused: Option<Problem>,
}

async fn program_of(
    app: &App,
    caller: &Caller,
    asked: &StartRun,
    input: &Payload,
) -> Result<StartProgram, Problem> {
    match (&asked.workflow, &asked.definition_id, &asked.workflow_version) {
        (None, Some(reference), None) => {
            definition::program_of(app, caller.workspace, reference, input).await
        }
        (Some(workflow), None, version) => {
            let workflow = name(workflow)?;
            let version = match version {
                Some(version) => code_version(version)?,
                None => app.current_version(caller.workspace, &workflow).await?,
            };
            let (timeout, retention) = (None, Retention::default());
            Ok(StartProgram { workflow, version, timeout, retention, refused: None })
        }
        (None, Some(_), Some(_)) => Err(Problem::validation(
            "`workflowVersion` goes with `workflow`; the version of a definition is part of `definitionId`, as in `order@3`",
        )),
        _ => Err(Problem::validation(
            "say what to start, once: `definitionId` for a definition, or `workflow` for a workflow in code",
        )),
    }
}

/// Parses the version of a workflow in code. Those of definitions are the server's own.
fn code_version(text: &str) -> Result<Name, Problem> {
    no_definition_version(text)?;
    name(text)
}

/// Refuses a version that is the id of a definition.
pub(super) fn no_definition_version(text: &str) -> Result<(), Problem> {
    match text.starts_with(FAMILY) {
        true => Err(Problem::validation(format!(
            "versions that begin with `{FAMILY}` are definitions, which the server runs itself; start one with `definitionId`"
        ))),
        false => Ok(()),
    }
}

/// A part of a checked body, which needs no second check.
pub(super) fn payload(value: &Value) -> Result<Payload, Problem> {
    serde_json::from_str(value.get()).map_err(|refused| Problem::validation(refused.to_string()))
}

/// Parses the name of a workflow or version.
pub(super) fn name(text: &str) -> Result<Name, Problem> {
    Name::new(text).map_err(|refused| semel::Error::from(refused).into())
}

fn policy(asked: OnConflict) -> Result<Policy, Problem> {
    let preset = match asked {
        OnConflict::Matrix(policy) => return Ok(policy),
        OnConflict::Preset(preset) => preset,
    };
    Ok(Policy::preset(&preset)?)
}

fn retention(asked: Option<RetentionView>, usual: Retention) -> Result<Retention, Problem> {
    let Some(RetentionView { history, key }) = asked else { return Ok(usual) };
    Ok(Retention {
        history: period(history, "retention.history")?.unwrap_or(usual.history),
        key: period(key, "retention.key")?.unwrap_or(usual.key),
    })
}

fn period(asked: Option<Period>, name: &str) -> Result<Option<Duration>, Problem> {
    let Some(asked) = asked else { return Ok(None) };
    asked.duration().map(Some).ok_or_else(|| {
        Problem::validation(format!("{:?} is not a period for `{name}`; write 90s, 1h 30m or PT90S", asked.0))
    })
}

/// The delivery that is part of a start.
fn handover(with: DeliverWithStart) -> Result<Handover, Problem> {
    let payload = payload(&with.payload)?;
    let token = deliverable(with.token)?;
    let id = with.id.map(CallId::new).transpose().map_err(semel::Error::from)?;
    Ok(Handover { token, payload, id })
}

/// Derives a key or call id from several texts: equal for equal texts, and different for different ones.
pub(super) fn derived(texts: &[&str]) -> Result<String, Problem> {
    let all = Payload::of(texts).and_then(|all| Fingerprint::of_payload(&all)).map_err(semel::Error::from)?;
    Ok(all.to_string())
}
