//! Onces, and the runs that wait for them.

use tokio_postgres::Row;

use super::{Params, PgStoreTx};
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::json::Payload;
use crate::rules::key::Label;
use crate::rules::once::OnceRow;
use crate::store::archive::OnceAt;
use crate::store::postgres::rows::{bigint, column, corrupt, time};
use crate::store::tx::{HeldOnce, OnceRows, TxTime, race};

impl OnceRows for PgStoreTx<'_> {
    async fn once(&mut self, workspace: WorkspaceId, scope: &str, label: &Label) -> Result<Option<OnceRow>> {
        let read = "SELECT owner, fence, value, expires FROM once \
             WHERE workspace = $1 AND scope = $2 AND label = $3 FOR UPDATE";
        let at: Params<'_> = &[&workspace.0, &scope, &label.as_str()];
        if let Some(row) = self.row(read, at).await? {
            return Ok(Some(once_of(&row)?));
        }
        // A row that does not exist cannot be locked, so one is inserted. Another transaction that does the same waits; it is not
        // counted as a write, because the verb writes over it or is rolled back.
        let lock = "INSERT INTO once (workspace, scope, label, owner, fence) \
             VALUES ($1, $2, $3, '00000000-0000-0000-0000-000000000000', 0) ON CONFLICT DO NOTHING RETURNING 1";
        match self.row(lock, at).await? {
            Some(_) => Ok(None),
            None => Err(race()),
        }
    }

    async fn put_once(
        &mut self,
        workspace: WorkspaceId,
        scope: &str,
        label: &Label,
        row: Option<&OnceRow>,
    ) -> Result<()> {
        let Some(row) = row else {
            let delete = "DELETE FROM once WHERE workspace = $1 AND scope = $2 AND label = $3";
            self.write(delete, &[&workspace.0, &scope, &label.as_str()]).await?;
            return Ok(());
        };
        let update = "UPDATE once SET owner = $4, fence = $5, value = $6, expires = $7 \
             WHERE workspace = $1 AND scope = $2 AND label = $3";
        let params: Params<'_> = &[
            &workspace.0,
            &scope,
            &label.as_str(),
            &row.owner.0,
            &(row.fence as i64),
            &row.value.as_ref().map(Payload::text),
            &row.expires.map(|at| at.0),
        ];
        match self.write(update, params).await? {
            1 => Ok(()),
            _ => Err(race()),
        }
    }

    async fn insert_once_waiter(&mut self, at: &OnceAt, run: RunId) -> Result<()> {
        let insert = "INSERT INTO once_waiters (workspace, scope, label, run) VALUES ($1, $2, $3, $4) \
             ON CONFLICT DO NOTHING";
        self.write(insert, &[&at.0.0, &at.1, &at.2.as_str(), &run.0]).await.map(drop)
    }

    async fn once_waiters(&mut self, at: &OnceAt) -> Result<Vec<RunId>> {
        let waiting =
            "SELECT run FROM once_waiters WHERE workspace = $1 AND scope = $2 AND label = $3 ORDER BY run";
        let rows = self.rows(waiting, &[&at.0.0, &at.1, &at.2.as_str()]).await?;
        rows.iter().map(|row| column(row, 0).map(RunId)).collect()
    }

    async fn delete_once_waiters(&mut self, at: &OnceAt) -> Result<()> {
        let delete = "DELETE FROM once_waiters WHERE workspace = $1 AND scope = $2 AND label = $3";
        self.write(delete, &[&at.0.0, &at.1, &at.2.as_str()]).await.map(drop)
    }

    async fn held_once(&mut self, owner: RunId) -> Result<Vec<HeldOnce>> {
        let held = "SELECT owner, fence, value, expires, workspace, scope, label FROM once \
             WHERE owner = $1 AND value IS NULL ORDER BY scope, label FOR UPDATE";
        self.rows(held, &[&owner.0]).await?.iter().map(held_once_of).collect()
    }

    async fn delete_expired_once(&mut self, limit: usize) -> Result<usize> {
        self.sweep_marks().await?;
        let delete = "DELETE FROM once WHERE (workspace, scope, label) IN (SELECT workspace, scope, label FROM once \
             WHERE expires <= $1 ORDER BY expires LIMIT $2 FOR UPDATE SKIP LOCKED)";
        Ok(self.write(delete, &[&self.now().0, &bigint(limit)]).await? as usize)
    }
}

pub(in crate::store::postgres) fn held_once_of(row: &Row) -> Result<HeldOnce> {
    Ok(HeldOnce {
        workspace: WorkspaceId(column(row, 4)?),
        scope: column(row, 5)?,
        label: Label::new(column::<String>(row, 6)?).map_err(|e| corrupt(row, e))?,
        row: once_of(row)?,
    })
}

fn once_of(row: &Row) -> Result<OnceRow> {
    let value: Option<&str> = column(row, 2)?;
    Ok(OnceRow {
        owner: RunId(column(row, 0)?),
        fence: column::<i64>(row, 1)? as u64,
        value: value.map(Payload::parse).transpose().map_err(|e| corrupt(row, e))?,
        expires: time(row, 3)?,
    })
}
