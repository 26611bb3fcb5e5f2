//! `GET /duplicates`: the calls that were absorbed or refused, newest first.

use std::sync::Arc;

use axum::extract::State;
use semel::Error;
use semel::clock::Time;
use semel::rules::key::Key;
use semel::rules::receipt::ReceiptKind;
use semel::store::{AbsorbedCalls, DuplicateCursor, DuplicatesPage, DuplicatesQuery};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::answer::Answer;
use super::asked::{QueryOf, limit_of};
use super::describe::Always;
use super::runs::{run_id, time_of};
use super::view::absorbed_view;
use crate::access::Caller;
use crate::api::{DuplicateList, DuplicateView, Permission, time};
use crate::app::App;

/// Rows on a page if no limit is given.
const PAGE: usize = 50;
/// Maximum number of rows on a page.
const MAX_PAGE: usize = 200;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Query of `GET /duplicates`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListDuplicates {
    /// Only calls of this kind.
    #[param(inline, value_type = Option<semel::rules::receipt::ReceiptKind>)]
    kind: Option<ReceiptKind>,
    /// Only on runs that were started under this key, in any scope.
    #[param(min_length = 1, max_length = 255)]
    key: Option<String>,
    /// Only rows whose latest call came at this time or later, RFC 3339.
    #[param(format = DateTime)]
    since: Option<String>,
    /// The `next` of the previous page. Absent for the first page.
    cursor: Option<String>,
    /// Maximum number of rows on the page; 50 if absent.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
}

/// List duplicates
///
/// Calls that changed nothing, one row for each run and kind of call, the latest first: duplicates that were absorbed, and
/// calls that were refused because a run owns their key, call id or token. A page for which too many rows would have to be
/// read is cut short: it has `partial`, may be empty, and its `next` continues.
#[utoipa::path(
    get,
    path = "/duplicates",
    operation_id = "listDuplicates",
    tag = "keys",
    params(ListDuplicates),
    responses((status = 200, description = "A page of duplicates", body = DuplicateList), Always),
)]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryOf(asked): QueryOf<ListDuplicates>,
) -> Result<Answer<DuplicateList>, Problem> {
    caller.may(Permission::Read)?;
    let limit = limit_of(asked.limit, PAGE, MAX_PAGE)?;
    let query = DuplicatesQuery {
        kind: asked.kind,
        key: asked.key.map(Key::new).transpose().map_err(Error::from)?,
        since: asked.since.as_deref().map(|text| time_of("since", text)).transpose()?,
        before: asked.cursor.as_deref().map(cursor_of).transpose()?,
        ..DuplicatesQuery::all(caller.workspace, limit)
    };
    let before = query.before;
    let DuplicatesPage { rows, next, partial } = match app.store.duplicates(query).await {
        Err(Error::RunNotFound(run)) if before.is_some_and(|before| before.run == run) => {
            return Err(Problem::validation("this `cursor` has expired; start again without it"));
        }
        listed => listed?,
    };
    let duplicates = rows.into_iter().map(duplicate_view).collect();
    Ok(Answer::ok(DuplicateList { duplicates, next: next.map(cursor_text), partial }))
}

fn duplicate_view(calls: AbsorbedCalls) -> DuplicateView {
    DuplicateView {
        run: calls.run.to_string(),
        workflow: calls.workflow.to_string(),
        key: calls.key.to_string(),
        scope: calls.scope.as_str().to_owned(),
        kind: calls.kind,
        count: calls.count,
        first_at: time(calls.first),
        latest: absorbed_view(calls.latest),
    }
}

/// Time, run and kind of the last row. Not the number of the run: it is shared by all workspaces.
fn cursor_text(cursor: DuplicateCursor) -> String {
    let kind = serde_json::to_string(&cursor.kind).expect("a kind is a word");
    format!("{}.{}.{}", cursor.last.0, cursor.run, kind.trim_matches('"'))
}

fn cursor_of(text: &str) -> Result<DuplicateCursor, Problem> {
    let read = || {
        let (last, rest) = text.split_once('.')?;
        let (run, kind) = rest.split_once('.')?;
        let kind = serde_json::from_str(&format!("\"{kind}\"")).ok()?;
        Some(DuplicateCursor { last: Time(last.parse().ok()?), run: run_id(run).ok()?, kind })
    };
    read().ok_or_else(|| Problem::validation(format!("{text:?} is no `cursor`; pass the `next` of a page")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let run = run_id("run_01j0000000e00800000000007z").unwrap();
        for kind in ReceiptKind::ALL {
            let cursor = DuplicateCursor { last: Time(-7), run, kind };
            assert_eq!(cursor_of(&cursor_text(cursor)).unwrap(), cursor);
        }
        for wrong in [
            "",
            "1",
            "1.run_7.start",
            "x.run_01j0000000e00800000000007z.start",
            "1.run_01j0000000e00800000000007z.\"",
        ] {
            assert!(cursor_of(wrong).is_err(), "{wrong}");
        }
    }
}
