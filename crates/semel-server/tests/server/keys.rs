//! What keys point at, and how they are freed.

use serde_json::json;

use crate::world::{World, cases};

cases![
    a_key_shows_its_run_and_its_duplicates,
    a_released_key_is_free,
    a_release_under_a_call_id_is_done_once,
    keys_are_looked_up_by_scope,
];

async fn a_key_shows_its_run_and_its_duplicates(world: World) {
    let run = world.client.start("order", "a:b%|", "1").await;
    for _ in 0..3 {
        let body = r#"{"workflow": "order", "idempotencyKey": "a:b%|", "input": 1}"#;
        assert_eq!(world.client.post("/workflow-runs", body).await.status, 200);
    }
    let key = world.client.get("/keys/a:b%25%7C").await.ok();
    assert_eq!((&key["key"], &key["scope"], &key["run"]["id"]), (&json!("a:b%|"), &json!("*"), &json!(run)));
    let duplicates = &key["duplicates"][0];
    assert_eq!((&duplicates["kind"], &duplicates["count"]), (&json!("start"), &json!(3)));
    assert_eq!(duplicates["recent"].as_array().map(Vec::len), Some(3));
    assert!(duplicates["firstAt"].as_str() <= duplicates["lastAt"].as_str());
}

async fn a_released_key_is_free(world: World) {
    let run = world.client.start("order", "a/b", "1").await;
    let released = world.client.post("/keys/a%2Fb/release", "").await.ok();
    assert_eq!((&released["changed"], &released["run"]["id"]), (&json!(true), &json!(run)));
    assert_eq!(released["run"]["holdsKey"], json!(false));
    world.client.get("/keys/a%2Fb").await.problem(404, "NOT_FOUND");
    world.client.post("/keys/a%2Fb/release", "").await.problem(404, "NOT_FOUND");
    let next = world.client.start("order", "a/b", "2").await;
    assert_ne!(next, run);
}

async fn a_release_under_a_call_id_is_done_once(world: World) {
    let run = world.client.start("order", "k", "1").await;
    let first = world.client.post_as("r1", "/keys/k/release", "").await;
    assert_eq!((first.run_id(), first.is_replayed()), (run.clone(), false));
    let again = world.client.post_as("r1", "/keys/k/release", "").await;
    assert_eq!((again.run_id(), again.is_replayed()), (run.clone(), true));
    let next = world.client.start("order", "k", "2").await;
    let late = world.client.post_as("r1", "/keys/k/release", "").await;
    assert_eq!((late.run_id(), late.is_replayed()), (run, true), "the next run keeps its key");
    assert_eq!(world.client.get("/keys/k").await.run_id(), next);
    world.client.post("/keys/k/release", r#"{"expectedVersion": 9}"#).await.problem(409, "CONCURRENCY_ERROR");
}

async fn keys_are_looked_up_by_scope(world: World) {
    let body = r#"{"workflow": "order", "idempotencyKey": "k", "scope": "workflow"}"#;
    let run = world.client.post("/workflow-runs", body).await.run_id();
    world.client.get("/keys/k").await.problem(404, "NOT_FOUND");
    assert_eq!(world.client.get("/keys/k?scope=w%2Forder").await.run_id(), run);
    world.client.post("/keys/k/release?scope=w%2Forder", "").await.ok();
    world.client.get("/keys/k?scope=w%2Forder").await.problem(404, "NOT_FOUND");
}
