//! Keys: which run holds a key, what came under it, and what the next start gets.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};

use super::Ui;
use super::desk::{Call, CallAnswer, PageRefusal};
use super::frame::{self, PageFrame, Section};
use super::gate::Visitor;
use super::parts::{Markup, mark, when};
use super::query::{Fields, SentForm, encoded, query};
use super::run::tabs::{self, DuplicateRow};
use crate::api::{
    ControlAnswer, ControlRun, FormerHolder, KeyEntryView, KeyList, KeyView, LostKey, Permission, RunView,
};

#[derive(Template)]
#[template(path = "keys.html")]
struct SearchPage {
    frame: PageFrame,
    key: String,
    scope: String,
    prefix: String,
    rows: Vec<KeyRow>,
    more: Option<String>,
}

/// A key in the list.
struct KeyRow {
    key: String,
    to: String,
    mark: Option<Markup>,
    workflow: String,
    earlier: usize,
}

/// `GET /w/{workspace}/keys`: keys by their beginning, and the way to one key.
pub(super) async fn search(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    asked: Fields,
) -> Result<Response, PageRefusal> {
    let scope = asked.get("scope").unwrap_or("*");
    if let Some(key) = asked.get("key") {
        let to = format!("/keys/{}?scope={}", encoded(key), encoded(scope));
        return Ok(Redirect::to(&visitor.to(&to)).into_response());
    }
    let frame = PageFrame::of(&ui, &visitor, Section::Keys, "Keys");
    let prefix = asked.get("prefix").unwrap_or_default().to_owned();
    let mut filter: Vec<_> =
        Some(("prefix", prefix.as_str())).filter(|(_, prefix)| !prefix.is_empty()).into_iter().collect();
    let cursor = asked.get("cursor").map(|cursor| ("cursor", cursor));
    let path = query(filter.iter().copied().chain(cursor));
    let list: KeyList = ui.get(&visitor, &format!("/keys{path}")).await?;
    let row = |entry: &KeyEntryView| KeyRow {
        to: visitor.to(&format!("/keys/{}?scope={}", encoded(&entry.key), encoded(&entry.scope))),
        key: entry.key.clone(),
        mark: entry.run.as_ref().map(mark),
        workflow: entry.run.as_ref().map(|run| run.workflow.clone()).unwrap_or_default(),
        earlier: entry.earlier.len(),
    };
    let rows = list.keys.iter().map(row).collect();
    let more = list.next.as_deref().map(|next| {
        filter.push(("cursor", next));
        visitor.to(&format!("/keys{}", query(filter)))
    });
    Ok(frame::page(&SearchPage {
        frame,
        key: String::new(),
        scope: scope.to_owned(),
        prefix: prefix.clone(),
        rows,
        more,
    }))
}

/// A run that held the key before.
struct EarlierRow {
    run: String,
    to: String,
    why: &'static str,
    detail: String,
    created: Markup,
}

fn earlier(visitor: &Visitor, holder: &FormerHolder) -> EarlierRow {
    EarlierRow {
        to: visitor.to(&format!("/runs/{}", encoded(&holder.run))),
        run: holder.run.clone(),
        why: match holder.lost {
            LostKey::Released => "released",
            LostKey::Superseded => "superseded",
            LostKey::TakenOver => "taken over by a later start",
        },
        detail: holder.detail.clone().unwrap_or_default(),
        created: when(&holder.created_at),
    }
}

#[derive(Template)]
#[template(path = "key.html")]
struct KeyPage {
    frame: PageFrame,
    here: String,
    key: String,
    scope: String,
    run: Option<RunView>,
    mark: Markup,
    fingerprint: String,
    remembered: Option<Markup>,
    earlier: Vec<EarlierRow>,
    /// Calls that came under the key, the refused ones included.
    absorbed: u64,
    duplicates: Vec<DuplicateRow>,
    may_operate: bool,
}

/// `GET /w/{workspace}/keys/{key}`.
pub(super) async fn page(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    Path((_, key)): Path<(String, String)>,
    asked: Fields,
) -> Result<Response, PageRefusal> {
    let scope = asked.get("scope").unwrap_or("*").to_owned();
    let path = format!("/keys/{}?scope={}", encoded(&key), encoded(&scope));
    let found: Option<KeyView> = match ui.get(&visitor, &path).await {
        Ok(found) => Some(found),
        Err(PageRefusal(problem)) if problem.status == 404 => None,
        Err(refused) => return Err(refused),
    };
    let kinds = found.as_ref().map(|found| found.duplicates.as_slice()).unwrap_or_default();
    let page = KeyPage {
        frame: PageFrame::of(&ui, &visitor, Section::Keys, &format!("Key {key}")),
        here: visitor.to(&format!("/keys/{}", encoded(&key))),
        fingerprint: found.as_ref().map(|found| found.fingerprint.clone()).unwrap_or_default(),
        remembered: found.as_ref().and_then(|found| found.remembered_until.as_deref()).map(when),
        earlier: found
            .iter()
            .flat_map(|found| &found.earlier)
            .map(|holder| earlier(&visitor, holder))
            .collect(),
        absorbed: kinds.iter().map(|kind| kind.count).sum(),
        duplicates: tabs::duplicates(kinds),
        mark: found.as_ref().map(|found| mark(&found.run)).unwrap_or_default(),
        run: found.map(|found| found.run),
        may_operate: visitor.may(Permission::Operate),
        key,
        scope,
    };
    Ok(frame::page(&page))
}

/// `POST /w/{workspace}/keys/{key}/release`.
pub(super) async fn release(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    Path((_, key)): Path<(String, String)>,
    SentForm(form): SentForm,
) -> Result<Response, PageRefusal> {
    let scope = form.get("scope").unwrap_or("*");
    let path = format!("/keys/{}/release?scope={}", encoded(&key), encoded(scope));
    // The key is released whatever its run does meanwhile, so no version is expected.
    let call = Call::post(path, form.call(), &ControlRun { expected_version: None });
    let answered: CallAnswer<ControlAnswer> = ui.send(&visitor, call).await?;
    let to = visitor.to(&format!("/runs/{}", encoded(&answered.value.run.id)));
    Ok(frame::back(&to, if answered.replayed { "again" } else { "yes" }))
}
