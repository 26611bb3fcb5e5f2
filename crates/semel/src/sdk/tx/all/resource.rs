//! One database of a block, whatever its type: what the coordinator asks it, without bodies and without results.

use std::sync::Arc;

use crate::error::Error;
use crate::fail::{Fail, Result};
use crate::rules::branch::{BranchName, EndAs};
use crate::rules::fence::{FenceMark, FenceRow};
use crate::sabotage::{self, Bug};
use crate::sdk::ctx::Boxed;
use crate::sdk::tx::{Dialect, TwoPhase};

/// A database that takes part. Every answer may be an error, and then nothing is known.
pub(super) trait Resource: Send + Sync {
    /// Its prepared branches.
    fn list(&self) -> Boxed<'_, Vec<BranchName>>;
    /// The row of the fence table under an effect key. None if there is none.
    fn row<'a>(&'a self, key: &'a str) -> Boxed<'a, Option<FenceRow>>;
    /// Leaves a fence; gives how many rows it touched. Waits no longer than a second for a branch that has the row.
    fn raise<'a>(&'a self, mark: &'a FenceMark) -> Boxed<'a, u64>;
    /// Ends a prepared branch. When it answers that a branch is committed, the branch's row can be read.
    fn end<'a>(&'a self, name: &'a BranchName, how: EndAs) -> Boxed<'a, ()>;
}

/// A source, and the statements of its fence table.
struct ResourceOf<S> {
    source: S,
    find: String,
    put: String,
}

/// The database behind a source.
pub(super) fn resource<S: TwoPhase>(source: &S, table: &str) -> Result<Arc<dyn Resource>, Error> {
    let (find, put) = (S::DIALECT.find(table)?, S::DIALECT.put(table)?);
    Ok(Arc::new(ResourceOf { source: source.clone(), find, put }))
}

impl<S: TwoPhase> Resource for ResourceOf<S> {
    fn list(&self) -> Boxed<'_, Vec<BranchName>> {
        Box::pin(self.source.prepared())
    }

    fn row<'a>(&'a self, key: &'a str) -> Boxed<'a, Option<FenceRow>> {
        Box::pin(async move {
            let mut open = self.source.begin().await?;
            let row = S::find(&mut open, &self.find, key).await?;
            S::rollback(open).await?;
            Ok(row)
        })
    }

    fn raise<'a>(&'a self, mark: &'a FenceMark) -> Boxed<'a, u64> {
        Box::pin(async move {
            if sabotage::commits(Bug::BranchesWithoutFence) {
                return Ok(1);
            }
            let mut open = self.source.begin_brief().await?;
            let touched = S::put(&mut open, &self.put, mark, None).await?;
            S::commit(open).await?;
            Ok(touched)
        })
    }

    fn end<'a>(&'a self, name: &'a BranchName, how: EndAs) -> Boxed<'a, ()> {
        Box::pin(async move {
            let sql = match how {
                EndAs::Committed => S::DIALECT.commit_branch(name),
                EndAs::RolledBack => S::DIALECT.rollback_branch(name),
            };
            self.source.script(&sql).await?;
            // MariaDB may answer so and have done nothing: see `DETACH`.
            if how == EndAs::Committed && S::DIALECT == Dialect::Mysql {
                let row = self.row(&name.key).await?;
                if row.is_none_or(|row| row.outcome.is_none()) {
                    return Err(Fail::retryable(format_args!(
                        "{name} was said to be committed, and its row is not there"
                    )));
                }
            }
            Ok(())
        })
    }
}
