//! `GET /errors/{code}`: the page of an error code, which `type` of a problem names. The pages are part of the
//! binary.

use std::sync::Arc;

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use semel::ErrorCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::asked::PathOf;
use super::describe::{BadAddress, OfRun};
use crate::app::App;

macro_rules! pages {
    ($($name:ident $code:literal $status:literal $retryable:literal $title:literal $doc:literal,)+) => {
        /// Error codes and their pages.
        pub const PAGES: &[(ErrorCode, &str)] =
            &[$((ErrorCode::$name, include_str!(concat!("../../../../docs/errors/", $code, ".md")))),+];
    };
}
semel::error_codes!(pages);

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(page))
}

/// Read the page of an error code
#[utoipa::path(
    get,
    path = "/errors/{code}",
    operation_id = "explainError",
    tag = "operations",
    security(()),
    params(("code" = String, Path, description = "Code of a problem", example = "KEY_REUSED")),
    responses(
        (status = 200, description = "Explanation of the code and what to do, as Markdown", body = String, content_type = "text/plain"),
        BadAddress,
        OfRun,
    ),
)]
async fn page(PathOf(code): PathOf<String>) -> Result<Response, Problem> {
    match PAGES.iter().find(|(known, _)| known.as_str() == code) {
        Some((_, page)) => Ok(([(CONTENT_TYPE, "text/plain; charset=utf-8")], *page).into_response()),
        None => Err(Problem::not_found(format!("there is no error code {code:?}"))),
    }
}
