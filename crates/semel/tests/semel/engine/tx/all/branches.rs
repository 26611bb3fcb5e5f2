//! Branches that are left, rolled back by hand, or must not exist.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::rules::status::Status;
use semel::store::Store;
use semel::store::faulty::{Fault, Faulty};
use semel::tx::{self, TwoPhase};
use semel::{Fail, fatal};

use super::super::super::{Lab, trial};
use super::super::bank::Bank;
use super::super::{Script, said, take_away};
use super::line::{Accounts, Line, Stop};
use super::{
    BOTH, FIRST_COMMIT, NONE, book, booker, ended, is_settled, pairs, quiet, second_commit, slowly, unaware,
};

pub(super) fn trials(all: &mut Vec<Trial>) {
    pairs!(all, rolled_back, "what_is_prepared_is_rolled_back_if_a_later_body_fails");
    pairs!(all, undecided, "nothing_is_committed_before_the_decision_is_durable");
    pairs!(all, by_hand, "a_branch_that_was_rolled_back_by_hand_is_a_doubt");
    pairs!(all, shut_out, "a_zombie_cannot_prepare_when_the_new_owner_has_given_up");
    pairs!(all, cancelled, "a_cancelled_run_leaves_no_branches");
    pairs!(all, listed, "prepared_branches_are_listed_with_run_and_age");
    #[cfg(feature = "sabotage")]
    all.extend(planted().into_iter().map(|planted| {
        let name = format!("engine::tx_all::a_planted_bug_is_found::{}", planted.bug.name());
        Trial::test(name, move || is_found(&planted))
    }));
}

async fn rolled_back<A: Bank + TwoPhase, B: Bank + TwoPhase>() -> Result<(), Failed> {
    let fails = async |call| if call == 1 { Err(Fail::retryable("not yet")) } else { Ok(()) };
    let (lab, line, script) = (Lab::apart(), Line::free(), Script::new(fails));
    let accounts = Accounts::<A, B>::open().await.map_err(said)?;
    let engine = booker(lab.engine(), &accounts, &line, &script).open().await?;
    let run = engine.start(book::<A, B>, 30).await?;
    lab.until(async || run.status().await.is_ok_and(|status| status == Status::Waiting)).await;
    assert_eq!(line.count("prepare"), 1, "the first was prepared");
    assert_eq!(accounts.prepared(&run.id().to_string()).await.map_err(said)?, []);
    assert_eq!(accounts.state().await.map_err(said)?, NONE);
    lab.clock.advance(Duration::from_mins(1));
    assert_eq!(run.result().await?, (970, 970));
    is_settled(&accounts, &run, "the second attempt").await
}

/// The store does not take the decision, and the engine dies.
async fn undecided<A: Bank + TwoPhase, B: Bank + TwoPhase>() -> Result<(), Failed> {
    let (lab, line, script) = (Lab::apart(), Line::free(), Script::plain());
    let accounts = Accounts::<A, B>::open().await.map_err(said)?;
    let refused = Arc::new(AtomicU32::new(0));
    let counted = refused.clone();
    let cut = Faulty::new(lab.store.clone(), move |call| {
        (call == "commit").then(|| {
            counted.fetch_add(1, Ordering::SeqCst);
            Fault::Before
        })
    });
    let engine = booker(lab.engine().store(Arc::new(cut) as Arc<dyn Store>), &accounts, &line, &script);
    let engine = engine.open().await?;
    let run = engine.start(book::<A, B>, 30).await?;
    // What is asked meanwhile gives an engine that does not wait the time to commit.
    slowly(&lab, &accounts, async || line.count("prepare") == 2 && refused.load(Ordering::SeqCst) > 2).await;
    quiet(&lab, &accounts, &line).await?;
    assert_eq!(accounts.state().await.map_err(said)?, NONE, "nothing is decided");
    assert_eq!(accounts.prepared(&run.id().to_string()).await.map_err(said)?.len(), 2);
    engine.crash().await;
    take_away(&lab.store, &run).await?;
    let engine = booker(lab.engine(), &accounts, &Line::free(), &Script::plain()).open().await?;
    let run = engine.run(run.id()).typed::<(i64, i64)>();
    ended(&lab, &accounts, &run).await;
    is_settled(&accounts, &run, "presumed abort").await
}

/// An operator rolls the second branch back when it is decided to commit.
async fn by_hand<A: Bank + TwoPhase, B: Bank + TwoPhase>() -> Result<(), Failed> {
    let (lab, line, script) =
        (Lab::apart(), Line::stops(second_commit::<A>(), Stop::Before), Script::plain());
    let accounts = Accounts::<A, B>::open().await.map_err(said)?;
    let engine = booker(lab.engine(), &accounts, &line, &script).open().await?;
    let run = engine.start(book::<A, B>, 30).await?;
    line.stopped().await;
    let branches = accounts.right.prepared().await.map_err(said)?;
    let own = branches.iter().find(|branch| branch.run == run.id().to_string()).ok_or("it is prepared")?;
    accounts.right.script(&B::DIALECT.rollback_branch(own)).await.map_err(said)?;
    line.let_go();
    ended(&lab, &accounts, &run).await;
    assert_eq!(run.status().await?, Status::Paused, "a branch that is gone is a doubt");
    let doubts = run.doubts().await?;
    assert!(doubts[0].reason.contains(&own.to_string()), "{doubts:?}");
    assert_eq!(accounts.state().await.map_err(said)?, [BOTH[0], NONE[1]]);
    // What is missing is run again, and only that.
    run.did_not_happen("book").await?;
    ended(&lab, &accounts, &run).await;
    assert_eq!(run.result().await?, (970, 970));
    is_settled(&accounts, &run, "mended").await
}

/// The new owner gives up without an outcome: only its fences are there.
async fn shut_out<A: Bank + TwoPhase, B: Bank + TwoPhase>() -> Result<(), Failed> {
    // Before its body, which would keep rows of the account locked.
    let (lab, line) = (Lab::apart(), Line::stops(2, Stop::After));
    let accounts = Accounts::<A, B>::open().await.map_err(said)?;
    let zombie = unaware(&lab, &accounts, &line, &Script::plain()).await?;
    let run = zombie.start(book::<A, B>, 30).await?;
    line.stopped().await;
    take_away(&lab.store, &run).await?;
    let gives_up = Script::new(async |_| Err(fatal("the new owner gives up")));
    let owner = booker(lab.engine(), &accounts, &Line::free(), &gives_up).open().await?;
    let at_owner = owner.run(run.id()).typed::<(i64, i64)>();
    ended(&lab, &accounts, &at_owner).await;
    assert_eq!(at_owner.status().await?, Status::Failed);
    line.let_go();
    quiet(&lab, &accounts, &line).await?;
    assert_eq!(line.count("prepare"), 0, "a zombie's branch would have no owner to end it: {:?}", line.log());
    assert_eq!(accounts.state().await.map_err(said)?, NONE);
    Ok(())
}

/// A run that is cancelled has no owner any more that would end its branches.
async fn cancelled<A: Bank + TwoPhase, B: Bank + TwoPhase>() -> Result<(), Failed> {
    // Before the decision, and after it.
    for (number, state) in [(FIRST_COMMIT - 1, NONE), (FIRST_COMMIT, BOTH)] {
        let (lab, line) = (Lab::apart(), Line::stops(number, Stop::After));
        let accounts = Accounts::<A, B>::open().await.map_err(said)?;
        let engine = booker(lab.engine(), &accounts, &line, &Script::plain()).open().await?;
        let run = engine.start(book::<A, B>, 30).await?;
        line.stopped().await;
        run.cancel("not wanted").await?;
        assert_eq!(run.status().await?, Status::Cancelled);
        let id = run.id().to_string();
        slowly(&lab, &accounts, async || accounts.prepared(&id).await.is_ok_and(|left| left.is_empty()))
            .await;
        assert_eq!(accounts.state().await.map_err(said)?, state, "as the ledger has decided");
    }
    Ok(())
}

async fn listed<A: Bank + TwoPhase, B: Bank + TwoPhase>() -> Result<(), Failed> {
    let (lab, line) = (Lab::apart(), Line::stops(8, Stop::After));
    let accounts = Accounts::<A, B>::open().await.map_err(said)?;
    let engine = booker(lab.engine(), &accounts, &line, &Script::plain()).open().await?;
    let run = engine.start(book::<A, B>, 30).await?;
    line.stopped().await;
    for (index, branches) in [
        (0, accounts.left.prepared().await.map_err(said)?),
        (1, accounts.right.prepared().await.map_err(said)?),
    ] {
        let of = |branch: &&tx::BranchName| branch.run == run.id().to_string() && branch.index == index;
        let own = branches.iter().find(of).ok_or("it is listed")?;
        assert_eq!(own.since.0, 1_000_000, "when the attempt began");
        assert!(own.key.starts_with("e1"));
    }
    line.let_go();
    assert_eq!(run.result().await?, (970, 970));
    Ok(())
}

/// A bug, and how it is found.
#[cfg(feature = "sabotage")]
struct Planted {
    bug: semel::sabotage::Bug,
    /// The test that must find it.
    test: &'static str,
    /// What the test says of it: any other failure has not found it.
    told: &'static str,
}

#[cfg(feature = "sabotage")]
fn planted() -> [Planted; 4] {
    use semel::sabotage::Bug;
    [
        Planted {
            bug: Bug::BranchesWithoutFence,
            test: "a_zombie_cannot_prepare_when_the_new_owner_has_given_up",
            told: "a zombie's branch would have no owner to end it",
        },
        Planted {
            bug: Bug::DecisionIsNotAwaited,
            test: "nothing_is_committed_before_the_decision_is_durable",
            told: "nothing is decided",
        },
        Planted {
            bug: Bug::UnknownBranchIsDone,
            test: "a_branch_that_was_rolled_back_by_hand_is_a_doubt",
            told: "a branch that is gone is a doubt",
        },
        Planted {
            bug: Bug::KeyPerTry,
            test: "a_crash_after_every_line_leaves_both_once",
            // The branch of the first try keeps its locks: the new owner does not find it, and waits for them.
            told: "the test does not end",
        },
    ]
}

/// Plays a test in a process that has the bug: it must fail, and say why.
#[cfg(feature = "sabotage")]
fn is_found(planted: &Planted) -> Result<(), Failed> {
    let Planted { bug, test, told } = planted;
    let this = std::env::current_exe()?;
    let name = format!("engine::tx_all::{test}::postgres_mysql");
    let played = std::process::Command::new(this)
        .args(["--exact", &name])
        .env(semel::sabotage::VARIABLE, bug.name())
        .output()?;
    let said = [String::from_utf8_lossy(&played.stdout), String::from_utf8_lossy(&played.stderr)].concat();
    assert!(said.contains("running 1 test"), "there is no test {name}:\n{said}");
    assert!(!played.status.success(), "{test} does not see {}:\n{said}", bug.name());
    assert!(said.contains(*told), "{test} fails for another reason than {}:\n{said}", bug.name());
    Ok(())
}
