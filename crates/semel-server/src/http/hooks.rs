//! `POST /hooks/{token}` and `GET /hooks/{token}`.

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
use super::asked::{Asked, At, CallKey};
use super::body::{read, utf8};
use super::describe::{Always, Changes, IdempotencyKey, NoHook};
use super::view::{delivered_view, run_view};
use crate::access::Caller;
use crate::api::{DeliverAnswer, HookView, Permission};
use crate::app::App;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(deliver, owner))
}

/// How it is delivered.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DeliverTo {
    /// The id under which it may be repeated, for senders that cannot set the header `Idempotency-Key`.
    #[param(min_length = 1, max_length = 255)]
    delivery_id: Option<String>,
}

/// Deliver to a hook
///
/// The body, any JSON value, is what the owner of the token gets: once, in order. The same delivery id again is absorbed.
#[utoipa::path(
    post,
    path = "/hooks/{token}",
    operation_id = "deliver",
    tag = "hooks",
    params(
        ("token" = String, Path, description = "The token", example = "order:7"),
        DeliverTo,
        IdempotencyKey,
    ),
    request_body(content = serde_json::Value, content_type = "application/json", example = json!({"approved": true})),
    responses(
        (status = 200, description = "It is in the owner's inbox", body = DeliverAnswer, headers(
            ("Idempotent-Replayed" = String, description = "`true`: it had been delivered before"),
        )),
        Always,
        NoHook,
        Changes,
    ),
)]
async fn deliver(
    State(app): State<Arc<App>>,
    caller: Caller,
    At(token): At<String>,
    Asked(asked): Asked<DeliverTo>,
    key: CallKey,
    request: Request,
) -> Result<Answer<DeliverAnswer>, Problem> {
    caller.may(Permission::Start)?;
    let id = key.or(asked.delivery_id, "deliveryId")?.map(CallId::new);
    let bytes = read(request, MAX_BYTES).await?;
    let text = utf8(&bytes)?;
    // A webhook may have nothing to say but that it was called.
    let text = if text.trim().is_empty() { "null" } else { text };
    let deliver = Deliver {
        workspace: caller.workspace,
        token: token_of(token)?,
        payload: Payload::parse(text).map_err(semel::Error::from)?,
        id: id.transpose().map_err(semel::Error::from)?,
    };
    let delivered = app.store.deliver(deliver).await?;
    Ok(Answer::ok(delivered_view(&delivered)).replayed(delivered.absorbed))
}

/// See who owns a token
#[utoipa::path(
    get,
    path = "/hooks/{token}",
    operation_id = "getHook",
    tag = "hooks",
    params(("token" = String, Path, description = "The token", example = "order:7")),
    responses((status = 200, description = "The token and its owner", body = HookView), Always, NoHook),
)]
async fn owner(
    State(app): State<Arc<App>>,
    caller: Caller,
    At(token): At<String>,
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

fn token_of(text: String) -> Result<Token, Problem> {
    Token::new(text).map_err(|refused| semel::Error::from(refused).into())
}
