//! The routes: what is asked over HTTP becomes a call of the store, and its answer becomes JSON. No rule lives here.

mod body;
mod problem;
mod workers;

use std::sync::Arc;

use axum::Router;

pub use body::Body;
pub use problem::{CODES, Problem};

use crate::app::App;

/// The prefix of every route but those of operations.
pub const PREFIX: &str = "/api/v1";

/// All routes.
pub fn router(app: Arc<App>) -> Router {
    let (router, _description) =
        utoipa_axum::router::OpenApiRouter::<Arc<App>>::new().merge(workers::router()).split_for_parts();
    Router::new().nest(PREFIX, router).with_state(app)
}
