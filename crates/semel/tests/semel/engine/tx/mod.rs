//! Transactional steps: the user's rows and the step's outcome are there together, once, whatever happens in between.

#[cfg(all(feature = "sqlite", feature = "postgres", feature = "sqlx-postgres", feature = "sqlx-mysql"))]
pub(crate) mod all;
mod bank;
mod crash;
mod lost;
mod zombie;

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::engine::Builder;
use semel::rules::entry::FailureKind;
use semel::rules::status::Status;
use semel::store::{Lease, LeaseAct, Store, Sweep};
use semel::tx::{self, Dialect, TABLE, TxSource};
use semel::{Ctx, Fail, Result, Retry, RunHandle, fatal};

use self::bank::{Bank, Place};
use super::basics::Count;
use super::{Lab, trial};

/// The same test on several databases, named by them.
macro_rules! on {
    ($trials:ident, $test:ident, $name:literal: $($database:ident)*) => {
        $(on!(@ $trials, $test, $name, $database);)*
    };
    (@ $trials:ident, $test:ident, $name:literal, sqlite) => {
        #[cfg(feature = "sqlite")]
        $trials.push(trial(concat!("tx::", $name, "::sqlite"), $test::<semel::tx::SqliteDb>));
    };
    (@ $trials:ident, $test:ident, $name:literal, postgres) => {
        #[cfg(feature = "postgres")]
        $trials.push(trial(concat!("tx::", $name, "::postgres"), $test::<semel::tx::deadpool_postgres::Pool>));
    };
    (@ $trials:ident, $test:ident, $name:literal, sqlx_sqlite) => {
        #[cfg(feature = "sqlx-sqlite")]
        $trials.push(trial(concat!("tx::", $name, "::sqlx_sqlite"), $test::<semel::tx::sqlx::SqlitePool>));
    };
    (@ $trials:ident, $test:ident, $name:literal, sqlx_postgres) => {
        #[cfg(all(feature = "sqlx-postgres", feature = "postgres"))]
        $trials.push(trial(concat!("tx::", $name, "::sqlx_postgres"), $test::<semel::tx::sqlx::PgPool>));
    };
    (@ $trials:ident, $test:ident, $name:literal, sqlx_mysql) => {
        #[cfg(feature = "sqlx-mysql")]
        $trials.push(trial(concat!("tx::", $name, "::sqlx_mysql"), $test::<semel::tx::sqlx::MySqlPool>));
    };
}
use on;

pub(crate) fn trials() -> Vec<Trial> {
    let mut all = Vec::new();
    basic(&mut all);
    crash::trials(&mut all);
    zombie::trials(&mut all);
    lost::trials(&mut all);
    #[cfg(all(feature = "sqlite", feature = "postgres", feature = "sqlx-postgres", feature = "sqlx-mysql"))]
    {
        all.extend(self::all::trials());
        all.extend(self::all::servers::trials());
    }
    all
}

fn basic(all: &mut Vec<Trial>) {
    on!(all, together, "rows_and_outcome_are_one_commit": sqlite postgres sqlx_sqlite sqlx_postgres sqlx_mysql);
    on!(all, retried, "a_failed_body_is_rolled_back_and_tried_again": sqlite postgres sqlx_sqlite sqlx_postgres sqlx_mysql);
    on!(all, crowd, "fifty_runs_debit_one_account": sqlite postgres sqlx_sqlite sqlx_postgres sqlx_mysql);
    on!(all, forgotten, "a_body_without_its_commit_fails_and_is_rolled_back": sqlite postgres sqlx_mysql);
    on!(all, leaked, "a_transaction_that_outlives_its_try_cannot_commit": sqlite postgres sqlx_mysql);
    on!(all, too_long, "a_body_that_takes_too_long_is_rolled_back": sqlite postgres sqlx_mysql);
    on!(all, named, "the_fence_table_may_have_another_name": sqlite postgres sqlx_mysql);
    on!(all, missing, "a_missing_fence_table_is_an_error": sqlite postgres sqlx_mysql);
    on!(all, replayed, "a_dry_replay_asks_for_no_transaction_and_is_identical": sqlite postgres sqlx_mysql);
    on!(all, given_up, "a_begin_that_is_given_up_leaves_no_transaction_open": sqlite postgres sqlx_sqlite sqlx_postgres sqlx_mysql);
    #[cfg(feature = "sqlx-mysql")]
    all.push(trial("tx::a_transaction_that_its_body_ends_is_refused::sqlx_mysql", ended_inside));
    on!(all, own_sql, "sql_of_ones_own_can_refuse_a_zombie": sqlite postgres sqlx_mysql);
}

type Waiting = std::pin::Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// What happens in a body, between its beginning and its statements: decided by the number of the call.
#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) calls: Count,
    then: Arc<dyn Fn(u32) -> Waiting + Send + Sync>,
}

impl Script {
    pub(crate) fn new<F: Future<Output = Result<()>> + Send + 'static>(
        then: impl Fn(u32) -> F + Send + Sync + 'static,
    ) -> Self {
        Self { calls: Count::default(), then: Arc::new(move |call| Box::pin(then(call))) }
    }

    pub(crate) fn plain() -> Self {
        Self::new(async |_| Ok(()))
    }

    pub(crate) async fn play(&self) -> Result<()> {
        (self.then)(self.calls.up()).await
    }
}

pub(crate) async fn pay<S: Bank>(ctx: Ctx, cents: i64) -> Result<i64> {
    let (bank, script) = (ctx.state::<S>(), ctx.state::<Script>());
    ctx.tx("debit", &*bank)
        .retry(Retry::fixed(Duration::from_mins(1)))
        .run(async |mut tx| {
            script.play().await?;
            let left = S::debit(&mut tx, cents).await?;
            tx.commit(left).await
        })
        .await
}

/// An engine that pays.
pub(crate) fn payer<S: Bank>(lab: Builder, bank: &S, script: &Script) -> Builder {
    lab.state(bank.clone()).state(script.clone()).workflow("pay", pay::<S>)
}

/// Another connection sees what is written afterwards, whenever the call was given up.
async fn given_up<S: Bank>() -> Result<(), Failed> {
    let place = Place::new();
    let (bank, other): (S, S) = (place.fresh().await.map_err(said)?, S::open(&place).await.map_err(said)?);
    for polls in 1..20 {
        let mut begin = Box::pin(TxSource::begin(&bank));
        for _ in 0..polls {
            if std::future::poll_fn(|cx| std::task::Poll::Ready(begin.as_mut().poll(cx).is_ready())).await {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(begin);
        bank.script("INSERT INTO entry VALUES (1)").await.map_err(said)?;
        assert_eq!(
            other.number("SELECT count(*) FROM entry").await.map_err(said)?,
            polls,
            "after {polls} polls"
        );
    }
    Ok(())
}

/// Takes a run from the engine that drives it, as if its lease had ended. Nothing is taken from a run that has ended.
pub(crate) async fn take_away<T>(store: &Arc<dyn Store>, run: &RunHandle<T>) -> semel::error::Result<()> {
    let header = run.header().await?;
    if header.status().is_terminal() {
        return Ok(());
    }
    let node = header.state.node.expect("it is driven");
    store.lease(Lease { node, act: LeaseAct::Leave }).await?;
    store.sweep(Sweep { limit: 100 }).await?;
    Ok(())
}

/// A failure outside of a workflow.
#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
pub(crate) fn said(fail: Fail) -> Failed {
    format!("{fail:?}").into()
}

async fn together<S: Bank>() -> Result<(), Failed> {
    let (lab, place, script) = (Lab::new(), Place::new(), Script::plain());
    let bank: S = place.fresh().await.map_err(said)?;
    let engine = payer(lab.engine(), &bank, &script).open().await?;
    let run = engine.start(pay::<S>, 30).await?;
    assert_eq!(run.result().await?, 970);
    assert_eq!(bank.state().await.map_err(said)?, (970, 1, 1));
    let kinds: Vec<_> = run.ledger().await?.into_iter().map(|n| n.entry.kind()).collect();
    assert_eq!(kinds, ["created", "claimed", "stepStarted", "stepCompleted", "completed"]);
    let exact = "SELECT count(*) FROM fenced_task_idempotency_lock WHERE outcome = '970' AND fence = 2 AND attempt = 1 \
                 AND step = 'debit' AND length(effect_key) = 34 AND settled IS NOT NULL";
    assert_eq!(bank.number(exact).await.map_err(said)?, 1);
    Ok(())
}

async fn retried<S: Bank>() -> Result<(), Failed> {
    let (lab, place) = (Lab::new(), Place::new());
    let bank: S = place.fresh().await.map_err(said)?;
    let engine = lab.engine().state(bank.clone()).state(Count::default());
    let engine = engine.workflow("late", late::<S>).open().await?;
    let run = engine.start(late::<S>, 30).await?;
    lab.until(async || run.status().await.is_ok_and(|status| status == Status::Waiting)).await;
    assert_eq!(bank.state().await.map_err(said)?, (1000, 0, 0), "what the body wrote is rolled back");
    lab.clock.advance(Duration::from_mins(1));
    assert_eq!(run.result().await?, 970);
    assert_eq!(bank.state().await.map_err(said)?, (970, 1, 1));
    Ok(())
}

/// Fails after its statements, the first time.
async fn late<S: Bank>(ctx: Ctx, cents: i64) -> Result<i64> {
    let (bank, calls) = (ctx.state::<S>(), ctx.state::<Count>());
    ctx.tx("debit", &*bank)
        .retry(Retry::fixed(Duration::from_mins(1)))
        .run(async |mut tx| {
            let left = S::debit(&mut tx, cents).await?;
            if calls.up() == 1 {
                return Err(Fail::retryable("not yet"));
            }
            tx.commit(left).await
        })
        .await
}

async fn crowd<S: Bank>() -> Result<(), Failed> {
    let (lab, place, script) = (Lab::new(), Place::new(), Script::plain());
    let bank: S = place.fresh().await.map_err(said)?;
    let engine = payer(lab.engine(), &bank, &script).open().await?;
    let mut runs = Vec::new();
    for n in 0..50 {
        runs.push(engine.start(pay::<S>, 10).key(format!("order-{n}")).await?);
    }
    let mut left = Vec::new();
    for run in &runs {
        left.push(run.result().await?);
    }
    left.sort_unstable();
    let expected: Vec<i64> = (0..50).map(|n| 500 + n * 10).collect();
    assert_eq!(left, expected, "no two transfers have seen the same balance");
    assert_eq!(bank.state().await.map_err(said)?, (500, 50, 50));
    Ok(())
}

/// The first step fails after it has committed, and keeps the proof; the second gives that proof for its own.
async fn cheat<S: Bank>(ctx: Ctx, cents: i64) -> Result<i64> {
    let bank = ctx.state::<S>();
    let kept = std::sync::Mutex::new(None);
    let left: i64 = ctx
        .tx("honest", &*bank)
        .run(async |mut tx| {
            let left = S::debit(&mut tx, cents).await?;
            *kept.lock().expect("no test panics with it") = Some(tx.commit(left).await?);
            Err(fatal("too late to fail"))
        })
        .await?;
    ctx.tx("cheat", &*bank)
        .run(async |mut tx| {
            S::debit(&mut tx, cents).await?;
            kept.lock().expect("no test panics with it").take().ok_or_else(|| fatal("no proof"))
        })
        .await
        .map(|_| left)
}

async fn forgotten<S: Bank>() -> Result<(), Failed> {
    let (lab, place) = (Lab::new(), Place::new());
    let bank: S = place.fresh().await.map_err(said)?;
    let engine = lab.engine().state(bank.clone()).workflow("cheat", cheat::<S>).open().await?;
    let run = engine.start(cheat::<S>, 30).await?;
    let failed = run.result().await.expect_err("it must not succeed").to_string();
    assert!(failed.contains("cheat: the body has ended without `tx.commit(..)`"), "{failed}");
    assert_eq!(bank.state().await.map_err(said)?, (970, 1, 1), "the first step counts, the second does not");
    Ok(())
}

/// Transactions that a body has given to a task of its own: what lets the task commit, and the task.
type Leak = tokio::sync::mpsc::UnboundedSender<(Arc<tokio::sync::Notify>, tokio::task::JoinHandle<bool>)>;

async fn leak<S: Bank>(ctx: Ctx, cents: i64) -> Result<i64> {
    let (bank, leaks) = (ctx.state::<S>(), ctx.state::<Leak>());
    ctx.tx("debit", &*bank)
        .run(async |mut tx| {
            let go = Arc::new(tokio::sync::Notify::new());
            let told = go.clone();
            let task = tokio::spawn(async move {
                told.notified().await;
                S::debit(&mut tx, cents).await.expect("the transaction is open");
                tx.commit(0).await.is_ok()
            });
            leaks.send((go, task)).expect("the test listens");
            Err(fatal("the body has given up"))
        })
        .await
}

async fn leaked<S: Bank>() -> Result<(), Failed> {
    let (lab, place) = (Lab::new(), Place::new());
    let (sender, mut leaks) = tokio::sync::mpsc::unbounded_channel();
    let bank: S = place.fresh().await.map_err(said)?;
    let engine =
        lab.engine().state(bank.clone()).state::<Leak>(sender).workflow("leak", leak::<S>).open().await?;
    let run = engine.start(leak::<S>, 30).await?;
    assert!(
        run.result().await.expect_err("it must not succeed").to_string().contains("the body has given up")
    );
    let (go, task) = leaks.recv().await.expect("the body has sent it");
    go.notify_one();
    assert!(!task.await?, "the step has failed already");
    assert_eq!(bank.state().await.map_err(said)?, (1000, 0, 0));
    Ok(())
}

async fn too_long<S: Bank>() -> Result<(), Failed> {
    let (lab, place) = (Lab::new(), Place::new());
    let bank: S = place.fresh().await.map_err(said)?;
    let calls = Count::default();
    let engine =
        lab.engine().state(bank.clone()).state(calls.clone()).workflow("slow", slow::<S>).open().await?;
    let run = engine.start(slow::<S>, 30).await?;
    lab.until(async || calls.get() == 1).await;
    lab.clock.advance(Duration::from_secs(10));
    let semel::Error::Ended { outcome, .. } = run.result().await.expect_err("it must not succeed") else {
        panic!("it has ended")
    };
    let semel::rules::entry::Outcome::Failed(failure) = *outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.kind, FailureKind::Timeout);
    assert_eq!(bank.state().await.map_err(said)?, (1000, 0, 0));
    Ok(())
}

async fn slow<S: Bank>(ctx: Ctx, cents: i64) -> Result<i64> {
    let (bank, calls) = (ctx.state::<S>(), ctx.state::<Count>());
    ctx.tx("debit", &*bank)
        .retry(Retry::none())
        .timeout(Duration::from_secs(10))
        .run(async |mut tx| {
            S::debit(&mut tx, cents).await?;
            calls.up();
            std::future::pending::<()>().await;
            tx.commit(0).await
        })
        .await
}

async fn own_name<S: Bank>(ctx: Ctx, table: String) -> Result<i64> {
    let bank = ctx.state::<S>();
    let step = ctx.tx("debit", &*bank).table(table).key("mine").indexed().retry(Retry::none());
    step.run(async |mut tx| {
        let left = S::debit(&mut tx, 30).await?;
        tx.commit(left).await
    })
    .await
}

async fn named<S: Bank>() -> Result<(), Failed> {
    let (lab, place) = (Lab::new(), Place::new());
    let bank: S = place.fresh().await.map_err(said)?;
    for _ in 0..2 {
        tx::install_as(&bank, "billing_lock").await?;
    }
    let engine = lab.engine().state(bank.clone()).workflow("pay", own_name::<S>).open().await?;
    assert_eq!(engine.start(own_name::<S>, "billing_lock".to_owned()).await?.result().await?, 970);
    let there =
        bank.number("SELECT count(*) FROM billing_lock WHERE step = 'debit[mine]'").await.map_err(said)?;
    assert_eq!((there, bank.state().await.map_err(said)?), (1, (970, 1, 0)));
    Ok(())
}

async fn missing<S: Bank>() -> Result<(), Failed> {
    let (lab, place) = (Lab::new(), Place::new());
    let bank: S = place.fresh().await.map_err(said)?;
    let engine = lab.engine().state(bank.clone()).workflow("pay", own_name::<S>).open().await?;
    for (table, why) in [("nowhere", "nowhere"), ("a;b", "is no name for a fence table")] {
        let failed = engine
            .start(own_name::<S>, table.to_owned())
            .await?
            .result()
            .await
            .expect_err("it must not succeed")
            .to_string();
        assert!(failed.contains(why), "{failed}");
    }
    assert_eq!(bank.state().await.map_err(said)?, (1000, 0, 0));
    Ok(())
}

/// The statement for one's own SQL, played as two owners of a run and a run of its own would.
async fn own_sql<S: Bank>() -> Result<(), Failed> {
    let bank: S = Place::new().fresh().await.map_err(said)?;
    let fence = S::DIALECT.fence(TABLE)?;
    let place = match S::DIALECT {
        Dialect::Postgres => "$3",
        Dialect::Sqlite => "?3",
        Dialect::Mysql => "?",
    };
    assert!(fence.contains(place));
    for (run, number, touched) in [("a", 5, 1), ("a", 5, 1), ("a", 7, 1), ("a", 5, 0), ("fork", 3, 1)] {
        let sql = fence.replace("$1", "'e1'").replace("?1", "'e1'");
        let sql = sql.replace("$2", &format!("'{run}'")).replace("?2", &format!("'{run}'"));
        let sql = sql.replace("$3", &number.to_string()).replace("?3", &number.to_string());
        let (run, number_text) = (format!("'{run}'"), number.to_string());
        let values = ["'e1'", &run, &number_text, &run, &number_text, "'e1'", &run, &number_text];
        let sql = values.iter().fold(sql, |sql, value| sql.replacen('?', value, 1));
        let before = bank.number("SELECT coalesce(max(fence), 0) FROM fenced_task_idempotency_lock").await;
        bank.script(&sql).await.map_err(said)?;
        let after = bank.number("SELECT max(fence) FROM fenced_task_idempotency_lock").await.map_err(said)?;
        let expected = if touched == 1 { number } else { before.map_err(said)? };
        assert_eq!(after, expected, "{run} {number}");
    }
    Ok(())
}

/// MariaDB and MySQL commit before some statements, and would commit the outcome without the rows, or rows alone.
#[cfg(feature = "sqlx-mysql")]
async fn ended_inside() -> Result<(), Failed> {
    let (lab, place) = (Lab::new(), Place::new());
    let bank: tx::sqlx::MySqlPool = place.fresh().await.map_err(said)?;
    let engine = lab.engine().state(bank.clone()).workflow("ends", ends_inside).open().await?;
    for how in ["COMMIT", "CREATE TABLE another (cents bigint)", "ROLLBACK"] {
        let run = engine.start(ends_inside, how.to_owned()).await?;
        let failed = run.result().await.expect_err("it must not succeed").to_string();
        assert!(failed.contains("was ended inside of the body"), "{how}: {failed}");
    }
    assert_eq!(bank.state().await.map_err(said)?.2, 0, "there is no outcome");
    Ok(())
}

#[cfg(feature = "sqlx-mysql")]
async fn ends_inside(ctx: Ctx, how: String) -> Result<i64> {
    let bank = ctx.state::<tx::sqlx::MySqlPool>();
    ctx.tx("debit", &*bank)
        .retry(Retry::none())
        .run(async |mut tx| {
            tx::sqlx::raw_sql(tx::sqlx::AssertSqlSafe(how.clone())).execute(&mut *tx).await?;
            tx.commit(0).await
        })
        .await
}

async fn replayed<S: Bank>() -> Result<(), Failed> {
    let (lab, place, script) = (Lab::new(), Place::new(), Script::plain());
    let bank: S = place.fresh().await.map_err(said)?;
    let engine = payer(lab.engine(), &bank, &script).open().await?;
    let run = engine.start(pay::<S>, 7).await?;
    assert_eq!(run.result().await?, 993);
    let replay = engine.replay(run.id()).await?;
    assert!(replay.is_identical(), "{replay}");
    assert_eq!(script.calls.get(), 1);
    Ok(())
}
