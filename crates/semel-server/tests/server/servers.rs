//! Several servers on one PostgreSQL behave as one.

use std::collections::HashSet;

use futures_util::future::join_all;
use libtest_mimic::Trial;
use semel::{Client, Ctx, Engine};
use semel_server::config::Config;
use serde_json::json;

use crate::served::Served;
use crate::world::{Api, Reply, fresh_schema, postgres, runtime};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("servers::one_thousand_equal_starts_at_two_servers_create_one_run", || {
            runtime().block_on(equal_starts());
            Ok(())
        }),
        Trial::test("servers::what_one_server_ends_the_other_hears_of", || {
            runtime().block_on(heard());
            Ok(())
        }),
        Trial::test(
            "servers::a_server_shows_and_controls_what_an_embedded_engine_drives_and_says_when_it_is_gone",
            || {
                runtime().block_on(embedded());
                Ok(())
            },
        ),
        Trial::test("servers::a_worker_of_one_server_is_listed_by_the_other_until_it_leaves", || {
            runtime().block_on(listed());
            Ok(())
        }),
        Trial::test("servers::the_schema_and_connections_of_the_file_are_those_of_the_store", || {
            runtime().block_on(configured());
            Ok(())
        }),
    ]
}

async fn listed() {
    let schema = fresh_schema();
    let (here, there) =
        (Api::serve(postgres(&schema).await).await, Api::serve(postgres(&schema).await).await);
    let node = "node_01j0000000e00800000000007z";
    let join =
        format!(r#"{{"node": "{node}", "name": "packing-1", "serves": ["order@1"], "leaseMs": 60000}}"#);
    here.post("/workers", join).await.ok();
    let beat = format!(r#"{{"node": "{node}", "leaseMs": 60000}}"#);
    there.post("/workers/heartbeat", beat).await.ok();
    for server in [&here, &there] {
        let list = server.get("/workers").await.ok();
        assert_eq!(list["workers"][0]["name"], "packing-1");
        assert_eq!(list["workers"][0]["serves"][0], "order@1");
    }
    // A third one has never heard of it.
    let other = Api::serve(postgres(&schema).await).await;
    other.post("/workers/release", format!(r#"{{"node": "{node}"}}"#)).await.ok();
    assert_eq!(here.get("/workers").await.ok()["workers"], serde_json::json!([]));
}

/// With one connection for everything but plain starts and commits, a server still answers.
async fn configured() {
    let (url, schema) = (std::env::var("SEMEL_TEST_POSTGRES").expect("a server"), fresh_schema());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("semel.toml");
    let text = format!(
        "listen = '127.0.0.1:0'\nauth = 'none'\n[store]\naddress = '{url}'\nschema = '{schema}'\nconnections = 1\n"
    );
    std::fs::write(&file, text).expect("a file can be written");
    let config = Config::load(Some(&file), std::iter::empty(), std::iter::empty()).expect("it is right");
    let served = Served::open(&config).await;
    let start = json!({"workflow": "order", "input": 7, "idempotencyKey": "order-7"});
    let started = served.caller("").post("/workflow-runs", &start).await.run_id();
    let client = Client::builder().store(postgres(&schema).await).open().await.expect("the schema is there");
    let found = client.run_by_key("order-7").await.expect("the store answers").expect("the run is in it");
    assert_eq!(started, found.id().to_string());
    served.stop.order();
    served.stopped().await;
}

async fn wait_for_pay(ctx: Ctx, id: u64) -> semel::Result<String> {
    ctx.hook(format!("pay:{id}")).recv().await
}

/// The engine has a store of its own on the same database, as a program of its own has.
async fn embedded() {
    let schema = fresh_schema();
    let builder = Engine::builder().store(postgres(&schema).await).workflow("order", wait_for_pay);
    let engine = builder.name("shop").open().await.expect("the schema is there");
    let server = Api::serve(postgres(&schema).await).await;
    let listed = loop {
        let list = server.get("/workers").await.ok();
        if !list["engines"].as_array().expect("a list").is_empty() {
            break list["engines"][0].clone();
        }
    };
    assert_eq!((&listed["name"], &listed["serves"]), (&json!("shop"), &json!(["order@1"])));
    assert_eq!(listed["pid"], std::process::id());

    let later = |workflow: &str| format!(r#"{{"workflow": "{workflow}", "input": 7, "delay": "1h"}}"#);
    let known = server.post("/workflow-runs", later("order")).await.ok();
    let unserved = server.post("/workflow-runs", later("nope")).await.ok();
    assert_eq!(known["run"]["status"], "PENDING");
    assert!(known["run"]["unserved"].is_null(), "{known}");
    assert_eq!(unserved["run"]["unserved"], true, "{unserved}");

    let run = server.start("order", "k", "7").await;
    while server.get(&format!("/workflow-runs/{run}")).await.ok()["status"] != "WAITING" {}
    let cancelled = server.post(&format!("/workflow-runs/{run}/cancel"), "").await;
    assert_eq!((cancelled.status, server.ended(&run).await["status"].as_str()), (200, Some("CANCELLED")));
    let id = run.parse().expect("the id of a run");
    assert!(engine.run(id).result().await.is_err(), "the engine knows");

    let waiting = server.start("order", "l", "8").await;
    let path = format!("/workflow-runs/{waiting}");
    while server.get(&path).await.ok()["status"] != "WAITING" {}
    engine.shutdown(std::time::Duration::from_secs(5)).await.expect("it stops in good order");
    assert_eq!(server.get("/workers").await.ok()["engines"], json!([]));
    let waits = server.get(&path).await.ok();
    assert!(waits["unserved"].is_null(), "it waits for a payload, not for an engine: {waits}");
    server.post("/hooks/pay:8", "1").await.ok();
    // For a moment the server still believes in the engine.
    let due = loop {
        let run = server.get(&path).await.ok();
        if !run["unserved"].is_null() {
            break run;
        }
    };
    assert_eq!((&due["status"], &due["unserved"]), (&json!("WAITING"), &json!(true)), "{due}");
}

async fn two_servers() -> [Api; 2] {
    let schema = fresh_schema();
    [Api::serve(postgres(&schema).await).await, Api::serve(postgres(&schema).await).await]
}

async fn equal_starts() {
    let servers = two_servers().await;
    let body = r#"{"workflow": "order", "input": {"cents": 1999}, "idempotencyKey": "order-7"}"#;
    let replies = join_all((0..1_000).map(|n| servers[n % 2].post("/workflow-runs", body))).await;
    let created = replies.iter().filter(|reply| reply.status == 201).count();
    let attached = replies.iter().filter(|reply| reply.status == 200 && reply.is_replayed()).count();
    let runs: HashSet<_> = replies.iter().map(Reply::run_id).collect();
    assert_eq!((created, attached, runs.len()), (1, 999, 1));
}

async fn heard() {
    let [here, there] = two_servers().await;
    let run = here.start("order", "k", "1").await;
    let cancel = format!("/workflow-runs/{run}/cancel");
    let (ended, cancelled) = futures_util::future::join(here.ended(&run), there.post(&cancel, "")).await;
    assert_eq!((cancelled.status, ended["status"].as_str()), (200, Some("CANCELLED")));
}
