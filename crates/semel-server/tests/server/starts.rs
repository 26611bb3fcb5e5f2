//! `POST /workflow-runs`: one request, one run, however often it is sent.

use std::collections::HashSet;

use reqwest::Method;
use serde_json::json;

use crate::world::{Reply, World, cases};

cases![
    a_start_answers_created_and_where,
    the_same_start_again_is_the_same_run,
    reordered_members_are_the_same_start,
    another_input_under_the_key_is_refused_and_named,
    another_workflow_under_the_key_is_refused,
    the_header_is_the_key_quoted_or_bare,
    a_header_that_differs_from_the_member_is_refused,
    without_a_key_every_start_is_a_run,
    a_refused_start_burns_no_key,
    one_hundred_equal_starts_at_once_create_one_run,
    waiting_for_the_end_answers_with_the_result,
    waiting_for_what_does_not_end_answers_in_time,
    keys_of_different_scopes_do_not_meet,
    policies_decide_about_duplicates,
    a_matrix_is_a_policy,
    a_delayed_run_is_due_later,
    a_payload_that_comes_with_a_repeated_start_is_delivered_once,
    another_workflow_under_the_same_key_and_payload_is_started,
    no_input_is_an_empty_object,
    what_is_not_understood_is_refused,
];

const ORDER: &str =
    r#"{"workflow": "order", "input": {"cents": 1999, "to": "x"}, "idempotencyKey": "order-7"}"#;

async fn a_start_answers_created_and_where(world: World) {
    let reply = world.client.post("/workflow-runs", ORDER).await;
    assert_eq!(reply.status, 201);
    let answer = reply.json();
    assert_eq!((&answer["created"], &answer["verdict"]), (&json!(true), &json!("created")));
    let run = &answer["run"];
    assert_eq!(
        (&run["status"], &run["key"], &run["scope"]),
        (&json!("PENDING"), &json!("order-7"), &json!("*"))
    );
    let place = format!("/api/v1/workflow-runs/{}", reply.run_id());
    assert_eq!(reply.header("location"), Some(place.as_str()));
    assert!(!reply.is_replayed());
}

async fn the_same_start_again_is_the_same_run(world: World) {
    let first = world.client.post("/workflow-runs", ORDER).await;
    let again = world.client.post("/workflow-runs", ORDER).await;
    assert_eq!((again.status, again.run_id(), again.is_replayed()), (200, first.run_id(), true));
    assert_eq!(again.json()["verdict"], "attached");
    assert_eq!(again.header("location"), first.header("location"));
}

async fn reordered_members_are_the_same_start(world: World) {
    let first = world.client.post("/workflow-runs", ORDER).await.run_id();
    let other = r#"{"idempotencyKey":"order-7","input":{ "to":"x","cents":1999.0},"workflow":"order"}"#;
    assert_eq!(world.client.post("/workflow-runs", other).await.run_id(), first);
}

async fn another_input_under_the_key_is_refused_and_named(world: World) {
    let first = world.client.post("/workflow-runs", ORDER).await.run_id();
    let reply = world.client.post("/workflow-runs", ORDER.replace("1999", "5000")).await;
    let problem = reply.problem(422, "KEY_REUSED");
    assert_eq!((&problem["owner"], &problem["pointers"]), (&json!(first), &json!(["/input/cents"])));
    let exact = |cents| format!(r#"{{"workflow": "order", "input": {cents}, "idempotencyKey": "exact"}}"#);
    world.client.post("/workflow-runs", exact("9007199254740993")).await.ok();
    let near = world.client.post("/workflow-runs", exact("9007199254740992")).await;
    near.problem(422, "KEY_REUSED");
}

async fn another_workflow_under_the_key_is_refused(world: World) {
    world.client.post("/workflow-runs", ORDER).await.ok();
    let reply = world.client.post("/workflow-runs", ORDER.replace(r#""order""#, r#""refund""#)).await;
    assert_eq!(reply.problem(422, "KEY_REUSED")["pointers"], json!(["/workflow"]));
}

async fn the_header_is_the_key_quoted_or_bare(world: World) {
    let body = r#"{"workflow": "order"}"#;
    let first = world.client.post_as("a b", "/workflow-runs", body).await;
    assert_eq!(first.json()["run"]["key"], "a b");
    let quoted = world.client.post_as(r#""a b""#, "/workflow-runs", body).await;
    assert_eq!((quoted.run_id(), quoted.is_replayed()), (first.run_id(), true));
    let escaped = world.client.post_as(r#""say \"a\"""#, "/workflow-runs", body).await;
    assert_eq!(escaped.json()["run"]["key"], r#"say "a""#);
    for wrong in ["", "\"open", "\"a\"b\"", &"x".repeat(256)] {
        world.client.post_as(wrong, "/workflow-runs", body).await.problem(400, "VALIDATION_ERROR");
    }
    let twice = world.client.request(Method::POST, "/workflow-runs").body(body);
    let twice = twice.header("idempotency-key", "a").header("idempotency-key", "b");
    Reply::of(twice).await.problem(400, "VALIDATION_ERROR");
}

async fn a_header_that_differs_from_the_member_is_refused(world: World) {
    world.client.post_as("order-8", "/workflow-runs", ORDER).await.problem(400, "VALIDATION_ERROR");
    let same = world.client.post_as("order-7", "/workflow-runs", ORDER).await;
    assert_eq!(same.status, 201, "the refused one has burnt nothing");
}

async fn without_a_key_every_start_is_a_run(world: World) {
    let body = r#"{"workflow": "order"}"#;
    let first = world.client.post("/workflow-runs", body).await;
    let second = world.client.post("/workflow-runs", body).await;
    assert_eq!((first.status, second.status), (201, 201));
    assert_ne!(first.run_id(), second.run_id());
    assert_eq!(first.json()["run"]["key"], first.json()["run"]["id"]);
}

async fn a_refused_start_burns_no_key(world: World) {
    let wrong = ORDER.replace("1999", "1e400");
    world.client.post("/workflow-runs", wrong).await.problem(400, "VALIDATION_ERROR");
    let delay = ORDER.replace("{\"workflow", "{\"delay\": \"soon\", \"workflow");
    world.client.post("/workflow-runs", delay).await.problem(400, "VALIDATION_ERROR");
    assert_eq!(world.client.post("/workflow-runs", ORDER).await.status, 201);
}

async fn one_hundred_equal_starts_at_once_create_one_run(world: World) {
    let starts = (0..100).map(|_| world.client.post("/workflow-runs", ORDER));
    let replies = futures_util::future::join_all(starts).await;
    let created = replies.iter().filter(|reply| reply.status == 201).count();
    let runs: HashSet<_> = replies.iter().map(Reply::run_id).collect();
    assert_eq!((created, runs.len()), (1, 1));
    let key = world.client.get("/keys/order-7").await.ok();
    assert_eq!(
        (&key["duplicates"][0]["kind"], &key["duplicates"][0]["count"]),
        (&json!("start"), &json!(99))
    );
}

async fn waiting_for_the_end_answers_with_the_result(world: World) {
    let _engine = world.doubling().await;
    let start = || {
        let request = world.client.request(Method::POST, "/workflow-runs").header("prefer", "wait=60");
        request.body(r#"{"workflow": "double", "input": 21, "idempotencyKey": "k"}"#)
    };
    let reply = Reply::of(start()).await;
    assert_eq!((reply.status, reply.header("preference-applied")), (201, Some("wait=60")));
    let run = &reply.json()["run"];
    assert_eq!((&run["status"], &run["result"]), (&json!("COMPLETED"), &json!(42)));
    let again = Reply::of(start()).await;
    assert_eq!((again.status, again.json()["verdict"].as_str()), (200, Some("replayed")));
    assert_eq!((&again.json()["run"]["result"], again.is_replayed()), (&json!(42), true));
}

async fn waiting_for_what_does_not_end_answers_in_time(world: World) {
    let request =
        world.client.request(Method::POST, "/workflow-runs").header("prefer", "respond-async, wait=0");
    let reply = Reply::of(request.body(ORDER)).await;
    assert_eq!((reply.status, &reply.json()["run"]["status"]), (201, &json!("PENDING")));
    let wrong = world.client.request(Method::POST, "/workflow-runs").header("prefer", "wait=long");
    Reply::of(wrong.body(ORDER)).await.problem(400, "VALIDATION_ERROR");
}

async fn keys_of_different_scopes_do_not_meet(world: World) {
    let start = async |workflow: &str, version: &str, scope: &str| {
        let body = json!({
            "workflow": workflow, "workflowVersion": version, "scope": scope, "idempotencyKey": "k"
        });
        world.client.post("/workflow-runs", body.to_string()).await
    };
    assert_eq!(start("a", "1", "workspace").await.status, 201);
    assert_eq!(start("a", "1", "workflow").await.json()["run"]["scope"], "w/a");
    assert_eq!(start("b", "1", "workflow").await.status, 201);
    assert_eq!(start("a", "1", "workflow-version").await.json()["run"]["scope"], "v/a/1");
    assert_eq!(start("a", "2", "workflow-version").await.status, 201);
    assert_eq!(start("a", "2", "workflow").await.status, 200);
}

async fn policies_decide_about_duplicates(world: World) {
    let start = |policy: &str, input: u32| {
        json!({"workflow": "order", "input": input, "idempotencyKey": "k", "onConflict": policy}).to_string()
    };
    let first = world.client.post("/workflow-runs", start("attach", 1)).await.run_id();
    let refused = world.client.post("/workflow-runs", start("reject", 1)).await;
    assert_eq!(refused.problem(409, "DUPLICATE_RUN")["owner"], json!(first));
    world.client.post("/workflow-runs", start("strict", 1)).await.problem(409, "DUPLICATE_RUN");
    let newer = world.client.post("/workflow-runs", start("supersede", 2)).await;
    let answer = newer.json();
    assert_eq!(
        (newer.status, &answer["verdict"], &answer["superseded"]),
        (201, &json!("superseded"), &json!(first))
    );
    let old = world.client.get(&format!("/workflow-runs/{first}")).await.ok();
    assert_eq!((&old["status"], &old["holdsKey"]), (&json!("CANCELLED"), &json!(false)));
    world.client.post("/workflow-runs", start("sometimes", 2)).await.problem(400, "VALIDATION_ERROR");
}

async fn a_matrix_is_a_policy(world: World) {
    let row = |open: &str| json!({"open": open, "completed": "attach", "failed": "attach", "cancelled": "attach", "timedOut": "attach"});
    let start = |policy: serde_json::Value| {
        json!({"workflow": "order", "idempotencyKey": "k", "onConflict": policy}).to_string()
    };
    let matrix = json!({"same": row("reject"), "other": row("refuse")});
    world.client.post("/workflow-runs", start(matrix.clone())).await.ok();
    world.client.post("/workflow-runs", start(matrix)).await.problem(409, "DUPLICATE_RUN");
    for wrong in [
        json!({"same": row("restart"), "other": row("refuse")}),
        json!({"same": row("attach"), "other": row("refuse"), "else": 1}),
        json!({"same": row("attach")}),
        json!(7),
    ] {
        world.client.post("/workflow-runs", start(wrong)).await.problem(400, "VALIDATION_ERROR");
    }
}

async fn a_delayed_run_is_due_later(world: World) {
    let body =
        r#"{"workflow": "order", "delay": "PT1H", "timeout": "2h", "retention": {"history": "1h 30m"}}"#;
    let run = world.client.post("/workflow-runs", body).await.json()["run"].clone();
    assert!(run["dueAt"].as_str() > run["createdAt"].as_str(), "{run}");
    let far = r#"{"workflow": "order", "delay": "876000h", "retention": {"key": "2562047788015215h"}}"#;
    world.client.post("/workflow-runs", far).await.ok();
    let absurd = r#"{"workflow": "order", "delay": "999999999999h"}"#;
    let problem = world.client.post("/workflow-runs", absurd).await.problem(400, "VALIDATION_ERROR");
    assert!(problem["detail"].as_str().is_some_and(|text| text.contains("36500 days")), "{problem}");
}

async fn another_workflow_under_the_same_key_and_payload_is_started(world: World) {
    let body = |workflow: &str| {
        let deliver = json!({"token": "u", "payload": 1});
        json!({"workflow": workflow, "idempotencyKey": "1", "scope": "workflow", "deliver": deliver})
            .to_string()
    };
    let first = world.client.post("/workflow-runs", body("wa")).await.run_id();
    world.client.post(&format!("/workflow-runs/{first}/cancel"), "").await.ok();
    let second = world.client.post("/workflow-runs", body("wb")).await;
    assert_eq!((second.status, &second.json()["run"]["workflow"]), (201, &json!("wb")));
    assert_eq!(second.json()["delivered"]["absorbed"], json!(false));
}

async fn no_input_is_an_empty_object(world: World) {
    let body = r#"{"workflow": "order", "idempotencyKey": "k"}"#;
    let first = world.client.post("/workflow-runs", body).await;
    assert_eq!((first.status, &first.json()["run"]["workflow"]), (201, &json!("order")));
    let detail = world.client.get(&format!("/workflow-runs/{}", first.run_id())).await.ok();
    assert_eq!(detail["input"], json!({}));
    let same = r#"{"workflow": "order", "input": {}, "idempotencyKey": "k"}"#;
    assert_eq!(world.client.post("/workflow-runs", same).await.run_id(), first.run_id());
    let batch = format!(r#"{{"runs": [{body}]}}"#);
    let batch = world.client.post("/workflow-runs/batch", batch).await.ok();
    assert_eq!(batch["results"][0]["start"]["run"]["id"], json!(first.run_id()));
}

async fn a_payload_that_comes_with_a_repeated_start_is_delivered_once(world: World) {
    let body = |payload: u32| {
        json!({"workflow": "order", "idempotencyKey": "k", "deliver": {"token": "t", "payload": payload}})
            .to_string()
    };
    let first = world.client.post("/workflow-runs", body(1)).await.ok();
    assert_eq!(first["delivered"]["absorbed"], json!(false));
    let again = world.client.post("/workflow-runs", body(1)).await.ok();
    assert_eq!((&again["delivered"]["absorbed"], &again["delivered"]["arrival"]), (&json!(true), &json!(1)));
    let other = world.client.post("/workflow-runs", body(2)).await.ok();
    assert_eq!((&other["delivered"]["absorbed"], &other["delivered"]["arrival"]), (&json!(false), &json!(2)));
}

async fn what_is_not_understood_is_refused(world: World) {
    for wrong in [
        "{}",
        r#"{"workflow": ""}"#,
        r#"{"workflow": "a/b"}"#,
        r#"{"workflow": "order", "wokflowVersion": "2"}"#,
        r#"{"workflow": "order", "idempotencyKey": " "}"#,
        r#"{"workflow": "order", "idempotencyKey": ""}"#,
        r#"{"workflow": "order", "scope": "galaxy"}"#,
        r#"{"workflow": "order", "delay": "-1s"}"#,
        r#"{"workflow": "order", "exclude": ["sentAt"]}"#,
        r#"{"workflow": "order", "retention": {"forever": true}}"#,
        r#"{"workflow": "order", "deliver": {"token": ""}}"#,
        "[]",
        "null",
    ] {
        world.client.post("/workflow-runs", wrong).await.problem(400, "VALIDATION_ERROR");
    }
    let runs = world.client.get("/workflow-runs").await.ok();
    assert_eq!(runs["runs"], json!([]));
}
