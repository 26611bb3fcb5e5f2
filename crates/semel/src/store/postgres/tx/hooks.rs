//! Hooks: tokens and the runs that own them.

use tokio_postgres::Row;

use super::{Params, PgStoreTx};
use crate::clock::Time;
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::key::Token;
use crate::rules::path::Visit;
use crate::rules::run::Run;
use crate::store::postgres::rows::{self, bigint, column, corrupt, run_columns};
use crate::store::tx::{COUNTED_MESSAGES, HookRows, NewHook, race, tokens_of};
use crate::store::{Capped, HookOrder, HookQuery, OpenHook};

impl HookRows for PgStoreTx<'_> {
    async fn insert_hook(&mut self, hook: NewHook<'_>) -> Result<bool> {
        let NewHook { workspace, token, num, visit, opened } = hook;
        let insert = "INSERT INTO hooks (workspace, token, run, visit, opened) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT DO NOTHING";
        let visit = visit.map(ToString::to_string);
        let params: Params<'_> = &[&workspace.0, &token.as_str(), &num, &visit, &opened.0];
        Ok(self.write(insert, params).await? == 1)
    }

    async fn hook_owner(&mut self, workspace: WorkspaceId, token: &Token) -> Result<Option<RunId>> {
        let owner =
            "SELECT r.id FROM hooks h JOIN runs r ON r.num = h.run WHERE h.workspace = $1 AND h.token = $2";
        let row = self.row(owner, &[&workspace.0, &token.as_str()]).await?;
        row.map(|row| column(&row, 0).map(RunId)).transpose()
    }

    async fn hook(&mut self, workspace: WorkspaceId, token: &Token) -> Result<Option<Run>> {
        let token = token.as_str();
        let params: Params<'_> = &[&workspace.0, &token];
        if !self.locks {
            return self.look_up(&rows::BY_TOKEN, params).await;
        }
        let client = self.client;
        let check = "SELECT run FROM hooks WHERE workspace = $1 AND token = $2";
        let asking = async {
            let lock = client.prepare_cached(rows::BY_TOKEN.locked).await?;
            let check = client.prepare_cached(check).await?;
            // Both are sent at once, and the second begins when the first has its lock: by then the run that was waited
            // for may have ended and lost the token.
            let (locked, owner) =
                tokio::join!(biased; client.query_opt(&lock, params), client.query_opt(&check, params));
            Ok((locked?, owner?))
        };
        let (locked, owner) = self.ask(asking).await?;
        let run = locked.as_ref().map(rows::run_of).transpose()?;
        let owner: Option<i64> = owner.map(|row| column(&row, 0)).transpose()?;
        match run {
            Some(run) if owner != Some(run.num) => Err(race()),
            run => Ok(run),
        }
    }

    async fn delete_hook(&mut self, workspace: WorkspaceId, token: &Token, num: i64) -> Result<()> {
        let delete = "DELETE FROM hooks WHERE workspace = $1 AND token = $2 AND run = $3";
        self.write(delete, &[&workspace.0, &token.as_str(), &num]).await?;
        Ok(())
    }

    async fn delete_hooks(&mut self, num: i64) -> Result<()> {
        self.write("DELETE FROM hooks WHERE run = $1", &[&num]).await?;
        Ok(())
    }

    async fn open_hooks(&mut self, query: &HookQuery, limit: usize) -> Result<Vec<OpenHook>> {
        let (after, prefix, end) = tokens_of(query);
        let most = bigint(COUNTED_MESSAGES + 1);
        let rows = match query.order {
            HookOrder::Token => {
                let params: Params<'_> = &[&query.workspace.0, &bigint(limit), &most, &after, &prefix, &end];
                self.rows(&hooks_statement(query.order), params).await?
            }
            HookOrder::Age => {
                let opened = query.after.as_ref().map_or(i64::MIN, |place| place.opened.0);
                let params: Params<'_> = &[&query.workspace.0, &bigint(limit), &most, &after, &opened];
                self.rows(&hooks_statement(query.order), params).await?
            }
        };
        rows.iter().map(open_hook_of).collect()
    }
}

/// The columns of a hook, behind those of its run.
const HOOK: usize = 26;

/// The statement of a list of hooks.
pub(crate) fn hooks_statement(order: HookOrder) -> String {
    let (stretch, order) = match order {
        HookOrder::Token => ("h.token > $4 AND h.token >= $5 AND h.token < $6", "h.token"),
        HookOrder::Age => ("(h.opened, h.token) > ($5, $4)", "h.opened, h.token"),
    };
    format!(include_str!("../sql/hooks.sql"), run = run_columns!(), stretch = stretch, order = order)
}

fn open_hook_of(row: &Row) -> Result<OpenHook> {
    let visit = column::<Option<String>>(row, HOOK + 1)?;
    let visit =
        visit.map(|text| Visit::parse(&text).ok_or_else(|| corrupt(row, format!("{text:?} is not a visit"))));
    let read = column::<i64>(row, HOOK + 4)?;
    Ok(OpenHook {
        token: Token::new(column::<String>(row, HOOK)?).map_err(|e| corrupt(row, e))?,
        run: rows::run_of(row)?,
        visit: visit.transpose()?,
        opened: Time(column(row, HOOK + 2)?),
        deliveries: Capped {
            count: column::<i64>(row, HOOK + 3)? as u64,
            more: read > bigint(COUNTED_MESSAGES),
        },
    })
}
