//! What a workflow can ask about its own ledger before it does something: what an earlier life of the run kept, and what is decided.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ctx::{Ctx, Doing, read};
use crate::fail::{Result, fatal};
use crate::rules::ledger::VisitRecord;
use crate::rules::path::Visit;
use crate::rules::step::StepState;

impl Ctx {
    /// The value that a step of this name completed with, or that [`Ctx::record`] kept under it, before the run was retried, restarted
    /// or forked; none in a run that was not, and none if nothing carries over. A value that was recorded right after a failure does
    /// not carry over, because the failure is tried again. A step that reconciles carries over in any case, and also into restarts and
    /// all forks with the same effect keys. It reads the ledger only: the name does not count as visited.
    ///
    /// ```
    /// # use semel::{Ctx, Result, fatal};
    /// # async fn workflow(ctx: Ctx, (): ()) -> Result<()> {
    /// if ctx.earlier::<bool>("refunded")?.is_some() {
    ///     return Err(fatal("this order was refunded; place a new one"));
    /// }
    /// # let paid: Result<()> = Ok(());
    /// if let Err(failed) = paid {
    ///     ctx.step("refunded").reconcile(async |_| Ok(Some(true))).run(async |_| Ok(true)).await?;
    ///     return Err(failed);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn earlier<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let at = Visit::first(self.path(name, None).map_err(fatal)?);
        let found = self.cell.ledger(|ledger| match ledger.record_at(&at) {
            Some(VisitRecord::Value(value) | VisitRecord::Step(StepState::Completed(value)))
                if ledger.is_carried(&at) =>
            {
                Some(value.clone())
            }
            _ => None,
        });
        found.map(|value| read(&at, &value)).transpose()
    }

    /// Records a value as [`Ctx::record`] does, but makes it only if none is recorded: code that can no longer make it replays all the same. What fails
    /// to be made is not recorded.
    ///
    /// ```
    /// # use semel::{Ctx, Result, fatal};
    /// # async fn workflow(ctx: Ctx, rate: String) -> Result<()> {
    /// let cents = ctx.record_with("cents", || rate.parse::<u64>().map_err(fatal)).await?;
    /// # let _ = cents;
    /// # Ok(())
    /// # }
    /// ```
    pub fn record_with<'a, T, F>(&'a self, name: impl Into<String>, make: F) -> Doing<'a, T>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        F: FnOnce() -> Result<T> + Send + 'a,
    {
        let name = name.into();
        Doing::new(async move {
            let at = Visit::first(self.path(&name, None).map_err(fatal)?);
            let recorded = self.cell.ledger(|ledger| match ledger.record_at(&at) {
                Some(VisitRecord::Value(value)) => Some(value.clone()),
                _ => None,
            });
            let value = match recorded {
                Some(value) => read(&at, &value)?,
                None => make()?,
            };
            self.record(name, value).await
        })
    }

    /// The path of the step with this name in this scope, as the ledger has it at its first visit: for records elsewhere that name the
    /// step.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # async fn workflow(ctx: Ctx, (): ()) -> Result<()> {
    /// let ctx = ctx.scope_keyed("pack", "ink");
    /// assert_eq!(ctx.step_path("label")?, "pack[ink]/label");
    /// # Ok(())
    /// # }
    /// ```
    pub fn step_path(&self, step: &str) -> Result<String> {
        Ok(self.path(step, None).map_err(fatal)?.to_string())
    }
}
