//! Remote workers: the verbs of the store over HTTP, for engines and programs elsewhere.
//!
//! What travels is [`semel::remote::wire`]. A worker is not trusted: what it appends is checked by a ledger that is kept
//! here ([`folds`]), its nodes are its workspace's own ([`node`]), its values are checked like all others. Commits and starts
//! of one call go to the store together, and so share a durable write.

mod answer;
mod claim;
mod commit;
mod control;
mod extent;
mod folds;
mod known;
mod look;
mod node;
mod numbers;
mod roster;
mod start;
mod steps;
mod turns;
mod waiting;
mod wakes;

use std::sync::Arc;

use axum::Extension;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::folds::Folds;
use self::known::Known;
use self::numbers::Numbers;
use self::roster::Roster;
pub(super) use self::roster::{kind, served};
use self::turns::Turns;
use self::waiting::Waiting;
use crate::app::App;

/// What the routes of workers share. Nothing of it is the truth: all of it can be found in the store again.
#[derive(Default)]
struct Workers {
    folds: Folds,
    known: Known,
    numbers: Numbers,
    roster: Roster,
    turns: Turns,
    waiting: Waiting,
}

/// An argument of every route here.
type Shared = Extension<Arc<Workers>>;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
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
        .routes(routes!(look::ledger))
        .routes(routes!(look::inbox))
        .routes(routes!(look::receipts))
        .routes(routes!(wakes::wakes))
        // Not on what has no route: that is everybody's.
        .route_layer(Extension(Arc::new(Workers::default())))
}
