//! What no route takes: JSON that cannot be kept exactly, bodies without end, routes and methods that are not there.

use reqwest::Method;
use serde_json::json;

use crate::world::{Reply, World, cases};

cases![
    numbers_survive_exactly,
    json_that_cannot_be_kept_is_refused,
    depth_is_limited,
    a_body_of_two_mebibytes_is_the_longest,
    an_unknown_route_is_a_problem,
    an_unknown_method_is_a_problem,
    problems_name_a_page_that_is_served,
];

fn start(input: &str) -> String {
    format!(r#"{{"workflow": "order", "input": {input}}}"#)
}

async fn numbers_survive_exactly(world: World) {
    for number in ["9007199254740993", "1.10", "-0", "1E5", "0.1000000000000000055511151231257827"] {
        let run = world.client.post("/workflow-runs", start(number)).await.run_id();
        let detail = world.client.get(&format!("/workflow-runs/{run}")).await;
        assert!(detail.text.contains(&format!(r#""input":{number},"#)), "{}", detail.text);
    }
}

async fn json_that_cannot_be_kept_is_refused(world: World) {
    for wrong in
        [r#""\u0000""#, r#""\ud800""#, r#""\udc00\ud800""#, "1e400", r#"{"a":1,"a":2}"#, "01", "NaN", "{"]
    {
        world.client.post("/workflow-runs", start(wrong)).await.problem(400, "VALIDATION_ERROR");
    }
    let twice = r#"{"workflow": "order", "workflow": "order"}"#;
    world.client.post("/workflow-runs", twice).await.problem(400, "VALIDATION_ERROR");
    let bytes = world.client.request(Method::POST, "/workflow-runs").body(b"\"\xff\"".to_vec());
    Reply::of(bytes).await.problem(400, "VALIDATION_ERROR");
    let pair = world.client.post("/workflow-runs", start(r#""\ud83d\ude00""#)).await;
    assert_eq!(pair.status, 201);
}

async fn depth_is_limited(world: World) {
    let deep = |levels: usize| start(&format!("{}{}", "[".repeat(levels), "]".repeat(levels)));
    assert_eq!(world.client.post("/workflow-runs", deep(60)).await.status, 201);
    for levels in [64, 10_000, 1_000_000] {
        world.client.post("/workflow-runs", deep(levels)).await.problem(400, "VALIDATION_ERROR");
    }
}

async fn a_body_of_two_mebibytes_is_the_longest(world: World) {
    const MOST: usize = 2 * 1024 * 1024;
    let frame = start("\"\"").len();
    let long = |length: usize| start(&format!("\"{}\"", "x".repeat(length - frame)));
    let run = world.client.post("/workflow-runs", long(MOST)).await.run_id();
    let detail = world.client.get(&format!("/workflow-runs/{run}")).await.ok();
    assert_eq!(detail["input"].as_str().map(str::len), Some(MOST - frame));
    world.client.post("/workflow-runs", long(MOST + 1)).await.problem(413, "PAYLOAD_TOO_LARGE");
    world.client.post("/hooks/t", long(MOST + 1)).await.problem(413, "PAYLOAD_TOO_LARGE");
}

async fn an_unknown_route_is_a_problem(world: World) {
    for path in ["/nothing", "/workflow-runs/", "/workflow-runs/a/b", "/../x"] {
        world.client.get(path).await.problem(404, "NOT_FOUND");
    }
}

async fn an_unknown_method_is_a_problem(world: World) {
    let reply = Reply::of(world.client.request(Method::DELETE, "/workflow-runs")).await;
    reply.problem(405, "METHOD_NOT_ALLOWED");
    let allowed = reply.header("allow").expect("it says what there is");
    assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed}");
    let run = world.client.start("order", "k", "1").await;
    world.client.get(&format!("/workflow-runs/{run}/cancel")).await.problem(405, "METHOD_NOT_ALLOWED");
}

async fn problems_name_a_page_that_is_served(world: World) {
    let problem = world.client.get("/nothing").await.json();
    let page = world.client.get(problem["type"].as_str().expect("a type")).await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/plain; charset=utf-8")));
    assert!(page.text.starts_with("# NOT_FOUND"), "{}", page.text);
    world.client.get("/errors/NOPE").await.problem(404, "NOT_FOUND");
    assert_eq!(json!(problem["status"]), 404);
}
