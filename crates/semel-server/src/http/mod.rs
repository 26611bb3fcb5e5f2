//! The routes: what is asked over HTTP becomes a call of the store, and its answer becomes JSON. No rule lives here.

mod answer;
mod api_keys;
mod asked;
mod audit;
mod batch;
mod body;
mod call;
mod control;
mod describe;
mod errors;
mod events;
mod hooks;
mod keys;
mod ledger;
mod problem;
mod replay;
mod resolve;
mod resume;
mod runs;
mod services;
mod start;
mod steps;
mod view;
mod wait;
mod workers;
mod workspaces;

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, Uri};
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

pub use batch::MAX_BATCH;
pub use body::Body;
pub use errors::PAGES;
pub use problem::{CODES, Problem};
pub use services::Services;
pub(crate) use services::title;

use crate::app::App;

/// The prefix of every route but those of operations.
pub const PREFIX: &str = "/api/v1";

/// All routes.
pub fn router(app: Arc<App>) -> Router {
    let (router, _) = routes().split_for_parts();
    router.fallback(no_route).method_not_allowed_fallback(no_method).with_state(app)
}

/// The `OpenAPI` description of all routes.
pub fn document() -> OpenApi {
    describe::finish(routes().into_openapi())
}

/// The routes with their descriptions.
fn routes() -> OpenApiRouter<Arc<App>> {
    let api = OpenApiRouter::new()
        .merge(start::router())
        .merge(batch::router())
        .merge(runs::router())
        .merge(ledger::router())
        .merge(events::router())
        .merge(control::router())
        .merge(replay::router())
        .merge(resolve::router())
        .merge(resume::router())
        .merge(hooks::router())
        .merge(keys::router())
        .merge(workers::router())
        .merge(workspaces::router())
        .merge(api_keys::router())
        .merge(audit::router())
        .merge(describe::router());
    OpenApiRouter::new().nest(PREFIX, api).merge(errors::router())
}

async fn no_route(uri: Uri) -> Problem {
    Problem::not_found(format!("there is no {}; {PREFIX}/openapi.json lists what there is", uri.path()))
}

async fn no_method(method: Method, uri: Uri) -> Problem {
    Problem::method_not_allowed(format!("{} takes no {method}; see the header Allow", uri.path()))
}
