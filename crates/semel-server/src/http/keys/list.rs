//! `GET /keys`: idempotency keys by their beginning, and the runs that have lost a key.

use std::sync::Arc;

use axum::extract::State;
use semel::clock::Time;
use semel::rules::entry::Entry;
use semel::rules::key::{Key, MAX_KEY, Scope};
use semel::rules::run::Run;
use semel::rules::status::Status;
use semel::store::{KeyPage, KeyPrefix, KeyQuery, Part};
use serde::Deserialize;

use super::scope_of;
use crate::access::Caller;
use crate::api::{FormerHolder, KeyEntryView, KeyList, LostKey, Permission, time};
use crate::app::App;
use crate::http::Problem;
use crate::http::answer::Answer;
use crate::http::asked::{QueryOf, limit_of};
use crate::http::describe::Always;
use crate::http::view::run_view;

/// Runs on a page if no limit is given.
const PAGE: usize = 50;
/// Maximum number of runs on a page.
const MAX_PAGE: usize = 200;
/// Maximum number of former holders that are listed for one key.
const EARLIER: usize = 50;
/// Maximum number of former holders on a page whose ledgers are read for how they lost the key.
const LOOKED_UP: usize = 50;
/// Entries that are read from the end of a former holder's ledger.
const TAIL: u64 = 16;
/// Maximum bytes of these entries, not counting the last commit.
const TAIL_BYTES: usize = 64 * 1024;

/// Query of `GET /keys`.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListKeys {
    /// Only keys that begin like this.
    #[param(max_length = 255)]
    pub(crate) prefix: Option<String>,
    /// Scope of the keys, as runs show it: `*` (default), `w/order`, `v/order/1`, `child`.
    pub(crate) scope: Option<String>,
    /// The `next` of the previous page. Absent for the first page.
    pub(crate) cursor: Option<String>,
    /// Maximum number of runs on the page, former holders included; 50 if absent.
    #[param(minimum = 2, maximum = 200)]
    pub(crate) limit: Option<usize>,
}

/// List keys
///
/// In the order of their bytes, each with the run that holds it and those that have lost it.
#[utoipa::path(
    get,
    path = "/keys",
    operation_id = "listKeys",
    tag = "keys",
    params(ListKeys),
    responses((status = 200, description = "A page of keys", body = KeyList), Always),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryOf(asked): QueryOf<ListKeys>,
) -> Result<Answer<KeyList>, Problem> {
    page(&app, &caller, asked).await.map(Answer::ok)
}

/// A page of keys, as its caller may see it.
pub(crate) async fn page(app: &App, caller: &Caller, asked: ListKeys) -> Result<KeyList, Problem> {
    caller.may(Permission::Read)?;
    let prefix = asked.prefix.unwrap_or_default();
    if prefix.chars().count() > MAX_KEY {
        return Err(Problem::validation(format!("`prefix` has at most {MAX_KEY} characters")));
    }
    let keys = KeyPrefix { scope: scope_of(asked.scope.as_deref())?, prefix };
    let after = asked.cursor.map(Key::new).transpose().map_err(semel::Error::from)?;
    let limit = limit_of(asked.limit, PAGE, MAX_PAGE)?;
    let query = KeyQuery { workspace: caller.workspace, keys, after, limit };
    let KeyPage { runs, next } = app.store.keys(query).await?;
    let (now, mut keys, mut left) = (app.clock.now(), Vec::<KeyEntryView>::new(), LOOKED_UP);
    for run in &runs {
        let key = run.new.key.as_str();
        if keys.last().is_none_or(|last| last.key != key) {
            keys.push(entry_of(run));
        }
        let entry = keys.last_mut().expect("just added");
        if holds(run, now) {
            hold(entry, run);
        } else if entry.earlier.len() < EARLIER {
            entry.earlier.push(former(app, run, &mut left).await?);
        }
    }
    Ok(KeyList { keys, next: next.map(|key| key.to_string()) })
}

/// The runs that have lost a key, the latest first.
pub(super) async fn earlier(
    app: &App,
    caller: &Caller,
    scope: &Scope,
    key: &Key,
) -> Result<Vec<FormerHolder>, Problem> {
    let keys = KeyPrefix { scope: scope.clone(), prefix: key.to_string() };
    let query = KeyQuery { workspace: caller.workspace, keys, after: None, limit: EARLIER + 1 };
    let runs = app.store.keys(query).await?.runs;
    let (now, mut left, mut earlier) = (app.clock.now(), LOOKED_UP, Vec::new());
    for run in runs.iter().filter(|run| run.new.key == *key && !holds(run, now)).take(EARLIER) {
        earlier.push(former(app, run, &mut left).await?);
    }
    Ok(earlier)
}

fn holds(run: &Run, now: Time) -> bool {
    run.state.holds_key && !run.key_expired(now)
}

fn entry_of(run: &Run) -> KeyEntryView {
    KeyEntryView {
        key: run.new.key.to_string(),
        scope: run.new.scope.as_str().to_owned(),
        fingerprint: None,
        remembered_until: None,
        run: None,
        earlier: Vec::new(),
    }
}

fn hold(entry: &mut KeyEntryView, run: &Run) {
    entry.fingerprint = Some(format!("{:?}", run.new.fingerprint));
    entry.remembered_until = run.state.ended.map(|ended| time(ended.after(run.new.retention.key)));
    entry.run = Some(run_view(run, None));
}

/// A former holder. How it lost the key is in the last entries of its ledger; without them it has been taken over.
async fn former(app: &App, run: &Run, left: &mut usize) -> Result<FormerHolder, Problem> {
    let (mut lost, mut detail) = (LostKey::TakenOver, None);
    if *left > 0 && !run.purged {
        *left -= 1;
        let from = run.state.version.saturating_sub(TAIL - 1).max(1);
        let (workspace, limit) = (run.new.workspace, TAIL as usize);
        let part = Part { workspace, run: run.id(), from, limit, bytes: TAIL_BYTES };
        let lines = app.store.ledger_part(part).await?.entries;
        let found = lines.into_iter().rev().find_map(|line| how_lost(run, line.entry));
        (lost, detail) = found.map_or((lost, detail), |(lost, detail)| (lost, Some(detail)));
    }
    Ok(FormerHolder {
        run: run.id().to_string(),
        status: run.status(),
        created_at: time(run.new.created),
        lost,
        detail,
    })
}

fn how_lost(run: &Run, entry: Entry) -> Option<(LostKey, String)> {
    match entry {
        Entry::KeyReleased { by, .. } => Some((LostKey::Released, by)),
        Entry::Cancelled { reason, .. } if run.status() == Status::Cancelled && !run.state.holds_key => {
            reason.starts_with("superseded by ").then_some((LostKey::Superseded, reason))
        }
        _ => None,
    }
}
