//! Due runs: what a claim looks for, and takes.

use uuid::Uuid;

use super::{Params, PgStoreTx};
use crate::clock::Time;
use crate::error::Result;
use crate::rules::attention::Attention;
use crate::rules::claim::Drives;
use crate::rules::family::Family;
use crate::rules::run::Run;
use crate::store::postgres::rows::{self, bigint, run_columns, run_of, select_run};
use crate::store::tx::{ClaimedRow, DueRows, TxTime, race};

/// The statements about families: their due runs, and the next time at which a run is due.
pub(crate) fn family_statements() -> [&'static str; 2] {
    [
        concat!(
            include_str!("../sql/due_in.sql"),
            "SELECT ",
            run_columns!(),
            " FROM r ORDER BY r.due, r.num LIMIT $3::bigint"
        ),
        include_str!("../sql/next_due_in.sql"),
    ]
}

impl DueRows for PgStoreTx<'_> {
    async fn due(&mut self, workflows: &[Drives], limit: usize) -> Result<Vec<Run>> {
        let sql = concat!(
            include_str!("../sql/due.sql"),
            "SELECT ",
            run_columns!(),
            " FROM r ORDER BY r.due, r.num"
        );
        let workspaces: Vec<Uuid> = workflows.iter().map(|drives| drives.workspace.0).collect();
        let names: Vec<&str> = workflows.iter().map(|drives| drives.workflow.as_str()).collect();
        let versions: Vec<&str> = workflows.iter().map(|drives| drives.workflow_version.as_str()).collect();
        let params: Params<'_> = &[&workspaces, &names, &versions, &self.now().0, &bigint(limit)];
        let rows = self.rows(sql, params).await?;
        rows.iter().map(rows::run_of).collect()
    }

    async fn dues(&mut self, workflows: &[Drives], after: Time) -> Result<Vec<Option<Time>>> {
        if workflows.is_empty() {
            return Ok(Vec::new());
        }
        let workspaces: Vec<Uuid> = workflows.iter().map(|drives| drives.workspace.0).collect();
        let names: Vec<&str> = workflows.iter().map(|drives| drives.workflow.as_str()).collect();
        let versions: Vec<&str> = workflows.iter().map(|drives| drives.workflow_version.as_str()).collect();
        let params: Params<'_> = &[&workspaces, &names, &versions, &after.0];
        let rows = self.rows(include_str!("../sql/dues.sql"), params).await?;
        rows.iter().map(|row| rows::time(row, 0)).collect()
    }

    async fn due_in(&mut self, families: &[Family], limit: usize) -> Result<Vec<Run>> {
        let [sql, _] = family_statements();
        let prefixes: Vec<&str> = families.iter().map(Family::as_str).collect();
        let rows = self.rows(sql, &[&prefixes, &self.now().0, &bigint(limit)]).await?;
        rows.iter().map(rows::run_of).collect()
    }

    async fn next_due_in(&mut self, families: &[Family], after: Time) -> Result<Option<Time>> {
        let prefixes: Vec<&str> = families.iter().map(Family::as_str).collect();
        let [_, sql] = family_statements();
        let rows = self.rows(sql, &[&prefixes, &after.0]).await?;
        rows.first().map_or(Ok(None), |row| rows::time(row, 0))
    }

    async fn take(&mut self, taken: &[ClaimedRow]) -> Result<()> {
        if taken.is_empty() {
            return Ok(());
        }
        let now = self.now().0;
        let texts: Vec<&str> = taken.iter().map(|run| run.text.as_str()).collect();
        let params: Params<'_> = &[
            &now,
            &each(taken, |run| run.num),
            &each(taken, |run| run.expected as i64),
            &each(taken, |run| run.state.version as i64),
            &each(taken, |run| run.state.status.code()),
            &each(taken, |run| run.state.due.map(|due| due.0)),
            &each(taken, |run| run.state.node.map(|node| node.0)),
            &each(taken, |run| run.state.stalls as i32),
            &each(taken, |run| run.state.attention.map(Attention::code)),
            &texts,
        ];
        let rows = self.write(include_str!("../sql/take.sql"), params).await?;
        if rows == taken.len() as u64 { Ok(()) } else { Err(race()) }
    }

    async fn overdue(&mut self, limit: usize) -> Result<Vec<Run>> {
        // The condition of the index runs_deadline. Repeats `rules::deadline::is_limited`: only PENDING (0), RUNNING (1) and
        // WAITING (2) runs are ended by their time limit. The verb asks the rule again.
        let overdue = select_run!(
            "FROM runs r WHERE r.deadline IS NOT NULL AND r.status < 3 AND r.deadline <= $1 \
             ORDER BY r.deadline, r.num LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED"
        );
        self.rows(overdue, &[&self.now().0, &bigint(limit)]).await?.iter().map(run_of).collect()
    }
}

fn each<T>(taken: &[ClaimedRow], of: impl Fn(&ClaimedRow) -> T) -> Vec<T> {
    taken.iter().map(of).collect()
}
