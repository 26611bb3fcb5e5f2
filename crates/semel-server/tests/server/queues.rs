//! Steps of queues: taken and reported by a worker that only speaks HTTP.

use std::time::Duration;

use semel::clock::{Clock as _, SystemClock};
use semel::id::NodeId;
use semel::{Ctx, Engine, Retry};
use serde_json::{Value, json};

use crate::world::{Api, World, cases};

cases![
    a_step_is_taken_and_its_result_reaches_the_run,
    a_waiting_claim_is_answered_as_soon_as_there_is_a_step,
    a_failed_step_comes_again_under_its_key,
    reports_of_one_call_are_decided_one_by_one,
    a_report_may_be_repeated,
    a_node_that_is_not_registered_takes_nothing,
    what_makes_no_sense_is_refused,
];

const CLAIM: &str = "/workers/steps/claim";
const COMPLETE: &str = "/workers/steps/complete";
const FAIL: &str = "/workers/steps/fail";

async fn order(ctx: Ctx, cents: u64) -> semel::Result<String> {
    let retry = Retry::fixed(Duration::from_millis(1));
    ctx.remote("charge", "payments", json!({"cents": cents})).retry(retry).await
}

async fn engine(world: &World) -> Engine {
    world.engine(|builder| builder.workflow("order", order)).await
}

/// A registered worker; its node.
async fn worker(api: &Api) -> String {
    let node = NodeId(SystemClock::new().uuid()).to_string();
    let join = json!({"node": node, "name": "till", "serves": ["queue:payments"], "leaseMs": 60_000});
    api.post("/workers", join.to_string()).await.ok();
    node
}

async fn take(api: &Api, node: &str, limit: u64) -> Vec<Value> {
    let call = json!({"node": node, "queues": ["payments"], "limit": limit, "waitMs": 60_000});
    let answer = api.post(CLAIM, call.to_string()).await.ok();
    answer["steps"].as_array().expect("a list").clone()
}

fn completed(task: &Value, value: &str) -> Value {
    json!({"run": task["run"], "fence": task["fence"], "value": value})
}

async fn report(api: &Api, route: &str, tasks: &[Value]) -> Vec<Value> {
    let answer = api.post(route, json!({"steps": tasks}).to_string()).await.ok();
    answer["results"].as_array().expect("a list").clone()
}

async fn a_step_is_taken_and_its_result_reaches_the_run(world: World) {
    let _engine = engine(&world).await;
    let (run, node) = (world.client.start("order", "k", "7").await, worker(&world.client).await);
    let tasks = take(&world.client, &node, 10).await;
    let [task] = &tasks[..] else { panic!("one step: {tasks:?}") };
    assert_eq!((&task["queue"], &task["step"]), (&json!("payments"), &json!("charge")));
    assert_eq!((&task["input"], &task["attempt"]), (&json!({"cents": 7}), &json!(1)));
    let noted = report(&world.client, COMPLETE, &[completed(task, "paid")]).await;
    assert_eq!(noted, [json!({"run": task["run"], "status": 200})]);
    assert_eq!(world.client.ended(&run).await["result"], json!("paid"));
}

async fn a_waiting_claim_is_answered_as_soon_as_there_is_a_step(world: World) {
    let _engine = engine(&world).await;
    let (api, node) = (world.client.clone(), worker(&world.client).await);
    let waiting = tokio::spawn(async move { take(&api, &node, 1).await });
    world.client.start("order", "k", "7").await;
    assert_eq!(waiting.await.expect("it ends").len(), 1);
}

async fn a_failed_step_comes_again_under_its_key(world: World) {
    let _engine = engine(&world).await;
    let (run, node) = (world.client.start("order", "k", "7").await, worker(&world.client).await);
    let mut seen = Vec::new();
    for _ in 0..2 {
        let task = take(&world.client, &node, 1).await.remove(0);
        let failed =
            json!({"run": task["run"], "fence": task["fence"], "message": "busy", "retryAfterMs": 2});
        assert_eq!(report(&world.client, FAIL, &[failed]).await[0]["status"], 200);
        seen.push((task["key"].clone(), task["attempt"].clone()));
    }
    let task = take(&world.client, &node, 1).await.remove(0);
    let fatal = json!({"run": task["run"], "fence": task["fence"], "kind": "fatal", "message": "no such card",
               "code": "CARD_UNKNOWN", "data": {"digits": 9_007_199_254_740_993_u64}});
    report(&world.client, FAIL, &[fatal]).await;
    seen.push((task["key"].clone(), task["attempt"].clone()));
    assert_eq!(seen.iter().map(|(_, attempt)| attempt.clone()).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(seen.iter().all(|(key, _)| *key == seen[0].0 && key.as_str().is_some_and(|key| key.len() == 34)));
    let detail = world.client.ended(&run).await;
    assert!(
        detail["error"]["message"].as_str().is_some_and(|text| text.contains("no such card")),
        "{detail}"
    );
    assert_eq!(detail["error"]["code"], "CARD_UNKNOWN", "it reaches the run and its readers: {detail}");
    assert_eq!(detail["error"]["data"], json!({"digits": 9_007_199_254_740_993_u64}), "{detail}");
}

async fn reports_of_one_call_are_decided_one_by_one(world: World) {
    let _engine = engine(&world).await;
    let mut runs = Vec::new();
    for key in ["a", "b"] {
        runs.push(world.client.start("order", key, "7").await);
    }
    let node = worker(&world.client).await;
    let mut tasks = take(&world.client, &node, 2).await;
    while tasks.len() < 2 {
        tasks.extend(take(&world.client, &node, 2).await);
    }
    let late = json!({"run": tasks[0]["run"], "fence": 1, "value": "late"});
    let unknown = json!({"run": runs[0], "fence": 2, "value": "not a step of a queue"});
    let said = [late, completed(&tasks[0], "a"), unknown, completed(&tasks[1], "b")];
    let noted = report(&world.client, COMPLETE, &said).await;
    let statuses: Vec<_> = noted.iter().map(|answer| answer["status"].clone()).collect();
    assert_eq!(statuses, [409, 200, 404, 200], "{noted:?}");
    assert_eq!(noted[0]["problem"]["code"], "CONCURRENCY_ERROR");
    for run in runs {
        world.client.ended(&run).await;
    }
}

async fn a_report_may_be_repeated(world: World) {
    let _engine = engine(&world).await;
    let (run, node) = (world.client.start("order", "k", "7").await, worker(&world.client).await);
    let task = take(&world.client, &node, 1).await.remove(0);
    for _ in 0..2 {
        assert_eq!(report(&world.client, COMPLETE, &[completed(&task, "paid")]).await[0]["status"], 200);
    }
    assert_eq!(report(&world.client, COMPLETE, &[completed(&task, "twice")]).await[0]["status"], 409);
    assert_eq!(world.client.ended(&run).await["result"], json!("paid"));
}

async fn a_node_that_is_not_registered_takes_nothing(world: World) {
    let node = NodeId(SystemClock::new().uuid()).to_string();
    let call = json!({"node": node, "queues": ["payments"]});
    let refused = world.client.post(CLAIM, call.to_string()).await.problem(409, "CONCURRENCY_ERROR");
    assert!(refused.to_string().contains(&node), "in its own words: {refused}");
}

async fn what_makes_no_sense_is_refused(world: World) {
    let node = worker(&world.client).await;
    let many: Vec<_> = (0..101).map(|n| n.to_string()).collect();
    for call in [
        json!({"node": node, "queues": ["pay/ments"]}),
        json!({"node": node, "queues": ["x".repeat(200)]}),
        json!({"node": node, "queues": many}),
        json!({"node": node, "queues": ["payments"], "limit": 1_001}),
        json!({"node": node, "queues": ["payments"], "waitMs": 60_001}),
        json!({"node": "till", "queues": ["payments"]}),
        json!({"queues": ["payments"]}),
        json!({"node": node, "tasks": []}),
    ] {
        world.client.post(CLAIM, call.to_string()).await.problem(400, "VALIDATION_ERROR");
    }
    let idle = json!({"node": node, "queues": []});
    assert_eq!(world.client.post(CLAIM, idle.to_string()).await.ok(), json!({"steps": []}));
    world.client.post(COMPLETE, r#"{"steps": [{"run": "1"}]}"#).await.problem(400, "VALIDATION_ERROR");
    world.client.post(FAIL, r#"{"steps": 1}"#).await.problem(400, "VALIDATION_ERROR");
}
