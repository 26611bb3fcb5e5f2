//! Several servers on one PostgreSQL behave as one.

use std::collections::HashSet;

use futures_util::future::join_all;
use libtest_mimic::Trial;

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
        Trial::test("servers::a_worker_of_one_server_is_listed_by_the_other_until_it_leaves", || {
            runtime().block_on(listed());
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
