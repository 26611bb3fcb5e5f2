//! Claims, results and releases of `run_once` values.

use crate::error::Error;
use crate::error::Result;
use crate::rules::entry::Message;
use crate::rules::once::{self, Ask, OnceAnswer, OnceCall, Waiters};
use crate::store::archive::OnceAt;
use crate::store::tx::{StoreTx, Verb, race};

impl Verb for OnceCall {
    type Answer = OnceAnswer;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<OnceAnswer> {
        let scope = self.scope.text();
        let mut run = tx.run(self.run).await?.filter(|run| run.new.workspace == self.workspace);
        let run = run.as_mut().ok_or(Error::RunNotFound(self.run))?;
        if run.status().is_terminal() && self.ask == Ask::Claim {
            return Err(Error::RunFinished { run: self.run, status: run.status() });
        }
        if run.rests(tx.now()) && self.ask == Ask::Claim {
            // The call was delayed: its run rests since, and no branch of it would make the result.
            return Err(Error::Concurrency { run: self.run, expected: run.state.version });
        }
        let at = (self.workspace, scope, self.label.clone());
        let existing = tx.once(self.workspace, &at.1, &self.label).await?;
        let owner_open = match &existing {
            // Not locked: an owner that ends meanwhile waits for this row, and then wakes us.
            Some(row) => tx.status(row.owner).await?.is_some_and(|status| !status.is_terminal()),
            None => false,
        };
        let step = once::decide(self, run.state.version, existing.clone(), owner_open, tx.now())?;
        if step.row != existing {
            tx.put_once(self.workspace, &at.1, &self.label, step.row.as_ref()).await?;
        }
        match step.waiters {
            Waiters::Stay => {}
            Waiters::Join => tx.insert_once_waiter(&at, self.run).await?,
            Waiters::Go => tell_waiters(tx, &at).await?,
        }
        if matches!(step.answer, OnceAnswer::Mine(_)) && !run.state.ties {
            run.state.ties = true;
            if !tx.save(run.num, run.state.version, &run.state).await? {
                return Err(race());
            }
        }
        Ok(step.answer)
    }
}

/// Tells all runs that wait for a `run_once` value to ask again, and removes them from its waiters.
pub(super) async fn tell_waiters<T: StoreTx>(tx: &mut T, at: &OnceAt) -> Result<()> {
    let waiters = tx.once_waiters(at).await?;
    if waiters.is_empty() {
        return Ok(());
    }
    tx.delete_once_waiters(at).await?;
    let message = Message::OnceSettled { scope: at.1.clone(), label: at.2.clone() };
    for waiter in waiters {
        // A waiter that is forgotten needs no waking.
        if let Some(waiter) = tx.run(waiter).await? {
            tx.arrive(waiter.num, &message).await?;
        }
    }
    Ok(())
}
