//! The order of docs/definitions.md, with a provider that takes the charge and workers that print the labels.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use semel::clock::{Clock as _, SystemClock};
use semel::engine::queue::{AssignmentRef, Queues, Take};
use semel::id::{NodeId, WorkspaceId};
use semel::rules::entry::{Failure, FailureKind};
use semel::rules::path::Name;
use semel::store::{Lease, LeaseAct};
use semel_server::app::App;
use semel_server::definitions::catalog::Catalog;
use semel_server::definitions::interpret::Interpreter;
use serde_json::{Value, json};

use super::play::configured;
use super::provider::Account;
use crate::world::{Api, Reply, World, cases};

cases![the_order_of_the_page_is_charged_and_packed_once, the_order_of_the_page_is_refunded_if_a_label_fails];

const PAGE: &str = include_str!("../../../../../docs/definitions.md");
/// Lease of the workers of labels.
const LEASE: Duration = Duration::from_hours(1);

/// A server that drives definitions, with the connection `stripe` to a provider that loses the first answer to each effect.
struct OrderShop {
    api: Api,
    account: Account,
    queues: Queues,
    node: NodeId,
}

impl OrderShop {
    async fn open(world: &World) -> Self {
        let account = Account::open(true);
        let connections = Arc::new(configured(&format!(
            "[connections.stripe]\nkind = 'http'\nbase = '{}'\nprofile = 'stripe'",
            account.address("keyed")
        )));
        let (catalog, clock) = (Arc::new(Catalog::new(world.store.clone())), Arc::new(SystemClock::new()));
        let (shared, kept) = (connections.clone(), catalog.clone());
        let build = |builder: semel::engine::Builder| {
            builder.shared_state(shared).programs(Interpreter::new(kept.clone())).shared_state(kept)
        };
        let engine = world.engine(build).await;
        let app = App {
            engine: Some(engine),
            connections: Some(connections),
            catalog,
            ..App::open(world.store.clone(), clock.clone())
        };
        let (api, node) = (Api::serve_app(app).await, NodeId(clock.uuid()));
        world.store.lease(Lease { node, act: LeaseAct::Join(LEASE) }).await.expect("the store is open");
        let page = PAGE.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
        api.post("/workflow-definitions", page.expect("the page begins with a definition")).await.ok();
        Self { api, account, queues: Queues::new(world.store.clone(), clock), node }
    }

    async fn order(&self, wait: &str) -> Reply {
        let input = json!({"order": "7", "cents": 1900, "lines": [{"sku": "ink"}, {"sku": "pens"}]});
        let body = json!({"definitionId": "order", "input": input, "idempotencyKey": "order-7"}).to_string();
        let request = self.api.request(reqwest::Method::POST, "/workflow-runs").header("prefer", wait);
        Reply::of(request.body(body)).await
    }

    /// Prints labels until the run has ended; the label for `broken` fails.
    async fn labels(&self, run: &str, broken: &str) -> Value {
        loop {
            let queues = vec![Name::new("labels").expect("a name")];
            let take = Take { workspace: WorkspaceId::DEFAULT, node: self.node, queues, limit: 10 };
            for task in self.queues.take(take).await.expect("the store is open").tasks {
                let of = AssignmentRef { workspace: WorkspaceId::DEFAULT, run: task.run, fence: task.fence };
                let input: Value = task.input.read().expect("a line");
                let reported = match input["sku"] == broken {
                    true => self.queues.fail(of, Failure::new(FailureKind::Fatal, "no paper")).await,
                    false => self.queues.complete(of, task.input.clone()).await,
                };
                reported.expect("the worker holds the step");
            }
            let detail = self.api.get(&format!("/workflow-runs/{run}")).await.ok();
            if detail["endedAt"].is_string() {
                return detail;
            }
        }
    }

    fn done(&self) -> BTreeMap<String, usize> {
        assert_eq!(self.account.refused(), Vec::<String>::new());
        self.account.all_times()
    }
}

async fn the_order_of_the_page_is_charged_and_packed_once(world: World) {
    let shop = OrderShop::open(&world).await;
    let run = shop.order("wait=0").await.run_id();
    let ended = shop.labels(&run, "nothing").await;
    assert_eq!(
        (&ended["status"], &ended["result"]),
        (&json!("COMPLETED"), &json!({"charge": 1, "parcels": 2}))
    );
    let again = shop.order("wait=10").await;
    assert_eq!((again.is_replayed(), again.run_id()), (true, run.clone()));
    assert_eq!(shop.done(), BTreeMap::from([("/keyed/v1/charges".to_owned(), 1)]));
    assert_eq!(shop.account.done()[0].body, "amount=1900&currency=chf");
    let diff = shop.api.post(&format!("/workflow-runs/{run}/replay"), "").await.ok();
    assert_eq!((&diff["identical"], &diff["summary"]["missing"]), (&json!(true), &json!(0)), "{diff:#}");
    assert_eq!(shop.done(), BTreeMap::from([("/keyed/v1/charges".to_owned(), 1)]), "a replay calls nothing");
}

async fn the_order_of_the_page_is_refunded_if_a_label_fails(world: World) {
    let shop = OrderShop::open(&world).await;
    let run = shop.order("wait=0").await.run_id();
    let ended = shop.labels(&run, "pens").await;
    assert_eq!(ended["status"], "FAILED", "{ended:#}");
    assert!(
        ended["error"]["message"].as_str().is_some_and(|message| message.contains("no paper")),
        "{ended:#}"
    );
    let done = shop.done();
    assert_eq!((done["/keyed/v1/charges"], done["/keyed/v1/refunds"]), (1, 1), "{done:?}");
    assert_eq!(shop.account.done()[1].body, "charge=1");
}
