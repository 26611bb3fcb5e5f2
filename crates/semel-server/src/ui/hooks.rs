//! Hooks and approvals: what runs wait for from outside.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::Ui;
use super::approvals::{self, ApprovalRow};
use super::desk::{Call, CallAnswer, PageRefusal};
use super::frame::{self, PageFrame, Section};
use super::gate::Visitor;
use super::parts::{Markup, age, mark, when};
use super::query::{Fields, SentForm, encoded, query};
use super::run;
use crate::api::{ApprovalList, DeliverAnswer, HookList, HookView, OpenHookView, Permission};

/// A token and its owner.
struct Owner {
    key: String,
    to: String,
    workflow: String,
    mark: Markup,
}

/// An open hook.
struct HookRow {
    token: String,
    key: String,
    to: String,
    since: Markup,
    until: Markup,
    unconsumed: u64,
    /// The page with the token in its form.
    deliver: String,
}

fn row(visitor: &Visitor, hook: &OpenHookView, now: i64) -> HookRow {
    HookRow {
        token: hook.token.clone(),
        key: hook.key.clone(),
        to: visitor.to(&format!("/runs/{}", encoded(&hook.run))),
        since: hook.opened_at.as_deref().map(|opened| age(opened, now)).unwrap_or_default(),
        until: hook.deadline.as_deref().map(when).unwrap_or_default(),
        unconsumed: hook.unconsumed.count,
        deliver: visitor.to(&format!("/hooks{}", query([("token", hook.token.as_str())]))),
    }
}

#[derive(Template)]
#[template(path = "hooks.html")]
struct HooksPage {
    frame: PageFrame,
    token: String,
    hooks: Vec<HookRow>,
    more: Option<String>,
    owner: Option<Owner>,
    approvals: Vec<ApprovalRow>,
    older: Option<String>,
    may_deliver: bool,
}

/// `GET /w/{workspace}/hooks`.
pub(super) async fn page(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    asked: Fields,
) -> Result<Response, PageRefusal> {
    let token = asked.get("token").unwrap_or_default().to_owned();
    let cursor = asked.get("cursor").map(|cursor| ("cursor", cursor));
    let open: ApprovalList = ui.get(&visitor, &format!("/approvals{}", query(cursor))).await?;
    let after = asked.get("after").map(|cursor| ("cursor", cursor));
    let waiting: Option<HookList> = ui.look(&visitor, &format!("/hooks{}", query(after))).await?;
    let waiting = waiting.unwrap_or(HookList { hooks: Vec::new(), next: None });
    let found: Option<HookView> = match token.as_str() {
        "" => None,
        token => ui.look(&visitor, &format!("/hooks/{}", encoded(token))).await?,
    };
    let owner = |found: HookView| Owner {
        key: found.run.key.clone(),
        to: visitor.to(&format!("/runs/{}", encoded(&found.run.id))),
        workflow: found.run.workflow.clone(),
        mark: mark(&found.run),
    };
    let now = ui.app.clock.now().0;
    let page = HooksPage {
        frame: PageFrame::of(&ui, &visitor, Section::Hooks, "Hooks"),
        hooks: waiting.hooks.iter().map(|hook| row(&visitor, hook, now)).collect(),
        more: waiting.next.map(|next| visitor.to(&format!("/hooks{}", query([("after", next.as_str())])))),
        owner: found.map(owner),
        token,
        older: open
            .next
            .as_ref()
            .map(|next| visitor.to(&format!("/hooks{}", query([("cursor", next.as_str())])))),
        approvals: approvals::rows(&visitor, open.approvals, now),
        may_deliver: visitor.may(Permission::Start) || visitor.may(Permission::Operate),
    };
    Ok(frame::page(&page))
}

/// `POST /w/{workspace}/hooks`: delivers the value of the form.
pub(super) async fn deliver(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    SentForm(form): SentForm,
) -> Result<Response, PageRefusal> {
    let token = form.get("token").unwrap_or_default();
    let payload = run::json(form.get("payload").unwrap_or("null"))?;
    let call = Call::post(format!("/hooks/{}", encoded(token)), form.call(), &payload);
    let answered: CallAnswer<DeliverAnswer> = ui.send(&visitor, call).await?;
    let to = visitor.to(&format!("/runs/{}", encoded(&answered.value.run)));
    Ok(frame::back(&to, if answered.value.absorbed { "absorbed" } else { "delivered" }))
}
