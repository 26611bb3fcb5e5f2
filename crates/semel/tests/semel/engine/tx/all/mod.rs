//! Transactions over several databases: all of them commit, or none, whatever happens in between.

mod alone;
mod branches;
mod line;
pub(crate) mod servers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::engine::Builder;
use semel::rules::status::Status;
use semel::store::Store;
use semel::store::faulty::{Fault, Faulty};
use semel::tx::{Dialect, TwoPhase};
use semel::{Ctx, Engine, Result, Retry, RunHandle};

use self::line::{Accounts, Line, Pair, Stop};
use super::super::{Lab, trial};
use super::bank::Bank;
use super::{Script, said, take_away};

/// The pairs of databases that each test is made with.
macro_rules! pairs {
    ($trials:ident, $test:ident, $name:literal) => {
        $trials.extend([
            trial(
                concat!("tx_all::", $name, "::postgres_mysql"),
                $test::<semel::tx::deadpool_postgres::Pool, semel::tx::sqlx::MySqlPool>,
            ),
            trial(
                concat!("tx_all::", $name, "::mysql_sqlx_postgres"),
                $test::<semel::tx::sqlx::MySqlPool, semel::tx::sqlx::PgPool>,
            ),
        ]);
    };
}
use pairs;

pub(crate) fn trials() -> Vec<Trial> {
    let mut all = Vec::new();
    pairs!(all, together, "both_databases_commit_together");
    pairs!(all, crashed_before, "a_crash_before_every_line_leaves_both_once");
    pairs!(all, crashed_during, "a_crash_in_the_middle_of_every_line_leaves_both_once");
    pairs!(all, crashed_after, "a_crash_after_every_line_leaves_both_once");
    pairs!(all, zombies_before, "a_zombie_before_every_line_changes_nothing");
    pairs!(all, zombies_after, "a_zombie_after_every_line_changes_nothing");
    pairs!(all, failing, "every_line_may_fail");
    pairs!(all, lost, "the_answer_of_every_line_may_be_lost");
    pairs!(all, lied_to, "a_commit_that_was_answered_and_not_made_is_made");
    pairs!(all, recovering, "a_crash_at_every_line_of_the_recovery_leaves_both_once");
    branches::trials(&mut all);
    alone::trials(&mut all);
    all
}

type Both<A, B> = Pair<A, B>;

/// Takes money from both accounts.
pub(crate) async fn book<A: Bank + TwoPhase, B: Bank + TwoPhase>(ctx: Ctx, cents: i64) -> Result<(i64, i64)> {
    let (pair, script) = (ctx.state::<Both<A, B>>(), ctx.state::<Script>());
    ctx.tx_all("book")
        .retry(Retry::fixed(Duration::from_mins(1)))
        .on(&pair.left, async |mut tx| {
            let left = A::debit(&mut tx, cents).await?;
            tx.ready(left)
        })
        .on(&pair.right, async |mut tx| {
            script.play().await?;
            let left = B::debit(&mut tx, cents).await?;
            tx.ready(left)
        })
        .run()
        .await
}

/// An engine that books, over a line.
fn booker<A: Bank + TwoPhase, B: Bank + TwoPhase>(
    lab: Builder,
    accounts: &Accounts<A, B>,
    line: &Arc<Line>,
    script: &Script,
) -> Builder {
    lab.state(accounts.through(line)).state(script.clone()).workflow("book", book::<A, B>)
}

/// An engine that neither hears of its loss nor learns of it from its lease.
async fn unaware<A: Bank + TwoPhase, B: Bank + TwoPhase>(
    lab: &Lab,
    accounts: &Accounts<A, B>,
    line: &Arc<Line>,
    script: &Script,
) -> semel::error::Result<Engine> {
    let leases = AtomicU32::new(0);
    let faults = move |call| {
        let joined = call == "lease" && leases.fetch_add(1, Ordering::SeqCst) > 0;
        joined.then_some(Fault::Before)
    };
    let store = Faulty::new(lab.store.clone(), faults).deaf();
    booker(lab.engine().store(Arc::new(store) as Arc<dyn Store>), accounts, line, script).open().await
}

const BOTH: [(i64, i64, i64); 2] = [(970, 1, 1), (970, 1, 1)];
const NONE: [(i64, i64, i64); 2] = [(1000, 0, 0), (1000, 0, 0)];

/// Advances the clock slowly until the condition is true: the databases have to answer within thirty seconds of that clock.
/// Each advance takes as long as some questions to the databases.
async fn slowly<A: Bank + TwoPhase, B: Bank + TwoPhase>(
    lab: &Lab,
    accounts: &Accounts<A, B>,
    so: impl AsyncFn() -> bool,
) {
    while !so().await {
        lab.clock.advance(Duration::from_millis(5));
        // A server that is being restarted does not answer.
        drop(accounts.state().await);
        tokio::task::yield_now().await;
    }
}

/// Waits until a run has ended, or waits for an operator. Nothing is under way between two attempts: that time may pass at once.
async fn ended<A: Bank + TwoPhase, B: Bank + TwoPhase>(
    lab: &Lab,
    accounts: &Accounts<A, B>,
    run: &RunHandle<(i64, i64)>,
) {
    slowly(lab, accounts, async || {
        let status = run.status().await;
        if status.as_ref().is_ok_and(|status| *status == Status::Waiting) {
            lab.clock.advance(Duration::from_mins(1));
        }
        status.is_ok_and(|status| status.is_terminal() || status == Status::Paused)
    })
    .await;
}

/// Both accounts are as they should be, and nothing is left prepared.
async fn is_settled<A: Bank + TwoPhase, B: Bank + TwoPhase>(
    accounts: &Accounts<A, B>,
    run: &RunHandle<(i64, i64)>,
    context: &str,
) -> Result<(), Failed> {
    let left = accounts.prepared(&run.id().to_string()).await.map_err(said)?;
    let (status, doubts) = (run.status().await?, run.doubts().await?);
    assert_eq!(left, [], "{context}: branches are left over, {status} {doubts:?}");
    assert_eq!(accounts.state().await.map_err(said)?, BOTH, "{context}: {status} {doubts:?}");
    assert_eq!(status, Status::Completed, "{context}: {doubts:?}");
    Ok(())
}

/// Waits until an engine makes no more calls: whatever it does next takes fewer turns than this.
async fn quiet<A: Bank + TwoPhase, B: Bank + TwoPhase>(
    lab: &Lab,
    accounts: &Accounts<A, B>,
    line: &Line,
) -> Result<(), Failed> {
    let (mut calls, mut turns) = (line.log().len(), 0);
    while turns < 40 {
        lab.clock.advance(Duration::from_millis(1));
        accounts.state().await.map_err(said)?;
        turns = if line.log().len() == calls { turns + 1 } else { 0 };
        calls = line.log().len();
    }
    Ok(())
}

async fn together<A: Bank + TwoPhase, B: Bank + TwoPhase>() -> Result<(), Failed> {
    let (lab, line, script) = (Lab::apart(), Line::free(), Script::plain());
    let accounts = Accounts::<A, B>::open().await.map_err(said)?;
    let engine = booker(lab.engine(), &accounts, &line, &script).open().await?;
    let run = engine.start(book::<A, B>, 30).await?;
    assert_eq!(run.result().await?, (970, 970));
    is_settled(&accounts, &run, "undisturbed").await?;
    assert_eq!(line.log(), undisturbed::<A, B>());
    let ledger: Vec<String> =
        run.ledger().await?.iter().map(|numbered| numbered.entry.kind().to_owned()).collect();
    assert_eq!(ledger[2..], ["stepStarted", "recorded", "stepCompleted", "completed"], "{ledger:?}");
    let replay = engine.replay(run.id()).await?;
    assert!(replay.is_identical(), "{replay}");
    Ok(())
}

/// The calls of a block that nothing disturbs.
fn undisturbed<A: Bank, B: Bank>() -> Vec<&'static str> {
    let prepare = ["begin_branch", "find", "put", "prepare"];
    [&prepare, &prepare, committing::<A>(), committing::<B>()].concat()
}

/// The calls that commit one branch. On MariaDB the answer is checked by another call.
fn committing<S: Bank>() -> &'static [&'static str] {
    match S::DIALECT {
        Dialect::Mysql => &["script", "begin", "find", "rollback"],
        _ => &["script"],
    }
}

/// The number of the call that commits the first branch.
const FIRST_COMMIT: u32 = 9;

/// The number of the call that commits the second branch.
fn second_commit<A: Bank>() -> u32 {
    FIRST_COMMIT + committing::<A>().len() as u32
}

fn lines<A: Bank, B: Bank>() -> u32 {
    undisturbed::<A, B>().len() as u32
}

async fn crashed_before<A: Bank + TwoPhase, B: Bank + TwoPhase>() -> Result<(), Failed> {
    for number in 1..=lines::<A, B>() {
        crashed::<A, B>(number, Stop::Before).await?;
    }
    Ok(())
}

async fn crashed_during<A: Bank + TwoPhase, B: Bank + TwoPhase>() -> Result<(), Failed> {
    for number in 1..=lines::<A, B>() {
        crashed::<A, B>(number, Stop::During).await?;
    }
    Ok(())
}

async fn crashed_after<A: Bank + TwoPhase, B: Bank + TwoPhase>() -> Result<(), Failed> {
    for number in 1..=lines::<A, B>() {
        crashed::<A, B>(number, Stop::After).await?;
    }
    Ok(())
}

/// The engine dies at a call, and another one takes the run over.
async fn crashed<A: Bank + TwoPhase, B: Bank + TwoPhase>(number: u32, stop: Stop) -> Result<(), Failed> {
    let (lab, line) = (Lab::apart(), Line::stops(number, stop));
    let accounts = Accounts::<A, B>::open().await.map_err(said)?;
    let engine = booker(lab.engine(), &accounts, &line, &Script::plain()).open().await?;
    let run = engine.start(book::<A, B>, 30).await?;
    line.stopped().await;
    engine.crash().await;
    take_away(&lab.store, &run).await?;
    let engine = booker(lab.engine(), &accounts, &Line::free(), &Script::plain()).open().await?;
    let run = engine.run(run.id()).typed::<(i64, i64)>();
    ended(&lab, &accounts, &run).await;
    assert_eq!(run.result().await?, (970, 970), "a crash {stop:?} call {number}");
    is_settled(&accounts, &run, &format!("a crash {stop:?} call {number}")).await
}

async fn zombies_before<A: Bank + TwoPhase, B: Bank + TwoPhase>() -> Result<(), Failed> {
    for number in 1..=lines::<A, B>() {
        zombie::<A, B>(number, Stop::Before).await?;
    }
    Ok(())
}

async fn zombies_after<A: Bank + TwoPhase, B: Bank + TwoPhase>() -> Result<(), Failed> {
    for number in 1..=lines::<A, B>() {
        zombie::<A, B>(number, Stop::After).await?;
    }
    Ok(())
}

/// The engine stands still at a call, loses its run to another one, and goes on when the other has finished.
async fn zombie<A: Bank + TwoPhase, B: Bank + TwoPhase>(number: u32, stop: Stop) -> Result<(), Failed> {
    let (lab, line) = (Lab::apart(), Line::stops(number, stop));
    let accounts = Accounts::<A, B>::open().await.map_err(said)?;
    let zombie = unaware(&lab, &accounts, &line, &Script::plain()).await?;
    let run = zombie.start(book::<A, B>, 30).await?;
    line.stopped().await;
    take_away(&lab.store, &run).await?;
    let owner = booker(lab.engine(), &accounts, &Line::free(), &Script::plain()).open().await?;
    let run = owner.run(run.id()).typed::<(i64, i64)>();
    // Where the zombie holds rows without having prepared, the new owner can only wait for its session to end.
    let call = undisturbed::<A, B>()[number as usize - 1];
    if call == "put" || (call, stop) == ("prepare", Stop::Before) {
        line.let_go();
    }
    ended(&lab, &accounts, &run).await;
    assert_eq!(run.result().await?, (970, 970), "a zombie {stop:?} call {number}");
    line.let_go();
    quiet(&lab, &accounts, &line).await?;
    is_settled(&accounts, &run, &format!("a zombie {stop:?} call {number}")).await
}

async fn failing<A: Bank + TwoPhase, B: Bank + TwoPhase>() -> Result<(), Failed> {
    for number in 1..=lines::<A, B>() {
        disturbed::<A, B>(number, Stop::Fails).await?;
    }
    Ok(())
}

async fn lost<A: Bank + TwoPhase, B: Bank + TwoPhase>() -> Result<(), Failed> {
    for number in 1..=lines::<A, B>() {
        disturbed::<A, B>(number, Stop::Lost).await?;
    }
    Ok(())
}

/// MariaDB answers that a branch is committed, and it is not.
async fn lied_to<A: Bank + TwoPhase, B: Bank + TwoPhase>() -> Result<(), Failed> {
    let of_mysql = if A::DIALECT == Dialect::Mysql { FIRST_COMMIT } else { second_commit::<A>() };
    disturbed::<A, B>(of_mysql, Stop::Lies).await
}

/// One call fails, and the engine lives.
async fn disturbed<A: Bank + TwoPhase, B: Bank + TwoPhase>(number: u32, stop: Stop) -> Result<(), Failed> {
    let (lab, line) = (Lab::apart(), Line::stops(number, stop));
    let accounts = Accounts::<A, B>::open().await.map_err(said)?;
    let engine = booker(lab.engine(), &accounts, &line, &Script::plain()).open().await?;
    let run = engine.start(book::<A, B>, 30).await?;
    ended(&lab, &accounts, &run).await;
    assert_eq!(run.result().await?, (970, 970), "{stop:?} at call {number}: {:?}", line.log());
    is_settled(&accounts, &run, &format!("{stop:?} at call {number}: {:?}", line.log())).await
}

/// The first engine dies when both branches are prepared; the second dies at each of its own calls; the third finishes.
async fn recovering<A: Bank + TwoPhase, B: Bank + TwoPhase>() -> Result<(), Failed> {
    for number in 1.. {
        let stop = Stop::After;
        let (lab, first) = (Lab::apart(), Line::stops(8, Stop::After));
        let accounts = Accounts::<A, B>::open().await.map_err(said)?;
        let engine = booker(lab.engine(), &accounts, &first, &Script::plain()).open().await?;
        let run = engine.start(book::<A, B>, 30).await?;
        first.stopped().await;
        engine.crash().await;
        take_away(&lab.store, &run).await?;
        let second = Line::stops(number, stop);
        let engine = booker(lab.engine(), &accounts, &second, &Script::plain()).open().await?;
        let run = engine.run(run.id()).typed::<(i64, i64)>();
        slowly(&lab, &accounts, async || {
            second.has_met() || run.status().await.is_ok_and(Status::is_terminal)
        })
        .await;
        let is_through = !second.has_met();
        if !is_through {
            engine.crash().await;
            take_away(&lab.store, &run).await?;
        }
        let engine = booker(lab.engine(), &accounts, &Line::free(), &Script::plain()).open().await?;
        let run = engine.run(run.id()).typed::<(i64, i64)>();
        ended(&lab, &accounts, &run).await;
        is_settled(&accounts, &run, &format!("a second crash {stop:?} call {number}: {:?}", second.log()))
            .await?;
        if is_through {
            assert!(number > 20, "there are more lines than that: {:?}", second.log());
            return Ok(());
        }
    }
    Ok(())
}
