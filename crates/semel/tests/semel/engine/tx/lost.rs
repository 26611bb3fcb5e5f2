//! A COMMIT whose answer is lost: the table is asked, and nothing is guessed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::rules::status::Status;
use semel::{Ctx, Result, Retry};
use tokio::sync::Notify;

use super::bank::{Bank, Cut, Place, Tap, Tapped};
use super::{Lab, Script, on, pay, payer, said, trial};

pub(super) fn trials(all: &mut Vec<Trial>) {
    on!(all, after, "a_commit_whose_answer_is_lost_took_place_once": sqlite postgres sqlx_sqlite sqlx_postgres sqlx_mysql);
    on!(all, before, "a_commit_that_did_not_take_place_is_tried_again": sqlite postgres sqlx_sqlite sqlx_postgres sqlx_mysql);
    on!(all, later, "a_commit_that_is_still_under_way_is_waited_for": postgres sqlx_postgres sqlx_mysql);
    on!(all, silent, "a_commit_that_takes_too_long_is_asked_about": postgres sqlx_postgres sqlx_mysql);
    on!(all, unanswered, "a_commit_without_an_answer_is_asked_about": postgres sqlx_postgres sqlx_mysql);
    on!(all, deaf, "a_connection_without_answers_is_given_up": sqlite postgres sqlx_sqlite sqlx_postgres sqlx_mysql);
    on!(all, abandoned, "a_transaction_that_is_left_alone_before_its_commit_makes_room": postgres sqlx_postgres sqlx_mysql);
    on!(all, killed, "a_server_that_dies_in_the_commit_is_asked_again": postgres sqlx_postgres);
    on!(all, died, "a_session_that_ends_before_its_commit_is_asked_about": postgres sqlx_postgres sqlx_mysql);
}

async fn after<S: Bank>() -> Result<(), Failed> {
    let (lab, place, script, tap) = (Lab::new(), Place::new(), Script::plain(), Arc::new(Tap::default()));
    let bank: S = place.fresh().await.map_err(said)?;
    *tap.cut.lock().expect("no test panics with it") = Some(Cut::After);
    let engine = payer(lab.engine(), &Tapped::new(&bank, &tap), &script).open().await?;
    assert_eq!(engine.start(pay::<Tapped<S>>, 30).await?.result().await?, 970);
    assert_eq!((script.calls.get(), bank.state().await.map_err(said)?), (1, (970, 1, 1)));
    Ok(())
}

async fn before<S: Bank>() -> Result<(), Failed> {
    tried_again::<S>(Cut::Before, Duration::ZERO).await
}

/// Its connection is gone, and the pool may have to find that out for others too.
async fn died<S: Bank>() -> Result<(), Failed> {
    tried_again::<S>(Cut::Died, Duration::ZERO).await
}

/// Its row is locked until the server ends it.
async fn abandoned<S: Bank>() -> Result<(), Failed> {
    tried_again::<S>(Cut::Abandoned, PATIENCE).await
}

/// A commit that does not take place, and is given up after a while.
async fn tried_again<S: Bank>(cut: Cut, after: Duration) -> Result<(), Failed> {
    let (lab, place, script, tap) = (Lab::new(), Place::new(), Script::plain(), Arc::new(Tap::default()));
    let bank: S = place.fresh().await.map_err(said)?;
    *tap.cut.lock().expect("no test panics with it") = Some(cut);
    let engine = payer(lab.engine(), &Tapped::new(&bank, &tap), &script).open().await?;
    let run = engine.start(pay::<Tapped<S>>, 30).await?;
    tap.ends.notified().await;
    lab.clock.advance(after);
    lab.until(async || run.status().await.is_ok_and(|status| status == Status::Waiting)).await;
    assert_eq!((script.calls.get(), bank.state().await.map_err(said)?), (1, (1000, 0, 0)));
    lab.clock.advance(Duration::from_mins(1));
    assert_eq!(run.result().await?, 970);
    assert_eq!((script.calls.get(), bank.state().await.map_err(said)?), (2, (970, 1, 1)));
    Ok(())
}

async fn later<S: Bank>() -> Result<(), Failed> {
    let (lab, place, script, tap) = (Lab::new(), Place::new(), Script::plain(), Arc::new(Tap::default()));
    let bank: S = place.fresh().await.map_err(said)?;
    let go = Arc::new(Notify::new());
    *tap.cut.lock().expect("no test panics with it") = Some(Cut::Later(go.clone()));
    let engine = payer(lab.engine(), &Tapped::new(&bank, &tap), &script).open().await?;
    let run = engine.start(pay::<Tapped<S>>, 30).await?;
    lab.until(async || asks(&bank).await).await;
    go.notify_one();
    assert_eq!(run.result().await?, 970);
    assert_eq!((script.calls.get(), bank.state().await.map_err(said)?), (1, (970, 1, 1)));
    Ok(())
}

/// Whether a session waits for a row that another transaction is about to commit.
async fn asks<S: Bank>(bank: &S) -> bool {
    bank.number(S::WAITING).await.is_ok_and(|waits| waits == 1)
}

/// A step whose time is over in the middle of its COMMIT.
async fn silent<S: Bank>() -> Result<(), Failed> {
    let (lab, place, tap, go) = (Lab::new(), Place::new(), Arc::new(Tap::default()), Arc::new(Notify::new()));
    let bank: S = place.fresh().await.map_err(said)?;
    *tap.cut.lock().expect("no test panics with it") = Some(Cut::Silent(go.clone()));
    let engine = lab.engine().state(Tapped::new(&bank, &tap)).workflow("brief", brief::<S>).open().await?;
    let run = engine.start(brief::<S>, 30).await?;
    tap.ends.notified().await;
    lab.clock.advance(Duration::from_secs(10));
    lab.until(async || asks(&bank).await).await;
    go.notify_one();
    assert_eq!(run.result().await?, 970);
    assert_eq!(bank.state().await.map_err(said)?, (970, 1, 1));
    Ok(())
}

/// Longer than any database may take to answer.
const PATIENCE: Duration = Duration::from_mins(1);

/// The step has no limit of its own.
async fn unanswered<S: Bank>() -> Result<(), Failed> {
    let (lab, place, script, tap) = (Lab::new(), Place::new(), Script::plain(), Arc::new(Tap::default()));
    let (bank, go) = (place.fresh::<S>().await.map_err(said)?, Arc::new(Notify::new()));
    *tap.cut.lock().expect("no test panics with it") = Some(Cut::Silent(go.clone()));
    let engine = payer(lab.engine(), &Tapped::new(&bank, &tap), &script).open().await?;
    let run = engine.start(pay::<Tapped<S>>, 30).await?;
    tap.ends.notified().await;
    lab.clock.advance(PATIENCE);
    lab.until(async || asks(&bank).await).await;
    go.notify_one();
    assert_eq!(run.result().await?, 970);
    assert_eq!((script.calls.get(), bank.state().await.map_err(said)?), (1, (970, 1, 1)));
    Ok(())
}

/// Before the body, and when the table is asked for a lost answer.
async fn deaf<S: Bank>() -> Result<(), Failed> {
    for (number, cut) in [(1, None), (2, Some(Cut::After))] {
        let tap = Arc::new(Tap { deaf: Some(number), cut: Mutex::new(cut), ..Tap::default() });
        let (lab, place, script) = (Lab::new(), Place::new(), Script::plain());
        let bank: S = place.fresh().await.map_err(said)?;
        let engine = payer(lab.engine(), &Tapped::new(&bank, &tap), &script).open().await?;
        let run = engine.start(pay::<Tapped<S>>, 30).await?;
        tap.deafened.notified().await;
        lab.clock.advance(PATIENCE);
        assert_eq!(run.result().await?, 970);
        assert_eq!((script.calls.get(), bank.state().await.map_err(said)?), (1, (970, 1, 1)));
    }
    Ok(())
}

async fn brief<S: Bank>(ctx: Ctx, cents: i64) -> Result<i64> {
    let bank = ctx.state::<Tapped<S>>();
    let step = ctx.tx("debit", &*bank).retry(Retry::none()).timeout(Duration::from_secs(10));
    step.run(async |mut tx| {
        let left = S::debit(&mut tx, cents).await?;
        tx.commit(left).await
    })
    .await
}

/// A trigger ends the server process in the middle of the first COMMIT. The sequence is what it remembers: that is not
/// rolled back.
async fn killed<S: Bank>() -> Result<(), Failed> {
    let (lab, place, script) = (Lab::new(), Place::new(), Script::plain());
    let bank: S = place.fresh().await.map_err(said)?;
    for sql in [
        "CREATE SEQUENCE commits",
        "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF nextval('commits') = 1 THEN
             PERFORM pg_terminate_backend(pg_backend_pid());
             PERFORM pg_sleep(10);
           END IF;
           RETURN NULL;
         END $$",
        "CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON entry DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION die()",
    ] {
        bank.script(sql).await.map_err(said)?;
    }
    let engine = payer(lab.engine(), &bank, &script).open().await?;
    let run = engine.start(pay::<S>, 30).await?;
    lab.until(async || {
        // Also lets callers retry that got a dead connection; slowly, or no answer is in time.
        lab.clock.advance(Duration::from_millis(1));
        run.status().await.is_ok_and(|status| status == Status::Waiting)
    })
    .await;
    assert_eq!((script.calls.get(), bank.state().await.map_err(said)?), (1, (1000, 0, 0)));
    lab.clock.advance(Duration::from_mins(1));
    assert_eq!(run.result().await?, 970);
    assert_eq!((script.calls.get(), bank.state().await.map_err(said)?), (2, (970, 1, 1)));
    Ok(())
}
