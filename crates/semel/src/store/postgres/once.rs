//! The rows of a once.

use tokio_postgres::Row;

use super::rows::{bigint, column, corrupt, time};
use super::tx::{Params, PgTx};
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::json::Payload;
use crate::rules::key::Label;
use crate::rules::once::OnceRow;
use crate::store::archive::OnceAt;
use crate::store::tx::{HeldOnce, Tx, race};

impl PgTx<'_> {
    pub(super) async fn lock_once(
        &mut self,
        workspace: WorkspaceId,
        scope: &str,
        label: &Label,
    ) -> Result<Option<OnceRow>> {
        let read = "SELECT owner, fence, value, expires FROM once \
             WHERE workspace = $1 AND scope = $2 AND label = $3 FOR UPDATE";
        let at: Params<'_> = &[&workspace.0, &scope, &label.as_str()];
        if let Some(row) = self.row(read, at).await? {
            return Ok(Some(once_of(&row)?));
        }
        // What is not there cannot be locked, so something is put there. Whoever does the same waits for us; it is not
        // counted as a write, because the verb writes over it or is rolled back.
        let lock = "INSERT INTO once (workspace, scope, label, owner, fence) \
             VALUES ($1, $2, $3, '00000000-0000-0000-0000-000000000000', 0) ON CONFLICT DO NOTHING RETURNING 1";
        match self.row(lock, at).await? {
            Some(_) => Ok(None),
            None => Err(race()),
        }
    }

    pub(super) async fn write_once(
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

    pub(super) async fn lock_held_once(&mut self, owner: RunId) -> Result<Vec<HeldOnce>> {
        let held = "SELECT owner, fence, value, expires, workspace, scope, label FROM once \
             WHERE owner = $1 AND value IS NULL ORDER BY scope, label FOR UPDATE";
        self.rows(held, &[&owner.0]).await?.iter().map(held_once_of).collect()
    }

    pub(super) async fn join_once(&mut self, at: &OnceAt, run: RunId) -> Result<()> {
        let insert = "INSERT INTO once_waiters (workspace, scope, label, run) VALUES ($1, $2, $3, $4) \
             ON CONFLICT DO NOTHING";
        self.write(insert, &[&at.0.0, &at.1, &at.2.as_str(), &run.0]).await.map(drop)
    }

    pub(super) async fn waiters_of(&mut self, at: &OnceAt) -> Result<Vec<RunId>> {
        let waiting =
            "SELECT run FROM once_waiters WHERE workspace = $1 AND scope = $2 AND label = $3 ORDER BY run";
        let rows = self.rows(waiting, &[&at.0.0, &at.1, &at.2.as_str()]).await?;
        rows.iter().map(|row| column(row, 0).map(RunId)).collect()
    }

    pub(super) async fn forget_waiters(&mut self, at: &OnceAt) -> Result<()> {
        let delete = "DELETE FROM once_waiters WHERE workspace = $1 AND scope = $2 AND label = $3";
        self.write(delete, &[&at.0.0, &at.1, &at.2.as_str()]).await.map(drop)
    }

    pub(super) async fn sweep_once(&mut self, limit: usize) -> Result<usize> {
        let delete = "DELETE FROM once WHERE (workspace, scope, label) IN (SELECT workspace, scope, label FROM once \
             WHERE expires <= $1 ORDER BY expires LIMIT $2 FOR UPDATE SKIP LOCKED)";
        Ok(self.write(delete, &[&self.now().0, &bigint(limit)]).await? as usize)
    }
}

pub(super) fn held_once_of(row: &Row) -> Result<HeldOnce> {
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
