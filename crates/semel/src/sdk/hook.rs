//! Hooks: places where a run waits for input from outside.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::ctx::{Ctx, Doing, read};
use crate::engine::run::{Addition, Requested};
use crate::fail::{Result, fatal};
use crate::id::RunId;
use crate::rules::json::Payload;
use crate::rules::key::Token;
use crate::rules::ledger::{HookState, VisitRecord};
use crate::rules::path::{Visit, path_key};

/// A place where a run waits for input. A caller that knows its token can deliver; what comes before it is waited for is kept.
/// When the workflow drops it, its token is free again.
pub struct Hook<T> {
    ctx: Ctx,
    place: Result<(Visit, Token), String>,
    /// How many payloads this hook has given out.
    given: usize,
    disposed: bool,
    payload: PhantomData<fn() -> T>,
}

/// The run that owns a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Id of that run.
    pub run_id: RunId,
}

impl<T> fmt::Debug for Hook<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hook").field(&self.place).finish()
    }
}

impl<T: DeserializeOwned> Hook<T> {
    pub(super) fn open(ctx: Ctx, token: String) -> Self {
        let place = Token::new(token).map_err(|e| e.to_string()).and_then(|token| {
            let key = path_key(token.as_str());
            let visit = ctx.visit_any("@hook", Some(&key), true).map_err(|e| e.to_string())?;
            Ok((visit, token))
        });
        if let Ok((visit, token)) = &place {
            ctx.cell.asks(visit, || Requested::Hook(token.clone()));
            ctx.cell.open_hook(visit, token);
        }
        Self { ctx, place, given: 0, disposed: false, payload: PhantomData }
    }

    fn place(&self) -> Result<(Visit, Token)> {
        self.place.clone().map_err(fatal)
    }

    /// Who owns the token, if it is not this run. The run that opened it first has it, until it lets go of it or ends.
    ///
    /// ```
    /// # use semel::{Ctx, Result, fatal};
    /// # async fn workflow(ctx: Ctx, id: u32) -> Result<bool> {
    /// let mut approval = ctx.hook::<bool>(format!("order:{id}"));
    /// if let Some(owner) = approval.conflict().await? {
    ///     return Err(fatal(format!("{} asks for this order already", owner.run_id)));
    /// }
    /// # approval.recv().await
    /// # }
    /// ```
    pub fn conflict(&mut self) -> Doing<'_, Option<Owner>> {
        Doing::new(async move {
            let (visit, _) = self.place()?;
            Ok(self.owner(&visit).await.map(|run_id| Owner { run_id }))
        })
    }

    /// Waits until the store has said whose the token is; gives the owner if it is another run.
    async fn owner(&self, visit: &Visit) -> Option<RunId> {
        loop {
            let answered = self.ctx.cell.ledger(|ledger| match ledger.record_at(visit) {
                Some(VisitRecord::Hook { state: HookState::Conflicted(owner), .. }) => Some(Some(*owner)),
                Some(VisitRecord::Hook { state: HookState::Open(_) | HookState::Closed(_), .. }) => {
                    Some(None)
                }
                _ => None,
            });
            if let Some(owner) = answered {
                return owner;
            }
            self.ctx.cell.live(Some(visit)).await;
            self.ctx.cell.barrier().await;
        }
    }

    /// The place of a hook that is this run's.
    async fn owned(&self) -> Result<(Visit, Token)> {
        let (visit, token) = self.place()?;
        self.ctx.cell.refuse_inside(&visit)?;
        self.check_owner(&visit, &token).await?;
        Ok((visit, token))
    }

    async fn check_owner(&self, visit: &Visit, token: &Token) -> Result<()> {
        match self.owner(visit).await {
            None => Ok(()),
            Some(owner) => {
                let fail = fatal(format_args!(
                    "the token {token} is owned by {owner}: ask `conflict()` before you wait"
                ));
                Err(fail.at(self.ctx.cell.hears(visit)))
            }
        }
    }

    /// Opens a hook again that was closed in an earlier life of the run, now that the code waits for more than it had
    /// received by then.
    async fn reopen(&self, visit: &Visit, token: &Token) -> Result<()> {
        if !self.ctx.cell.ledger(|ledger| ledger.may_reopen(visit)) {
            return Ok(());
        }
        let open = || Ok((Addition::Hook(visit.clone(), token.clone()), ()));
        self.ctx.cell.add_unless_cancelled(visit, self.ctx.shielded, open).await?;
        self.check_owner(visit, token).await
    }

    /// A payload that was received in an earlier execution.
    fn recorded(&mut self, visit: &Visit) -> Option<Payload> {
        let payload = self.ctx.cell.ledger(|ledger| match ledger.record_at(visit) {
            Some(VisitRecord::Hook { state: HookState::Open(all) | HookState::Closed(all), .. }) => {
                all.get(self.given).cloned()
            }
            _ => None,
        })?;
        self.given += 1;
        Some(payload)
    }

    /// Waits for the next payload.
    pub fn recv(&mut self) -> Doing<'_, T> {
        Doing::new(async move {
            let (visit, token) = self.owned().await?;
            if let Some(payload) = self.recorded(&visit) {
                return read(&visit, &payload);
            }
            self.reopen(&visit, &token).await?;
            let received = self.ctx.cell.receive(&visit, &token, None, self.ctx.shielded).await?;
            let payload = received.expect("without a timer there is a payload");
            self.given += 1;
            read(&visit, &payload)
        })
    }

    /// Waits for the next payload, but not longer than this. Which came first is recorded.
    ///
    /// ```
    /// # use semel::{Ctx, Result, fatal};
    /// # use std::time::Duration;
    /// # async fn workflow(ctx: Ctx, (): ()) -> Result<()> {
    /// # let mut approval = ctx.hook::<bool>("order:7");
    /// match approval.recv_for(Duration::from_hours(24)).await? {
    ///     Some(true) => Ok(()),
    ///     Some(false) => Err(fatal("refused")),
    ///     None => Err(fatal("no answer")),
    /// }
    /// # }
    /// ```
    pub fn recv_for(&mut self, time: Duration) -> Doing<'_, Option<T>> {
        Doing::new(async move {
            let (visit, token) = self.owned().await?;
            let name = crate::rules::path::Name::new("timeout").map_err(fatal)?;
            let timer = self.ctx.cell.visit(visit_scope(&visit)?.join(&name).map_err(fatal)?, true)?;
            self.ctx.cell.asks(&timer, || Requested::Timer);
            if self.ctx.fired(&timer) {
                return Ok(None);
            }
            if let Some(payload) = self.recorded(&visit) {
                return read(&visit, &payload).map(Some);
            }
            self.reopen(&visit, &token).await?;
            let at = self.ctx.set_timer(&timer, |run| run.after(time)).await?;
            let limit = Some((&timer, at));
            match self.ctx.cell.receive(&visit, &token, limit, self.ctx.shielded).await? {
                None => Ok(None),
                Some(payload) => {
                    self.given += 1;
                    read(&visit, &payload).map(Some)
                }
            }
        })
    }

    /// The next payload, for loops: `while let Some(payload) = hook.next().await?`. Gives nothing when the run was asked
    /// to end.
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Result, rules::status::Status};
    /// async fn add_up(ctx: Ctx, (): ()) -> Result<u64> {
    ///     let (mut amounts, mut sum) = (ctx.hook::<u64>("amounts"), 0);
    ///     while let Some(amount) = amounts.next().await?.filter(|amount| *amount > 0) {
    ///         sum += amount;
    ///     }
    ///     Ok(sum)
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().store("memory:").workflow("add-up", add_up).open().await?;
    /// let run = engine.start(add_up, ()).await?;
    /// # run.reached(Status::Waiting).await?;
    /// for amount in [3, 4, 0] {
    ///     engine.deliver("amounts", amount).await?;
    /// }
    /// assert_eq!(run.result().await?, 7);
    /// # Ok(())
    /// # }
    /// ```
    #[expect(clippy::should_implement_trait, reason = "an async `next`, as streams have it")]
    pub fn next(&mut self) -> Doing<'_, Option<T>> {
        Doing::new(async move {
            match self.recv().await {
                Ok(payload) => Ok(Some(payload)),
                Err(fail) if fail.is_cancelled() => Ok(None),
                Err(fail) => Err(fail),
            }
        })
    }

    /// Lets go of the token. Dropping the hook does the same.
    pub fn dispose(mut self) {
        self.close();
    }
}

impl<T> Hook<T> {
    fn close(&mut self) {
        if let (Ok((visit, _)), false) = (&self.place, self.disposed) {
            self.disposed = true;
            self.ctx.cell.close_hook(visit);
        }
    }
}

impl<T> Drop for Hook<T> {
    fn drop(&mut self) {
        self.close();
    }
}

/// The path of a hook's own timers. A visit beyond the first has them apart.
fn visit_scope(visit: &Visit) -> Result<crate::rules::path::Path> {
    match visit.tick {
        1 => Ok(visit.path.clone()),
        tick => {
            let name = crate::rules::path::Name::new(&format!("@{tick}")).map_err(fatal)?;
            visit.path.join(&name).map_err(fatal)
        }
    }
}
