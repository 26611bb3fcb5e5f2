//! One engine for all workspaces: programs of families, and runs that belong to the workspace that started them.

use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::engine::{Code, Programs};
use semel::id::WorkspaceId;
use semel::rules::family::Family;
use semel::rules::path::Name;
use semel::rules::status::Status;
use semel::store::Answer;
use semel::{Ctx, Engine, Once, Result, WorkflowName, fatal};
use serde_json::{Value, json};
use uuid::Uuid;

use super::replay::waiting;
use super::{Lab, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_program_drives_its_family_in_every_workspace", every_workspace),
        trial("runs_of_two_workspaces_share_nothing", apart),
        trial("a_run_of_another_workspace_is_not_found", not_found),
        trial("a_function_is_driven_in_the_engines_own_workspace_only", own_workspace),
        trial("a_child_of_a_hosted_run_is_found_by_name", child_by_name),
        trial("programs_say_what_they_drive_and_which_version_is_current", programs),
        trial("a_run_of_a_family_that_has_no_code_is_paused", no_code),
        trial("code_that_is_kept_elsewhere_is_read_before_a_run_goes_on", kept_elsewhere),
        trial("a_family_is_registered_once_and_has_a_proper_prefix", refused),
    ]
}

fn tenant(n: u128) -> WorkspaceId {
    WorkspaceId(Uuid::from_u128(n))
}

fn hosted(name: &str) -> WorkflowName {
    WorkflowName::new(name).version("doc1_7f")
}

/// Says what it is, after a wait that lets it be rebuilt, with everything that asks the store under a workspace.
async fn interpret(ctx: Ctx, input: Value) -> Result<Value> {
    let shared: String =
        ctx.run_once("shared", async || Ok(ctx.workspace().to_string())).scope(Once::Workspace).await?;
    let mut hook = ctx.hook::<Value>("go");
    if let Some(owner) = hook.conflict().await? {
        return Err(fatal(format_args!("{} has the token", owner.run_id)));
    }
    let word = hook.recv().await?;
    let step = ctx.step("step").run(async |_| Ok(1)).await?;
    Ok(json!([
        ctx.workspace().to_string(),
        ctx.workflow(),
        ctx.workflow_version(),
        input,
        shared,
        word,
        step
    ]))
}

async fn opened(lab: &Lab, forgetful: bool) -> Result<Engine, semel::Error> {
    let builder = if forgetful { lab.forgetful() } else { lab.engine() };
    builder.family("doc1_", interpret).open().await
}

async fn every_workspace() -> Result<(), Failed> {
    for forgetful in [false, true] {
        let lab = Lab::new();
        let engine = opened(&lab, forgetful).await?;
        for n in 1..=3 {
            let there = engine.in_workspace(tenant(n));
            let run = there.start(hosted(&format!("flow-{n}")), n as u64).key("same key").await?;
            assert!(run.created(), "keys belong to a workspace");
            waiting(&lab, &run).await;
            assert_eq!(run.header().await?.new.workspace, tenant(n));
        }
        for n in 1..=3 {
            let there = engine.in_workspace(tenant(n));
            there.deliver("go", n as u64).await?;
            let run = there.run_by_key("same key").await?.ok_or("the run is there")?;
            let me = tenant(n).to_string();
            let said = json!([me, format!("flow-{n}"), "doc1_7f", n as u64, me, n as u64, 1]);
            assert_eq!(run.result().await?, said);
        }
    }
    Ok(())
}

/// Programs that have no code at hand, and forget what they have read. Each version is read slowly, and `doc1_none` is not there.
struct Elsewhere;

impl Programs for Elsewhere {
    fn families(&self) -> Vec<Family> {
        vec![Family::new("doc1_").expect("it is a family")]
    }

    fn code(&self, _: WorkspaceId, _: &Name, _: &Name) -> Option<Code> {
        None
    }

    fn load<'a>(
        &'a self,
        _: WorkspaceId,
        _: &'a Name,
        version: &'a Name,
    ) -> Option<Answer<'a, Option<Code>>> {
        Some(Box::pin(async move {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            Ok((version.as_str() != "doc1_none").then(|| Code::of(interpret)))
        }))
    }
}

async fn kept_elsewhere() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.forgetful().programs(Elsewhere).open().await?;
    let there = engine.in_workspace(tenant(1));
    let run = there.start(hosted("flow"), 1).await?;
    waiting(&lab, &run).await;
    there.deliver("go", 7).await?;
    assert_eq!(run.result().await?[6], 1, "it was rebuilt, and its code read again");
    assert!(there.replay(run.id()).await?.is_identical());
    let absent = there.start(WorkflowName::new("flow").version("doc1_none"), 1).await?;
    absent.reached(Status::Paused).await?;
    assert_eq!(absent.status().await?, Status::Paused);
    Ok(())
}

async fn apart() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = opened(&lab, true).await?;
    let (one, two) = (engine.in_workspace(tenant(1)), engine.in_workspace(tenant(2)));
    let first = one.start(hosted("flow"), 1).key("k").await?;
    let second = two.start(hosted("flow"), 2).key("k").await?;
    waiting(&lab, &first).await;
    waiting(&lab, &second).await;
    assert_ne!(first.id(), second.id());
    // The same token, label and key in both.
    one.deliver("go", "one").await?;
    assert_eq!(first.result().await?[5], "one");
    assert_eq!(second.status().await?, Status::Waiting);
    second.cancel("not wanted").await?;
    assert_eq!(second.status().await?, Status::Cancelled);
    Ok(())
}

async fn not_found() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = opened(&lab, false).await?;
    let run = engine.in_workspace(tenant(1)).start(hosted("flow"), 1).await?;
    waiting(&lab, &run).await;
    let elsewhere = engine.in_workspace(tenant(2)).run(run.id());
    assert_eq!(elsewhere.status().await.expect_err("it is refused").code(), "NOT_FOUND");
    assert_eq!(elsewhere.cancel("mine").await.expect_err("it is refused").code(), "NOT_FOUND");
    // In memory too: no result is told across workspaces.
    engine.in_workspace(tenant(1)).deliver("go", 7).await?;
    run.result().await?;
    assert_eq!(elsewhere.outcome().await.expect_err("it is refused").code(), "NOT_FOUND");
    Ok(())
}

async fn plain(_: Ctx, n: u64) -> Result<u64> {
    Ok(n)
}

async fn own_workspace() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workspace(tenant(1)).workflow("plain", plain).open().await?;
    let here = engine.start(plain, 1).await?;
    let there = engine.in_workspace(tenant(2)).start(plain, 2).await?;
    assert_eq!(here.result().await?, 1);
    assert_eq!(there.status().await?, Status::Pending);
    let other = lab.engine().workspace(tenant(2)).workflow("plain", plain).open().await?;
    assert_eq!(other.run(there.id()).result().await?, 2);
    Ok(())
}

async fn parent(ctx: Ctx, names: Vec<String>) -> Result<Vec<Value>> {
    let mut results = Vec::new();
    for name in names {
        let child = ctx.child(WorkflowName::new(name).version("kid1_x"), ctx.workspace().to_string()).await?;
        results.push(child.result().await?);
    }
    Ok(results)
}

async fn echo(ctx: Ctx, input: Value) -> Result<Value> {
    Ok(json!([ctx.workflow(), input, ctx.workspace().to_string()]))
}

async fn child_by_name() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().family("doc1_", parent).family("kid1_", echo).open().await?;
    let names: Vec<String> = (0..3).map(|n| format!("child-{n}")).collect();
    let run = engine.in_workspace(tenant(5)).start(hosted("parent"), names).await?;
    let me = tenant(5).to_string();
    let expected: Vec<Value> = (0..3).map(|n| json!([format!("child-{n}"), me, me])).collect();
    assert_eq!(run.result().await?, json!(expected));
    Ok(())
}

fn name(text: &str) -> Name {
    Name::new(text).expect("it is a name")
}

/// Documents, of which one is current in one workspace, and a named version.
struct Documents;

impl Programs for Documents {
    fn versions(&self) -> Vec<(Name, Name)> {
        vec![(name("note"), name("3"))]
    }

    fn families(&self) -> Vec<Family> {
        vec![Family::new("doc1_").expect("it is a family")]
    }

    fn code(&self, _: WorkspaceId, workflow: &Name, version: &Name) -> Option<Code> {
        let known = [("flow", "doc1_7f"), ("note", "3")];
        known.contains(&(workflow.as_str(), version.as_str())).then(|| Code::of(echo))
    }

    fn current<'a>(&'a self, workspace: WorkspaceId, workflow: &'a Name) -> Answer<'a, Option<Name>> {
        let here = workspace == tenant(1) && workflow.as_str() == "flow";
        let version = here.then(|| name("doc1_7f"));
        Box::pin(std::future::ready(Ok(version)))
    }
}

async fn programs() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("plain", plain).programs(Documents).open().await?;
    for (workspace, workflow, version, drives) in [
        (tenant(1), "flow", "doc1_7f", true),
        (tenant(2), "flow", "doc1_7f", true),
        (tenant(1), "flow", "doc1_8a", false),
        (tenant(1), "flow", "1", false),
        (tenant(1), "plain", "1", false),
        (tenant(1), "note", "3", false),
        (engine.workspace(), "note", "3", true),
        (engine.workspace(), "plain", "1", true),
        (engine.workspace(), "plain", "2", false),
    ] {
        let driven = engine.in_workspace(workspace).drives(&name(workflow), &name(version));
        assert_eq!(driven, drives, "{workspace} {workflow} {version}");
    }
    for (n, workflow, current) in [(1, "flow", "doc1_7f"), (2, "flow", "1"), (1, "plain", "1")] {
        let version = engine.in_workspace(tenant(n)).current_version(&name(workflow)).await?;
        assert_eq!(version.as_str(), current, "{workflow} in {n}");
    }
    let run = engine.in_workspace(tenant(2)).start(hosted("flow"), 7).await?;
    assert_eq!(run.result().await?[1], 7);
    assert_eq!(engine.start(plain, 3).await?.result().await?, 3);
    let later = Duration::from_secs(1);
    let note = engine.start(WorkflowName::new("note").version("3"), 5).delay(later).await?;
    lab.clock.advance(later);
    assert_eq!(note.result().await?[1], 5, "it is claimed, not only started");
    let twice =
        lab.engine().family("doc1_", echo).programs(Documents).open().await.expect_err("it is refused");
    assert!(twice.to_string().contains("registered twice"), "{twice}");
    Ok(())
}

async fn no_code() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().programs(Documents).open().await?;
    let run = engine.in_workspace(tenant(1)).start(hosted("unknown"), 7).await?;
    lab.until(async || run.status().await.is_ok_and(|status| status == Status::Paused)).await;
    // It keeps no place: others are driven.
    assert_eq!(engine.start(hosted("flow"), 7).await?.result().await?[1], 7);
    Ok(())
}

async fn refused() -> Result<(), Failed> {
    let lab = Lab::new();
    for prefix in ["", "doc", "doc1", "DOC1_", "docs1_"] {
        let error = lab.engine().family(prefix, echo).open().await.expect_err("it is refused");
        assert!(error.to_string().contains("such as `def1_`"), "{error}");
    }
    let twice =
        lab.engine().family("doc1_", echo).family("doc1_", echo).open().await.expect_err("it is refused");
    assert!(twice.to_string().contains("registered twice"), "{twice}");
    Ok(())
}
