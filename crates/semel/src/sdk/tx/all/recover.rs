//! What earlier attempts have left in the databases of a block: roll back what was not decided, finish what was.

use std::sync::Arc;

use super::part::within;
use super::resource::Resource;
use crate::clock::Clock;
use crate::fail::{Fail, Result};
use crate::id::RunId;
use crate::rules::branch::{
    self, BranchFate, BranchName, Clearance, CommitLook, EndAs, finishes, judge, refused_by,
};
use crate::rules::fence::{FenceMark, FenceRow};
use crate::rules::json::Payload;
use crate::sabotage::{self, Bug};
use crate::sdk::ctx::Ctx;
use crate::sdk::tx::perform::adopted;

/// How often a fence is tried before the attempt has failed. Each one waits a second for the branch in its way, which is then
/// listed.
const PATIENT: u32 = 5;

/// Result of looking for remains of earlier attempts.
pub(super) enum Survey {
    /// Nothing is left: the outcome of each database that has one already, which is none as a rule.
    Clear(Vec<Option<Payload>>),
    /// A later claim has been here.
    Superseded(i64),
    /// One database has committed, and another has nothing of it: its branch was rolled back.
    Doubt(String),
}

/// Result of clearing old branches in one database.
pub(super) enum Cleared {
    /// There are none, and no earlier attempt can prepare one any more.
    Done,
    /// A later claim has been here.
    Superseded(i64),
}

/// Asks the databases of a block, one after the other.
pub(super) struct Recovery<'r> {
    pub(super) ctx: &'r Ctx,
    pub(super) clock: &'r dyn Clock,
    pub(super) all: &'r [Arc<dyn Resource>],
}

impl Recovery<'_> {
    /// A test's clock waits until the database has answered.
    async fn ask<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        #[cfg(feature = "testing")]
        let _outside = self.ctx.cell.probe().map(crate::testing::crash::fate::Fate::outside);
        within(self.clock, call).await
    }

    /// The prepared branches of a database.
    pub(super) async fn list(&self, resource: &dyn Resource) -> Result<Vec<BranchName>> {
        self.ask(resource.list()).await
    }

    /// Looks at all databases before an attempt. An outcome in one of them says that an earlier attempt was decided, although
    /// this ledger does not have the decision: a fork, a restored store, or an operator's word that it did not take place. `mends`
    /// is the last of these: what is missing is run again.
    pub(super) async fn survey(&self, mark: &FenceMark, mends: bool) -> Result<Survey> {
        let mut rows = Vec::new();
        for resource in self.all {
            rows.push(self.ask(resource.row(&mark.key)).await?);
        }
        let decided: Vec<FenceRow> =
            rows.iter().flatten().filter(|row| row.outcome.is_some()).cloned().collect();
        let mut outcomes = Vec::new();
        for (i, row) in rows.into_iter().enumerate() {
            outcomes.push(match row.and_then(|row| row.outcome) {
                Some(outcome) => Some(outcome),
                None => self.finish(i, mark, &decided).await?,
            });
        }
        let mut known = Vec::new();
        for (i, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                Some(outcome) => known.push(Some(adopted(&outcome)?)),
                None if !decided.is_empty() && !mends => return Ok(Survey::Doubt(missing(i, &decided))),
                None => match self.clear(i, mark).await? {
                    Cleared::Done => known.push(None),
                    Cleared::Superseded(fence) => return Ok(Survey::Superseded(fence)),
                },
            }
        }
        Ok(Survey::Clear(known))
    }

    /// Commits the branch of an attempt that has committed elsewhere; gives its outcome, if there is such a branch.
    async fn finish(&self, i: usize, mark: &FenceMark, decided: &[FenceRow]) -> Result<Option<String>> {
        if decided.is_empty() {
            return Ok(None);
        }
        let listed = self.list(&*self.all[i]).await?;
        if let Some(branch) = listed.iter().find(|branch| finishes(branch, &mark.key, i, decided)) {
            self.ask(self.all[i].end(branch, EndAs::Committed)).await?;
        }
        Ok(self.ask(self.all[i].row(&mark.key)).await?.and_then(|row| row.outcome))
    }

    /// Rolls back what earlier attempts have prepared in one database, and leaves a fence there, so that none of them can
    /// prepare any more. The fence waits for a branch that is prepared in between; then there is one more to roll back.
    pub(super) async fn clear(&self, i: usize, mark: &FenceMark) -> Result<Cleared> {
        let mut tries = 0;
        loop {
            for branch in self.list(&*self.all[i]).await? {
                match branch::clear(mark, &branch) {
                    Clearance::Leave => {}
                    Clearance::Superseded(fence) => return Ok(Cleared::Superseded(fence)),
                    Clearance::RollBack => self.end(i, &branch, EndAs::RolledBack).await,
                    Clearance::AskItsRun => self.end_as_decided(i, &branch).await?,
                }
            }
            tries += 1;
            match self.ask(self.all[i].raise(mark)).await {
                Ok(0) => return self.refused(i, mark).await,
                Ok(_) => return Ok(Cleared::Done),
                Err(error) if tries >= PATIENT => return Err(error),
                Err(error) => tracing::debug!(run = %mark.run, %error, "a fence has to wait; listing again"),
            }
        }
    }

    /// Ends a branch of another run as that run's ledger says.
    async fn end_as_decided(&self, i: usize, branch: &BranchName) -> Result<()> {
        match fate(self.ctx, branch).await? {
            BranchFate::End(how) => self.end(i, branch, how).await,
            BranchFate::Open => {
                return Err(Fail::retryable(format_args!(
                    "{} has prepared the same effect, and has not ended",
                    branch.run
                )));
            }
        }
        Ok(())
    }

    /// Ends one branch. Whether that has worked is seen in the next list.
    async fn end(&self, i: usize, branch: &BranchName, how: EndAs) {
        if let Err(error) = self.ask(self.all[i].end(branch, how)).await {
            tracing::debug!(%branch, %error, "a prepared branch is not ended yet");
        }
    }

    /// Why a fence was refused.
    async fn refused(&self, i: usize, mark: &FenceMark) -> Result<Cleared> {
        let row = self.ask(self.all[i].row(&mark.key)).await?;
        match refused_by(mark, row.as_ref()) {
            Some(fence) => Ok(Cleared::Superseded(fence)),
            None => Err(Fail::retryable("another attempt has committed in between; looking again")),
        }
    }

    /// Commits a branch, or finds out whether it is committed. That the database does not know the branch proves nothing: its
    /// session may live, or the answer of an earlier commit may be lost. So the list is read, and then the row, in this order.
    pub(super) async fn commit(&self, i: usize, branch: &BranchName) -> CommitLook {
        let Err(error) = self.ask(self.all[i].end(branch, EndAs::Committed)).await else {
            return CommitLook::Done;
        };
        tracing::debug!(%branch, %error, "a branch was not committed; looking for it");
        if sabotage::commits(Bug::UnknownBranchIsDone) {
            return CommitLook::Done;
        }
        let is_listed = self.list(&*self.all[i]).await.ok().map(|listed| listed.contains(branch));
        let has_outcome = match is_listed {
            Some(false) => {
                let row = self.ask(self.all[i].row(&branch.key)).await.ok();
                row.map(|row| row.is_some_and(|row| row.outcome.is_some()))
            }
            _ => None,
        };
        judge(is_listed, has_outcome)
    }
}

/// Reads the run of a branch, and its ledger if it has ended; the rules decide.
pub(super) async fn fate(ctx: &Ctx, branch: &BranchName) -> Result<BranchFate> {
    let unknown = || Fail::retryable(format_args!("{branch} is of a run that this store does not know"));
    let run: RunId = branch.run.parse().map_err(|_| unknown())?;
    let (status, ledger) = ctx.cell.other_run(run).await?.ok_or_else(unknown)?;
    Ok(branch::fate(branch, status, &ledger))
}

fn missing(i: usize, decided: &[FenceRow]) -> String {
    let of =
        decided.first().map(|row| format!("claim {} of {}, attempt {}", row.fence, row.run, row.attempt));
    format!(
        "database {} of this block has neither an outcome nor a prepared branch, although another one has committed ({}): \
         the branch was rolled back by hand, or the databases were restored to different times",
        i + 1,
        of.unwrap_or_default()
    )
}
