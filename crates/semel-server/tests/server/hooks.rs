//! Deliveries: consumed once, or refused.

use semel::Ctx;
use serde_json::json;

use crate::world::{World, cases};

cases![
    a_delivery_reaches_the_owner_once,
    a_token_shows_its_owner,
    a_token_that_no_run_owns_is_a_problem,
    the_delivery_id_is_the_header_or_the_query,
    any_value_is_a_payload_and_kept_exactly,
    one_hundred_equal_deliveries_at_once_arrive_once,
];

async fn two(ctx: Ctx, (): ()) -> semel::Result<Vec<serde_json::Value>> {
    let mut hook = ctx.hook::<serde_json::Value>("order:7/a b");
    Ok(vec![hook.recv().await?, hook.recv().await?])
}

const PLACE: &str = "/hooks/order:7%2Fa%20b";

/// A run that waits for two payloads.
async fn waiting(world: &World) -> (semel::Engine, String) {
    let engine = world.engine(|builder| builder.workflow("two", two)).await;
    let run = world.client.start("two", "k", "null").await;
    world.client.reached(&run, "WAITING").await;
    (engine, run)
}

async fn a_delivery_reaches_the_owner_once(world: World) {
    let (_engine, run) = waiting(&world).await;
    let first = world.client.post_as("d1", PLACE, r#"{"n": 1}"#).await;
    assert_eq!(first.ok(), json!({"run": run, "arrival": 1, "absorbed": false}));
    let again = world.client.post_as("d1", PLACE, r#"{ "n": 1 }"#).await;
    assert_eq!((&again.ok()["absorbed"], again.is_replayed()), (&json!(true), true));
    world.client.post_as("d1", PLACE, r#"{"n": 2}"#).await.problem(422, "KEY_REUSED");
    world.client.post_as("d2", PLACE, "2").await.ok();
    let detail = world.client.ended(&run).await;
    assert_eq!(detail["result"], json!([{"n": 1}, 2]));
    assert_eq!(
        (&detail["duplicates"][0]["kind"], &detail["duplicates"][0]["count"]),
        (&json!("delivery"), &json!(1))
    );
    let late = world.client.post_as("d1", PLACE, r#"{"n": 1}"#).await;
    assert!(late.is_replayed(), "also when the hook is closed");
    world.client.post_as("d3", PLACE, "3").await.problem(404, "HOOK_NOT_FOUND");
}

async fn a_token_shows_its_owner(world: World) {
    let (_engine, run) = waiting(&world).await;
    let hook = world.client.get(PLACE).await.ok();
    assert_eq!((&hook["token"], &hook["run"]["id"]), (&json!("order:7/a b"), &json!(run)));
    let detail = world.client.get(&format!("/workflow-runs/{run}")).await.ok();
    assert_eq!(detail["hooks"], json!(["order:7/a b"]));
}

async fn a_token_that_no_run_owns_is_a_problem(world: World) {
    world.client.get("/hooks/unknown").await.problem(404, "HOOK_NOT_FOUND");
    world.client.post("/hooks/unknown", "1").await.problem(404, "HOOK_NOT_FOUND");
    for wrong in ["%20", "%00", &"x".repeat(256)] {
        world.client.get(&format!("/hooks/{wrong}")).await.problem(400, "VALIDATION_ERROR");
        world.client.post(&format!("/hooks/{wrong}"), "1").await.problem(400, "VALIDATION_ERROR");
    }
}

async fn the_delivery_id_is_the_header_or_the_query(world: World) {
    let (_engine, _) = waiting(&world).await;
    let queried = format!("{PLACE}?deliveryId=d1");
    assert_eq!(world.client.post(&queried, "1").await.ok()["absorbed"], false);
    assert_eq!(world.client.post_as("d1", PLACE, "1").await.ok()["absorbed"], true);
    assert_eq!(world.client.post_as("d1", &queried, "1").await.ok()["absorbed"], true);
    world.client.post_as("d2", &queried, "1").await.problem(400, "VALIDATION_ERROR");
    world.client.post(&format!("{PLACE}?id=d1"), "1").await.problem(400, "VALIDATION_ERROR");
    world.client.post(&format!("{PLACE}?deliveryId="), "1").await.problem(400, "VALIDATION_ERROR");
}

async fn any_value_is_a_payload_and_kept_exactly(world: World) {
    let (_engine, run) = waiting(&world).await;
    for wrong in ["{", "1e400", r#""\u0000""#, r#""\ud800""#, r#"{"a":1,"a":2}"#] {
        world.client.post(PLACE, wrong).await.problem(400, "VALIDATION_ERROR");
    }
    world.client.post(PLACE, "").await.ok();
    world.client.post(PLACE, "[9007199254740993, 1.10]").await.ok();
    world.client.ended(&run).await;
    let ledger = world.client.get(&format!("/workflow-runs/{run}/ledger")).await;
    assert!(ledger.text.contains(r#""payload":null"#), "{}", ledger.text);
    assert!(ledger.text.contains(r#""payload":[9007199254740993, 1.10]"#), "{}", ledger.text);
}

async fn one_hundred_equal_deliveries_at_once_arrive_once(world: World) {
    let (_engine, _) = waiting(&world).await;
    let calls = (0..100).map(|_| world.client.post_as("d1", PLACE, "1"));
    let replies = futures_util::future::join_all(calls).await;
    let new = replies.iter().filter(|reply| reply.ok()["absorbed"] == false).count();
    assert_eq!(new, 1);
}
