//! Hooks: tokens and the runs that own them.

use super::MemoryTx;
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::key::Token;
use crate::rules::run::Run;
use crate::store::tx::HookRows;

impl HookRows for MemoryTx<'_> {
    async fn insert_hook(&mut self, workspace: WorkspaceId, token: &Token, num: i64) -> Result<bool> {
        let at = (workspace, token.clone());
        if self.tables.hooks.contains_key(&at) {
            return Ok(false);
        }
        self.write().hooks.insert(at, num);
        Ok(true)
    }

    async fn hook_owner(&mut self, workspace: WorkspaceId, token: &Token) -> Result<Option<RunId>> {
        Ok(self.hook(workspace, token).await?.map(|run| run.id()))
    }

    async fn hook(&mut self, workspace: WorkspaceId, token: &Token) -> Result<Option<Run>> {
        let num = self.tables.hooks.get(&(workspace, token.clone()));
        Ok(num.map(|num| self.tables.runs[num].clone()))
    }

    async fn delete_hook(&mut self, workspace: WorkspaceId, token: &Token, num: i64) -> Result<()> {
        let at = (workspace, token.clone());
        if self.tables.hooks.get(&at) == Some(&num) {
            self.write().hooks.remove(&at);
        }
        Ok(())
    }

    async fn delete_hooks(&mut self, num: i64) -> Result<()> {
        self.write().hooks.retain(|_, owner| *owner != num);
        Ok(())
    }
}
