//! The `OpenAPI` document: what the routes' declarations share, and how the document is made.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use semel::ErrorCode;
use semel::remote::wire;
use semel::rules::key::MAX_KEY;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, Required, Response, ResponseBuilder};
use utoipa::{IntoParams, IntoResponses};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::ProblemView;
use crate::app::App;
use crate::config::ClockMode;
use crate::http::workers::answer::RefusalView;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(openapi))
}

/// Get the OpenAPI document
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "openapi",
    tag = "operations",
    security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = Object)),
)]
async fn openapi(State(app): State<Arc<App>>) -> impl IntoResponse {
    static USUAL: LazyLock<Bytes> = LazyLock::new(|| text(ClockMode::Machine));
    static WITH_CLOCK: LazyLock<Bytes> = LazyLock::new(|| text(ClockMode::Manual));
    let text = match app.clock_mode() {
        ClockMode::Machine => USUAL.clone(),
        ClockMode::Manual => WITH_CLOCK.clone(),
    };
    ([(CONTENT_TYPE, "application/json")], text)
}

fn text(clock: ClockMode) -> Bytes {
    serde_json::to_vec(&super::document(clock)).expect("a description is plain data").into()
}

/// Parts of the document beside the routes.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Semel",
        description = "A durable workflow engine in which every effect takes place once. Every call that changes something \
                       may be repeated: with the header `Idempotency-Key`, and on the worker routes by version, fence and id. The answer \
                       to a repeated call carries `Idempotent-Replayed: true`. Errors are `application/problem+json`; `type` is the address \
                       of a page that explains the error.",
    ),
    servers((url = "/", description = "The server that serves this document")),
    components(schemas(ProblemView, RefusalView)),
    security(("bearer" = []), ("apiKey" = [])),
    tags(
        (name = "runs", description = "Start and read runs"),
        (name = "definitions", description = "Push and read definitions: workflows as documents, run by the server"),
        (name = "control", description = "Cancel, pause, resume, retry, restart and fork runs; resolve steps in doubt"),
        (name = "hooks", description = "Deliver input to runs that wait for it; addresses for senders without an API key"),
        (name = "approvals", description = "Decide what runs ask people"),
        (name = "keys", description = "Look up and release idempotency keys"),
        (name = "workers", description = "Protocol of remote workers. Every answer has the header `Semel-Protocol`; times are milliseconds"),
        (name = "access", description = "Manage workspaces and API keys, read the audit log"),
        (name = "operations", description = "Description of the API and of its errors"),
    ),
)]
struct ApiFrame;

/// Completes the document of a router.
pub(super) fn finish(paths: OpenApi) -> OpenApi {
    let mut api = <ApiFrame as utoipa::OpenApi>::openapi();
    api.merge(paths);
    let components = api.components.get_or_insert_default();
    for status in statuses() {
        for view in [PLAIN, OF_WORKERS] {
            components.responses.insert(name_of(view, status), RefOr::T(problem(view, status)));
        }
    }
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let api_key = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("x-api-key")));
    components.add_security_scheme("bearer", bearer);
    components.add_security_scheme("apiKey", api_key);
    api
}

fn statuses() -> Vec<u16> {
    let mut statuses: Vec<_> = ErrorCode::ALL.iter().map(|code| code.status()).collect();
    statuses.dedup();
    statuses
}

/// Prefix of the shared answers, and the schema that they have.
type ProblemKind = (&'static str, &'static str);

const PLAIN: ProblemKind = ("Problem", "ProblemView");
/// Workers are also told the error in the terms of the store.
const OF_WORKERS: ProblemKind = ("WorkerProblem", "WorkerProblem");

fn name_of((prefix, _): ProblemKind, status: u16) -> String {
    format!("{prefix}{status}")
}

/// The shared answer for a status, with all codes that have it.
fn problem((_, schema): ProblemKind, status: u16) -> Response {
    let codes = ErrorCode::ALL.iter().filter(|code| code.status() == status);
    let words: Vec<_> = codes.map(|code| format!("`{code}`: {}.", code.title())).collect();
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(schema))).build();
    ResponseBuilder::new().description(words.join(" ")).content("application/problem+json", content).build()
}

macro_rules! problems {
    ($($(#[$doc:meta])* $name:ident of $kind:ident: $($status:literal),+;)+) => {$(
        $(#[$doc])*
        pub(super) enum $name {}

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                let shared = |status: u16| {
                    (status.to_string(), RefOr::Ref(Ref::from_response_name(name_of($kind, status))))
                };
                [$($status),+].into_iter().map(shared).collect()
            }
        }
    )+};
}

problems! {
    /// Problems that every route may answer.
    Always of PLAIN: 400, 401, 403, 429, 503;
    /// The path or query is not understood.
    BadAddress of PLAIN: 400;
    /// The run does not exist, or none holds this key.
    OfRun of PLAIN: 404;
    /// The token has no owner.
    NoHook of PLAIN: 404;
    /// Problems of a route that changes something.
    Changes of PLAIN: 409, 413, 422;
    /// Problems of a route that takes a body.
    Oversize of PLAIN: 413;
    /// Problems of the routes for workers.
    WorkerProblems of OF_WORKERS: 400, 401, 403, 404, 409, 413, 422, 429, 503;
}

fn header(name: &str, schema: Schema, description: &str) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(schema))
        .build()
}

/// The header `Idempotency-Key`.
pub(super) enum IdempotencyKey {}

impl IntoParams for IdempotencyKey {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let text = ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .min_length(Some(1))
            .max_length(Some(MAX_KEY))
            .build();
        let description = "Id under which the call may be repeated, with or without quotes";
        vec![header("Idempotency-Key", text.into(), description)]
    }
}

/// The header `Semel-Protocol`.
pub(super) enum SpokenProtocol {}

impl IntoParams for SpokenProtocol {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let text = ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .enum_values(Some([wire::PROTOCOL]))
            .build();
        let description = "Version of the protocol that the worker speaks; another one than the server's is refused. Every answer \
                           has this header too";
        vec![header("Semel-Protocol", text.into(), description)]
    }
}

/// The header `Prefer`.
pub(super) enum PreferWait {}

impl IntoParams for PreferWait {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let text = ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .pattern(Some("^wait=[0-9]{1,2}$"))
            .build();
        let description =
            "`wait=30`: wait for the end of the run, for at most this number of seconds (up to 60)";
        vec![header("Prefer", text.into(), description)]
    }
}

/// The run in the path.
pub(super) enum RunParam {}

impl IntoParams for RunParam {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let id = ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .pattern(Some("^run_[0-7][0-9a-hjkmnp-tv-z]{25}$"))
            .build();
        let run = ParameterBuilder::new()
            .name("id")
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some("Id of the run"))
            .schema(Some(id))
            .build();
        vec![run]
    }
}
