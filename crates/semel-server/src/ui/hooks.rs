//! Hooks and approvals: what runs wait for from outside.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::Ui;
use super::approvals::{self, ApprovalRow};
use super::desk::{Answered, Call, Refused};
use super::frame::{self, Frame, Section};
use super::gate::Visitor;
use super::parts::{Markup, mark};
use super::query::{Fields, Sent, encoded, query};
use super::run;
use crate::api::{ApprovalList, DeliverAnswer, HookView, Permission};

/// A token and its owner.
struct Owner {
    key: String,
    to: String,
    workflow: String,
    mark: Markup,
}

#[derive(Template)]
#[template(path = "hooks.html")]
struct HooksPage {
    frame: Frame,
    token: String,
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
) -> Result<Response, Refused> {
    let token = asked.get("token").unwrap_or_default().to_owned();
    let cursor = asked.get("cursor").map(|cursor| ("cursor", cursor));
    let open: ApprovalList = ui.get(&visitor, &format!("/approvals{}", query(cursor))).await?;
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
        frame: Frame::of(&ui, &visitor, Section::Hooks, "Hooks"),
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
    Sent(form): Sent,
) -> Result<Response, Refused> {
    let token = form.get("token").unwrap_or_default();
    let payload = run::json(form.get("payload").unwrap_or("null"))?;
    let call = Call::post(format!("/hooks/{}", encoded(token)), form.call(), &payload);
    let answered: Answered<DeliverAnswer> = ui.send(&visitor, call).await?;
    let to = visitor.to(&format!("/runs/{}", encoded(&answered.value.run)));
    Ok(frame::back(&to, if answered.value.absorbed { "absorbed" } else { "delivered" }))
}
