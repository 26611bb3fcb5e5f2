//! Remote workers: the verbs of the store over HTTP, for engines and programs elsewhere.
//!
//! The wire format is [`semel::remote::wire`]. A worker is not trusted: what it appends is checked by a ledger that
//! is kept here ([`folds`]), its nodes belong to its workspace ([`node`]), its values are checked like all others.
//! Commits and starts of one call go to the store together and share a durable write.

mod again;
pub(super) mod answer;
mod claim;
mod clock;
mod commit;
mod control;
pub(super) mod engines;
mod extent;
mod folds;
mod known;
mod look;
mod node;
mod numbers;
mod protocol;
mod request;
mod roster;
mod start;
mod steps;
mod turns;
mod waiting;
mod wakes;

use std::sync::Arc;

use axum::Extension;
use axum::middleware::from_fn;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::again::LastClaims;
use self::folds::Folds;
pub(super) use self::known::KnownRuns;
use self::numbers::Numbers;
use self::roster::Roster;
pub(super) use self::roster::{described, kind, served};
use self::turns::Turns;
use self::waiting::Waiting;
use crate::app::App;
use crate::config::ClockMode;

/// State that the worker routes share. All of it is a cache of the store.
#[derive(Default)]
struct Workers {
    folds: Folds,
    known: KnownRuns,
    last_claims: LastClaims,
    numbers: Numbers,
    roster: Roster,
    turns: Turns,
    waiting: Waiting,
}

/// Extractor of the shared state, an argument of every route here.
type Shared = Extension<Arc<Workers>>;

pub(super) fn router(clock: ClockMode) -> OpenApiRouter<Arc<App>> {
    let workers = OpenApiRouter::new()
        .routes(routes!(roster::register, roster::list))
        .routes(routes!(roster::heartbeat))
        .routes(routes!(roster::release))
        .routes(routes!(claim::claim))
        .routes(routes!(commit::commit))
        .routes(routes!(start::start))
        .routes(routes!(steps::claim))
        .routes(routes!(steps::complete))
        .routes(routes!(steps::fail))
        .routes(routes!(start::deliver))
        .routes(routes!(control::control))
        .routes(routes!(control::once))
        .routes(routes!(look::find))
        .routes(routes!(look::list))
        .routes(routes!(look::counts))
        .routes(routes!(look::ledger))
        .routes(routes!(look::inbox))
        .routes(routes!(look::receipts))
        .routes(routes!(wakes::wakes))
        // A route layer, so that unknown paths are not affected.
        .route_layer(from_fn(protocol::speak));
    let routes = match clock {
        ClockMode::Machine => workers,
        // Here, because it must not end the leases of the workers.
        ClockMode::Manual => workers.routes(routes!(clock::advance)),
    };
    routes.route_layer(Extension(Arc::new(Workers::default())))
}
