//! What can be asked of a workspace: filters of lists, numbers, doubts, hooks, keys, nodes, workflows, queues, inboxes.

use semel::Ctx;
use serde_json::{Value, json};

use crate::world::{World, cases};

cases![
    runs_are_listed_by_all_filters,
    a_page_tells_what_its_runs_do_now,
    a_run_tells_its_origin_and_its_size,
    runs_are_counted,
    what_nothing_serves_is_counted,
    steps_in_doubt_are_listed_with_their_evidence,
    open_hooks_are_listed,
    keys_are_listed_with_their_former_holders,
    an_engine_is_a_node_with_a_lease,
    workflows_are_listed_with_what_serves_them,
    a_queue_shows_its_depth,
    an_inbox_is_read_page_by_page,
    questions_that_are_not_understood_are_refused,
];

async fn listed(world: &World, query: &str) -> Vec<String> {
    let page = world.client.get(&format!("/workflow-runs?{query}")).await.ok();
    let runs = page["runs"].as_array().expect("a list").iter();
    runs.map(|run| run["id"].as_str().expect("an id").to_owned()).collect()
}

async fn runs_are_listed_by_all_filters(world: World) {
    let order = world.client.start("order", "order-1", "1").await;
    let refund = world.client.start("refund", "refund-1", "1").await;
    let paused = world.client.start("order", "order-2", "1").await;
    world.client.post(&format!("/workflow-runs/{refund}/cancel"), "").await.ok();
    world.client.post(&format!("/workflow-runs/{paused}/pause"), "").await.ok();
    let fork = world.client.post(&format!("/workflow-runs/{refund}/fork"), "{}").await.run_id();
    let (order, refund, paused, fork) = (order.as_str(), refund.as_str(), paused.as_str(), fork.as_str());
    for (query, expected) in [
        ("status=PAUSED&status=CANCELLED".to_owned(), vec![paused, refund]),
        ("status=PAUSED&status=PAUSED".to_owned(), vec![paused]),
        ("workflow=order&workflow=refund&order=oldest".to_owned(), vec![order, refund, paused, fork]),
        ("workflow=refund&status=CANCELLED&status=PENDING".to_owned(), vec![fork, refund]),
        ("workflowVersion=1&limit=1".to_owned(), vec![fork]),
        ("workflowVersion=9".to_owned(), vec![]),
        ("keyPrefix=order-".to_owned(), vec![paused, order]),
        ("keyPrefix=order-&scope=w%2Forder".to_owned(), vec![]),
        ("keyPrefix=order-&order=oldest&attention=operator".to_owned(), vec![paused]),
        ("until=2020-01-01T00:00:00Z".to_owned(), vec![]),
        (
            "until=2999-01-01T00:00:00Z&since=2020-01-01T00:00:00Z".to_owned(),
            vec![fork, paused, refund, order],
        ),
        ("endedSince=2020-01-01T00:00:00Z".to_owned(), vec![refund]),
        ("endedSince=2999-01-01T00:00:00Z".to_owned(), vec![]),
        ("attention=operator".to_owned(), vec![paused]),
        ("attention=in-doubt".to_owned(), vec![]),
        (format!("parent={order}"), vec![]),
        (format!("lineage={refund}"), vec![fork, refund]),
        ("node=node_01j0000000e00800000000007z".to_owned(), vec![]),
    ] {
        assert_eq!(listed(&world, &query).await, expected, "{query}");
    }
    let first = world.client.get("/workflow-runs?order=oldest&limit=2").await.ok();
    let next = first["next"].as_str().expect("there are more");
    assert_eq!(listed(&world, &format!("order=oldest&limit=2&cursor={next}")).await, [paused, fork]);
}

async fn wait(ctx: Ctx, (): ()) -> semel::Result<Value> {
    ctx.hook::<Value>("approve:1").recv().await
}

async fn a_page_tells_what_its_runs_do_now(world: World) {
    let _engine = world.engine(|builder| builder.workflow("wait", wait)).await;
    let waiting = world.client.start("wait", "w", "null").await;
    let unserved = world.client.start("unserved-work", "u", "1").await;
    let paused = world.client.start("unserved-work", "p", "1").await;
    world.client.post(&format!("/workflow-runs/{paused}/pause"), "").await.ok();
    let detail = world.client.reached(&waiting, "WAITING").await;
    assert_eq!((&detail["now"]["kind"], &detail["now"]["token"]), (&json!("hook"), &json!("approve:1")));
    let page = world.client.get("/workflow-runs").await.ok();
    let of = |id: &str| page["runs"].as_array().expect("a list").iter().find(|run| run["id"] == id).cloned();
    let of = |id: &str| of(id).expect("it is listed");
    assert_eq!(of(&waiting)["now"], detail["now"]);
    assert_eq!(of(&unserved)["now"], json!({"kind": "unserved"}));
    assert_eq!((&of(&paused)["pausedFor"], &of(&paused)["now"]), (&json!("operator"), &Value::Null));
}

async fn a_run_tells_its_origin_and_its_size(world: World) {
    let _engine = world.doubling().await;
    let run = world.client.start("double", "k", "21").await;
    let detail = world.client.ended(&run).await;
    assert_eq!((&detail["inputBytes"], &detail["duplicateCount"]), (&json!(2), &json!(0)));
    assert_eq!(detail["stepCounts"], json!({"done": 2, "open": 0, "failed": 0}));
    let again = r#"{"workflow": "double", "input": 21, "idempotencyKey": "k"}"#;
    assert_eq!(world.client.post("/workflow-runs", again).await.run_id(), run);
    assert_eq!(world.client.get(&format!("/workflow-runs/{run}")).await.ok()["duplicateCount"], 1);
    let fork = world.client.post(&format!("/workflow-runs/{run}/fork"), r#"{"at": 2}"#).await.run_id();
    let shown = world.client.get(&format!("/workflow-runs/{fork}")).await.ok();
    assert_eq!(shown["forkedFrom"], json!({"run": run, "version": 2}));
    let large = format!("\"{}\"", "x".repeat(100_000));
    let large = world.client.start("unserved", "large", &large).await;
    let shown = world.client.get(&format!("/workflow-runs/{large}")).await.ok();
    assert_eq!(shown["inputBytes"], json!(100_002));
    let listed = world.client.get("/workflow-runs?key=large").await.ok();
    assert_eq!(listed["runs"][0]["inputBytes"], Value::Null, "it is too large for a list");
}

async fn runs_are_counted(world: World) {
    for n in 0..3 {
        world.client.start("order", &format!("k{n}"), "1").await;
    }
    let paused = world.client.start("refund", "p", "1").await;
    world.client.post(&format!("/workflow-runs/{paused}/pause"), "").await.ok();
    let counts = world.client.get("/counts").await.ok();
    let of = |counts: &Value, list: &str, name: &str, value: &str| {
        let all = counts[list].as_array().expect("a list").clone();
        all.into_iter().find(|count| count[name] == value).expect("every one is listed")["count"].clone()
    };
    assert_eq!(of(&counts, "statuses", "status", "PENDING"), 3);
    assert_eq!(of(&counts, "statuses", "status", "COMPLETED"), 0);
    assert_eq!(of(&counts, "attention", "attention", "operator"), 1);
    assert_eq!((&counts["due"]["count"], &counts["late"]["count"]), (&json!(3), &json!(0)));
    let refunds = world.client.get("/counts?workflow=refund&since=2020-01-01T00:00:00Z").await.ok();
    assert_eq!(of(&refunds, "statuses", "status", "PENDING"), 0);
    assert_eq!(of(&refunds, "statuses", "status", "PAUSED"), 1);
    let future = world.client.get("/counts?since=2999-01-01T00:00:00Z").await.ok();
    assert_eq!(of(&future, "statuses", "status", "PENDING"), 0);
}

async fn what_nothing_serves_is_counted(world: World) {
    let _engine = world.doubling().await;
    engine_node(&world).await;
    let run = world.client.start("double", "served", "21").await;
    world.client.ended(&run).await;
    world.client.start("unserved-work", "k", "1").await;
    let counts = world.client.get("/counts").await.ok();
    let unserved = counts["unserved"].as_array().expect("a list");
    assert_eq!(unserved.len(), 1, "{counts}");
    assert_eq!(
        (&unserved[0]["workflow"], &unserved[0]["due"]),
        (&json!("unserved-work"), &json!({"count": 1}))
    );
    assert!(unserved[0]["oldestDueAt"].is_string());
}

async fn letter(ctx: Ctx, (): ()) -> semel::Result<String> {
    let doubtful = async |_: semel::Attempt| Err::<String, _>(semel::Fail::uncertain("the line is dead"));
    ctx.step("send").at_most_once().run(doubtful).await
}

async fn steps_in_doubt_are_listed_with_their_evidence(world: World) {
    let _engine = world.engine(|builder| builder.workflow("letter", letter)).await;
    let mut runs = Vec::new();
    for key in ["first", "second"] {
        let run = world.client.start("letter", key, "null").await;
        world.client.reached(&run, "PAUSED").await;
        runs.push(run);
    }
    let page = world.client.get("/doubts?limit=1").await.ok();
    let doubt = &page["doubts"][0];
    assert_eq!(
        (&doubt["run"], &doubt["key"], &doubt["path"]),
        (&json!(runs[0]), &json!("first"), &json!("send"))
    );
    assert_eq!((&doubt["class"], &doubt["tick"]), (&json!("at-most-once"), &json!(1)));
    assert!(doubt["reason"].as_str().is_some_and(|reason| reason.contains("the line is dead")), "{doubt}");
    let detail = world.client.get(&format!("/workflow-runs/{}", runs[0])).await.ok();
    assert_eq!(doubt["effectKey"], detail["steps"][0]["effectKey"]);
    assert_eq!(doubt["version"], detail["version"]);
    let ledger = world.client.get(&format!("/workflow-runs/{}/ledger", runs[0])).await.ok();
    let entry = |number: &Value| {
        let entries = ledger["entries"].as_array().expect("a list");
        entries.iter().find(|entry| entry["number"] == *number).expect("the entry").clone()
    };
    let intent = &doubt["intent"];
    assert_eq!(entry(&intent["entry"])["kind"], "stepStarted");
    assert_eq!(entry(&intent["fence"])["entry"]["claimed"]["node"], intent["node"]);
    let next = page["next"].as_str().expect("there is another");
    let second = world.client.get(&format!("/doubts?limit=1&cursor={next}")).await.ok();
    assert_eq!((&second["doubts"][0]["run"], &second["next"]), (&json!(runs[1]), &Value::Null));
    let resolve = format!("/workflow-runs/{}/steps/send/resolve", runs[0]);
    world.client.post(&resolve, r#"{"resolution": "happened", "value": "sent"}"#).await.ok();
    let left = world.client.get("/doubts").await.ok();
    assert_eq!(left["doubts"].as_array().map(Vec::len), Some(1), "{left}");
}

async fn open_hooks_are_listed(world: World) {
    let _engine = world.engine(|builder| builder.workflow("wait", wait)).await;
    let run = world.client.start("wait", "k", "null").await;
    world.client.reached(&run, "WAITING").await;
    for order in ["token", "age"] {
        let page = world.client.get(&format!("/hooks?order={order}")).await.ok();
        let hook = &page["hooks"][0];
        assert_eq!(
            (&hook["token"], &hook["run"], &hook["key"]),
            (&json!("approve:1"), &json!(run), &json!("k"))
        );
        assert!(hook["openedAt"].is_string() && hook["path"].is_string(), "{hook}");
        assert_eq!((&hook["unconsumed"], &page["next"]), (&json!({"count": 0}), &Value::Null));
    }
    let begins = async |prefix: &str| {
        let page = world.client.get(&format!("/hooks?prefix={prefix}")).await.ok();
        page["hooks"].as_array().expect("a list").len()
    };
    assert_eq!((begins("approve").await, begins("stripe").await), (1, 0));
    world.client.post("/hooks/approve:1", "1").await.ok();
    world.client.ended(&run).await;
    assert_eq!(begins("").await, 0);
}

async fn keys_are_listed_with_their_former_holders(world: World) {
    let first = world.client.start("order", "order-1", "1").await;
    world.client.post("/keys/order-1/release", "").await.ok();
    let second = world.client.start("order", "order-1", "2").await;
    world.client.start("order", "order-2", "1").await;
    world.client.start("order", "other", "1").await;
    let page = world.client.get("/keys?prefix=order-").await.ok();
    let keys = page["keys"].as_array().expect("a list");
    assert_eq!(keys.iter().map(|key| &key["key"]).collect::<Vec<_>>(), ["order-1", "order-2"]);
    assert_eq!(keys[0]["run"]["id"], json!(second));
    let earlier = &keys[0]["earlier"][0];
    assert_eq!(
        (&earlier["run"], &earlier["lost"], &earlier["detail"]),
        (&json!(first), &json!("released"), &json!("local"))
    );
    let shown = world.client.get("/keys/order-1").await.ok();
    assert_eq!(shown["earlier"], keys[0]["earlier"]);
    assert_eq!((&shown["fingerprint"], &shown["rememberedUntil"]), (&keys[0]["fingerprint"], &Value::Null));
    assert_eq!(shown["fingerprint"].as_str().map(str::len), Some(64));
    world.client.post(&format!("/workflow-runs/{second}/cancel"), "").await.ok();
    assert!(world.client.get("/keys/order-1").await.ok()["rememberedUntil"].is_string());
    let first_page = world.client.get("/keys?limit=2").await.ok();
    let next = first_page["next"].as_str().expect("there are more");
    let rest = world.client.get(&format!("/keys?cursor={next}")).await.ok();
    assert_eq!(rest["keys"].as_array().map(Vec::len), Some(2), "{rest}");
}

/// The engine as a node. It describes itself a moment after it was opened.
async fn engine_node(world: &World) -> Value {
    loop {
        let nodes = world.client.get("/nodes").await.ok();
        if let Some(node) = nodes["nodes"].as_array().expect("a list").first() {
            return node.clone();
        }
        tokio::task::yield_now().await;
    }
}

async fn an_engine_is_a_node_with_a_lease(world: World) {
    let _engine = world.doubling().await;
    let node = engine_node(&world).await;
    assert_eq!((&node["kind"], &node["serves"]), (&json!("engine"), &json!(["double@1"])));
    assert!(node["leaseUntil"].is_string() && node["lostAt"].is_null(), "{node}");
    assert_eq!((&node["runs"], &node["stale"]), (&json!({"count": 0}), &json!(0)));
}

async fn workflows_are_listed_with_what_serves_them(world: World) {
    let engine = world.engine(|builder| builder.workflow("wait", wait)).await;
    let run = world.client.start("wait", "k", "null").await;
    world.client.reached(&run, "WAITING").await;
    world.client.start("unserved-work", "u", "1").await;
    engine_node(&world).await;
    let listed = world.client.get("/workflows").await.ok();
    let of = |name: &str| {
        let all = listed["workflows"].as_array().expect("a list");
        all.iter().find(|workflow| workflow["name"] == name).expect("it is listed").clone()
    };
    assert_eq!((&of("wait")["open"], &of("wait")["due"]), (&json!({"count": 1}), &json!({"count": 0})));
    assert_eq!(of("wait")["servedBy"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        (&of("unserved-work")["servedBy"], &of("unserved-work")["due"]),
        (&json!([]), &json!({"count": 1}))
    );
    drop(engine);
}

async fn a_queue_shows_its_depth(world: World) {
    async fn pay(ctx: Ctx, (): ()) -> semel::Result<Value> {
        ctx.remote("charge", "payments", json!({"cents": 5})).await
    }
    let _engine = world.engine(|builder| builder.workflow("pay", pay)).await;
    let run = world.client.start("pay", "k", "null").await;
    world.client.reached(&run, "WAITING").await;
    let queues = async || world.client.get("/queues").await.ok()["queues"][0].clone();
    let queue = queues().await;
    assert_eq!(
        (&queue["name"], &queue["depth"], &queue["inHand"]),
        (&json!("payments"), &json!({"count": 1}), &json!({"count": 0}))
    );
    assert!(queue["oldestAt"].is_string() && queue["servedBy"] == json!([]), "{queue}");
    let node = "node_01j0000000e00800000000007z";
    let join = json!({"node": node, "name": "till", "serves": ["queue:payments"], "leaseMs": 60_000});
    world.client.post("/workers", join.to_string()).await.ok();
    let call = json!({"node": node, "queues": ["payments"], "limit": 1, "waitMs": 60_000});
    world.client.post("/workers/steps/claim", call.to_string()).await.ok();
    let queue = queues().await;
    assert_eq!((&queue["depth"], &queue["inHand"]), (&json!({"count": 0}), &json!({"count": 1})));
    assert_eq!(queue["servedBy"], json!(["till"]));
    let nodes = world.client.get("/nodes").await.ok();
    let nodes = nodes["nodes"].as_array().expect("a list");
    let till = nodes.iter().find(|node| node["name"] == "till").expect("the worker");
    assert_eq!((&till["kind"], &till["runs"]), (&json!("worker"), &json!({"count": 1})));
}

async fn an_inbox_is_read_page_by_page(world: World) {
    let run = world.client.start("order", "k", "1").await;
    let path = format!("/workflow-runs/{run}/inbox");
    assert_eq!(world.client.get(&path).await.ok(), json!({"run": run, "messages": []}));
    for n in 0..3 {
        let body = json!({"reason": format!("reason {n}"), "graceful": true});
        world.client.post(&format!("/workflow-runs/{run}/cancel"), body.to_string()).await.ok();
    }
    let first = world.client.get(&format!("{path}?limit=2")).await.ok();
    assert_eq!((first["messages"].as_array().map(Vec::len), &first["next"]), (Some(2), &json!(3)));
    assert_eq!(first["messages"][0]["message"]["cancelRequested"]["reason"], "reason 0");
    let rest = world.client.get(&format!("{path}?from=3")).await.ok();
    assert_eq!((&rest["messages"][0]["number"], &rest["next"]), (&json!(3), &Value::Null));
    let unknown = "/workflow-runs/run_01j0000000e00800000000007z/inbox";
    world.client.get(unknown).await.problem(404, "NOT_FOUND");
}

async fn questions_that_are_not_understood_are_refused(world: World) {
    let run = world.client.start("order", "k", "1").await;
    let many = "&workflow=w".repeat(11);
    for wrong in [
        "/workflow-runs?attention=DOUBT",
        "/workflow-runs?order=random",
        "/workflow-runs?until=tomorrow",
        "/workflow-runs?endedSince=x",
        "/workflow-runs?parent=17",
        "/workflow-runs?lineage=17",
        "/workflow-runs?node=17",
        "/workflow-runs?status=PAUSED&status=DONE",
        &format!("/workflow-runs?{}", &many[1..]),
        "/counts?workflow=a%2Fb",
        "/counts?since=yesterday",
        "/counts?colour=red",
        "/doubts?limit=101",
        "/doubts?cursor=17",
        "/hooks?order=newest",
        "/hooks?order=age&prefix=a",
        "/hooks?cursor=17",
        "/hooks?limit=0",
        "/keys?scope=everywhere",
        "/keys?limit=201",
        "/workflow-runs/RUN/inbox?from=0",
        "/workflow-runs/RUN/inbox?limit=201",
    ] {
        let path = wrong.replace("RUN", &run);
        world.client.get(&path).await.problem(400, "VALIDATION_ERROR");
    }
}
