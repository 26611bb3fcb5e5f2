//! Onces, and the runs that wait for them.

use rusqlite::{Row, params};

use super::SqliteStoreTx;
use crate::clock::Time;
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::json::Payload;
use crate::rules::key::Label;
use crate::rules::once::OnceRow;
use crate::store::archive::OnceAt;
use crate::store::sqlite::values::{Id, Text};
use crate::store::tx::{HeldOnce, OnceRows};

impl OnceRows for SqliteStoreTx {
    async fn once(&mut self, workspace: WorkspaceId, scope: &str, label: &Label) -> Result<Option<OnceRow>> {
        let sql =
            "SELECT owner, fence, value, expires FROM once WHERE workspace = ? AND scope = ? AND label = ?";
        self.first(sql, params![workspace, scope, label.as_str()], read_once)
    }

    async fn put_once(
        &mut self,
        workspace: WorkspaceId,
        scope: &str,
        label: &Label,
        row: Option<&OnceRow>,
    ) -> Result<()> {
        let Some(row) = row else {
            let sql = "DELETE FROM once WHERE workspace = ? AND scope = ? AND label = ?";
            return self.write(sql, params![workspace, scope, label.as_str()]).map(drop);
        };
        let value = row.value.as_ref().map(Payload::text);
        let params = params![workspace, scope, label.as_str(), row.owner, row.fence, value, row.expires];
        self.write(include_str!("../sql/put_once.sql"), params).map(drop)
    }

    async fn insert_once_waiter(&mut self, (workspace, scope, label): &OnceAt, run: RunId) -> Result<()> {
        let sql = "INSERT OR IGNORE INTO once_waiters (workspace, scope, label, run) VALUES (?, ?, ?, ?)";
        self.write(sql, params![workspace, scope, label.as_str(), run.to_string()]).map(drop)
    }

    async fn once_waiters(&mut self, (workspace, scope, label): &OnceAt) -> Result<Vec<RunId>> {
        let sql = "SELECT run FROM once_waiters WHERE workspace = ? AND scope = ? AND label = ? ORDER BY run";
        self.all(sql, params![workspace, scope, label.as_str()], |row| Ok(row.get::<_, Text<RunId>>(0)?.0))
    }

    async fn delete_once_waiters(&mut self, (workspace, scope, label): &OnceAt) -> Result<()> {
        let sql = "DELETE FROM once_waiters WHERE workspace = ? AND scope = ? AND label = ?";
        self.write(sql, params![workspace, scope, label.as_str()]).map(drop)
    }

    async fn held_once(&mut self, owner: RunId) -> Result<Vec<HeldOnce>> {
        self.all(include_str!("../sql/held_once.sql"), [owner], read_held_once)
    }

    async fn delete_expired_once(&mut self, limit: usize) -> Result<usize> {
        let sql = "DELETE FROM once WHERE rowid IN (SELECT rowid FROM once WHERE expires <= ? LIMIT ?)";
        self.write(sql, params![self.now, limit as i64])
    }
}

pub(in crate::store::sqlite) fn read_held_once(row: &Row<'_>) -> rusqlite::Result<HeldOnce> {
    Ok(HeldOnce {
        workspace: WorkspaceId(row.get::<_, Id>(4)?.0),
        scope: row.get(5)?,
        label: row.get::<_, Text<Label>>(6)?.0,
        row: read_once(row)?,
    })
}

fn read_once(row: &Row<'_>) -> rusqlite::Result<OnceRow> {
    Ok(OnceRow {
        owner: RunId(row.get::<_, Id>(0)?.0),
        fence: row.get(1)?,
        value: row.get::<_, Option<Text<Payload>>>(2)?.map(|value| value.0),
        expires: row.get::<_, Option<i64>>(3)?.map(Time),
    })
}
