//! Only the worker that has claimed a run writes to it: a credential alone, or a version that was guessed, is not enough.

use std::sync::Arc;

use reqwest::{Client, Method};
use semel::clock::{Clock as _, SystemClock};
use semel::id::{NodeId, WorkspaceId};
use semel::{Ctx, Engine};
use serde_json::{Value, json};

use super::site::{ServedSite, token};
use crate::world::{Reply, World, cases};

cases![
    a_run_is_written_to_by_the_worker_that_claimed_it,
    a_run_that_nothing_has_claimed_is_written_to_by_no_worker,
    a_step_is_reported_by_the_worker_that_took_it,
    a_commit_that_another_worker_repeats_is_answered,
    the_numbers_of_runs_tell_nothing_of_other_tenants,
];

/// A server with several workers, each with a key of its own.
struct WorkerShop {
    site: ServedSite,
    http: Client,
    world: World,
}

/// A registered worker.
struct Worker {
    key: String,
    node: NodeId,
}

impl WorkerShop {
    async fn on(world: World) -> Self {
        let site = ServedSite::open(world.store.clone(), Arc::new(SystemClock::new())).await;
        Self { site, http: Client::new(), world }
    }

    async fn call(&self, key: &str, path: &str, body: &Value) -> Value {
        let url = format!("{}/api/v1{path}", self.site.url());
        let request = self.http.request(Method::POST, url).bearer_auth(key).body(body.to_string());
        Reply::of(request).await.json()
    }

    /// A worker with a key of this name.
    async fn worker(&self, name: &str) -> Worker {
        let node = NodeId(SystemClock::new().uuid());
        let key = token(WorkspaceId::DEFAULT, &format!("worker.{name}"));
        let join = json!({"node": node, "name": name, "leaseMs": 60_000});
        assert!(self.call(&key, "/workers", &join).await["until"].is_i64());
        Worker { key, node }
    }

    async fn start(&self, workflow: &str) -> String {
        self.world.client.start(workflow, "k", "7").await
    }

    /// Claims the only run that is due.
    async fn claim(&self, worker: &Worker) -> (String, u64) {
        let call = json!({"node": worker.node, "workflows": [{"workflow": "order"}], "limit": 1});
        let claims = self.call(&worker.key, "/workers/claim", &call).await;
        let run = &claims["runs"][0]["run"];
        let version = run["state"]["version"].as_u64().expect("a run has a version");
        (run["new"]["id"].as_str().expect("one is due").to_owned(), version)
    }

    async fn complete(&self, key: &str, node: Option<NodeId>, run: &str, expected: u64) -> Value {
        let entries = json!([{"completed": {"value": 1}}]);
        let mut commit = json!({"run": run, "expected": expected, "entries": entries});
        if let Some(node) = node {
            commit["node"] = json!(node);
        }
        self.call(key, "/workers/commit", &json!({"commits": [commit]})).await["answers"][0].clone()
    }

    async fn report(&self, key: &str, node: Option<NodeId>, task: &Value) -> Value {
        let done = json!({"run": task["run"], "fence": task["fence"], "value": "paid"});
        let mut call = json!({"steps": [done]});
        if let Some(node) = node {
            call["node"] = json!(node);
        }
        self.call(key, "/workers/steps/complete", &call).await["results"][0]["status"].clone()
    }
}

async fn a_run_is_written_to_by_the_worker_that_claimed_it(world: World) {
    let shop = WorkerShop::on(world).await;
    let (ann, bob) = (shop.worker("ann").await, shop.worker("bob").await);
    shop.start("order").await;
    let (run, version) = shop.claim(&ann).await;
    let lost = json!({"error": {"concurrency": {"run": run, "expected": version}}});
    let idle = token(WorkspaceId::DEFAULT, "worker.cid");
    assert_eq!(shop.complete(&idle, None, &run, version).await, lost, "a key without any worker");
    assert_eq!(shop.complete(&bob.key, None, &run, version).await, lost, "the key of another worker");
    assert_eq!(shop.complete(&bob.key, Some(bob.node), &run, version).await, lost);
    assert_eq!(shop.complete(&ann.key, Some(bob.node), &run, version).await, lost, "another of its nodes");
    let done = json!({"ok": {"version": version + 1, "arrivals": 0}});
    assert_eq!(shop.complete(&ann.key, Some(ann.node), &run, version).await, done);
}

async fn a_run_that_nothing_has_claimed_is_written_to_by_no_worker(world: World) {
    let shop = WorkerShop::on(world).await;
    let ann = shop.worker("ann").await;
    let run = shop.start("order").await;
    let lost = json!({"error": {"concurrency": {"run": run, "expected": 1}}});
    assert_eq!(shop.complete(&ann.key, Some(ann.node), &run, 1).await, lost);
    let (run, version) = shop.claim(&ann).await;
    let done = json!({"ok": {"version": version + 1, "arrivals": 0}});
    assert_eq!(shop.complete(&ann.key, None, &run, version).await, done, "its key says which worker it is");
}

async fn a_commit_that_another_worker_repeats_is_answered(world: World) {
    let shop = WorkerShop::on(world).await;
    let (ann, bob) = (shop.worker("ann").await, shop.worker("bob").await);
    shop.start("order").await;
    let (run, version) = shop.claim(&ann).await;
    let done = json!({"ok": {"version": version + 1, "arrivals": 0}});
    for worker in [&ann, &ann, &bob] {
        assert_eq!(shop.complete(&worker.key, Some(worker.node), &run, version).await, done);
    }
}

async fn pay(ctx: Ctx, cents: u64) -> semel::Result<String> {
    ctx.remote("charge", "payments", cents).await
}

async fn a_step_is_reported_by_the_worker_that_took_it(world: World) {
    let engine: Engine = world.engine(|builder| builder.workflow("pay", pay)).await;
    let shop = WorkerShop::on(world).await;
    let (ann, bob) = (shop.worker("ann").await, shop.worker("bob").await);
    let run = shop.start("pay").await;
    let call = json!({"node": ann.node, "queues": ["payments"], "waitMs": 60_000});
    let taken = shop.call(&ann.key, "/workers/steps/claim", &call).await;
    let task = &taken["steps"][0];
    assert_eq!(shop.report(&bob.key, None, task).await, 409);
    assert_eq!(shop.report(&bob.key, Some(bob.node), task).await, 409);
    assert_eq!(shop.report(&ann.key, Some(ann.node), task).await, 200);
    assert_eq!(shop.report(&bob.key, None, task).await, 200, "it changes nothing");
    assert_eq!(shop.world.client.ended(&run).await["result"], json!("paid"));
    drop(engine);
}

async fn the_numbers_of_runs_tell_nothing_of_other_tenants(world: World) {
    let shop = WorkerShop::on(world).await;
    let key = token(WorkspaceId::DEFAULT, "admin");
    for n in 0..5 {
        shop.world.client.start("order", &n.to_string(), "7").await;
    }
    let page_of = async |before: &Value| {
        let query = json!({"status": null, "workflow": null, "since": null, "before": before, "limit": 2});
        shop.call(&key, "/workers/list", &query).await
    };
    let (mut numbers, mut runs, mut last) = (Vec::new(), Vec::new(), Value::Null);
    loop {
        let page = page_of(&last).await;
        let listed = page["runs"].as_array().expect("a list");
        numbers.extend(listed.iter().map(|run| run["num"].as_i64().expect("a number")));
        runs.extend(listed.iter().map(|run| run["new"]["key"].clone()));
        last = page["next"].clone();
        if last.is_null() {
            break;
        }
    }
    assert_eq!(runs, [4, 3, 2, 1, 0].map(|n: u8| json!(n.to_string())), "pages follow each other");
    assert!(numbers.iter().all(|num| num.unsigned_abs() > 1_000_000), "no count of runs: {numbers:?}");
    let find = json!({"by": {"key": ["*", "4"]}});
    let found = shop.call(&key, "/workers/find", &find).await;
    assert_eq!(found["run"]["num"], numbers[0], "the same everywhere: {found}");
}
