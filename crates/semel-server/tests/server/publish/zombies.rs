//! An owner that has lost its run without noticing, and whose message arrives late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use semel::Engine;
use semel::clock::SystemClock;
use semel::engine::Limits;
use semel::rules::entry::Outcome;
use semel::store::layer::{Layered, StoreCall, StoreLayer, StoreWork};
use semel::store::memory::MemoryStore;
use semel::store::{Answer, Store};
use serde_json::json;

use super::place::{Broker, Place};
use super::relay::{Relay, Trouble};
use super::{OFTEN, TESTED, program, step};

/// Short, so that another engine takes over soon.
const LEASE: Duration = Duration::from_millis(500);

/// A store that its engine hears nothing of once it is cut off.
struct CutOff {
    store: Arc<dyn Store>,
    is_cut: Arc<AtomicBool>,
}

impl StoreLayer for CutOff {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn around<T: Send + 'static>(&self, _: StoreCall, work: StoreWork<T>) -> Answer<'_, T> {
        let (store, is_cut) = (self.store.clone(), self.is_cut.clone());
        Box::pin(async move {
            if is_cut.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            work(store).await
        })
    }
}

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
    let is_cut = Arc::new(AtomicBool::new(false));
    let cut_off: Arc<dyn Store> = Arc::new(Layered(CutOff { store: store.clone(), is_cut: is_cut.clone() }));
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
