//! What keys point at, and how they are freed.

use serde_json::json;

use crate::world::{World, cases};

cases![
    a_key_shows_its_run_and_its_duplicates,
    a_released_key_is_free,
    a_release_under_a_call_id_is_done_once,
    keys_are_looked_up_by_scope,
    a_refused_start_is_seen_on_the_run_that_has_the_key,
    duplicates_are_listed_in_pages,
    figures_tell_of_starts_and_duplicates,
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

async fn a_refused_start_is_seen_on_the_run_that_has_the_key(world: World) {
    world.client.start("order", "k", r#"{"amount": 1999}"#).await;
    let other = r#"{"workflow": "order", "idempotencyKey": "k", "input": {"amount": 2999}}"#;
    world.client.post("/workflow-runs", other).await.problem(422, "KEY_REUSED");
    let key = world.client.get("/keys/k").await.ok();
    let refused = &key["duplicates"][0];
    assert_eq!((&refused["kind"], &refused["count"]), (&json!("refused"), &json!(1)), "{key}");
    let receipt = &refused["recent"][0];
    assert_eq!((&receipt["verdict"], &receipt["code"]), (&json!("refused"), &json!("KEY_REUSED")));
    let place = json!({"pointer": "/input/amount", "held": "1999", "asked": "2999"});
    assert_eq!((&receipt["pointers"], &receipt["same"]), (&json!([place]), &json!(false)));
}

async fn duplicates_are_listed_in_pages(world: World) {
    for key in ["a", "b"] {
        let run = world.client.start("order", key, "1").await;
        let again = format!(r#"{{"workflow": "order", "idempotencyKey": "{key}", "input": 1}}"#);
        world.client.post("/workflow-runs", again).await.ok();
        let one = world.client.get("/duplicates?limit=1").await.ok();
        let row = &one["duplicates"][0];
        assert_eq!((&row["run"], &row["key"], &row["count"]), (&json!(run), &json!(key), &json!(1)), "{one}");
        assert_eq!((&row["kind"], &row["latest"]["verdict"]), (&json!("start"), &json!("attached")));
    }
    let first = world.client.get("/duplicates?limit=1").await.ok();
    let next = first["next"].as_str().expect("a cursor");
    let last = world.client.get(&format!("/duplicates?limit=1&cursor={next}")).await.ok();
    assert_eq!((&last["duplicates"][0]["key"], last.get("next")), (&json!("a"), None));
    let found = world.client.get("/duplicates?key=b&kind=start&since=2020-01-01T00:00:00Z").await.ok();
    assert_eq!(found["duplicates"].as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!(world.client.get("/duplicates?kind=refused").await.ok(), json!({"duplicates": []}));
    for wrong in ["kind=x", "cursor=x", "since=x", "limit=0", "limit=201", "key="] {
        world.client.get(&format!("/duplicates?{wrong}")).await.problem(400, "VALIDATION_ERROR");
    }
    let gone = next.replace("run_0", "run_1");
    world.client.get(&format!("/duplicates?cursor={gone}")).await.problem(400, "VALIDATION_ERROR");
}

async fn figures_tell_of_starts_and_duplicates(world: World) {
    world.client.start("order", "a", "1").await;
    for _ in 0..2 {
        let again = r#"{"workflow": "order", "idempotencyKey": "a", "input": 1}"#;
        world.client.post("/workflow-runs", again).await.ok();
    }
    for query in ["", "?step=5m", "?step=1h&workflows=true"] {
        let stats = world.client.get(&format!("/stats{query}")).await.ok();
        let buckets = stats["buckets"].as_array().expect("a list");
        let sum = |name: &str| buckets.iter().filter_map(|bucket| bucket[name].as_u64()).sum::<u64>();
        assert_eq!((sum("created"), sum("attached")), (1, 2), "{query}: {stats}");
        assert_eq!(stats["bounds"][0], 1);
    }
    let stats = world.client.get("/stats?workflows=true").await.ok();
    let order = &stats["workflows"][0];
    assert_eq!((&order["workflow"], &order["attached"]), (&json!("order"), &json!(2)), "{stats}");
    let none = world.client.get("/stats?from=2020-01-01T00:00:00Z&to=2020-01-01T01:00:00Z").await.ok();
    assert_eq!(none["buckets"], json!([]));
    for wrong in [
        "step=90s",
        "step=0m",
        "step=x",
        "from=x",
        "from=2020-01-01T00:00:00Z",
        "from=2020-01-02T00:00:00Z&to=2020-01-01T00:00:00Z",
    ] {
        world.client.get(&format!("/stats?{wrong}")).await.problem(400, "VALIDATION_ERROR");
    }
}
