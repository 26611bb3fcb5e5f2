//! The routes: a request becomes a call of the store, and its answer becomes JSON. No rule lives here.

mod addresses;
mod answer;
mod api_keys;
mod approval_page;
mod approvals;
mod asked;
mod audit;
mod batch;
mod body;
mod call;
mod changes;
mod connections;
mod control;
mod cost;
pub(crate) mod counts;
mod definitions;
mod describe;
pub(crate) mod doubts;
mod duplicates;
mod errors;
mod events;
mod form;
pub(crate) mod hooks;
pub(crate) mod inbox;
mod inlet;
pub(crate) mod keys;
mod ledger;
pub(crate) mod nodes;
pub(crate) mod offers;
mod problem;
mod replay;
mod resolve;
mod resume;
pub(crate) mod runs;
mod services;
mod session;
mod spans;
mod start;
mod stats;
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

pub(crate) use approval_page::escaped;
pub use batch::MAX_BATCH;
pub use body::Body;
pub(crate) use body::read_text;
pub use errors::PAGES;
pub(crate) use form::{fields, is_form};
pub use problem::Problem;
pub use services::Services;

use crate::app::App;
use crate::config::ClockMode;

/// Prefix of every route except those for operations.
pub const PREFIX: &str = "/api/v1";

/// Router with all routes.
pub fn router(app: Arc<App>) -> Router {
    let (router, _) = routes(app.clock_mode()).split_for_parts();
    router.fallback(no_route).method_not_allowed_fallback(no_method).with_state(app)
}

/// The `OpenAPI` document of all routes that a server with this clock has.
pub fn document(clock: ClockMode) -> OpenApi {
    describe::finish(routes(clock).into_openapi())
}

/// All routes with their descriptions.
fn routes(clock: ClockMode) -> OpenApiRouter<Arc<App>> {
    let api = OpenApiRouter::new()
        .merge(start::router())
        .merge(batch::router())
        .merge(runs::router())
        .merge(ledger::router())
        .merge(spans::router())
        .merge(cost::router())
        .merge(events::router())
        .merge(control::router())
        .merge(replay::router())
        .merge(resolve::router())
        .merge(resume::router())
        .merge(hooks::router())
        .merge(inbox::router())
        .merge(doubts::router())
        .merge(counts::router())
        .merge(nodes::router())
        .merge(offers::router())
        .merge(definitions::router())
        .merge(addresses::router())
        .merge(approvals::router())
        .merge(keys::router())
        .merge(duplicates::router())
        .merge(stats::router())
        .merge(workers::router(clock))
        .merge(workspaces::router())
        .merge(api_keys::router())
        .merge(session::router())
        .merge(audit::router())
        .merge(changes::router())
        .merge(connections::router())
        .merge(describe::router());
    OpenApiRouter::new()
        .nest(PREFIX, api)
        .merge(errors::router())
        .merge(approval_page::router())
        .merge(inlet::router())
}

async fn no_route(uri: Uri) -> Problem {
    Problem::not_found(format!("there is no {}; {PREFIX}/openapi.json lists all routes", uri.path()))
}

async fn no_method(method: Method, uri: Uri) -> Problem {
    Problem::method_not_allowed(format!("{} does not support {method}; see the header Allow", uri.path()))
}
