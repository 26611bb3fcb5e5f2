//! `/approvals`: questions to people that runs wait for. They are listed, shown, decided, and linked to.

use std::sync::Arc;

use axum::extract::State;
use semel::clock::Time;
use semel::id::ApprovalId;
use semel::rules::json::Payload;
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Answer;
use super::asked::{PathOf, QueryOf, limit_of, time_of};
use super::describe::{Always, Changes, OfRun};
use super::{Body, Problem};
use crate::access::Caller;
use crate::api::{
    ApprovalList, ApprovalView, Choice, DecideApproval, DecidedView, LinkView, LinksMade, MakeLinks,
    Permission, time, value,
};
use crate::app::App;
use crate::approvals::link::{self, Link};
use crate::approvals::{Approval, Approvals, Decided, DecisionVerdict};
use crate::definitions::schema::InputSchema;

/// Approvals on a page if no limit is given.
const USUAL: usize = 50;
/// Maximum number of approvals on a page: each of them is read by itself.
const MOST: usize = 100;
/// Maximum length of a comment in characters.
const COMMENT: usize = 10_000;
/// Maximum size of the content that a person sends, in bytes: it is copied into the record and into the ledger.
const CONTENT: usize = 256 * 1024;
/// Maximum length of the name of the person for whom a link is made, in characters.
const TO: usize = 200;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(decide))
        .routes(routes!(links))
        .routes(routes!(rotate))
}

/// Query of `GET /approvals`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichApprovals {
    /// Only approvals that a caller with this role may decide: those that name it, and those that name none.
    role: Option<String>,
    /// The `next` of the previous page. Absent for the first page.
    cursor: Option<String>,
    /// Maximum number of approvals on the page; 50 if absent.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
}

/// List open approvals
///
/// The approvals of the workspace for which a run waits now, the oldest first, without content and form. A page reads `limit`
/// records and leaves out those that are not open or have another role, so it may be short: what counts is `next`.
#[utoipa::path(
    get,
    path = "/approvals",
    operation_id = "listApprovals",
    tag = "approvals",
    params(WhichApprovals),
    responses((status = 200, description = "A page of open approvals", body = ApprovalList), Always),
)]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryOf(asked): QueryOf<WhichApprovals>,
) -> Result<Answer<ApprovalList>, Problem> {
    caller.may_see_approvals()?;
    let limit = limit_of(asked.limit, USUAL, MOST)?;
    let page = approvals(&app).page(caller.workspace, asked.cursor.as_deref(), limit).await?;
    let (open, next) = page;
    let may = |approval: &Approval| match &asked.role {
        Some(role) => approval.by.is_empty() || approval.by.contains(role),
        None => true,
    };
    let open = open.into_iter().filter(|(_, approval)| may(approval));
    let short = |(id, approval): (ApprovalId, Approval)| ApprovalView {
        content: None,
        form: None,
        ..view(id, &approval)
    };
    Ok(Answer::ok(ApprovalList { approvals: open.map(short).collect(), next }))
}

/// Show an approval
///
/// With its content, its form and its decision. A decided approval is remembered for 30 days beyond its timeout.
#[utoipa::path(
    get,
    path = "/approvals/{id}",
    operation_id = "getApproval",
    tag = "approvals",
    params(("id" = String, Path, description = "Id of the approval", example = "apr_01k5c000000000000000000000")),
    responses((status = 200, description = "The approval", body = ApprovalView), Always, OfRun),
)]
async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf(id): PathOf<String>,
) -> Result<Answer<ApprovalView>, Problem> {
    caller.may_see_approvals()?;
    let (id, approval) = found(&app, &caller, &id).await?;
    Ok(Answer::ok(view(id, &approval)))
}

/// Decide an approval
///
/// The first decision counts. The same decision again is answered as the first one was, with `Idempotent-Replayed: true`; another
/// one is refused and told who has decided, and when. The answer to a `human` task has to fit its form.
#[utoipa::path(
    post,
    path = "/approvals/{id}/decide",
    operation_id = "decideApproval",
    tag = "approvals",
    params(("id" = String, Path, description = "Id of the approval", example = "apr_01k5c000000000000000000000")),
    request_body(content = DecideApproval, example = json!({"decision": "approved", "comment": "as agreed"})),
    responses(
        (status = 200, description = "The decided approval", body = ApprovalView, headers(
            ("Idempotent-Replayed" = String, description = "`true` if it was decided so before"),
        )),
        Always,
        OfRun,
        Changes,
    ),
)]
async fn decide(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf(id): PathOf<String>,
    Body(asked): Body<DecideApproval>,
) -> Result<Answer<ApprovalView>, Problem> {
    caller.may(Permission::Decide)?;
    let (id, approval) = found(&app, &caller, &id).await?;
    caller.may_decide(&approval.by)?;
    let decided = decision(&app, &approval, asked, caller.name)?;
    let (approval, repeated) = settle(&app, id, &decided).await?;
    Ok(Answer::ok(view(id, &approval)).replayed(repeated))
}

/// Make links that decide
///
/// A link decides without an API key, whatever roles the approval names: send it only to a person who may decide. It opens a page
/// with a button, so that programs that follow links in mails decide nothing. It expires with the approval, and is
/// good for one decision.
#[utoipa::path(
    post,
    path = "/approvals/{id}/links",
    operation_id = "linkApproval",
    tag = "approvals",
    params(("id" = String, Path, description = "Id of the approval", example = "apr_01k5c000000000000000000000")),
    request_body(content = MakeLinks, example = json!({"choices": ["approved", "rejected"], "to": "ada@example.com"})),
    responses((status = 200, description = "The links", body = LinksMade), Always, OfRun, Changes),
)]
async fn links(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf(id): PathOf<String>,
    Body(asked): Body<MakeLinks>,
) -> Result<Answer<LinksMade>, Problem> {
    if caller.may(Permission::Start).is_err() {
        caller.may(Permission::Decide)?;
    }
    let (id, approval) = found(&app, &caller, &id).await?;
    if caller.may(Permission::Start).is_err() {
        caller.may_decide(&approval.by)?;
    }
    let expires = checked(&approval, &asked, app.clock.now())?;
    let to = asked.to.unwrap_or_default();
    let mut links = Vec::new();
    for choice in asked.choices {
        let link = Link { id, choice, expires, to: to.clone() };
        let path = super::approval_page::path(&link, &link.sign(&*app.store).await?);
        links.push(LinkView { choice, path, expires_at: time(expires) });
    }
    Ok(Answer::ok(LinksMade { links }))
}

/// Replace the key of links
///
/// All links that were made before are invalid from now on, in all workspaces and on every server of the store. Needs the root
/// token.
#[utoipa::path(
    post,
    path = "/approval-links/rotate",
    operation_id = "rotateApprovalLinks",
    tag = "approvals",
    responses((status = 204, description = "The key was replaced"), Always, Changes),
)]
async fn rotate(State(app): State<Arc<App>>, caller: Caller) -> Result<axum::http::StatusCode, Problem> {
    caller.must_be_root()?;
    link::rotate(&*app.store).await?;
    Ok(axum::http::StatusCode::NO_CONTENT)
}

/// Checks a request for links; gives the time at which they expire.
fn checked(approval: &Approval, asked: &MakeLinks, now: Time) -> Result<Time, Problem> {
    if approval.form.is_some() {
        return Err(Problem::validation(
            "a `human` task has a form, which a link cannot fill in: send the answer to /approvals/{id}/decide",
        ));
    }
    let once = |choice| asked.choices.iter().filter(|other| **other == choice).count() <= 1;
    let known = !asked.choices.contains(&Choice::Edited);
    if asked.choices.is_empty() || !known || !once(Choice::Approved) || !once(Choice::Rejected) {
        return Err(Problem::validation("`choices` has `approved`, `rejected` or both, each once"));
    }
    let to = asked.to.as_deref().unwrap_or("x");
    if to.trim().is_empty() || to.chars().count() > TO || to.chars().any(char::is_control) {
        return Err(Problem::validation(format!("`to` has 1 to {TO} characters, none of them a control")));
    }
    let expires = asked.expires_at.as_deref().map(|text| time_of(text, "expiresAt", now)).transpose()?;
    Ok(expires.map_or(approval.expires_at, |expires| expires.min(approval.expires_at)))
}

/// The approvals of the server's store.
pub(super) fn approvals(app: &App) -> Approvals {
    Approvals::new(app.store.clone())
}

/// The approval with this id, if it is in the caller's workspace.
async fn found(app: &App, caller: &Caller, id: &str) -> Result<(ApprovalId, Approval), Problem> {
    let missing = || Problem::not_found(format!("there is no approval {id} in this workspace"));
    let id = id.parse().map_err(|_| missing())?;
    let found = approvals(app).find(id).await?;
    let approval = found.filter(|found| found.workspace == caller.workspace).ok_or_else(missing)?;
    Ok((id, approval))
}

/// Checks what was sent against the task that asks.
pub(super) fn decision(
    app: &App,
    approval: &Approval,
    asked: DecideApproval,
    by: String,
) -> Result<Decided, Problem> {
    let DecideApproval { decision, content, comment } = asked;
    if comment.as_ref().is_some_and(|comment| comment.chars().count() > COMMENT) {
        return Err(Problem::validation(format!("`comment` has at most {COMMENT} characters")));
    }
    if content.as_ref().is_some_and(|content| content.get().len() > CONTENT) {
        return Err(Problem::too_large(format!("`content` has more than {CONTENT} bytes; send less")));
    }
    let content = content.map(|content| Payload::parse(content.get())).transpose();
    let content = content.map_err(semel::Error::from)?;
    match (&approval.form, decision, &content) {
        (Some(_), Some(_), _) => {
            return Err(Problem::validation(
                "this is a form of a `human` task: leave `decision` out, and send the answer as `content`",
            ));
        }
        (Some(form), None, content) => check_form(form, content.as_ref())?,
        (None, None, _) => {
            return Err(Problem::validation("`decision` is missing: approved, rejected or edited"));
        }
        (None, Some(Choice::Edited), None) => {
            return Err(Problem::validation("`edited` needs the changed content as `content`"));
        }
        (None, Some(Choice::Approved | Choice::Rejected), Some(_)) => {
            return Err(Problem::validation(
                "only the decision `edited` has a `content`; say the rest as `comment`",
            ));
        }
        (None, Some(_), _) => {}
    }
    Ok(Decided { decision, content, comment, by, at: app.clock.now(), call: app.clock.uuid() })
}

fn check_form(form: &Payload, content: Option<&Payload>) -> Result<(), Problem> {
    let read = |payload: &Payload| payload.read::<serde_json::Value>();
    let damaged = |error: String| {
        tracing::error!(error, "the form of an approval cannot be used");
        Problem::unavailable("the form of this approval cannot be used; see the log of the server")
    };
    let form = read(form).map_err(|error| damaged(error.to_string()))?;
    let content = content.map_or(Ok(serde_json::Value::Null), read);
    let content = content.map_err(|error| Problem::validation(format!("`content`: {error}")))?;
    let misfits = InputSchema::checked(form).map_err(damaged)?.misfits(&content);
    if misfits.is_empty() {
        return Ok(());
    }
    let told: Vec<_> =
        misfits.iter().map(|misfit| format!("{}: {}", misfit.pointer, misfit.message)).collect();
    let pointers = misfits.into_iter().map(|misfit| misfit.pointer).collect();
    let detail = format!("`content` does not fit the form, and was not delivered: {}", told.join("; "));
    Err(Problem::input_invalid(detail).at(pointers))
}

/// Decides; gives the decided approval, and whether it had been decided so before.
pub(super) async fn settle(
    app: &App,
    id: ApprovalId,
    decided: &Decided,
) -> Result<(Approval, bool), Problem> {
    match approvals(app).decide(id, decided).await? {
        DecisionVerdict::First(approval) => Ok((approval, false)),
        DecisionVerdict::Repeated(approval) => Ok((approval, true)),
        DecisionVerdict::Different(approval) => Err(told(&approval)),
        DecisionVerdict::Closed(approval) => Err(Problem::already_decided(format!(
            "this approval is closed ({}): the run does not wait for a decision any more",
            approval.status().as_str()
        ))),
        DecisionVerdict::NotWaiting(approval) => Err(Problem::run_finished(format!(
            "{} does not wait for this decision: it has ended; look at its outcome",
            approval.run
        ))),
        DecisionVerdict::Missing => {
            Err(Problem::not_found(format!("there is no approval {id} in this workspace")))
        }
    }
}

/// The refusal of a second decision: what the first one was, by whom, and when.
fn told(approval: &Approval) -> Problem {
    let (by, at) = match &approval.decided {
        Some(decided) => (decided.by.as_str(), time(decided.at)),
        None => ("the run", time(approval.expires_at)),
    };
    Problem::already_decided(format!(
        "this approval was decided before: {} by {by} at {at}",
        approval.status().as_str()
    ))
}

/// An approval on the wire.
fn view(id: ApprovalId, approval: &Approval) -> ApprovalView {
    let task = if approval.form.is_some() { "human" } else { "approval" };
    ApprovalView {
        id: id.to_string(),
        task: task.to_owned(),
        status: approval.status(),
        title: approval.title.clone(),
        by: approval.by.clone(),
        run: approval.run.to_string(),
        step: approval.step.clone(),
        opened_at: time(approval.opened_at),
        expires_at: time(approval.expires_at),
        content: approval.content.as_ref().map(value),
        form: approval.form.as_ref().map(value),
        decided: approval.decided.as_ref().map(decided_view),
    }
}

fn decided_view(decided: &Decided) -> DecidedView {
    DecidedView {
        decision: decided.decision,
        content: decided.content.as_ref().map(value),
        comment: decided.comment.clone(),
        by: decided.by.clone(),
        at: time(decided.at),
    }
}
