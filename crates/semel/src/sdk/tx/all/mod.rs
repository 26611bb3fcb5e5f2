//! One transaction over several databases: all of them commit, or none.

mod coordinate;
mod flight;
mod part;
mod recover;
mod resource;
mod two_phase;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::two_phase::TwoPhase;

use self::part::{Member, MemberOf};
use super::{TABLE, Tx};
use crate::error::Error;
use crate::fail::{Fail, Result, fatal};
use crate::rules::branch::BranchName;
use crate::rules::entry::Class;
use crate::rules::json::Payload;
use crate::rules::retry::Retry;
use crate::sdk::attempt::Attempt;
use crate::sdk::ctx::{Boxed, Ctx, Doing, read};
use crate::sdk::step::Step;

impl Ctx {
    /// A step whose effect is one transaction over several databases: two-phase commit, with the run's ledger as coordinator.
    /// Each database has a body of its own; all of them commit, or none. See [Two databases, one
    /// commit](crate::tx#two-databases-one-commit).
    ///
    /// ```
    /// # #[cfg(all(feature = "postgres", feature = "sqlx-mysql"))] mod example {
    /// use semel::tx::{deadpool_postgres::Pool, sqlx};
    /// use semel::{Ctx, Result};
    ///
    /// async fn book(ctx: Ctx, cents: i64) -> Result<(i64, u64)> {
    ///     let (accounts, journal) = (ctx.state::<Pool>(), ctx.state::<sqlx::MySqlPool>());
    ///     let (left, entry) = ctx
    ///         .tx_all("book")
    ///         .on(&*accounts, async |tx| {
    ///             let debit = "UPDATE account SET cents = cents - $1 RETURNING cents";
    ///             let left: i64 = tx.query_one(debit, &[&cents]).await?.try_get(0)?;
    ///             tx.ready(left)
    ///         })
    ///         .on(&*journal, async |mut tx| {
    ///             let note = sqlx::query("INSERT INTO entry (cents) VALUES (?)").bind(cents);
    ///             let entry = note.execute(&mut *tx).await?.last_insert_id();
    ///             tx.ready(entry)
    ///         })
    ///         .run()
    ///         .await?;
    ///     Ok((left, entry))
    /// }
    /// # }
    /// ```
    ///
    /// With one database it is an ordinary [`Ctx::tx`].
    pub fn tx_all<'a>(&self, name: impl Into<String>) -> TxAll<'a> {
        let mut step = self.step(name);
        step.class = Class::Tx;
        TxAll { step, table: TABLE.to_owned(), parts: Vec::new(), results: PhantomData }
    }
}

/// A transaction over several databases that has not begun. `R` is what it gives: a tuple with the result of each database in
/// their order, or a list of them.
#[must_use = "it begins with `.run()`, and is over when that is awaited"]
pub struct TxAll<'a, R = ()> {
    step: Step,
    table: String,
    parts: Vec<Box<dyn Member<'a> + 'a>>,
    results: PhantomData<fn() -> R>,
}

impl<R> fmt::Debug for TxAll<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.step.fmt(f)
    }
}

impl<'a, R> TxAll<'a, R> {
    fn with(self, change: impl FnOnce(Step) -> Step) -> Self {
        Self { step: change(self.step), ..self }
    }

    /// Tells this block from others of the same name: its path is `name[key]`.
    pub fn key(self, key: impl fmt::Display) -> Self {
        self.with(|step| step.key(key))
    }

    /// Counts the visits of this block: the second one is `name#2`.
    pub fn indexed(self) -> Self {
        self.with(Step::indexed)
    }

    /// How it is tried again. Three times, if nothing is said.
    pub fn retry(self, retry: Retry) -> Self {
        self.with(|step| step.retry(retry))
    }

    /// How long one try may take, until all branches are prepared. What is decided after that is carried out, however long
    /// it takes.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|step| step.timeout(timeout))
    }

    /// The name of the fence table in the databases that are added after this, if it is not [`TABLE`].
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Adds a database, and the body of its branch.
    ///
    /// The bodies are called in the order in which they were added. A body gives its branch back with [`Branch::ready`]. If one
    /// fails, nothing is committed anywhere, and the block is tried again as it says. A body must not wait for another one.
    ///
    /// The order is part of what is recorded: do not change it while runs are open that may be in the middle of the block.
    pub fn on<S, T, B, Fut>(mut self, source: &'a S, body: B) -> TxAll<'a, <R as Append<T>>::With>
    where
        R: Append<T>,
        S: TwoPhase,
        T: Serialize + DeserializeOwned + Send + 'a,
        B: FnMut(Branch<S>) -> Fut + Send + 'a,
        Fut: Future<Output = Result<Ready<S, T>>> + Send + 'a,
    {
        self.add(source, body);
        let Self { step, table, parts, .. } = self;
        TxAll { step, table, parts, results: PhantomData }
    }

    /// For databases that are known at run time only: all of them give a `T`, and the block gives a list. Add them with
    /// [`TxAll::push`].
    ///
    /// ```
    /// # #[cfg(feature = "sqlx-postgres")] mod example {
    /// use semel::tx::sqlx::{self, PgPool};
    /// use semel::{Ctx, Result};
    ///
    /// async fn everywhere(ctx: Ctx, country: String) -> Result<Vec<u64>> {
    ///     let pools = ctx.state::<Vec<PgPool>>();
    ///     let mut all = ctx.tx_all("open").list();
    ///     for pool in pools.iter() {
    ///         all.push(pool, async |mut tx| {
    ///             let open = sqlx::query("UPDATE shop SET open = true WHERE country = $1").bind(&country);
    ///             let shops = open.execute(&mut *tx).await?.rows_affected();
    ///             tx.ready(shops)
    ///         });
    ///     }
    ///     all.run().await
    /// }
    /// # }
    /// ```
    pub fn list<T>(self) -> TxAll<'a, Vec<T>>
    where
        R: NoResults,
    {
        let Self { step, table, parts, .. } = self;
        TxAll { step, table, parts, results: PhantomData }
    }

    fn add<S, T, B, Fut>(&mut self, source: &'a S, mut body: B)
    where
        S: TwoPhase,
        T: 'a,
        B: FnMut(Branch<S>) -> Fut + Send + 'a,
        Fut: Future<Output = Result<Ready<S, T>>> + Send + 'a,
    {
        let body = Box::new(move |branch| {
            let ran = body(branch);
            Box::pin(async move { Ok(ran.await?.untyped()) }) as Boxed<'a, Ready<S, ()>>
        });
        self.parts.push(Box::new(MemberOf { source, table: self.table.clone(), body }));
    }

    /// Runs it. What it gives is recorded: a replay calls no body.
    pub fn run(self) -> Doing<'a, R>
    where
        R: Branches + Send + 'a,
    {
        Doing::new(async move {
            let path = self.step.name().to_owned();
            R::read(&path, &coordinate::perform(self.step, self.parts).await?)
        })
    }
}

impl<'a, T> TxAll<'a, Vec<T>> {
    /// Adds a database to a list, and the body of its branch: see [`TxAll::list`].
    pub fn push<S, B, Fut>(&mut self, source: &'a S, body: B)
    where
        S: TwoPhase,
        T: Serialize + DeserializeOwned + Send + 'a,
        B: FnMut(Branch<S>) -> Fut + Send + 'a,
        Fut: Future<Output = Result<Ready<S, T>>> + Send + 'a,
    {
        self.add(source, body);
    }
}

/// One database's part of a transaction over several, while its body runs: an open transaction. It derefs to what statements
/// are executed with, as [`Tx`] does. Dropped, it is rolled back, and the whole block has failed.
pub struct Branch<S: TwoPhase> {
    tx: Tx<S>,
    /// None if it is the only one, which is not prepared.
    name: Option<BranchName>,
}

impl<S: TwoPhase> fmt::Debug for Branch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Branch").field(&self.name).finish()
    }
}

impl<S: TwoPhase> Deref for Branch<S> {
    type Target = S::Conn;

    fn deref(&self) -> &S::Conn {
        &self.tx
    }
}

impl<S: TwoPhase> DerefMut for Branch<S> {
    fn deref_mut(&mut self) -> &mut S::Conn {
        &mut self.tx
    }
}

impl<S: TwoPhase> Branch<S> {
    /// The attempt: its effect key, its fence, its number.
    pub fn attempt(&self) -> &Attempt {
        self.tx.attempt()
    }

    /// Says that the body is done, and with which result. Whether it is committed is decided when all databases are ready.
    pub fn ready<T: Serialize>(self, value: T) -> Result<Ready<S, T>> {
        let outcome = Payload::of(&value).map_err(fatal)?;
        Ok(Ready { branch: self, outcome, of: PhantomData })
    }
}

/// A branch whose body is done.
#[must_use = "the body gives it back"]
pub struct Ready<S: TwoPhase, T> {
    branch: Branch<S>,
    outcome: Payload,
    of: PhantomData<fn() -> T>,
}

impl<S: TwoPhase, T> fmt::Debug for Ready<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ready").field(&self.branch.name).finish()
    }
}

/// The prepared branches of ours in a database, the oldest first: with the run that each belongs to, and the time when it
/// began. A healthy system has them for moments only. One that is older than a few minutes belongs to a run that waits for
/// another database, or that was ended in between: look at its ledger for the decision. With a decision, commit it
/// ([`Dialect::commit_branch`](super::Dialect::commit_branch)); without one, and if the run has ended, roll it back.
///
/// MariaDB and MySQL list those of the whole server. MySQL wants the privilege `XA_RECOVER_ADMIN` for it.
pub async fn prepared_branches<S: TwoPhase>(source: &S) -> Result<Vec<BranchName>, Error> {
    let listed = source.prepared().await;
    let mut branches = listed.map_err(|fail| fail.of_database("cannot list prepared transactions"))?;
    branches.sort_by_key(|branch| branch.since);
    Ok(branches)
}

/// Results of the branches of a block, as its code wants them: tuples of up to eight, and lists.
pub trait Branches: Sized {
    /// Reads what a block has recorded; an error if that is something else.
    fn read(path: &str, results: &[Payload]) -> Result<Self>;
}

/// Results to which one more can be added.
pub trait Append<T> {
    /// The results with that one.
    type With;
}

/// The results of a block to which no database was added yet: it may become a list.
pub trait NoResults {}

impl NoResults for () {}

impl<T: DeserializeOwned> Branches for Vec<T> {
    fn read(path: &str, results: &[Payload]) -> Result<Self> {
        results.iter().map(|result| read(path, result)).collect()
    }
}

macro_rules! results {
    ($($name:ident)*) => {
        impl<$($name,)* New> Append<New> for ($($name,)*) {
            type With = ($($name,)* New,);
        }
    };
}

macro_rules! tuples {
    ($($count:literal: $($name:ident)+;)+) => {$(
        impl<$($name: DeserializeOwned),+> Branches for ($($name,)+) {
            fn read(path: &str, results: &[Payload]) -> Result<Self> {
                if results.len() != $count {
                    return Err(other(path, results.len(), $count));
                }
                let mut results = results.iter();
                Ok(($(read::<$name>(path, results.next().ok_or_else(|| other(path, 0, $count))?)?,)+))
            }
        }
    )+};
}

results!();
results!(A);
results!(A B);
results!(A B C);
results!(A B C D);
results!(A B C D E);
results!(A B C D E F);
results!(A B C D E F G);
tuples! {
    1: A;
    2: A B;
    3: A B C;
    4: A B C D;
    5: A B C D E;
    6: A B C D E F;
    7: A B C D E F G;
    8: A B C D E F G H;
}

fn other(path: &str, recorded: usize, expected: usize) -> Fail {
    fatal(format_args!("{path} has recorded {recorded} branches, and the code has {expected}"))
}

fn only_alone() -> Fail {
    fatal(
        "SQLite cannot prepare a transaction: it can be the only database of a block, but not one of several. Put its \
         statements into a step of their own with `ctx.tx`",
    )
}
