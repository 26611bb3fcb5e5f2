//! Onces, and the runs that wait for them.

use super::MemoryTx;
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::key::Label;
use crate::rules::once::OnceRow;
use crate::store::archive::OnceAt;
use crate::store::tx::{HeldOnce, OnceRows};

impl OnceRows for MemoryTx<'_> {
    async fn once(&mut self, workspace: WorkspaceId, scope: &str, label: &Label) -> Result<Option<OnceRow>> {
        Ok(self.tables.once.get(&(workspace, scope.to_owned(), label.clone())).cloned())
    }

    async fn put_once(
        &mut self,
        workspace: WorkspaceId,
        scope: &str,
        label: &Label,
        row: Option<&OnceRow>,
    ) -> Result<()> {
        let at = (workspace, scope.to_owned(), label.clone());
        match row {
            Some(row) => drop(self.write().once.insert(at, row.clone())),
            None => drop(self.write().once.remove(&at)),
        }
        Ok(())
    }

    async fn insert_once_waiter(&mut self, at: &OnceAt, run: RunId) -> Result<()> {
        self.write().once_waiters.entry(at.clone()).or_default().insert(run);
        Ok(())
    }

    async fn once_waiters(&mut self, at: &OnceAt) -> Result<Vec<RunId>> {
        Ok(self.tables.once_waiters.get(at).into_iter().flatten().copied().collect())
    }

    async fn delete_once_waiters(&mut self, at: &OnceAt) -> Result<()> {
        self.write().once_waiters.remove(at);
        Ok(())
    }

    async fn held_once(&mut self, owner: RunId) -> Result<Vec<HeldOnce>> {
        let held = self.tables.once.iter().filter(|(_, row)| row.owner == owner && row.value.is_none());
        let mut held: Vec<_> = held
            .map(|((workspace, scope, label), row)| HeldOnce {
                workspace: *workspace,
                scope: scope.clone(),
                label: label.clone(),
                row: row.clone(),
            })
            .collect();
        held.sort_by(|a, b| (&a.scope, &a.label).cmp(&(&b.scope, &b.label)));
        Ok(held)
    }

    async fn delete_expired_once(&mut self, limit: usize) -> Result<usize> {
        let expired = self.tables.once.iter().filter(|(_, row)| row.expires.is_some_and(|at| at <= self.now));
        let expired: Vec<_> = expired.map(|(at, _)| at.clone()).take(limit).collect();
        for at in &expired {
            self.write().once.remove(at);
        }
        Ok(expired.len())
    }
}
