//! Code that changes under open runs (`ctx.patched`), recorded values, keyed scopes, and failures with a code.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::rules::entry::{Entry, Outcome};
use semel::rules::ledger::Lineage;
use semel::rules::status::Status;
use semel::testing::{Effects, history};
use semel::{Ctx, Result, fatal};
use serde_json::json;

use super::replay::{differences, identical, waiting};
use super::{Lab, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("patches::a_run_from_before_a_patch_keeps_the_old_way", keeps_the_old_way),
        trial("patches::a_new_run_takes_the_new_way_and_stays_on_it", new_way),
        trial("patches::a_run_that_has_not_come_as_far_takes_the_new_way", not_as_far),
        trial("patches::a_retried_run_does_not_repeat_an_effect_of_the_old_way", retried),
        trial("patches::a_patch_can_be_asked_for_twice_and_removed_at_last", removed),
        trial("record::a_value_stays_as_it_was_recorded", recorded),
        trial("record::a_decision_that_can_no_longer_be_made_is_given_as_recorded", decided),
        trial("record::what_a_step_keeps_of_a_failure_is_known_after_a_retry_a_restart_and_a_fork", kept),
        trial("scope::passes_of_a_loop_have_paths_of_their_own", passes),
        trial("failures::code_and_data_are_recorded_and_given_again", coded),
    ]
}

/// Which code the engine has: that from before, that with the patch, that after the old way is gone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edition {
    Before,
    Patched,
    After,
}

struct Shop {
    edition: Edition,
    effects: Effects,
    fails: AtomicBool,
}

fn shop(edition: Edition, effects: &Effects) -> Shop {
    Shop { edition, effects: effects.clone(), fails: AtomicBool::new(false) }
}

/// Charges the old way or the new, between two waits.
async fn order(ctx: Ctx, (): ()) -> Result<String> {
    let shop = ctx.state::<Shop>();
    let effect = async |name: &str| ctx.step(name).run(async |a| shop.effects.apply("charge", a.key())).await;
    ctx.hook::<()>("first").recv().await?;
    let patched = match shop.edition {
        Edition::Before => false,
        Edition::Patched => ctx.patched("other-provider").await?,
        Edition::After => true,
    };
    let way = if patched { "charge-new" } else { "charge-old" };
    effect(way).await?;
    ctx.hook::<()>("second").recv().await?;
    if shop.edition == Edition::Patched {
        assert_eq!(ctx.patched("other-provider").await?, patched, "one answer for a whole run");
    }
    if shop.fails.load(Ordering::SeqCst) {
        return Err(fatal("out of stock"));
    }
    Ok(way.to_owned())
}

async fn keeps_the_old_way() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::default());
    let engine =
        lab.forgetful().state(shop(Edition::Before, &effects)).workflow("order", order).open().await?;
    let run = engine.start(order, ()).await?;
    waiting(&lab, &run).await;
    engine.deliver("first", ()).await?;
    lab.until(async || engine.hook("second").await.is_ok_and(|owner| owner.is_some())).await;
    waiting(&lab, &run).await;
    engine.shutdown(Duration::from_secs(5)).await?;
    // Rebuilt several times with the new code: the answer is recorded with the first commit.
    for _ in 0..2 {
        let patched = shop(Edition::Patched, &effects);
        let engine = lab.forgetful().state(patched).workflow("order", order).open().await?;
        identical(&engine.replay(run.id()).await?);
        let run = engine.run(run.id());
        engine.deliver("other", ()).await.expect_err("it fails");
        run.pause().await?;
        run.resume().await?;
        waiting(&lab, &run).await;
        engine.shutdown(Duration::from_secs(5)).await?;
    }
    let patched = shop(Edition::Patched, &effects);
    let engine = lab.forgetful().state(patched).workflow("order", order).open().await?;
    engine.deliver("second", ()).await?;
    assert_eq!(engine.run(run.id()).result().await?, "charge-old");
    assert_eq!(effects.applied("charge"), 1);
    identical(&engine.replay(run.id()).await?);
    Ok(())
}

async fn new_way() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::default());
    let engine =
        lab.forgetful().state(shop(Edition::Patched, &effects)).workflow("order", order).open().await?;
    let run = engine.start(order, ()).await?;
    for token in ["first", "second"] {
        lab.until(async || engine.hook(token).await.is_ok_and(|owner| owner.is_some())).await;
        waiting(&lab, &run).await;
        engine.deliver(token, ()).await?;
    }
    assert_eq!(run.result().await?, "charge-new");
    identical(&engine.replay(run.id()).await?);
    let patches = run.ledger().await?.into_iter().filter(
        |line| matches!(&line.entry, Entry::Recorded { at, .. } if at.to_string().starts_with("@patch[")),
    );
    assert_eq!(patches.count(), 1);
    Ok(())
}

async fn not_as_far() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::default());
    let engine =
        lab.forgetful().state(shop(Edition::Before, &effects)).workflow("order", order).open().await?;
    let run = engine.start(order, ()).await?;
    waiting(&lab, &run).await;
    engine.shutdown(Duration::from_secs(5)).await?;
    let engine =
        lab.forgetful().state(shop(Edition::Patched, &effects)).workflow("order", order).open().await?;
    for token in ["first", "second"] {
        lab.until(async || engine.hook(token).await.is_ok_and(|owner| owner.is_some())).await;
        engine.deliver(token, ()).await?;
    }
    assert_eq!(engine.run(run.id()).result().await?, "charge-new");
    Ok(())
}

async fn retried() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::default());
    let before = shop(Edition::Before, &effects);
    before.fails.store(true, Ordering::SeqCst);
    let engine = lab.forgetful().state(before).workflow("order", order).open().await?;
    let run = engine.start(order, ()).await?;
    for token in ["first", "second"] {
        lab.until(async || engine.hook(token).await.is_ok_and(|owner| owner.is_some())).await;
        engine.deliver(token, ()).await?;
    }
    assert!(matches!(run.outcome().await?, Outcome::Failed(_)));
    engine.shutdown(Duration::from_secs(5)).await?;
    let engine =
        lab.forgetful().state(shop(Edition::Patched, &effects)).workflow("order", order).open().await?;
    let run = engine.run(run.id());
    run.retry().await?;
    assert_eq!(
        run.result().await?,
        "charge-old",
        "what was paid for the old way is not paid again the new way"
    );
    assert_eq!(effects.applied("charge"), 1);
    Ok(())
}

async fn removed() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::default());
    let engine =
        lab.forgetful().state(shop(Edition::Patched, &effects)).workflow("order", order).open().await?;
    let run = engine.start(order, ()).await?;
    waiting(&lab, &run).await;
    engine.deliver("first", ()).await?;
    lab.until(async || engine.hook("second").await.is_ok_and(|owner| owner.is_some())).await;
    waiting(&lab, &run).await;
    engine.shutdown(Duration::from_secs(5)).await?;
    let engine =
        lab.forgetful().state(shop(Edition::After, &effects)).workflow("order", order).open().await?;
    let replay = engine.replay(run.id()).await?;
    assert_eq!(differences(&replay), Vec::<String>::new(), "{replay}");
    engine.deliver("second", ()).await?;
    assert_eq!(engine.run(run.id()).result().await?, "charge-new");
    assert_eq!(effects.applied("charge"), 1);
    Ok(())
}

async fn decides(ctx: Ctx, (): ()) -> Result<(bool, u32)> {
    let shop = ctx.state::<Shop>();
    let large = ctx.record("large", shop.edition == Edition::Before).await?;
    ctx.hook::<()>("go").recv().await?;
    let inner = ctx.scope("inner").record("large", 7).await?;
    Ok((large, inner))
}

async fn recorded() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::default());
    let builder = |edition| lab.forgetful().state(shop(edition, &effects)).workflow("decides", decides);
    let engine = builder(Edition::Before).open().await?;
    let run = engine.start(decides, ()).await?;
    waiting(&lab, &run).await;
    engine.shutdown(Duration::from_secs(5)).await?;
    let engine = builder(Edition::After).open().await?;
    engine.deliver("go", ()).await?;
    assert_eq!(engine.run(run.id()).typed::<(bool, u32)>().result().await?, (true, 7));
    let ledger = engine.run(run.id()).ledger().await?.into_iter().map(|line| line.entry);
    let recorded = ledger.filter(|entry| matches!(entry, Entry::Recorded { .. }));
    let paths: Vec<String> = recorded.filter_map(|entry| entry.visit().map(ToString::to_string)).collect();
    assert_eq!(paths, ["large", "inner/large"]);
    identical(&engine.replay(run.id()).await?);
    Ok(())
}

/// A decision that only the first edition of the code can make.
async fn reads(ctx: Ctx, text: String) -> Result<u64> {
    let shop = ctx.state::<Shop>();
    let made = || match shop.edition {
        Edition::Before => text.parse::<u64>().map_err(fatal),
        _ => Err(fatal("texts are no longer read")),
    };
    let read = ctx.record_with("read", made).await?;
    ctx.hook::<()>("go").recv().await?;
    Ok(read)
}

async fn decided() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::default());
    let builder = |edition| lab.forgetful().state(shop(edition, &effects)).workflow("reads", reads);
    let engine = builder(Edition::Before).open().await?;
    let run = engine.start(reads, "7".to_owned()).await?;
    waiting(&lab, &run).await;
    let wrong = engine.start(reads, "seven".to_owned()).await?;
    assert!(matches!(wrong.outcome().await?, Outcome::Failed(_)));
    let ledger = wrong.ledger().await?;
    assert!(!ledger.iter().any(|line| matches!(line.entry, Entry::Recorded { .. })), "it was not made");
    engine.shutdown(Duration::from_secs(5)).await?;
    let engine = builder(Edition::After).open().await?;
    engine.deliver("go", ()).await?;
    assert_eq!(engine.run(run.id()).typed::<u64>().result().await?, 7);
    identical(&engine.replay(run.id()).await?);
    Ok(())
}

/// Keeps for ever that it has failed, and says whether it had been kept.
async fn keeps(ctx: Ctx, (): ()) -> Result<String> {
    if let Some(found) = ctx.earlier::<String>("kept")? {
        return Ok(found);
    }
    let failed = ctx.step("fails").run(async |_| Err::<(), _>(fatal("it is broken"))).await;
    ctx.record("recorded", true).await?;
    let kept = ctx.step("kept").reconcile(async |_| Ok(Some("kept".to_owned())));
    kept.run(async |_| Ok("kept".to_owned())).await?;
    assert_eq!(
        ctx.earlier::<bool>("recorded")?,
        None,
        "what follows a failure that is tried again is not kept"
    );
    failed.map(|()| "mended".to_owned())
}

async fn kept() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.forgetful().workflow("keeps", keeps).open().await?;
    for restart in [false, true] {
        let run = engine.start(keeps, ()).await?;
        assert!(matches!(run.outcome().await?, Outcome::Failed(_)));
        let early = engine.run(run.id()).fork(Some(1), Lineage::Inherited).await?;
        assert_eq!(
            engine.run(early.id()).typed::<String>().result().await?,
            "kept",
            "with the same effect keys"
        );
        let fresh = engine.run(run.id()).fork(Some(1), Lineage::Fresh).await?;
        assert!(matches!(fresh.outcome().await?, Outcome::Failed(_)), "with fresh ones it begins anew");
        let again = engine.run(run.id());
        if restart {
            again.restart().await?;
        } else {
            again.retry().await?;
        }
        assert_eq!(engine.run(run.id()).typed::<String>().result().await?, "kept");
    }
    Ok(())
}

async fn packs(ctx: Ctx, lines: Vec<String>) -> Result<usize> {
    for line in &lines {
        let pass = ctx.scope_keyed("pack", line);
        for inner in 1..=2 {
            pass.scope_keyed("box", inner).step("label").run(async |_| Ok(())).await?;
        }
    }
    let wrong = ctx.scope_keyed("pack", "a/b").step("label").run(async |_| Ok(())).await;
    assert!(wrong.is_err_and(|fail| fail.to_string().contains("a/b")));
    Ok(lines.len())
}

async fn passes() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("packs", packs).open().await?;
    let run = engine.start(packs, vec!["ink".to_owned(), "pens".to_owned()]).await?;
    assert_eq!(run.result().await?, 2);
    let history = history(&run).await?;
    let expected = [
        "pack[ink]/box[1]/label",
        "pack[ink]/box[2]/label",
        "pack[pens]/box[1]/label",
        "pack[pens]/box[2]/label",
    ];
    for path in expected {
        history.assert_completed(path);
    }
    Ok(())
}

async fn declined(ctx: Ctx, (): ()) -> Result<String> {
    let charge = ctx.step("charge").run(async |_| {
        Err::<(), _>(fatal("declined").with_code("CARD_DECLINED").with_data(&json!({"limit": 500})))
    });
    let fail = charge.await.expect_err("it fails");
    ctx.hook::<()>("go").recv().await?;
    let told = format!("{} {}", fail.code().unwrap_or("?"), fail.data().map_or("?", |data| data.text()));
    Err(fail).map_err(|fail| fatal(format_args!("{told}; {fail}")).with_code("ORDER_FAILED"))
}

async fn coded() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.forgetful().workflow("declined", declined).open().await?;
    let run = engine.start(declined, ()).await?;
    waiting(&lab, &run).await;
    assert_eq!(run.status().await?, Status::Waiting);
    engine.deliver("go", ()).await?;
    let Outcome::Failed(failure) = run.outcome().await? else { return Err("it must fail".into()) };
    assert_eq!(failure.code.as_deref(), Some("ORDER_FAILED"));
    assert_eq!(failure.data, None);
    assert!(failure.message.starts_with("CARD_DECLINED {\"limit\":500}; charge: declined"), "{failure:?}");
    Ok(())
}
