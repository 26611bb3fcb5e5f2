//! `GET /errors/{code}`: the page about a code, as `type` of a problem names it. The pages are part of the binary.

use std::sync::Arc;

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::asked::At;
use super::describe::{BadAddress, OfRun};
use crate::app::App;

macro_rules! pages {
    ($($code:literal),+ $(,)?) => {
        /// The codes and their pages.
        pub const PAGES: &[(&str, &str)] =
            &[$(($code, include_str!(concat!("../../../../docs/errors/", $code, ".md")))),+];
    };
}

pages![
    "VALIDATION_ERROR",
    "AUTH_ERROR",
    "FORBIDDEN",
    "NOT_FOUND",
    "HOOK_NOT_FOUND",
    "METHOD_NOT_ALLOWED",
    "CONCURRENCY_ERROR",
    "DUPLICATE_RUN",
    "INVALID_TRANSITION",
    "RUN_FINISHED",
    "PAYLOAD_TOO_LARGE",
    "KEY_REUSED",
    "INBOX_FULL",
    "RATE_LIMIT_ERROR",
    "UNAVAILABLE",
];

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(page))
}

/// Read what a code means
#[utoipa::path(
    get,
    path = "/errors/{code}",
    operation_id = "explainError",
    tag = "operations",
    security(()),
    params(("code" = String, Path, description = "The code of a problem", example = "KEY_REUSED")),
    responses(
        (status = 200, description = "What it means and what to do, as Markdown", body = String, content_type = "text/plain"),
        BadAddress,
        OfRun,
    ),
)]
async fn page(At(code): At<String>) -> Result<Response, Problem> {
    match PAGES.iter().find(|(known, _)| *known == code) {
        Some((_, page)) => Ok(([(CONTENT_TYPE, "text/plain; charset=utf-8")], *page).into_response()),
        None => Err(Problem::not_found(format!("there is no error code {code:?}"))),
    }
}
