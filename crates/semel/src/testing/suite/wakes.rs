//! Wake-ups: whoever listens hears what happened, in this process and in others on the same data.

use std::time::Duration;

use tokio::sync::broadcast::Receiver;

use super::world::World;
use crate::rules::control::Action;
use crate::store::Wake;

promises![what_happens_is_heard_by_a_second_instance, every_instance_hears_of_a_delivery_once,];

/// Listens until it hears this; all that it has heard.
async fn until(ear: &mut Receiver<Wake>, wanted: Wake) -> Vec<Wake> {
    let mut heard = Vec::new();
    let listening = async {
        while heard.last() != Some(&wanted) {
            heard.push(ear.recv().await.expect("the store is open, and few wakes are on their way"));
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(30), listening).await;
    assert!(in_time.is_ok(), "{wanted:?} is not heard, but {heard:?}");
    heard
}

async fn what_happens_is_heard_by_a_second_instance(world: World) {
    let Some(second) = world.second().await else { return };
    let mut driver = world.driven("driven").await;
    driver.open("t").await;
    let mut ear = second.wakes();
    world.deliver("t", "1").await;
    until(&mut ear, Wake::Arrived(driver.id())).await;
    driver.complete("1").await;
    until(&mut ear, Wake::Ended(driver.id())).await;
    let mut ear = second.wakes();
    let run = world.start("pending").await.run.id();
    until(&mut ear, Wake::Due).await;
    world.control(run, Action::Pause).await.expect("an open run may");
    until(&mut ear, Wake::Taken(run)).await;
    world.cancel(run).await;
    until(&mut ear, Wake::Ended(run)).await;
    second.close().await.expect("a store can be closed");
}

/// Neither does a process hear itself, nor is what it hears sent on to those it came from.
async fn every_instance_hears_of_a_delivery_once(world: World) {
    let Some(second) = world.second().await else { return };
    let (mut one, mut two) = (world.driven("a").await, world.driven("b").await);
    one.open("one").await;
    two.open("two").await;
    let (mut here, mut there) = (world.store().wakes(), second.wakes());
    world.deliver("one", "1").await;
    let mut heard = until(&mut there, Wake::Arrived(one.id())).await;
    // What hooks and starts have said before may still be on its way.
    heard.retain(|wake| *wake != Wake::Due);
    assert_eq!(heard, [Wake::Arrived(one.id())]);
    second.deliver(World::delivery("two", "2")).await.expect("the token has an owner");
    let heard = until(&mut here, Wake::Arrived(two.id())).await;
    assert_eq!(heard, [Wake::Arrived(one.id()), Wake::Arrived(two.id())]);
    let heard = until(&mut there, Wake::Arrived(two.id())).await;
    assert_eq!(heard, [Wake::Arrived(two.id())]);
    second.close().await.expect("a store can be closed");
}
