//! Several versions of one workflow: which engine executes which.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::engine::Builder;
use semel::rules::status::Status;
use semel::store::faulty::Faulty;
use semel::store::{Query, Store};
use semel::{Ctx, Result, RunHandle, WorkflowRef};

use super::replay::waiting;
use super::rest::yield_often;
use super::surface::at_rest;
use super::{Lab, by_turns, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        by_turns("a_run_is_executed_by_the_version_that_its_start_has_named", named),
        by_turns("engines_with_different_versions_drive_the_runs_of_their_own", different_engines),
        by_turns("a_version_that_no_engine_has_waits_and_keeps_none_busy", nobodys),
        trial("runs_of_an_old_version_go_on_with_new_code_that_is_registered_for_it", moved_on),
        trial("a_replay_of_a_version_that_is_not_registered_says_which", replay),
    ]
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);

/// The two have the same steps: nothing but the result tells which of them has executed a run.
async fn old(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.sleep("nap", HOUR).await?;
    Ok(1)
}

async fn new(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.sleep("nap", HOUR).await?;
    Ok(2)
}

const OLD: WorkflowRef<(), u32> = WorkflowRef::new("edition");
const NEW: WorkflowRef<(), u32> = WorkflowRef::new("edition").version("2");

fn with_old(builder: Builder) -> Builder {
    builder.workflow("edition", old)
}

fn with_new(builder: Builder) -> Builder {
    builder.workflow_version("edition", "2", new)
}

async fn named() -> Result<(), Failed> {
    for forgetful in [false, true] {
        let lab = Lab::new();
        let builder = if forgetful { lab.forgetful() } else { lab.engine() };
        let engine = with_new(with_old(builder)).open().await?;
        let runs = [
            (engine.start(old, ()).await?, 1u32),
            (engine.start(new, ()).await?, 2),
            (engine.start(OLD, ()).await?, 1),
            (engine.start(NEW, ()).await?, 2),
        ];
        for (run, version) in &runs {
            at_rest(&lab, run).await;
            assert_eq!(run.header().await?.new.workflow_version.as_str(), version.to_string());
        }
        lab.clock.advance(HOUR);
        for (run, version) in &runs {
            assert_eq!(run.result().await?, *version);
        }
    }
    Ok(())
}

/// No engine has claimed it.
async fn is_untouched<Out>(run: &RunHandle<Out>) -> Result<bool> {
    let header = run.header().await?;
    Ok((header.status(), header.state.version, header.state.node) == (Status::Pending, 1, None))
}

/// As in a rolling deploy: the engine of before, and one that has the new version too.
async fn different_engines() -> Result<(), Failed> {
    for forgetful in [false, true] {
        let lab = Lab::new();
        let builder = || if forgetful { lab.forgetful() } else { lab.engine() };
        let before = with_old(builder()).open().await?;
        let early = before.start(NEW, ()).await?;
        assert!(early.created(), "it is accepted, although it is not registered here");
        yield_often().await;
        assert!(is_untouched(&early).await?, "and waits for an engine that has it");
        let after = with_new(with_old(builder())).open().await?;
        let mut runs = vec![(early, 2u32)];
        for engine in [&before, &after].into_iter().cycle().take(10) {
            runs.push((engine.start(OLD, ()).await?, 1));
            runs.push((engine.start(NEW, ()).await?, 2));
        }
        for (run, _) in &runs {
            at_rest(&lab, run).await;
        }
        // Both look for what is due now, and each takes from the other what it can.
        lab.clock.advance(HOUR);
        for (run, version) in &runs {
            assert_eq!(run.result().await?, *version);
        }
    }
    Ok(())
}

async fn nobodys() -> Result<(), Failed> {
    let (lab, claims) = (Lab::new(), Arc::new(AtomicUsize::new(0)));
    let counted = claims.clone();
    let count = move |call: &'static str| {
        counted.fetch_add(usize::from(call == "claim"), Ordering::SeqCst);
        None
    };
    let store: Arc<dyn Store> = Arc::new(Faulty::new(lab.store.clone(), count));
    let engine = with_old(lab.engine().store(store)).open().await?;
    let due = engine.start(NEW, ()).await?;
    let delayed = engine.start(NEW, ()).delay(SECOND / 2).await?;
    let mine = engine.start(OLD, ()).await?;
    at_rest(&lab, &mine).await;
    for _ in 0..20 {
        let before = claims.load(Ordering::SeqCst);
        yield_often().await;
        assert_eq!(claims.load(Ordering::SeqCst), before, "nothing has changed, so no engine claims");
        lab.clock.advance(SECOND / 4);
        yield_often().await;
        let looked = claims.load(Ordering::SeqCst) - before;
        assert!(looked <= 3, "{looked} claims in a quarter of a second");
    }
    lab.clock.advance(HOUR);
    assert_eq!(mine.result().await?, 1, "its own runs go on");
    assert!(is_untouched(&due).await? && is_untouched(&delayed).await?);
    let other = with_new(lab.engine()).open().await?;
    for run in [&due, &delayed] {
        waiting(&lab, &other.run(run.id())).await;
    }
    Ok(())
}

async fn moved_on() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = with_old(lab.engine()).open().await?;
    let run = engine.start(old, ()).await?.id();
    waiting(&lab, &engine.run(run)).await;
    engine.crash().await;
    let without = with_new(lab.engine()).open().await?;
    lab.clock.advance(HOUR);
    let newer = without.start(new, ()).await?;
    waiting(&lab, &newer).await;
    assert_eq!(without.run(run).status().await?, Status::Waiting, "it waits for code of its version");
    let with = with_new(lab.engine()).workflow_version("edition", "1", new).open().await?;
    let run = with.run(run).typed::<u32>();
    assert_eq!(run.result().await?, 2);
    assert_eq!(run.header().await?.new.workflow_version.as_str(), "1", "it is still what was started");
    Ok(())
}

async fn replay() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = with_new(lab.engine()).open().await?;
    let run = engine.start(new, ()).await?;
    waiting(&lab, &run).await;
    lab.clock.advance(HOUR);
    run.result().await?;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("1.json"), engine.export(run.id()).await?.to_json())?;
    assert_eq!(engine.replay_folder(folder.path()).await?.exit_code(), 0);
    let other = with_old(lab.engine()).open().await?;
    let all = other.replay_folder(folder.path()).await?;
    assert_eq!((all.broken(), all.exit_code()), (1, 2));
    for said in [
        other.replay(run.id()).await.expect_err("it has no code").to_string(),
        other.replay(run.id()).dry_run(false).await.expect_err("it has no code").to_string(),
        all.to_string(),
    ] {
        assert!(said.contains("version 2 of the workflow edition is not registered"), "{said}");
        assert!(said.contains(r#"add `.workflow_version("edition", "2", function)`"#), "{said}");
    }
    let runs = lab.store.list(Query::all(other.workspace(), 10)).await?.runs;
    assert_eq!(runs.len(), 1, "nothing was forked that no engine here could drive");
    Ok(())
}
