//! Approvals: a question to a person, with its content, and the decision.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;

use super::Ui;
use super::desk::{Call, CallAnswer, PageRefusal};
use super::frame::{self, PageFrame, Section};
use super::gate::Visitor;
use super::parts::{Markup, Shown, age, shown, when};
use super::query::{SentForm, encoded};
use super::run;
use crate::api::{ApprovalStatus, ApprovalView, Choice, DecideApproval, Permission};
use crate::http::Problem;

/// An approval that waits.
pub(super) struct ApprovalRow {
    pub(super) to: String,
    pub(super) title: String,
    pub(super) roles: String,
    pub(super) run: String,
    pub(super) since: Markup,
    pub(super) until: Markup,
}

/// The rows of open approvals.
pub(super) fn rows(visitor: &Visitor, open: Vec<ApprovalView>, now: i64) -> Vec<ApprovalRow> {
    let row = |approval: ApprovalView| ApprovalRow {
        to: visitor.to(&format!("/approvals/{}", encoded(&approval.id))),
        roles: approval.by.join(", "),
        run: visitor.to(&format!("/runs/{}", encoded(&approval.run))),
        since: age(&approval.opened_at, now),
        until: when(&approval.expires_at),
        title: approval.title,
    };
    open.into_iter().map(row).collect()
}

#[derive(Template)]
#[template(path = "approval.html")]
struct ApprovalPage {
    frame: PageFrame,
    here: String,
    approval: ApprovalView,
    roles: String,
    open: bool,
    until: Markup,
    content: Option<Shown>,
    form: Option<Shown>,
    may_decide: bool,
}

/// `GET /w/{workspace}/approvals/{id}`.
pub(super) async fn page(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    Path((_, id)): Path<(String, String)>,
) -> Result<Response, PageRefusal> {
    let approval: ApprovalView = ui.get(&visitor, &format!("/approvals/{}", encoded(&id))).await?;
    let page = ApprovalPage {
        frame: PageFrame::of(&ui, &visitor, Section::Hooks, &approval.title),
        here: visitor.to(&format!("/approvals/{}", encoded(&id))),
        roles: approval.by.join(", "),
        open: approval.status == ApprovalStatus::Open,
        until: when(&approval.expires_at),
        content: approval.content.as_ref().map(|content| shown(content.get())),
        form: approval.form.as_ref().map(|form| shown(form.get())),
        may_decide: visitor.may(Permission::Decide),
        approval,
    };
    Ok(frame::page(&page))
}

/// `POST /w/{workspace}/approvals/{id}`.
pub(super) async fn decide(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    Path((_, id)): Path<(String, String)>,
    SentForm(form): SentForm,
) -> Result<Response, PageRefusal> {
    let decision = match form.get("decision") {
        Some("approved") => Some(Choice::Approved),
        Some("rejected") => Some(Choice::Rejected),
        Some("edited") => Some(Choice::Edited),
        Some("answer") => None,
        _ => return Err(Problem::validation("choose a decision").into()),
    };
    let with_content = matches!(decision, None | Some(Choice::Edited));
    let content = form.get("content").filter(|_| with_content).map(run::json).transpose()?;
    let comment = form.get("comment").map(str::to_owned);
    let body = DecideApproval { decision, content, comment };
    let call = Call::post(format!("/approvals/{}/decide", encoded(&id)), "", &body);
    let answered: CallAnswer<ApprovalView> = ui.send(&visitor, call).await?;
    let to = visitor.to(&format!("/approvals/{}", encoded(&id)));
    Ok(frame::back(&to, if answered.replayed { "again" } else { "decided" }))
}
