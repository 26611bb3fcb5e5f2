//! `POST /workflow-definitions`: checks a definition, and stores it if it is right.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::outside;
use crate::access::{ActsOn, Caller};
use crate::api::{DocumentProblem, Permission, PushAnswer, PushedAs};
use crate::app::App;
use crate::definitions::catalog::{NewDefinition, PushRefused, PushVerdict, Pushed, Pusher};
use crate::definitions::check::{Accepted, check};
use crate::definitions::limits::DOCUMENT_BYTES;
use crate::definitions::{limits, problem};
use crate::http::Problem;
use crate::http::answer::Answer;
use crate::http::asked::{CallKey, QueryOf};
use crate::http::body::TextBody;
use crate::http::describe::{Always, Changes, IdempotencyKey};

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(push))
}

/// Query of a push.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct PushQuery {
    /// Whether the definition is only checked: nothing is written then. False if absent.
    check: Option<bool>,
    /// Whether it becomes the current version of its name. True if absent; the first version does in any case.
    current: Option<bool>,
}

/// Push a definition
///
/// As YAML or JSON, at most 512 KiB. The id is a hash of the content: the same content is the same definition, and pushing it again
/// changes nothing but which version is current. All problems of the document are answered at once.
#[utoipa::path(
    post,
    path = "/workflow-definitions",
    operation_id = "pushDefinition",
    tag = "definitions",
    params(PushQuery, IdempotencyKey),
    request_body(content(
        (String = "application/yaml", example = "semel: 1\nname: greet\nsteps:\n  - {name: pause, wait: 5s}\n"),
        (Object = "application/json", example = json!({"semel": 1, "name": "greet", "steps": [{"name": "pause", "wait": "5s"}]})),
    )),
    responses(
        (status = 201, description = "A new version", body = PushAnswer),
        (status = 200, description = "This version was pushed before, or it was only checked", body = PushAnswer),
        Always,
        Changes,
    ),
)]
async fn push(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryOf(asked): QueryOf<PushQuery>,
    // The content identifies the call already; the header is only validated.
    _: CallKey,
    TextBody(text): TextBody<DOCUMENT_BYTES>,
) -> Result<Response, Problem> {
    let only_check = asked.check.unwrap_or(false);
    if only_check { caller.may_try(Permission::Define) } else { caller.may(Permission::Define) }?;
    let accepted = accepted(&app, &caller, &text).await?;
    let warnings = listed(accepted.warnings.clone());
    let current = asked.current.unwrap_or(true);
    if only_check {
        return Ok(Answer::ok(checked(&app, &caller, &accepted, warnings).await?).into_response());
    }
    let pushed = Pusher { by: caller.name.clone(), at: app.clock.now(), call: app.clock.uuid() };
    let (name, version) = (accepted.definition.name.clone(), accepted.definition.version.clone());
    let new = NewDefinition { accepted, text, pushed, current };
    let pushed = app.catalog.push(caller.workspace, new).await;
    let pushed = pushed.map_err(|refused| problem_of(refused, version.as_deref(), &name))?;
    let subject = format!("/workflow-definitions/{}", pushed.named.version.id);
    let mut response = pushed_answer(pushed, warnings).into_response();
    response.extensions_mut().insert(ActsOn(subject));
    Ok(response)
}

/// Checks a document, and what it names outside of itself.
async fn accepted(app: &App, caller: &Caller, text: &str) -> Result<Accepted, Problem> {
    let owned = text.to_owned();
    // A large one takes some milliseconds, in which other calls should be answered.
    let checked = tokio::task::spawn_blocking(move || check(&owned)).await;
    let checked = checked.map_err(|_| Problem::unavailable("the server is stopping; try again"))?;
    let mut accepted = checked.map_err(|problems| Problem::document(listed(problems)))?;
    let mut problems = outside::check(app, caller.workspace, &accepted.definition).await?;
    if problems.refuses() {
        for warning in accepted.warnings {
            problems.add(warning);
        }
        return Err(Problem::document(listed(problems.sorted())));
    }
    accepted.warnings.extend(problems.sorted());
    Ok(accepted)
}

fn listed(problems: Vec<problem::Problem>) -> Vec<DocumentProblem> {
    problems.into_iter().take(limits::PROBLEMS).map(Into::into).collect()
}

/// The answer to a check: what a push would do now.
async fn checked(
    app: &App,
    caller: &Caller,
    accepted: &Accepted,
    warnings: Vec<DocumentProblem>,
) -> Result<PushAnswer, Problem> {
    let name = accepted.definition.name.clone();
    let record = app.catalog.name(caller.workspace, &name).await?;
    let label = app.catalog.label_of(caller.workspace, record.as_ref(), accepted).await;
    let version =
        label.map_err(|refused| problem_of(refused, accepted.definition.version.as_deref(), &name))?;
    let current = record.is_some_and(|record| record.current == accepted.id);
    let id = accepted.id.to_string();
    Ok(PushAnswer { verdict: PushedAs::Checked, id, name, version, current, previous: None, warnings })
}

fn pushed_answer(pushed: Pushed, warnings: Vec<DocumentProblem>) -> Answer<PushAnswer> {
    let Pushed { verdict, named, previous } = pushed;
    let created = verdict == PushVerdict::Created;
    let answer = PushAnswer {
        verdict: if created { PushedAs::Created } else { PushedAs::Unchanged },
        current: named.record.current == named.version.id,
        id: named.version.id.to_string(),
        name: named.name,
        version: named.version.label,
        previous: previous.map(|previous| previous.id.to_string()),
        warnings,
    };
    Answer::ok(answer).created(created).replayed(!created)
}

/// The answer to a push that was refused.
fn problem_of(refused: PushRefused, label: Option<&str>, name: &str) -> Problem {
    match refused {
        PushRefused::Taken { holder, pointers } => {
            let label = label.unwrap_or_default();
            let differs = match pointers.as_slice() {
                [] => String::new(),
                some => format!(", which differs at {}", some.join(", ")),
            };
            let detail = format!(
                "{name}@{label} is {} with other content{differs}; give this one another `version`, or leave it out",
                holder.id
            );
            Problem::version_taken(detail).at(pointers)
        }
        PushRefused::TooMany => Problem::validation(format!(
            "{name} has {} versions, and cannot have more; push the definition under another name",
            limits::VERSIONS
        )),
        PushRefused::Store(error) => error.into(),
    }
}
