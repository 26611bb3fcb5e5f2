//! An owner that has lost its run without noticing, and whose message arrives late.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use semel::Engine;
use semel::clock::SystemClock;
use semel::engine::Limits;
use semel::rules::entry::Outcome;
use semel::store::Store;
use semel::store::memory::MemoryStore;
use serde_json::json;

use super::place::{Broker, Place};
use super::relay::{Relay, Trouble};
use super::{OFTEN, TESTED, program, step};
use crate::overtaken::{LEASE, cut_off};

/// The message of the first owner is on its way, or its answer is, while another owner puts it there; then it comes through.
pub(super) fn put_nothing(broker: Broker) {
    for trouble in [Trouble::HoldRequest, Trouble::HoldAnswer] {
        crate::world::runtime().block_on(overtaken(broker, trouble));
    }
}

async fn overtaken(broker: Broker, trouble: Trouble) {
    let place = Place::fresh(broker);
    let relay = Relay::to(broker, 1, trouble);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
    let (cut_off, is_cut) = cut_off(&store);
    let steps = step("one", &place, OFTEN);
    let open = async |store: Arc<dyn Store>, url: &str| {
        let limits = Limits { lease: LEASE, ..Limits::default() };
        let builder = Engine::builder().store(store).limits(limits).state(place.connections(url));
        builder.programs(program(&steps)).open().await.unwrap()
    };
    let first = open(cut_off, &relay.url()).await;
    let id = first.start(TESTED, json!({})).key("k").await.unwrap().id();
    relay.until_met(1).await;
    is_cut.store(true, Ordering::SeqCst);
    let second = open(store, &broker.url()).await;
    let outcome = second.run(id).outcome().await.unwrap();
    assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
    relay.let_go().await;
    place.has_each_once(1);
    first.crash().await;
}
