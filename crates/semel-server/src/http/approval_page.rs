//! `/approvals/{id}?sig=…`: the page behind a signed link. `GET` shows what is to be decided, with a button; only its `POST`
//! decides, because mail scanners and previews follow links.
//!
//! The page has no script. What people have typed is shown as text.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::LazyLock;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use semel::clock::Time;
use semel::id::ApprovalId;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::approvals::{approvals, decision, settle};
use super::asked::{PathOf, QueryOf};
use super::{Problem, body, form};
use crate::api::{Choice, DecideApproval, time};
use crate::app::App;
use crate::approvals::link::Link;
use crate::approvals::{Approval, Decided};
use crate::serve::CalledIn;

/// How much of the content a page shows, in characters.
const SHOWN: usize = 20_000;
/// Maximum size of the form that a page sends, in bytes: a comment, percent-encoded.
const FORM: usize = 128 * 1024;
const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:42rem;margin:2rem auto;padding:0 1rem}\
                     pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f3f3f3;color:#111;padding:1rem}\
                     textarea{width:100%;box-sizing:border-box}button{font:inherit;padding:.5rem 1.5rem}";

/// Only our own style, and a form that goes to this server.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let style = STANDARD.encode(Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    HeaderValue::from_str(&policy).expect("a policy is ASCII")
});

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(open, take))
}

/// Query of a signed link.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct SignedLink {
    /// The decision that the link takes: `approved` or `rejected`.
    #[serde(default)]
    choice: String,
    /// Time at which the link expires, in milliseconds since 1970.
    #[serde(default)]
    exp: String,
    /// Person for whom the link was made. Absent if that was not said.
    #[serde(default)]
    to: String,
    /// HMAC-SHA256 of the link, in hexadecimal digits.
    #[serde(default)]
    sig: String,
}

/// Open the page of a signed link
///
/// Shows what is to be decided, and a button. Opening the page decides nothing.
#[utoipa::path(
    get,
    path = "/approvals/{id}",
    operation_id = "openApprovalLink",
    tag = "approvals",
    security(()),
    params(("id" = String, Path, description = "Id of the approval"), SignedLink),
    responses(
        (status = 200, description = "A page with a form", body = String, content_type = "text/html"),
        (status = 403, description = "A page: the link is not valid, or has expired", body = String, content_type = "text/html"),
        (status = 409, description = "A page: it was decided otherwise, or is closed", body = String, content_type = "text/html"),
    ),
)]
async fn open(
    State(app): State<Arc<App>>,
    PathOf(id): PathOf<String>,
    QueryOf(link): QueryOf<SignedLink>,
) -> Result<Response, Problem> {
    let Some((link, approval)) = followed(&app, &id, &link).await? else { return Ok(invalid()) };
    let page = match &approval.decided {
        Some(decided) => shown_decision(&link, &approval, decided),
        None if approval.ended.is_some() => closed("The run does not wait for a decision any more."),
        None => question(&link, &approval),
    };
    Ok(called_in(&approval, page))
}

/// Decide by a signed link
///
/// Takes the decision of the link, once. The form of the page sends it.
#[utoipa::path(
    post,
    path = "/approvals/{id}",
    operation_id = "decideByLink",
    tag = "approvals",
    security(()),
    params(("id" = String, Path, description = "Id of the approval"), SignedLink),
    responses(
        (status = 200, description = "A page: it is decided so", body = String, content_type = "text/html"),
        (status = 403, description = "A page: the link is not valid, or has expired", body = String, content_type = "text/html"),
        (status = 409, description = "A page: it was decided otherwise, or is closed", body = String, content_type = "text/html"),
    ),
)]
async fn take(
    State(app): State<Arc<App>>,
    PathOf(id): PathOf<String>,
    QueryOf(link): QueryOf<SignedLink>,
    mut request: Request,
) -> Result<Response, Problem> {
    let Some((link, approval)) = followed(&app, &id, &link).await? else { return Ok(invalid()) };
    let intake = app.bounds.intake(approval.workspace);
    request.extensions_mut().insert(intake.clone());
    let bytes = body::read(request, FORM).await?;
    let fields = form::fields(body::utf8(&bytes)?);
    let comment = fields.into_iter().find(|(name, _)| name == "comment").map(|(_, comment)| comment);
    let comment = comment.filter(|comment| !comment.trim().is_empty());
    let asked = DecideApproval { decision: Some(link.choice), content: None, comment };
    let by = if link.to.is_empty() { "link".to_owned() } else { format!("link:{}", link.to) };
    let decided = decision(&app, &approval, asked, by)?;
    let page = match settle(&app, link.id, &decided).await {
        Ok((settled, _)) => shown_decision(&link, &settled, settled.decided.as_ref().unwrap_or(&decided)),
        Err(problem) if problem.status() == 409 => match approvals(&app).find(link.id).await? {
            Some(Approval { decided: Some(first), title, .. }) => decided_before(&link, &title, &first),
            _ => closed("The run does not wait for a decision any more."),
        },
        Err(problem) => return Err(problem),
    };
    drop(intake);
    Ok(called_in(&approval, page))
}

/// The link and its approval; none if the link is not valid now.
async fn followed(app: &App, id: &str, asked: &SignedLink) -> Result<Option<(Link, Approval)>, Problem> {
    if app.stop.is_ordered() {
        return Err(Problem::unavailable("this server is stopping; open the link again in a moment"));
    }
    let link = read(id, asked);
    let signed = match &link {
        Some(link) => link.is_signed(&*app.store, &asked.sig).await?,
        None => false,
    };
    let Some(link) = link.filter(|link| signed && app.clock.now() < link.expires) else {
        app.access.admit_unknown(app.clock.now())?;
        return Ok(None);
    };
    let Some(approval) = approvals(app).find(link.id).await? else { return Ok(None) };
    app.access.admit_public(app, (approval.workspace, None)).await?;
    Ok(Some((link, approval)))
}

fn read(id: &str, asked: &SignedLink) -> Option<Link> {
    let choice =
        [Choice::Approved, Choice::Rejected].into_iter().find(|known| known.as_str() == asked.choice)?;
    let expires: i64 = asked.exp.parse().ok()?;
    Some(Link { id: id.parse::<ApprovalId>().ok()?, choice, expires: Time(expires), to: asked.to.clone() })
}

/// Path and query of a link.
pub(super) fn path(link: &Link, signature: &str) -> String {
    let mut url = Url::parse("http://link/").expect("a fixed address");
    url.set_path(&format!("/approvals/{}", link.id));
    let mut query = url.query_pairs_mut();
    query.append_pair("choice", link.choice.as_str()).append_pair("exp", &link.expires.0.to_string());
    if !link.to.is_empty() {
        query.append_pair("to", &link.to);
    }
    query.append_pair("sig", signature);
    drop(query);
    format!("{}?{}", url.path(), url.query().unwrap_or_default())
}

fn called_in(approval: &Approval, mut page: Response) -> Response {
    page.extensions_mut().insert(CalledIn(approval.workspace));
    page
}

fn verb(choice: Choice) -> &'static str {
    match choice {
        Choice::Approved => "Approve",
        Choice::Rejected => "Reject",
        Choice::Edited => "Accept with changes",
    }
}

/// What is to be decided, and the button.
fn question(link: &Link, approval: &Approval) -> Response {
    let mut text = format!("<h1>{}</h1>", escaped(&approval.title));
    if let Some(content) = &approval.content {
        let pretty = content.read::<serde_json::Value>().ok().and_then(|value| match value {
            serde_json::Value::String(text) => Some(text),
            other => serde_json::to_string_pretty(&other).ok(),
        });
        let whole = pretty.unwrap_or_else(|| content.text().to_owned());
        let cut: String = whole.chars().take(SHOWN).collect();
        let more = if cut.len() < whole.len() { "\n…" } else { "" };
        write!(text, "<pre>{}{more}</pre>", escaped(&cut)).expect("a text takes everything");
    }
    write!(
        text,
        "<form method=\"post\"><p><label>Comment<br><textarea name=\"comment\" rows=\"4\" maxlength=\"2000\"></textarea></label>\
         </p><p><button type=\"submit\">{}</button></p></form><p>Open until {}.</p>",
        verb(link.choice),
        escaped(&time(approval.expires_at.min(link.expires)))
    )
    .expect("a text takes everything");
    page(StatusCode::OK, &approval.title, &text)
}

/// The page of an approval that has a decision: that of the link, or another one.
fn shown_decision(link: &Link, approval: &Approval, decided: &Decided) -> Response {
    if decided.decision != Some(link.choice) {
        return decided_before(link, &approval.title, decided);
    }
    page(StatusCode::OK, &approval.title, &said(&approval.title, "Decided", decided))
}

fn decided_before(link: &Link, title: &str, decided: &Decided) -> Response {
    let same = decided.decision == Some(link.choice);
    let status = if same { StatusCode::OK } else { StatusCode::CONFLICT };
    page(status, title, &said(title, "Decided before", decided))
}

fn said(title: &str, what: &str, decided: &Decided) -> String {
    let word = decided.decision.map_or("answered", Choice::as_str);
    let by = match decided.by.split_once(':') {
        Some(("link", to)) => format!(" by {}", escaped(to)),
        _ if decided.by == "link" => " by a link".to_owned(),
        _ => format!(" by {}", escaped(&decided.by)),
    };
    format!("<h1>{}</h1><p>{what}: <strong>{word}</strong>{by}, {}.</p>", escaped(title), time(decided.at))
}

fn closed(why: &str) -> Response {
    page(StatusCode::CONFLICT, "Closed", &format!("<h1>Closed</h1><p>{why}</p>"))
}

/// Forged, expired and unknown links get the same page.
fn invalid() -> Response {
    let text = "<h1>This link is not valid</h1><p>It has expired, was replaced, or is incomplete. Ask for a new one.</p>";
    page(StatusCode::FORBIDDEN, "This link is not valid", text)
}

fn page(status: StatusCode, title: &str, inside: &str) -> Response {
    let text = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"robots\" content=\"noindex\"><title>{}</title><style>{STYLE}</style></head><body>{inside}</body></html>",
        escaped(title)
    );
    let mut response = (status, text).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A text in which nothing is markup.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            char => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_was_typed_is_no_markup() {
        assert_eq!(escaped("<a href=\"x\" b='&'>"), "&lt;a href=&quot;x&quot; b=&#39;&amp;&#39;&gt;");
    }

    #[test]
    fn a_link_is_read_as_it_was_written() {
        let id = ApprovalId(Uuid::from_u128(7));
        let link = Link { id, choice: Choice::Rejected, expires: Time(12), to: "a b&c=d@x.y?#é".to_owned() };
        let path = path(&link, "5ig");
        let url = Url::parse("http://x/").unwrap().join(&path).unwrap();
        let value = |name: &str| {
            url.query_pairs().find(|(found, _)| found == name).map(|(_, value)| value.into_owned()).unwrap()
        };
        let asked =
            SignedLink { choice: value("choice"), exp: value("exp"), to: value("to"), sig: value("sig") };
        assert_eq!(read(url.path().rsplit('/').next().unwrap(), &asked), Some(link));
        assert_eq!(asked.sig, "5ig");
    }
}
