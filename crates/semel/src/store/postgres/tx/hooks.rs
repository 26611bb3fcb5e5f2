//! Hooks: tokens and the runs that own them.

use super::{Params, PgStoreTx};
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::key::Token;
use crate::rules::run::Run;
use crate::store::postgres::rows;
use crate::store::postgres::rows::column;
use crate::store::tx::{HookRows, race};

impl HookRows for PgStoreTx<'_> {
    async fn insert_hook(&mut self, workspace: WorkspaceId, token: &Token, num: i64) -> Result<bool> {
        let insert = "INSERT INTO hooks (workspace, token, run) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        Ok(self.write(insert, &[&workspace.0, &token.as_str(), &num]).await? == 1)
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
}
