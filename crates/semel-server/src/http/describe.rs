//! The `OpenAPI` description: what the declarations of the routes share, and the document that is made of them.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use semel::rules::key::MAX_KEY;
use semel::rules::status::Status;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, Required, Response, ResponseBuilder};
use utoipa::{IntoParams, IntoResponses, PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::CODES;
use crate::api::ProblemView;
use crate::app::App;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(openapi))
}

/// This description
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "openapi",
    tag = "operations",
    security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = Object)),
)]
async fn openapi() -> impl IntoResponse {
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| {
        let text = serde_json::to_vec(&super::document()).expect("a description is plain data");
        Bytes::from(text)
    });
    ([(CONTENT_TYPE, "application/json")], TEXT.clone())
}

/// What is described beside the routes.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Semel",
        description = "A durable workflow engine in which every effect takes place once. Every call that changes something \
                       may be repeated: under the header `Idempotency-Key`, workers by version, fence and id; a repeated \
                       answer carries `Idempotent-Replayed: true`. Problems are `application/problem+json`; the page that their `type` \
                       names says what to do.",
    ),
    components(schemas(ProblemView)),
    security(("bearer" = []), ("apiKey" = [])),
    tags(
        (name = "runs", description = "Start runs, and see what became of them"),
        (name = "control", description = "What an operator can do about a run"),
        (name = "hooks", description = "Input for runs that wait for it"),
        (name = "keys", description = "What idempotency keys stand for"),
        (name = "workers", description = "Processes elsewhere that drive runs"),
        (name = "access", description = "Workspaces, API keys and the audit"),
        (name = "operations", description = "For those who run the server"),
    ),
)]
struct Frame;

/// The description of all routes of a router.
pub(super) fn finish(paths: OpenApi) -> OpenApi {
    let mut api = <Frame as utoipa::OpenApi>::openapi();
    api.merge(paths);
    let components = api.components.get_or_insert_default();
    for status in statuses() {
        components.responses.insert(name_of(status), RefOr::T(problem(status)));
    }
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let api_key = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("x-api-key")));
    components.add_security_scheme("bearer", bearer);
    components.add_security_scheme("apiKey", api_key);
    api
}

fn statuses() -> Vec<u16> {
    let mut statuses: Vec<_> = CODES.iter().map(|(_, status, _)| *status).collect();
    statuses.dedup();
    statuses
}

fn name_of(status: u16) -> String {
    format!("Problem{status}")
}

/// The shared answer with a status: all codes that have it.
fn problem(status: u16) -> Response {
    let codes = CODES.iter().filter(|(_, of, _)| *of == status);
    let words: Vec<_> = codes.map(|(code, _, title)| format!("`{code}`: {title}.")).collect();
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("ProblemView"))).build();
    ResponseBuilder::new().description(words.join(" ")).content("application/problem+json", content).build()
}

macro_rules! problems {
    ($($(#[$doc:meta])* $name:ident: $($status:literal),+;)+) => {$(
        $(#[$doc])*
        pub(super) enum $name {}

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                let shared = |status: u16| {
                    (status.to_string(), RefOr::Ref(Ref::from_response_name(name_of(status))))
                };
                [$($status),+].into_iter().map(shared).collect()
            }
        }
    )+};
}

problems! {
    /// What every route may answer.
    Always: 400, 401, 403, 429, 503;
    /// The address is not understood.
    BadAddress: 400;
    /// There is no such run, or none under this key.
    OfRun: 404;
    /// Nobody owns the token.
    NoHook: 404;
    /// What a route that changes something may answer.
    Changes: 409, 413, 422;
    /// What a route that takes a body may answer.
    Oversize: 413;
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
        let description = "The id under which the call may be repeated: a quoted string, or bare";
        vec![header("Idempotency-Key", text.into(), description)]
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
        let description = "`wait=30`: answer when the run has ended, or after so many seconds, at most 60";
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
            .description(Some("The run"))
            .schema(Some(id))
            .build();
        vec![run]
    }
}

/// The name of a run's state.
pub(super) enum StatusName {}

impl PartialSchema for StatusName {
    fn schema() -> RefOr<Schema> {
        let names = Status::ALL.map(|status| status.to_string());
        let text = ObjectBuilder::new().schema_type(SchemaType::Type(Type::String)).enum_values(Some(names));
        RefOr::T(text.build().into())
    }
}

impl ToSchema for StatusName {}
