//! One try at a step, as its body sees it.

use std::fmt;
use std::sync::{Arc, OnceLock};

use uuid::Uuid;

use super::ctx::Ctx;
use crate::clock::{Clock, Time};
use crate::engine::run::Cell;
use crate::id::RunId;
use crate::rules::key::EffectKey;
use crate::rules::ledger::Ledger;
use crate::rules::path::Visit;
use crate::sabotage::{self, Bug};

/// A wait of a body for something outside, as [`Attempt::outside`] gives it.
pub struct Outside {
    #[cfg(feature = "testing")]
    _waiting: Option<crate::testing::crash::fate::OutsideWait>,
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outside")
    }
}

/// One try at a step. Its [key](Attempt::key) is the same on every try, over crashes, restarts and takeovers: hand it to
/// the provider, which can then recognise a repetition.
#[derive(Clone, Debug)]
pub struct Attempt {
    cell: Arc<Cell>,
    visit: Visit,
    number: u32,
    /// Whether it cleans up, although its run was asked to end.
    shielded: bool,
    /// Whether it follows an operator's decision that the try before had no effect.
    cleared: bool,
    fence: u64,
    key: OnceLock<String>,
}

impl Attempt {
    pub(crate) fn new(ctx: &Ctx, visit: Visit, number: u32) -> Self {
        let (cell, shielded) = (ctx.cell.clone(), ctx.shielded);
        let fence = cell.ledger(Ledger::fence);
        Self { cell, visit, number, shielded, cleared: false, fence, key: OnceLock::new() }
    }

    /// The same try, after an operator has said that the one before did not take place.
    pub(crate) fn after_clearing(self, cleared: bool) -> Self {
        Self { cleared, ..self }
    }

    /// The clock of its engine, for waits and limits inside the body. Its time differs from try to try.
    pub fn clock(&self) -> &dyn Clock {
        self.cell.clock()
    }

    /// The store's time, as far as it is known: to compare with a recorded time. It differs from try to try.
    pub fn now(&self) -> Time {
        self.cell.now()
    }

    /// Whether an operator has said that the tries before this one did not take place: then nothing speaks against making
    /// the call, however long ago the first try was.
    pub fn is_cleared(&self) -> bool {
        self.cleared
    }

    /// Says that the body waits for something outside, in real time, until the result is dropped: the clock of a
    /// `testing::Crasher` stands still meanwhile. Elsewhere it does nothing.
    #[must_use = "the clock of a test stands still until it is dropped"]
    pub fn outside(&self) -> Outside {
        Outside {
            #[cfg(feature = "testing")]
            _waiting: self.cell.probe().map(crate::testing::crash::fate::Fate::outside),
        }
    }

    /// Which try this is: 1, 2, 3 …
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The effect key: 34 characters.
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Fail, Result, Retry};
    /// # use std::{sync::Mutex, time::Duration};
    /// # static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    /// async fn charge(ctx: Ctx, (): ()) -> Result<()> {
    ///     let body = async |attempt: semel::Attempt| {
    ///         SEEN.lock().expect("no panics").push(attempt.key().to_owned());
    ///         if attempt.number() < 3 { Err(Fail::retryable("the line is busy")) } else { Ok(()) }
    ///     };
    ///     ctx.step("charge").retry(Retry::fixed(Duration::ZERO)).run(body).await
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().store("memory:").workflow("charge", charge).open().await?;
    /// # engine.start(charge, ()).await?.result().await?;
    /// # let seen = SEEN.lock().expect("no panics");
    /// assert!(seen.len() == 3 && seen[0] == seen[1] && seen[1] == seen[2]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn key(&self) -> &str {
        self.key.get_or_init(|| match sabotage::commits(Bug::KeyPerTry) {
            true => self.effect_key(&self.fence.to_string()).to_string(),
            false => self.effect_key("").to_string(),
        })
    }

    /// The effect key for a system that wants a UUID.
    pub fn key_uuid(&self) -> Uuid {
        self.effect_key("").uuid()
    }

    /// The key of one of several effects of the same step.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # async fn book(_: &str, _cents: i64, _key: &str) -> Result<()> { Ok(()) }
    /// # async fn workflow(ctx: Ctx, cents: i64) -> Result<()> {
    /// ctx.step("transfer")
    ///     .run(async |attempt| {
    ///         book("ann", -cents, &attempt.key_for("debit")).await?;
    ///         book("ben", cents, &attempt.key_for("credit")).await
    ///     })
    ///     .await
    /// # }
    /// ```
    pub fn key_for(&self, label: &str) -> String {
        self.effect_key(label).to_string()
    }

    fn effect_key(&self, label: &str) -> EffectKey {
        self.cell.ledger(|ledger| ledger.effect_key(&self.visit, label))
    }

    /// The version of the claim under which this try is made. It only ever grows: a database that remembers the highest
    /// it has seen of a run can refuse an attempt with a lower one. Fences of different runs do not compare.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # async fn execute(_sql: &str, _run: String, _fence: u64) -> Result<()> { Ok(()) }
    /// # async fn workflow(ctx: Ctx, (): ()) -> Result<()> {
    /// let sql = "UPDATE parcels SET state = 'sent', fence = $2 WHERE run = $1 AND fence <= $2";
    /// ctx.step("send")
    ///     .run(async |attempt| execute(sql, attempt.run_id().to_string(), attempt.fence()).await)
    ///     .await
    /// # }
    /// ```
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Whether the body had better stop: the run was taken over, or was asked to end. Clean-up is what goes on then: for a
    /// step of [`Ctx::cleanup`] only the takeover counts.
    pub fn is_cancelled(&self) -> bool {
        self.cell.is_lost() || (self.cell.is_asked_to_end() && !self.shielded)
    }

    /// The run it belongs to.
    pub fn run_id(&self) -> RunId {
        self.cell.id
    }

    /// Where in the run this is, as in the ledger.
    pub fn path(&self) -> String {
        self.visit.to_string()
    }
}
