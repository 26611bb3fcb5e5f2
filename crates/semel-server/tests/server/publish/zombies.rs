//! An owner that has lost its run without noticing, and whose message arrives late.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use semel::Engine;
use semel::clock::SystemClock;
use semel::engine::{Builder, Limits};
use semel::rules::entry::Outcome;
use semel::store::Store;
use semel::store::memory::MemoryStore;
use serde_json::json;

use super::place::{Broker, Place};
use super::relay::{Relay, Trouble};
use super::{OFTEN, TESTED, program, step};
use crate::overtaken::{HeldLine, HeldPart, Hold, LEASE, Route, cut_off};

/// The message of the first owner is on its way, or its answer is, while another owner puts it there; then it comes through.
pub(super) fn put_nothing(broker: Broker) {
    for trouble in [Trouble::HoldRequest, Trouble::HoldAnswer] {
        crate::world::runtime().block_on(overtaken(broker, trouble));
    }
}

/// The step before a publish to NATS notes where the stream ends: an owner that learns it late notes nothing, and sends nothing.
pub(super) fn note_nothing() {
    for part in [HeldPart::Request, HeldPart::Answer] {
        crate::world::runtime().block_on(async {
            let place = Place::fresh(Broker::Nats);
            let line = HeldLine::to(&Broker::Nats.address(), Hold { marker: "STREAM.INFO", part }).await;
            let steps = step("one", &place, OFTEN);
            let build = |builder: Builder, route| {
                let url = match route {
                    Route::Direct => Broker::Nats.url(),
                    Route::Held => Broker::Nats.url_at(line.address()),
                };
                builder.state(place.connections(&url)).programs(program(&steps))
            };
            let ended = crate::overtaken::overtaken(&line, TESTED, build, || None).await;
            assert!(
                matches!(ended.outcome, Outcome::Completed(_)) && ended.doubt.is_none(),
                "{part:?}: {ended:?}"
            );
            place.has_each_once(1);
        });
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
