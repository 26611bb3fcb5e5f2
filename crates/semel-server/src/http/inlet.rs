//! `POST /in/{address}`: what senders without an API key deliver. The path is a credential, and the address may require a
//! signature as well.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use semel::Error;
use semel::rules::deliver::Deliver;
use semel::rules::json::{MAX_BYTES, Payload};
use semel::rules::key::CallId;
use serde::Deserialize;
use serde_json::{Map, Value as Json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Answer;
use super::asked::{CallKey, PathOf, QueryOf};
use super::describe::{Always, Changes, IdempotencyKey, NoHook};
use super::{Problem, body, form};
use crate::api::ReceivedAnswer;
use crate::app::App;
use crate::senders;
use crate::senders::address::{self, HookAddress};
use crate::senders::signature::Received;
use crate::serve::CalledIn;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(receive))
}

/// Query of an address; senders may add parameters of their own.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
struct SentTo {
    /// Id of the event, for an address without a signature and senders that cannot set the header `Idempotency-Key`.
    #[param(min_length = 1, max_length = 255)]
    delivery_id: Option<String>,
}

/// Receive from a sender
///
/// The body is delivered to the hook of the address: JSON as it is, a form as an object of texts. The id of the event is the
/// sender's own if it signs (`webhook-id`, `id` of Stripe's event, `X-GitHub-Delivery`), so what it sends again is absorbed.
#[utoipa::path(
    post,
    path = "/in/{address}",
    operation_id = "receive",
    tag = "hooks",
    security(()),
    params(("address" = String, Path, description = "Secret part of the address"), SentTo, IdempotencyKey),
    request_body(content = serde_json::Value, content_type = "application/json", example = json!({"id": "evt_1", "type": "invoice.paid"})),
    responses(
        (status = 200, description = "The event is in the inbox of the run that owns the hook", body = ReceivedAnswer),
        Always,
        NoHook,
        Changes,
    ),
)]
async fn receive(
    State(app): State<Arc<App>>,
    PathOf(address): PathOf<String>,
    QueryOf(asked): QueryOf<SentTo>,
    request: Request,
) -> Result<Response, Problem> {
    if app.stop.is_ordered() {
        return Err(Problem::unavailable("this server is stopping; send it again, another one takes it"));
    }
    let address = address::find(&app, &address).await?;
    app.access.admit_public(&app, (address.workspace, address.workspace_name.as_deref())).await?;
    let answered = accept(&app, &address, asked, request).await;
    let mut response = match answered {
        Ok(absorbed) => Answer::ok(ReceivedAnswer { absorbed }).replayed(absorbed).into_response(),
        Err(problem) => problem.into_response(),
    };
    response.extensions_mut().insert(CalledIn(address.workspace));
    Ok(response)
}

/// Delivers a request; gives whether it was absorbed.
async fn accept(
    app: &App,
    address: &HookAddress,
    asked: SentTo,
    mut request: Request,
) -> Result<bool, Problem> {
    let intake = app.bounds.intake(address.workspace);
    request.extensions_mut().insert(intake.clone());
    let headers = request.headers().clone();
    let bytes = body::read(request, MAX_BYTES).await?;
    // Before anything else is said about the request.
    let id = id_of(app, address, asked, Sent { headers: &headers, body: &bytes }).await?;
    let payload = payload(&headers, body::utf8(&bytes)?)?;
    let signed = address.verify.is_some();
    let deliver = Deliver {
        workspace: address.workspace,
        token: address.token.clone(),
        payload,
        id: id.map(CallId::new).transpose().map_err(Error::from)?,
    };
    let delivered = app.store.deliver(deliver).await;
    drop(intake);
    match delivered {
        Ok(delivered) => Ok(delivered.absorbed),
        // Some senders change a detail when they send an event again. Their id says that it is the same one.
        Err(Error::CallReused { .. }) if signed => Ok(true),
        Err(Error::HookNotFound(_)) => Err(Problem::hook_not_found(
            "the run does not wait for this now; send it again later, under the same id",
        )),
        Err(error) => Err(error.into()),
    }
}

/// Headers and body of a request.
#[derive(Clone, Copy)]
struct Sent<'a> {
    headers: &'a HeaderMap,
    body: &'a [u8],
}

/// The id of the event. Refused if the address requires a signature and there is no valid one.
async fn id_of(
    app: &App,
    address: &HookAddress,
    asked: SentTo,
    sent: Sent<'_>,
) -> Result<Option<String>, Problem> {
    let Some(verify) = &address.verify else {
        return CallKey::of(sent.headers)?.or(asked.delivery_id, "deliveryId");
    };
    let secrets = senders::secrets(app, address.workspace, &verify.connection).await?;
    if secrets.is_empty() {
        tracing::error!(
            connection = verify.connection,
            "an address verifies with a connection that has no secret"
        );
        return Err(Problem::unavailable("the signature cannot be verified now; send it again later"));
    }
    let received = Received { headers: sent.headers, body: sent.body, now: app.clock.now() };
    match received.verify(verify.scheme, &secrets) {
        Some(signed) => Ok(Some(signed.id)),
        None => Err(Problem::auth("the signature of the request is missing, wrong or too old")),
    }
}

/// The payload of a body: JSON as it is, a form as an object, nothing as null.
fn payload(headers: &HeaderMap, text: &str) -> Result<Payload, Problem> {
    // A form escapes brackets: what begins with one is JSON, as tools send it that call everything a form (`curl -d`).
    if form::is_form(headers) && !text.trim_start().starts_with(['{', '[']) {
        return Ok(Payload::of(&object(form::fields(text))).map_err(Error::from)?);
    }
    let text = if text.trim().is_empty() { "null" } else { text };
    Payload::parse(text).map_err(|refused| {
        let problem = Problem::from(Error::from(refused));
        match problem.status() {
            400 => Problem::validation(
                "the body is neither JSON nor a form: send JSON, or a form with `content-type: application/x-www-form-urlencoded`",
            ),
            _ => problem,
        }
    })
}

/// The fields of a form by their names: a text each, or a list of texts where a name occurs several times.
fn object(fields: Vec<(String, String)>) -> Map<String, Json> {
    let mut object = Map::new();
    for (name, value) in fields {
        match object.get_mut(&name) {
            None => drop(object.insert(name, Json::String(value))),
            Some(Json::Array(values)) => values.push(Json::String(value)),
            Some(first) => *first = Json::Array(vec![first.take(), Json::String(value)]),
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, header};

    use super::*;

    #[test]
    fn a_body_is_json_or_a_form() {
        let json = HeaderMap::new();
        let form = HeaderMap::from_iter([(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        )]);
        let text = |headers, body| payload(headers, body).map(|payload| payload.text().to_owned());
        assert_eq!(text(&json, " ").unwrap(), "null");
        assert_eq!(text(&json, r#"{"n": 1.10}"#).unwrap(), r#"{"n": 1.10}"#);
        assert_eq!(
            text(&form, "Body=hi+there&n=1&n=2&n=3").unwrap(),
            r#"{"Body":"hi there","n":["1","2","3"]}"#
        );
        assert_eq!(text(&form, r#" {"n": 1.10}"#).unwrap(), r#"{"n": 1.10}"#);
        assert_eq!(text(&form, "{").unwrap_err().status(), 400);
        assert_eq!(text(&json, "Body=hi").unwrap_err().status(), 400);
        assert_eq!(text(&json, "<xml/>").unwrap_err().status(), 400);
    }
}
