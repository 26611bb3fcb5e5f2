//! Runs as files, replayed in bulk; and runs that are executed again.

use std::fs;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::{Clock, SystemClock};
use semel::engine::replay::ReplayVerdict;
use semel::rules::key::CallId;
use semel::store::memory::MemoryStore;
use semel::{Ctx, Engine, History, Result};

use super::replay::{differences, ended, identical, ordered, waiting, was};
use super::{Lab, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("replay::a_history_is_replayed_without_its_store", elsewhere),
        trial("replay::a_folder_is_judged_file_by_file", folder),
        trial("replay::a_long_history_takes_time_by_its_length", long_history),
        trial(
            "replay::executed_again_effects_have_the_same_keys_and_none_is_done_twice_that_must_not",
            again,
        ),
        trial("replay::executed_again_a_run_is_compared_with_its_values", again_changed),
    ]
}

async fn elsewhere() -> Result<(), Failed> {
    let here = Lab::new();
    let engine = was(&here).open().await?;
    let run = ordered(&engine).await?;
    let whole = engine.export(run.id()).await?;
    let of_at_most =
        async |bytes| History::of_at_most(&**engine.store(), engine.workspace(), run.id(), bytes).await;
    assert_eq!(of_at_most(1_000_000).await?, whole);
    let refused = of_at_most(100).await.expect_err("it is longer").to_string();
    assert!(refused.contains("more than 100 bytes"), "{refused}");
    let text = whole.to_json();
    let history = History::from_json(&text)?;
    assert_eq!((history.run, history.entries.len()), (run.id(), run.ledger().await?.len()));
    assert_eq!(history.to_json(), text);
    let there = Lab::new();
    let engine = was(&there).open().await?;
    identical(&engine.replay_history(&history).await?);
    assert_eq!(engine.replay(run.id()).await.expect_err("it is not here").code(), "NOT_FOUND");
    let stranger = there.engine().open().await?;
    let refused = stranger.replay_history(&history).await.expect_err("it has no workflow").to_string();
    assert!(refused.contains("version 1 of the workflow order is not registered"), "{refused}");
    for (text, why) in [
        (text.replace("semel/history/1", "semel/history/9"), "\"semel/history/9\""),
        ("{\"format\":1}".to_owned(), "no history"),
        ("[1,2]".to_owned(), "no history"),
        (text[..text.len() / 2].to_owned(), "no history"),
    ] {
        let refused = History::from_json(&text).expect_err("it is none").to_string();
        assert!(refused.contains(why), "{refused}");
    }
    Ok(())
}

async fn folder() -> Result<(), Failed> {
    let (lab, folder) = (Lab::new(), tempfile::tempdir()?);
    let engine = was(&lab).open().await?;
    assert!(engine.replay_folder(folder.path()).await.is_err(), "a folder without histories has not passed");
    let run = ordered(&engine).await?;
    let good = engine.export(run.id()).await?.to_json();
    fs::write(folder.path().join("1-good.json"), &good)?;
    fs::write(folder.path().join("readme.txt"), "not looked at")?;
    assert_eq!(engine.replay_folder(folder.path()).await?.exit_code(), 0);
    fs::write(folder.path().join("2-changed.json"), good.replace("\"ship\"", "\"sail\""))?;
    assert_eq!(engine.replay_folder(folder.path()).await?.exit_code(), 1);
    fs::write(folder.path().join("3-broken.json"), &good[..good.len() - 9])?;
    fs::write(folder.path().join("4-foreign.json"), "{\"name\":\"package\"}")?;
    fs::create_dir(folder.path().join("5-folder.json"))?;
    let all = engine.replay_folder(folder.path()).await?;
    assert_eq!((all.identical(), all.different(), all.broken(), all.exit_code()), (1, 1, 3, 2));
    let changed = all.files[1].1.as_ref().map_err(ToString::to_string)?;
    let parted = [
        "missing step sail",
        "missing child total",
        "missing step tell",
        "added step ship",
        "missing run @end",
    ];
    assert_eq!(differences(changed), parted);
    let text = all.to_string();
    assert!(text.contains("4-foreign.json: this is no history") && text.contains("sail"), "{text}");
    assert!(text.ends_with("1 identical, 1 different, 3 not replayed"), "{text}");
    Ok(())
}

async fn many(ctx: Ctx, steps: u32) -> Result<u32> {
    let mut last = 0;
    for n in 0..steps {
        last = ctx.step("step").key(n).run(async |_| Ok(n)).await?;
    }
    Ok(last)
}

/// The history of a run with this number of steps, written by hand: to execute it would take longer than to replay it.
fn written(sample: &str, steps: u32) -> Result<History, Failed> {
    let mut document: serde_json::Value = serde_json::from_str(sample)?;
    let entries = document["entries"].as_array_mut().ok_or("entries")?;
    entries[0]["entry"]["created"]["input"] = steps.into();
    entries.truncate(2);
    let mut push = |entry: serde_json::Value| {
        entries.push(serde_json::json!({"number": entries.len() + 1, "at": 1_000_000, "entry": entry}));
    };
    for n in 0..steps {
        let step = format!("step[{n}]");
        push(serde_json::json!({"stepStarted": {"step": step, "attempt": 1}}));
        push(serde_json::json!({"stepCompleted": {"step": step, "value": n}}));
    }
    push(serde_json::json!({"completed": {"value": steps - 1}}));
    Ok(History::from_json(&document.to_string())?)
}

async fn long_history() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("many", many).open().await?;
    let run = engine.start(many, 1).await?;
    run.result().await?;
    let sample = engine.export(run.id()).await?.to_json();
    let clock = SystemClock::new();
    let mut took = Vec::new();
    for steps in [10_000, 100_000] {
        let history = written(&sample, steps)?;
        let begin = clock.now();
        let replay = engine.replay_history(&history).await?;
        took.push((clock.now().0 - begin.0).max(1));
        assert!(replay.is_identical());
        assert_eq!(replay.rows.len(), steps as usize + 1);
    }
    // Ten times the steps: squared it would be a hundred times the time.
    assert!(took[1] < 40 * took[0].max(50), "{took:?} ms");
    Ok(())
}

/// What a provider was asked, in order: which effect, under which key.
#[derive(Clone, Default)]
struct Provider(Arc<Mutex<Vec<(String, String)>>>);

impl Provider {
    fn calls(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.0.lock().expect("no thread panics while it holds the lock")
    }

    fn call(&self, what: &str, key: &str) -> u32 {
        let mut calls = self.calls();
        let before = calls.iter().filter(|(name, _)| name == what).count();
        calls.push((what.to_owned(), key.to_owned()));
        before as u32
    }

    fn keys(&self, what: &str) -> Vec<String> {
        self.calls().iter().filter(|(name, _)| name == what).map(|(_, key)| key.clone()).collect()
    }
}

async fn deal(ctx: Ctx, grows: bool) -> Result<String> {
    let provider = ctx.state::<Provider>();
    let charge = ctx
        .step("charge")
        .run(async |attempt| Ok(provider.call("charge", attempt.key()) * u32::from(grows)))
        .await?;
    let at = ctx.now("now").await?;
    ctx.step("letter").at_most_once().run(async |attempt| Ok(provider.call("letter", attempt.key()))).await?;
    let find = async |_| Ok(Some(0));
    ctx.step("find").reconcile(find).run(async |attempt| Ok(provider.call("find", attempt.key()))).await?;
    let mut hook = ctx.hook::<String>("deal");
    let words = (hook.recv().await?, hook.recv().await?);
    drop(hook);
    ctx.sleep("nap", Duration::from_millis(30)).await?;
    let child = ctx.child(many, 2).await?.result().await?;
    let _ = at;
    Ok(format!("{charge} {words:?} {child}"))
}

/// An engine by the machine's clock, because executing again takes its time.
async fn dealer(provider: &Provider) -> Result<Engine, Failed> {
    let clock = Arc::new(SystemClock::new());
    let store: Arc<dyn semel::store::Store> = Arc::new(MemoryStore::new(clock.clone()));
    let builder = Engine::builder().store(store).clock(clock).state(provider.clone());
    Ok(builder.workflow("deal", deal).workflow("many", many).open().await?)
}

async fn dealt(engine: &Engine, grows: bool) -> Result<semel::RunHandle<String>, Failed> {
    let run = engine.start(deal, grows).key("deal").await?;
    let lab = Lab::new();
    waiting(&lab, &run).await;
    for word in ["hello", "world"] {
        engine.deliver("deal", word).id(CallId::new(word)?.to_string()).await?;
    }
    assert_eq!(run.result().await?, "0 (\"hello\", \"world\") 1");
    Ok(run)
}

async fn again() -> Result<(), Failed> {
    let provider = Provider::default();
    let engine = dealer(&provider).await?;
    let run = dealt(&engine, false).await?;
    let before = run.ledger().await?;
    identical(&engine.replay(run.id()).await?);
    assert_eq!(provider.calls().len(), 3, "a dry run calls no provider");
    let replay = engine.replay(run.id()).dry_run(false).await?;
    identical(&replay);
    let fork = replay.fork.ok_or("a fork")?;
    assert_eq!(engine.run(fork).result().await?, "0 (\"hello\", \"world\") 1");
    let charged = provider.keys("charge");
    assert_eq!((charged.len(), &charged[0]), (2, &charged[1]), "called again under the same key");
    assert_eq!((provider.keys("letter").len(), provider.keys("find").len()), (1, 1), "not called again");
    assert_eq!(run.ledger().await?, before, "the original is as it was");
    Ok(())
}

async fn again_changed() -> Result<(), Failed> {
    let provider = Provider::default();
    let engine = dealer(&provider).await?;
    let run = dealt(&engine, true).await?;
    let replay = engine.replay(run.id()).dry_run(false).await?;
    assert_eq!(differences(&replay), ["changed step charge", "changed run @end"], "{replay}");
    assert_eq!(
        replay.rows[0].replayed.as_ref().map(ToString::to_string).as_deref(),
        Some("{\"completed\":1}")
    );
    assert_eq!(replay.count(ReplayVerdict::Changed), 2);
    // An original that was asked to end while it waited: so is the fork.
    let open = engine.start(deal, false).key("other").await?;
    let lab = Lab::new();
    waiting(&lab, &open).await;
    let refused = engine.replay(open.id()).dry_run(false).await.expect_err("it is open").to_string();
    assert!(refused.contains("has not ended"), "{refused}");
    open.request_cancel("no deal").await?;
    ended(&lab, &open).await?;
    identical(&engine.replay(open.id()).dry_run(false).await?);
    // One that was ended from outside: the fork waits for what never came, and is cancelled in turn.
    let cut = engine.start(deal, false).key("third").await?;
    waiting(&lab, &cut).await;
    cut.cancel("cut").await?;
    let replay = engine.replay(cut.id()).dry_run(false).await?;
    assert_eq!(differences(&replay), ["changed run @end"], "{replay}");
    Ok(())
}
