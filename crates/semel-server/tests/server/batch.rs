//! `POST /workflow-runs/batch`: many starts, each decided by itself.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::world::{World, cases};

cases![
    each_start_has_its_own_answer,
    equal_starts_in_one_batch_are_one_run,
    one_hundred_equal_batches_at_once_create_each_run_once,
    a_batch_under_a_header_may_be_repeated,
    a_batch_of_too_many_is_refused_as_a_whole,
    an_empty_batch_is_nothing,
];

fn batch(runs: &[Value]) -> String {
    json!({ "runs": runs }).to_string()
}

fn order(key: &str, cents: u32) -> Value {
    json!({"workflow": "order", "idempotencyKey": key, "input": cents})
}

async fn each_start_has_its_own_answer(world: World) {
    world.client.start("order", "old", "1").await;
    let starts =
        [order("new", 1), order("old", 1), order("old", 2), order("", 1), json!({"workflow": "a/b"})];
    let reply = world.client.post("/workflow-runs/batch", batch(&starts)).await;
    assert_eq!((reply.status, reply.is_replayed()), (200, false));
    let results = reply.json()["results"].as_array().expect("a list").clone();
    let statuses: Vec<_> = results.iter().map(|result| result["status"].as_u64()).collect();
    assert_eq!(statuses, [201, 200, 422, 400, 400].map(Some));
    assert_eq!(results[0]["start"]["verdict"], "created");
    assert_eq!(results[1]["start"]["verdict"], "attached");
    assert_eq!(results[2]["problem"]["pointers"], json!(["/input"]));
    assert_eq!(results[3]["problem"]["code"], "VALIDATION_ERROR");
}

async fn equal_starts_in_one_batch_are_one_run(world: World) {
    let starts = vec![order("k", 1); 100];
    let answer = world.client.post("/workflow-runs/batch", batch(&starts)).await.ok();
    let results = answer["results"].as_array().expect("a list");
    let created = results.iter().filter(|result| result["status"] == 201).count();
    let runs: HashSet<_> = results.iter().map(|result| result["start"]["run"]["id"].as_str()).collect();
    assert_eq!((results.len(), created, runs.len()), (100, 1, 1));
}

async fn one_hundred_equal_batches_at_once_create_each_run_once(world: World) {
    let starts: Vec<_> = (0..10).map(|n| order(&format!("k{n}"), n)).collect();
    let calls = (0..100).map(|_| world.client.post("/workflow-runs/batch", batch(&starts)));
    let mut created = 0;
    for reply in futures_util::future::join_all(calls).await {
        let answer = reply.ok();
        let results = answer["results"].as_array().expect("a list").iter();
        created += results.filter(|result| result["status"] == 201).count();
    }
    assert_eq!(created, 10);
    let runs = world.client.get("/workflow-runs").await.ok();
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(10));
}

async fn a_batch_under_a_header_may_be_repeated(world: World) {
    let keyless = json!({"workflow": "order", "input": 1});
    let starts = batch(&[keyless.clone(), keyless.clone(), order("own", 1)]);
    let first = world.client.post_as("batch-1", "/workflow-runs/batch", starts.clone()).await.ok();
    let again = world.client.post_as("batch-1", "/workflow-runs/batch", starts).await;
    assert!(again.is_replayed());
    for place in 0..3 {
        let run = |answer: &Value| answer["results"][place]["start"]["run"]["id"].clone();
        assert_eq!(run(&first), run(&again.ok()));
    }
    let ids: HashSet<_> =
        (0..3).map(|place| first["results"][place]["start"]["run"]["id"].to_string()).collect();
    assert_eq!(ids.len(), 3, "places are told apart");
    let other =
        world.client.post_as("batch-1", "/workflow-runs/batch", batch(&[order("own", 1), keyless])).await;
    assert_eq!(other.json()["results"][1]["start"]["verdict"], "attached", "by its place in the batch");
}

async fn a_batch_of_too_many_is_refused_as_a_whole(world: World) {
    let starts = vec![json!({"workflow": "order"}); 1_001];
    world.client.post("/workflow-runs/batch", batch(&starts)).await.problem(400, "VALIDATION_ERROR");
    let most = world.client.post("/workflow-runs/batch", batch(&starts[..1_000])).await.ok();
    assert_eq!(most["results"].as_array().map(Vec::len), Some(1_000));
}

async fn an_empty_batch_is_nothing(world: World) {
    let reply = world.client.post("/workflow-runs/batch", batch(&[])).await;
    assert_eq!((reply.ok(), reply.is_replayed()), (json!({"results": []}), false));
    world.client.post("/workflow-runs/batch", "").await.problem(400, "VALIDATION_ERROR");
}
