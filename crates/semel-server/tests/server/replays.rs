//! `POST /workflow-runs/{id}/replay` where the server has the code.

use std::sync::Arc;

use semel::clock::SystemClock;
use semel::engine::{Code, Programs};
use semel::id::WorkspaceId;
use semel::rules::family::Family;
use semel::rules::path::Name;
use semel::{Ctx, Engine, Result};
use semel_server::app::App;
use semel_server::definitions::catalog::Catalog;
use semel_server::definitions::check::check;
use semel_server::definitions::interpret::{Interpreter, code_of};
use semel_server::definitions::language::Definition;
use serde_json::{Value, json};

use crate::cli::say;
use crate::world::{Api, World, cases};

cases![
    code_that_does_the_same_is_identical,
    code_that_has_changed_is_told_part_by_part,
    a_definition_that_is_executed_otherwise_is_told_part_by_part,
];

/// Executes one definition, whatever version a run names: as a server would that reads documents in another way.
struct Otherwise(Arc<Definition>);

impl Programs for Otherwise {
    fn families(&self) -> Vec<Family> {
        vec![Family::new("def1_").expect("four letters or digits and an underscore")]
    }

    fn code(&self, _: WorkspaceId, _: &Name, _: &Name) -> Option<Code> {
        Some(code_of(self.0.clone()))
    }
}

/// The workflow `double` of [`World::doubling`], with another name for its second step.
async fn renamed(ctx: Ctx, number: u64) -> Result<u64> {
    let doubled = ctx.step("double").run(async |_| Ok(number * 2)).await?;
    ctx.step("verify").run(async |_| Ok(doubled)).await
}

/// A run of `double` that has ended.
async fn doubled(world: &World) -> String {
    let engine = world.doubling().await;
    let run = world.client.start("double", "k", "21").await;
    world.client.ended(&run).await;
    engine.shutdown(std::time::Duration::ZERO).await.expect("it stops");
    run
}

async fn replayed(api: &Api, run: &str, query: &str) -> Value {
    api.post(&format!("/workflow-runs/{run}/replay{query}"), "").await.ok()
}

async fn code_that_does_the_same_is_identical(world: World) {
    let run = doubled(&world).await;
    assert_eq!(
        replayed(&world.client, &run, "").await["format"],
        "semel/history/1",
        "this server has no engine"
    );
    let engine = world.doubling().await;
    let app = App { engine: Some(engine), ..App::open(world.store.clone(), Arc::new(SystemClock::new())) };
    let api = Api::serve_app(app).await;
    let diff = replayed(&api, &run, "").await;
    assert_eq!((&diff["identical"], &diff["summary"]["identical"]), (&json!(true), &json!(3)), "{diff}");
    assert_eq!(replayed(&api, &run, "?history=true").await, replayed(&world.client, &run, "").await);
    api.post("/workflow-runs/run_01j0000000e00800000000007z/replay", "").await.problem(404, "NOT_FOUND");
}

async fn code_that_has_changed_is_told_part_by_part(world: World) {
    let run = doubled(&world).await;
    let engine = world.engine(|builder| builder.workflow("double", renamed)).await;
    let app = App { engine: Some(engine), ..App::open(world.store.clone(), Arc::new(SystemClock::new())) };
    let api = Api::serve_app(app).await;
    let diff = replayed(&api, &run, "").await;
    assert_eq!(diff["identical"], false);
    let rows: Vec<_> =
        diff["rows"].as_array().expect("rows").iter().map(|row| (&row["path"], &row["verdict"])).collect();
    let row = |path: &str, verdict: &str| rows.contains(&(&json!(path), &json!(verdict)));
    assert!(row("double", "identical") && row("check", "missing") && row("verify", "added"), "{diff:#}");
    let url = api.url().to_owned();
    let said = tokio::task::spawn_blocking(move || say(&["run", "replay", &run, "--url", &url]));
    let said = said.await.expect("the command ends").ends(1).tells("no longer does what is recorded");
    assert!(said.tells_on_stdout("missing  step  check"), "it shows what differs");
}

async fn a_definition_that_is_executed_otherwise_is_told_part_by_part(world: World) {
    let text = |when: &str, pause: &str| {
        format!(
            "semel: 1\nname: quick\nsteps:\n  - name: size\n    switch: [{{when: '{{{{ input.n > {when} }}}}', steps: \
             [{{name: large, uuid: }}]}}]\n  - {{name: {pause}, wait: 1ms}}\n"
        )
    };
    world.client.post("/workflow-definitions", text("5", "pause")).await.ok();
    let programs = Interpreter::new(Arc::new(Catalog::new(world.store.clone())));
    let engine = world.engine(|builder| builder.programs(programs)).await;
    let start = json!({"definitionId": "quick", "input": {"n": 6}}).to_string();
    let run = world.client.post("/workflow-runs", start).await.run_id();
    world.client.ended(&run).await;
    let served = async |engine: Engine| {
        let app =
            App { engine: Some(engine), ..App::open(world.store.clone(), Arc::new(SystemClock::new())) };
        Api::serve_app(app).await
    };
    let same = replayed(&served(engine).await, &run, "").await;
    assert_eq!(same["identical"], true, "{same:#}");
    // A decision that was recorded stays, and a step of another name is another step.
    let otherwise = check(&text("7", "nap")).expect("it is a definition").definition;
    let engine = world.engine(|builder| builder.programs(Otherwise(Arc::new(otherwise)))).await;
    let api = served(engine).await;
    let diff = replayed(&api, &run, "").await;
    let rows = diff["rows"].as_array().expect("rows");
    let row =
        |path: &str, verdict: &str| rows.iter().any(|row| row["path"] == path && row["verdict"] == verdict);
    assert!(diff["identical"] == false && row("size", "identical"), "{diff:#}");
    assert!(row("pause", "missing") && row("nap", "added"), "{diff:#}");
    let url = api.url().to_owned();
    let said = tokio::task::spawn_blocking(move || say(&["run", "replay", &run, "--url", &url]));
    let said = said.await.expect("the command ends").ends(1).tells("no longer does what is recorded");
    assert!(said.tells_on_stdout("missing  timer  pause"), "{}", said.stdout());
}
