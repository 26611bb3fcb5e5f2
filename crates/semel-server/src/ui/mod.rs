//! The web console: pages that are rendered here, from the answers of the API.
//!
//! A page asks the API by `desk`, as its reader: permissions, limits, audit and views are those of the API, and no rule lives
//! here. Each page has a file and a template. What people have typed is shown as text, and values from their text.

mod approvals;
mod assets;
mod desk;
mod doubts;
mod find;
mod frame;
mod gate;
mod graph;
mod hooks;
mod keys;
mod login;
mod overview;
mod parts;
mod query;
mod run;
mod runs;
mod settings;
mod start;
mod timeline;
mod words;
mod workers;
mod workflows;

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};

use self::parts::icon;
use self::query::encoded;
use crate::access;
use crate::app::App;
use crate::http;

/// What all pages share.
pub(crate) struct Ui {
    app: Arc<App>,
    /// The API behind its gate, for callers who are known already.
    api: Router,
}

/// Router with all pages and what they are made of.
pub fn router(app: Arc<App>) -> Router {
    let api = http::router(app.clone()).layer(from_fn_with_state(app.clone(), access::admit));
    let ui = Arc::new(Ui { app, api });
    let pages = Router::new()
        .route("/w/{workspace}", get(overview::page))
        .route("/w/{workspace}/", get(overview::page))
        .route("/w/{workspace}/runs", get(runs::page))
        .route("/w/{workspace}/runs/{id}", get(run::page))
        .route("/w/{workspace}/runs/{id}/act", post(run::act))
        .route("/w/{workspace}/runs/{id}/resolve", post(run::resolve))
        .route("/w/{workspace}/runs/{id}/fork", get(run::fork))
        .route("/w/{workspace}/runs/{id}/value", get(run::value))
        .route("/w/{workspace}/start", get(start::page).post(start::start))
        .route("/w/{workspace}/keys", get(keys::search))
        .route("/w/{workspace}/keys/{key}", get(keys::page))
        .route("/w/{workspace}/keys/{key}/release", post(keys::release))
        .route("/w/{workspace}/doubts", get(doubts::page))
        .route("/w/{workspace}/hooks", get(hooks::page).post(hooks::deliver))
        .route("/w/{workspace}/approvals/{id}", get(approvals::page).post(approvals::decide))
        .route("/w/{workspace}/workers", get(workers::page))
        .route("/w/{workspace}/workflows", get(workflows::page))
        .route("/w/{workspace}/workflows/{name}", get(workflows::definition))
        .route("/w/{workspace}/settings", get(settings::page))
        .route("/w/{workspace}/settings/keys", post(settings::create))
        .route("/w/{workspace}/settings/keys/{id}/revoke", post(settings::revoke))
        .route("/w/{workspace}/find", get(find::page))
        .route("/w/{workspace}/api/{*rest}", get(desk::pass))
        .layer(from_fn_with_state(ui.clone(), gate::visitors));
    Router::new()
        .route("/", get(login::home))
        .route("/login", get(login::page).post(login::sign_in))
        .route("/logout", post(login::sign_out))
        .route("/assets/{name}", get(assets::asset))
        .merge(pages)
        .layer(from_fn(gate::own_site))
        .with_state(ui)
}
