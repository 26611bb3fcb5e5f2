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
    ]
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
