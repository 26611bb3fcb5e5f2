//! What is around every page: navigation, find box, theme, and the headers that a page has.

use std::sync::Arc;

use askama::Template;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use semel::clock::Clock;

use super::gate::Visitor;
use super::parts::Markup;
use super::query::encoded;
use super::{Ui, icon};
use crate::api::{Permission, ProblemView};
use crate::http::Problem;

/// Everything comes from this server, nothing is in the page itself, and no script can make markup of a text by accident.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types semel";

/// Entry of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    /// A page that is in no section.
    None,
    Overview,
    Runs,
    Keys,
    Hooks,
    Doubts,
    Workflows,
    Workers,
    Settings,
}

/// A link of the navigation.
pub(super) struct NavLink {
    pub(super) title: &'static str,
    pub(super) icon: Markup,
    pub(super) to: String,
    pub(super) here: bool,
    /// Whether a line stands before it.
    pub(super) apart: bool,
}

/// What the frame of a page shows.
pub(super) struct PageFrame {
    pub(super) title: String,
    pub(super) workspace: String,
    pub(super) initial: String,
    /// The other workspaces of the session.
    pub(super) others: Vec<WorkspaceLink>,
    pub(super) person: String,
    pub(super) role: &'static str,
    pub(super) signed_in: bool,
    /// Address of the workspace, without a slash at its end.
    pub(super) base: String,
    pub(super) nav: Vec<NavLink>,
    /// Stream of changes that the page follows; empty if it follows none.
    pub(super) stream: String,
    /// Sentence about what a form has done; empty if nothing was done.
    pub(super) said: &'static str,
    pub(super) version: &'static str,
    /// Draws the ids of calls.
    clock: Arc<dyn Clock>,
}

/// A workspace to change to.
pub(super) struct WorkspaceLink {
    pub(super) name: String,
    pub(super) to: String,
}

impl PageFrame {
    /// The frame of a page in a section.
    pub(super) fn of(ui: &Ui, visitor: &Visitor, section: Section, title: &str) -> Self {
        let others = visitor.workspaces.iter().filter(|name| **name != visitor.workspace);
        Self {
            title: title.to_owned(),
            workspace: visitor.workspace.clone(),
            initial: visitor.workspace.chars().next().unwrap_or('·').to_uppercase().collect(),
            others: others
                .map(|name| WorkspaceLink { name: name.clone(), to: format!("/w/{}/", encoded(name)) })
                .collect(),
            person: visitor.person.clone(),
            role: role(visitor),
            signed_in: visitor.signed_in,
            base: visitor.to(""),
            nav: navigation(visitor, section),
            stream: visitor.to("/api/events"),
            said: said(&visitor.place),
            version: env!("CARGO_PKG_VERSION"),
            clock: ui.app.clock.clone(),
        }
    }

    /// The same with the stream of one run.
    pub(super) fn follows(mut self, stream: &str) -> Self {
        self.stream = format!("{}/api{stream}", self.base);
        self
    }

    /// A new id for the call of a form: sent twice, the form acts once.
    pub(super) fn call(&self) -> String {
        format!("ui-{}", self.clock.uuid().simple())
    }
}

fn navigation(visitor: &Visitor, section: Section) -> Vec<NavLink> {
    let all = [
        (Section::Overview, "Overview", "overview", "/", false),
        (Section::Runs, "Runs", "runs", "/runs", false),
        (Section::Keys, "Keys", "key", "/keys", false),
        (Section::Hooks, "Hooks", "hook", "/hooks", false),
        (Section::Doubts, "In doubt", "doubt", "/doubts", false),
        (Section::Workflows, "Workflows", "workflows", "/workflows", true),
        (Section::Workers, "Workers & queues", "workers", "/workers", false),
        (Section::Settings, "Settings", "settings", "/settings", true),
    ];
    let link = |(of, title, icon_name, path, apart)| NavLink {
        title,
        icon: icon(icon_name),
        to: visitor.to(path),
        here: of == section,
        apart,
    };
    all.into_iter().map(link).collect()
}

/// What a person may do here, in a word.
fn role(visitor: &Visitor) -> &'static str {
    match () {
        () if visitor.may(Permission::Admin) => "administrator",
        () if visitor.may(Permission::Operate) => "operator",
        () if visitor.may(Permission::Decide) => "decides",
        () => "reads",
    }
}

/// What a form has done, by the word with which it leads back to a page.
fn said(place: &str) -> &'static str {
    let word = place.split_once("done=").map_or("", |(_, rest)| rest.split('&').next().unwrap_or_default());
    match word {
        "yes" => "Done. It is in the ledger, with your name.",
        "again" => "This was sent before, and took place once. Nothing was done a second time.",
        "late" => "It came too late: the run had ended. The page shows how.",
        "delivered" => "Delivered. The run has it in its inbox.",
        "absorbed" => {
            "The same delivery had been accepted before. It was absorbed, and the run gets it once."
        }
        "attached" => "A run holds this key already: this is it. No second run was started.",
        "started" => "The run was started.",
        "decided" => "Your decision is recorded.",
        "revoked" => "The key is revoked. Every server refuses it within a second, and its sessions end.",
        _ => "",
    }
}

/// A page with its headers.
pub(super) fn page(page: &impl Template) -> Response {
    shown(StatusCode::OK, page)
}

/// A page with a status.
pub(super) fn shown(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => (status, headers(), text).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page could not be made");
            Problem::unavailable("the page cannot be made because of a defect; report it").into_response()
        }
    }
}

fn headers() -> [(header::HeaderName, HeaderValue); 5] {
    [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (
            header::HeaderName::from_static("cross-origin-opener-policy"),
            HeaderValue::from_static("same-origin"),
        ),
        (
            header::HeaderName::from_static("cross-origin-resource-policy"),
            HeaderValue::from_static("same-origin"),
        ),
    ]
}

/// Leads back to a page after a form, with a word about what it has done.
pub(super) fn back(to: &str, done: &str) -> Response {
    let mark = if to.contains('?') { '&' } else { '?' };
    Redirect::to(&format!("{to}{mark}done={done}")).into_response()
}

/// What the API has refused, as a page.
#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    frame: PageFrame,
    problem: &'a ProblemView,
}

/// The page of a refusal.
pub(super) fn refusal(frame: PageFrame, problem: &ProblemView) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    shown(status, &ProblemPage { frame, problem })
}

/// A page that leads on to another one of this server by itself.
#[derive(Template)]
#[template(path = "onward.html")]
struct OnwardPage<'a> {
    place: &'a str,
}

/// A page that leads on to a place of this server.
pub(super) fn onward(place: &str) -> Response {
    page(&OnwardPage { place })
}
