//! Claims that wait: what they hear of, what they cost, and that they are a sign of life.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::{Client, Method};
use semel::Ctx;
use semel::clock::{Clock as _, SystemClock};
use semel::id::{NodeId, WorkspaceId};
use semel::store::Store;
use semel::store::faulty::Faulty;
use serde_json::{Value, json};

use super::site::{ServedSite, token};
use crate::world::{Reply, World, cases};

cases![
    a_claim_that_waits_keeps_its_worker_alive,
    a_claim_of_steps_that_waits_keeps_its_worker_alive,
    a_run_that_rests_for_a_moment_is_claimed_in_time,
    a_run_that_rests_already_is_claimed_in_time,
    what_a_leaving_worker_held_is_due_at_once,
    idle_claims_of_many_workflows_share_one_look,
    claims_that_wait_for_one_workflow_are_all_answered,
    no_step_is_taken_while_the_server_stops,
    the_next_due_time_is_of_what_was_asked_for,
    a_heartbeat_tells_which_steps_to_stop,
    a_claim_of_large_runs_is_full_before_its_limit,
];

/// A server, and workers that only speak HTTP.
#[derive(Clone)]
struct Shop {
    site: Arc<ServedSite>,
    http: Client,
}

impl Shop {
    async fn on(world: &World) -> Self {
        Self::over(world.store.clone()).await
    }

    async fn over(store: Arc<dyn Store>) -> Self {
        let site = ServedSite::open(store, Arc::new(SystemClock::new())).await;
        Self { site: Arc::new(site), http: Client::new() }
    }

    async fn post(&self, path: &str, body: &Value) -> Reply {
        let url = format!("{}/api/v1{path}", self.site.url());
        let key = token(WorkspaceId::DEFAULT, "admin");
        Reply::of(self.http.request(Method::POST, url).bearer_auth(key).body(body.to_string())).await
    }

    async fn worker(&self, lease_ms: u64) -> NodeId {
        let node = NodeId(SystemClock::new().uuid());
        self.post("/workers", &json!({"node": node, "name": "w", "leaseMs": lease_ms})).await.ok();
        node
    }

    async fn claim(&self, node: NodeId, workflow: &str, wait_ms: u64) -> Value {
        let workflows = json!([{"workflow": workflow}]);
        let call = json!({"node": node, "workflows": workflows, "limit": 1, "waitMs": wait_ms});
        self.post("/workers/claim", &call).await.ok()
    }

    async fn take(&self, node: NodeId, wait_ms: u64) -> Value {
        let call = json!({"node": node, "queues": ["payments"], "limit": 10, "waitMs": wait_ms});
        self.post("/workers/steps/claim", &call).await.ok()["steps"].clone()
    }

    /// Puts a run to rest until a moment from now.
    async fn rest(&self, node: NodeId, claimed: &Value, millis: i64) {
        let (run, version) = (&claimed["run"]["new"]["id"], &claimed["run"]["state"]["version"]);
        let due = SystemClock::new().now().0 + millis;
        let commit =
            json!({"run": run, "node": node, "expected": version, "entries": [{"waiting": {"due": due}}]});
        let answer = self.post("/workers/commit", &json!({"commits": [commit]})).await.ok();
        assert!(answer["answers"][0]["ok"].is_object(), "{answer}");
    }
}

/// The lease, and a wait that is longer.
const LEASE: u64 = 2_000;
const LONGER: u64 = 5_000;

async fn a_claim_that_waits_keeps_its_worker_alive(world: World) {
    let shop = Shop::on(&world).await;
    let node = shop.worker(LEASE).await;
    assert_eq!(shop.claim(node, "order", LONGER).await["runs"], json!([]));
    shop.post("/workers/heartbeat", &json!({"node": node, "leaseMs": LEASE})).await.ok();
}

async fn a_claim_of_steps_that_waits_keeps_its_worker_alive(world: World) {
    let shop = Shop::on(&world).await;
    let node = shop.worker(LEASE).await;
    assert_eq!(shop.take(node, LONGER).await, json!([]));
    shop.post("/workers/heartbeat", &json!({"node": node, "leaseMs": LEASE})).await.ok();
}

async fn a_run_that_rests_for_a_moment_is_claimed_in_time(world: World) {
    const TURNS: u32 = 10;
    let shop = Shop::on(&world).await;
    let nodes = [shop.worker(60_000).await, shop.worker(60_000).await];
    world.client.start("order", "k", "7").await;
    let mut claimed = shop.claim(nodes[0], "order", 60_000).await["runs"][0].clone();
    let clock = SystemClock::new();
    let began = clock.now().0;
    for turn in 0..TURNS {
        let [has, waits] = [0, 1].map(|n| nodes[(turn as usize + n) % 2]);
        let waiting = tokio::spawn({
            let shop = shop.clone();
            async move { shop.claim(waits, "order", 60_000).await["runs"][0].clone() }
        });
        // By then the other one waits.
        shop.claim(has, "other", 0).await;
        shop.rest(has, &claimed, 50).await;
        claimed = waiting.await.expect("it ends");
    }
    // A look once a second would take ten seconds.
    let took = clock.now().0 - began;
    assert!(took < 5_000, "{took} ms");
}

async fn a_run_that_rests_already_is_claimed_in_time(world: World) {
    const TURNS: u32 = 10;
    let shop = Shop::on(&world).await;
    let (node, idle) = (shop.worker(60_000).await, shop.worker(60_000).await);
    // It keeps the look going, for something else.
    let waiting = tokio::spawn({
        let shop = shop.clone();
        async move { shop.claim(idle, "other", 60_000).await }
    });
    world.client.start("order", "k", "7").await;
    let clock = SystemClock::new();
    let began = clock.now().0;
    for _ in 0..TURNS {
        let claimed = shop.claim(node, "order", 60_000).await["runs"][0].clone();
        shop.rest(node, &claimed, 50).await;
    }
    // At a look once a second it would take half of that each time.
    let took = clock.now().0 - began;
    assert!(took < 3_500, "{took} ms");
    waiting.abort();
}

async fn what_a_leaving_worker_held_is_due_at_once(world: World) {
    let shop = Shop::on(&world).await;
    let (leaves, stays) = (shop.worker(60_000).await, shop.worker(60_000).await);
    let run = world.client.start("order", "k", "7").await;
    assert_eq!(shop.claim(leaves, "order", 60_000).await["runs"][0]["run"]["new"]["id"], json!(run));
    shop.post("/workers/release", &json!({"node": leaves})).await.ok();
    // Nothing sweeps here: what is not freed by now is not found.
    assert_eq!(shop.claim(stays, "order", 0).await["runs"][0]["run"]["new"]["id"], json!(run));
}

async fn idle_claims_of_many_workflows_share_one_look(world: World) {
    const IDLE: usize = 50;
    let claims = Arc::new(AtomicUsize::new(0));
    let counted = Faulty::new(world.store.clone(), {
        let claims = claims.clone();
        move |call| {
            claims.fetch_add(usize::from(call == "claim"), Ordering::Relaxed);
            None
        }
    });
    let shop = Shop::over(Arc::new(counted)).await;
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..IDLE {
        let (shop, node) = (shop.clone(), shop.worker(60_000).await);
        waiting.spawn(async move { shop.claim(node, &format!("w{n}"), 4_000).await });
    }
    while let Some(answer) = waiting.join_next().await {
        assert_eq!(answer.expect("it ends")["runs"], json!([]));
    }
    let claims = claims.load(Ordering::Relaxed);
    // Two each: when it comes, and when its time is over. With a look of its own every second there would be five.
    assert!(claims <= 2 * IDLE, "{claims}");
}

async fn claims_that_wait_for_one_workflow_are_all_answered(world: World) {
    const MANY: usize = 20;
    let shop = Shop::on(&world).await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..MANY {
        let (shop, node) = (shop.clone(), shop.worker(60_000).await);
        waiting.spawn(async move {
            shop.claim(node, "order", 60_000).await["runs"][0]["run"]["new"]["id"].clone()
        });
    }
    for n in 0..MANY {
        world.client.start("order", &n.to_string(), "7").await;
    }
    let mut runs = std::collections::HashSet::new();
    while let Some(run) = waiting.join_next().await {
        runs.insert(run.expect("it ends").as_str().expect("each has one").to_owned());
    }
    assert_eq!(runs.len(), MANY);
}

async fn pay(ctx: Ctx, cents: u64) -> semel::Result<String> {
    ctx.remote("charge", "payments", cents).await
}

async fn no_step_is_taken_while_the_server_stops(world: World) {
    let engine = world.engine(|builder| builder.workflow("pay", pay)).await;
    let shop = Shop::on(&world).await;
    let node = shop.worker(60_000).await;
    let run = world.client.start("pay", "k", "7").await;
    world.client.reached(&run, "WAITING").await;
    shop.site.stop.order();
    assert_eq!(shop.take(node, 60_000).await, json!([]));
    drop(engine);
}

async fn the_next_due_time_is_of_what_was_asked_for(world: World) {
    let shop = Shop::on(&world).await;
    let node = shop.worker(60_000).await;
    for (workflow, millis) in [("mine", 5_000_000), ("others", 1_000_000)] {
        world.client.start(workflow, workflow, "7").await;
        let claimed = shop.claim(node, workflow, 60_000).await["runs"][0].clone();
        shop.rest(node, &claimed, millis).await;
    }
    let now = SystemClock::new().now().0;
    let next = shop.claim(node, "mine", 0).await["nextDue"].as_i64().expect("it rests");
    assert!(next > now + 4_000_000, "that of the other workflow is not told: {}", next - now);
    assert_eq!(shop.claim(node, "nothing", 0).await["nextDue"], Value::Null);
}

async fn a_heartbeat_tells_which_steps_to_stop(world: World) {
    let engine = world.engine(|builder| builder.workflow("pay", pay)).await;
    let shop = Shop::on(&world).await;
    let node = shop.worker(60_000).await;
    let mut tasks = Vec::new();
    let mut runs = Vec::new();
    for key in ["a", "b"] {
        runs.push(world.client.start("pay", key, "7").await);
        tasks.push(shop.take(node, 60_000).await[0].clone());
    }
    let beat = async |tasks: Option<Value>| {
        let mut beat = json!({"node": node, "leaseMs": 60_000});
        if let Some(tasks) = tasks {
            beat["steps"] = tasks;
        }
        shop.post("/workers/heartbeat", &beat).await.ok()["stop"].clone()
    };
    assert_eq!(beat(None).await, Value::Null, "both are wanted");
    let cancel = format!("/workflow-runs/{}/cancel", runs[0]);
    world.client.post(&cancel, r#"{"reason": "enough"}"#).await.ok();
    let told = json!([{"run": tasks[0]["run"], "reason": "cancelled"}]);
    assert_eq!(beat(None).await, told);
    let at = |fence: u64| json!([{"run": tasks[1]["run"], "fence": fence}]);
    let fence = tasks[1]["fence"].as_u64().expect("a number");
    assert_eq!(beat(Some(at(fence))).await, Value::Null);
    assert_eq!(beat(Some(at(fence - 1))).await[0]["reason"], "lost", "an earlier claim");
    let done = json!({"run": tasks[0]["run"], "fence": tasks[0]["fence"], "kind": "retryable", "message": "stopped"});
    shop.post("/workers/steps/fail", &json!({"node": node, "steps": [done]})).await.ok();
    assert_eq!(beat(None).await, Value::Null, "it has reported");
    drop(engine);
}

/// The server has in memory what a claim takes, and knows how large it is only then.
async fn a_claim_of_large_runs_is_full_before_its_limit(world: World) {
    const RUNS: usize = 20;
    let shop = Shop::on(&world).await;
    let node = shop.worker(60_000).await;
    let large = json!("x".repeat(1_900_000)).to_string();
    for n in 0..RUNS {
        world.client.start("order", &format!("k{n}"), &large).await;
    }
    let claim = json!({"node": node, "workflows": [{"workflow": "order"}], "limit": 100});
    let mut claimed = Vec::new();
    loop {
        let answer = shop.post("/workers/claim", &claim).await.ok();
        claimed.push(answer["runs"].as_array().expect("a list").len());
        // A worker that is told of a time in the past claims again at once.
        match answer["nextDue"].as_i64() {
            Some(due) => assert!(due <= SystemClock::new().now().0, "{due}"),
            None => break,
        }
    }
    assert_eq!(claimed, [18, 2], "the run that exceeds 32 MiB is the last");
}
