//! `POST /hooks/{token}`, `GET /hooks/{token}` and `GET /hooks`.

pub(crate) mod list;

use std::sync::Arc;

use axum::extract::{Request, State};
use semel::rules::deliver::Deliver;
use semel::rules::json::{MAX_BYTES, Payload};
use semel::rules::key::{CallId, Token};
use semel::store::{Find, FindBy};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::answer::Answer;
use super::asked::{CallKey, PathOf, QueryOf};
use super::body::{read, utf8};
use super::describe::{Always, Changes, IdempotencyKey, NoHook};
use super::view::{delivered_view, run_view};
use crate::access::Caller;
use crate::api::{DeliverAnswer, HookView, Permission};
use crate::app::App;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(deliver, owner)).routes(routes!(list::list))
}

/// Query of a delivery.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DeliverTo {
    /// Id under which the delivery may be repeated, for senders that cannot set the header `Idempotency-Key`.
    #[param(min_length = 1, max_length = 255)]
    delivery_id: Option<String>,
}

/// Deliver to a hook
///
/// The body, any JSON value, is delivered to the owner of the token: once, in order. The same delivery id again is
/// absorbed.
#[utoipa::path(
    post,
    path = "/hooks/{token}",
    operation_id = "deliver",
    tag = "hooks",
    params(
        ("token" = String, Path, description = "Token of the hook", example = "order:7"),
        DeliverTo,
        IdempotencyKey,
    ),
    request_body(content = serde_json::Value, content_type = "application/json", example = json!({"approved": true})),
    responses(
        (status = 200, description = "The payload is in the inbox of the run that owns the token", body = DeliverAnswer, headers(
            ("Idempotent-Replayed" = String, description = "`true` if the delivery was a repetition"),
        )),
        Always,
        NoHook,
        Changes,
    ),
)]
async fn deliver(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf(token): PathOf<String>,
    QueryOf(asked): QueryOf<DeliverTo>,
    key: CallKey,
    request: Request,
) -> Result<Answer<DeliverAnswer>, Problem> {
    caller.may_deliver()?;
    let id = key.or(asked.delivery_id, "deliveryId")?.map(CallId::new);
    let bytes = read(request, MAX_BYTES).await?;
    let text = utf8(&bytes)?;
    // A webhook may have an empty body.
    let text = if text.trim().is_empty() { "null" } else { text };
    let deliver = Deliver {
        workspace: caller.workspace,
        token: deliverable(token)?,
        payload: Payload::parse(text).map_err(semel::Error::from)?,
        id: id.transpose().map_err(semel::Error::from)?,
    };
    let delivered = app.store.deliver(deliver).await?;
    Ok(Answer::ok(delivered_view(&delivered)).replayed(delivered.absorbed))
}

/// Show the owner of a token
#[utoipa::path(
    get,
    path = "/hooks/{token}",
    operation_id = "getHook",
    tag = "hooks",
    params(("token" = String, Path, description = "Token of the hook", example = "order:7")),
    responses((status = 200, description = "The token and its owner", body = HookView), Always, NoHook),
)]
async fn owner(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf(token): PathOf<String>,
) -> Result<Answer<HookView>, Problem> {
    caller.may(Permission::Read)?;
    let token = token_of(token)?;
    let find = Find { workspace: caller.workspace, by: FindBy::Token(token.clone()) };
    match app.store.find(find).await? {
        Some((run, outcome)) => {
            Ok(Answer::ok(HookView { token: token.to_string(), run: run_view(&run, outcome.as_ref()) }))
        }
        None => Err(semel::Error::HookNotFound(token).into()),
    }
}

/// A token to which callers may deliver.
pub(super) fn deliverable(text: String) -> Result<Token, Problem> {
    check_deliverable(&text)?;
    token_of(text)
}

/// Refuses the token of an approval: its own route checks roles and forms before it delivers.
pub(super) fn check_deliverable(token: &str) -> Result<(), Problem> {
    if crate::approvals::is_token(token) {
        return Err(Problem::forbidden(
            "this is the token of an approval: decide it by /approvals/{id}/decide; GET /approvals lists them",
        ));
    }
    Ok(())
}

fn token_of(text: String) -> Result<Token, Problem> {
    Token::new(text).map_err(|refused| semel::Error::from(refused).into())
}
