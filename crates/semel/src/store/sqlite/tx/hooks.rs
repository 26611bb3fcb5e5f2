//! Hooks: tokens and the runs that own them.

use rusqlite::params;

use super::SqliteStoreTx;
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::key::Token;
use crate::rules::run::Run;
use crate::store::tx::HookRows;

impl HookRows for SqliteStoreTx {
    async fn insert_hook(&mut self, workspace: WorkspaceId, token: &Token, num: i64) -> Result<bool> {
        let sql = "INSERT INTO hooks (workspace, token, run) VALUES (?, ?, ?) ON CONFLICT DO NOTHING";
        Ok(self.write(sql, params![workspace, token.as_str(), num])? == 1)
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
}
