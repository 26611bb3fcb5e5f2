//! Hooks: tokens and the runs that own them.

use rusqlite::{Row, params};

use super::SqliteStoreTx;
use crate::clock::Time;
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::key::Token;
use crate::rules::path::Visit;
use crate::rules::run::Run;
use crate::store::sqlite::values::Text;
use crate::store::tx::{COUNTED_MESSAGES, HookRows, NewHook, delivery_text, race, tokens_of};
use crate::store::{Capped, HookOrder, HookQuery, OpenHook};

impl HookRows for SqliteStoreTx {
    async fn insert_hook(&mut self, hook: NewHook<'_>) -> Result<bool> {
        let NewHook { workspace, token, num, visit, opened } = hook;
        let sql = "INSERT INTO hooks (workspace, token, run, visit, opened) VALUES (?, ?, ?, ?, ?) \
             ON CONFLICT DO NOTHING";
        let visit = visit.map(ToString::to_string);
        Ok(self.write(sql, params![workspace, token.as_str(), num, visit, opened])? == 1)
    }

    async fn hook_owner(&mut self, workspace: WorkspaceId, token: &Token) -> Result<Option<RunId>> {
        Ok(self.hook(workspace, token).await?.map(|run| run.id()))
    }

    async fn hook(&mut self, workspace: WorkspaceId, token: &Token) -> Result<Option<Run>> {
        let condition = "num = (SELECT run FROM hooks WHERE workspace = ? AND token = ?)";
        self.run_where(condition, params![workspace, token.as_str()])
    }

    async fn delete_hook(&mut self, workspace: WorkspaceId, token: &Token, num: i64) -> Result<()> {
        let sql = "DELETE FROM hooks WHERE workspace = ? AND token = ? AND run = ?";
        self.write(sql, params![workspace, token.as_str(), num]).map(drop)
    }

    async fn delete_hooks(&mut self, num: i64) -> Result<()> {
        self.write("DELETE FROM hooks WHERE run = ?", [num]).map(drop)
    }

    async fn open_hooks(&mut self, query: &HookQuery, limit: usize) -> Result<Vec<OpenHook>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (after, prefix, end) = tokens_of(query);
        let found = match query.order {
            HookOrder::Token => {
                self.all(HOOKS_BY_TOKEN, params![query.workspace, after, prefix, end, limit], read_hook)?
            }
            HookOrder::Age => {
                let opened = query.after.as_ref().map_or(Time(i64::MIN), |place| place.opened);
                self.all(HOOKS_BY_AGE, params![query.workspace, opened, after, limit], read_hook)?
            }
        };
        found.into_iter().map(|hook| self.shown_hook(hook)).collect()
    }
}

/// Hooks of a workspace by their tokens: behind ?2, from ?3 on, before ?4.
pub(crate) const HOOKS_BY_TOKEN: &str = "SELECT token, run, visit, opened FROM hooks \
     WHERE workspace = ?1 AND token > ?2 AND token >= ?3 AND token < ?4 ORDER BY token LIMIT ?5";
/// Hooks of a workspace by their age.
pub(crate) const HOOKS_BY_AGE: &str = "SELECT token, run, visit, opened FROM hooks INDEXED BY hooks_age \
     WHERE workspace = ?1 AND (opened, token) > (?2, ?3) ORDER BY opened, token LIMIT ?4";
/// How many of the first messages of a run begin with a text of ?2 characters, and how many were looked at.
const DELIVERIES: &str = "SELECT coalesce(sum(place < ?4 AND substr(message, 1, ?2) = ?3), 0), count(*) FROM ( \
     SELECT message, row_number() OVER (ORDER BY arrival) AS place FROM inbox WHERE run = ?1 ORDER BY arrival LIMIT ?4)";

/// A row of a hook: token, run, visit and time.
type HookColumns = (Token, i64, Option<Visit>, Time);

fn read_hook(row: &Row<'_>) -> rusqlite::Result<HookColumns> {
    let visit = row.get::<_, Option<Text<Visit>>>(2)?.map(|visit| visit.0);
    Ok((row.get::<_, Text<Token>>(0)?.0, row.get(1)?, visit, Time(row.get(3)?)))
}

impl SqliteStoreTx {
    fn shown_hook(&self, (token, num, visit, opened): HookColumns) -> Result<OpenHook> {
        let run = self.run_where("num = ?", [num])?.ok_or_else(race)?;
        let begins = delivery_text(&token);
        let params = params![num, begins.chars().count() as i64, begins, COUNTED_MESSAGES as i64 + 1];
        let (count, read) = self
            .first(DELIVERIES, params, |row| Ok((row.get::<_, u64>(0)?, row.get::<_, usize>(1)?)))?
            .unwrap_or_default();
        let deliveries = Capped { count, more: read > COUNTED_MESSAGES };
        Ok(OpenHook { token, run, visit, opened, deliveries })
    }
}
