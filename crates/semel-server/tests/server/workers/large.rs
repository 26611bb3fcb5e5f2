//! Values that are large together: what does not fit into one request travels in several, and no run stands still.

use std::time::Duration;

use futures_util::future::join_all;
use semel::{Ctx, Engine};
use serde_json::{Value, json};

use crate::world::{World, cases};

cases![
    deliveries_that_came_while_the_worker_was_away_are_all_consumed,
    steps_that_end_together_are_committed_in_pieces,
    a_page_of_an_inbox_has_a_bound,
    children_with_large_inputs_are_started_in_pieces,
];

/// Just below the longest value.
const LARGE: usize = 1_900_000;
/// This number of them exceeds the longest body of a request.
const MANY: usize = 10;

async fn gather(ctx: Ctx, _: Value) -> semel::Result<usize> {
    let mut hook = ctx.hook::<String>("more");
    let mut total = 0;
    for _ in 0..MANY {
        total += hook.recv().await?.len();
    }
    Ok(total)
}

async fn produce(ctx: Ctx, _: Value) -> semel::Result<usize> {
    let step = |n: usize| {
        let ctx = ctx.clone();
        async move { ctx.step(format!("part-{n}")).run(async |_| Ok("x".repeat(LARGE))).await }
    };
    let parts: Vec<semel::Result<String>> = join_all((0..MANY).map(step)).await;
    parts.into_iter().map(|part| part.map(|part| part.len())).sum()
}

async fn measure(_: Ctx, text: String) -> semel::Result<usize> {
    Ok(text.len())
}

async fn hand_out(ctx: Ctx, _: Value) -> semel::Result<usize> {
    let mut total = 0;
    let child = |n: usize| {
        let ctx = ctx.clone();
        async move { ctx.child(measure, "x".repeat(LARGE)).key(format!("part-{n}")).await?.result().await }
    };
    for part in join_all((0..MANY).map(child)).await {
        total += part?;
    }
    Ok(total)
}

/// An engine elsewhere, with all workflows of these tests.
async fn worker(world: &World) -> Engine {
    let builder = Engine::builder().store(world.client.url());
    let builder = builder.workflow("gather", gather).workflow("produce", produce);
    let builder = builder.workflow("hand-out", hand_out).workflow("measure", measure);
    builder.open().await.expect("the server listens")
}

/// The result of a run; a run that is paused has none.
async fn result(world: &World, run: &str) -> Value {
    let mut version = 0;
    loop {
        let path = format!("/workflow-runs/{run}?wait=60&version={version}");
        let detail = world.client.get(&path).await.ok();
        assert_ne!(detail["status"], "PAUSED", "{detail}");
        if detail["endedAt"].is_string() {
            return detail["result"].clone();
        }
        version = detail["version"].as_u64().expect("every run has a version");
    }
}

async fn a_page_of_an_inbox_has_a_bound(world: World) {
    let first = worker(&world).await;
    let run = world.client.start("gather", "k", "null").await;
    world.client.reached(&run, "WAITING").await;
    first.shutdown(Duration::from_secs(10)).await.expect("it goes");
    for n in 0..MANY {
        let body = json!("x".repeat(LARGE));
        world.client.post_as(&format!("d{n}"), "/hooks/more", body.to_string()).await.ok();
    }
    for max_bytes in [None, Some(1_000_000_000)] {
        let call = json!({"run": run, "maxBytes": max_bytes});
        let page = world.client.post("/workers/inbox", call.to_string()).await.ok();
        assert_eq!(page.as_array().map(Vec::len), Some(8), "16 MiB");
    }
}

async fn deliveries_that_came_while_the_worker_was_away_are_all_consumed(world: World) {
    let first = worker(&world).await;
    let run = world.client.start("gather", "k", "null").await;
    world.client.reached(&run, "WAITING").await;
    first.shutdown(Duration::from_secs(10)).await.expect("it goes");
    for n in 0..MANY {
        let body = json!("x".repeat(LARGE));
        world.client.post_as(&format!("d{n}"), "/hooks/more", body.to_string()).await.ok();
    }
    let _second = worker(&world).await;
    assert_eq!(result(&world, &run).await, json!(MANY * LARGE));
}

async fn steps_that_end_together_are_committed_in_pieces(world: World) {
    let _worker = worker(&world).await;
    let run = world.client.start("produce", "k", "null").await;
    assert_eq!(result(&world, &run).await, json!(MANY * LARGE));
}

async fn children_with_large_inputs_are_started_in_pieces(world: World) {
    let _worker = worker(&world).await;
    let run = world.client.start("hand-out", "k", "null").await;
    assert_eq!(result(&world, &run).await, json!(MANY * LARGE));
}
