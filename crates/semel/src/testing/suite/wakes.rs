//! Wake-ups: listeners hear what happened, in this process and in others on the same data.

use std::time::Duration;

use tokio::sync::broadcast::Receiver;

use super::world::{WORKSPACE, World, payload, token};
use crate::rules::control::ControlAction;
use crate::rules::entry::Entry;
use crate::rules::once::Ask;
use crate::rules::start::{Handover, Policy, Start};
use crate::store::{Wake, Watch};

promises![
    a_run_that_becomes_due_is_told,
    what_arrives_in_an_inbox_is_told,
    an_end_is_told_and_the_parent_hears_of_it,
    an_operators_action_is_told_to_the_driver_it_takes_the_run_from,
    a_superseded_run_is_taken_and_ended,
    a_once_that_is_settled_or_free_again_is_told,
    a_run_that_ends_frees_its_once_and_that_is_told,
    a_pause_by_the_driver_is_told,
    children_of_a_cancelled_run_are_due_and_that_is_told,
    what_happens_is_heard_by_a_second_instance,
    every_instance_hears_of_a_delivery_once,
    who_watches_a_run_hears_of_its_entries_and_of_no_other_run,
    an_end_in_a_second_instance_is_heard_by_who_watches,
];

/// Listens until it hears this; all that it has heard.
async fn until(ear: &mut Receiver<Wake>, wanted: Wake) -> Vec<Wake> {
    let mut heard = Vec::new();
    let listening = async {
        while heard.last() != Some(&wanted) {
            let wake = ear.recv().await.expect("the store is open, and few wakes are on their way");
            heard.push(plain(wake));
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(30), listening).await;
    assert!(in_time.is_ok(), "{wanted:?} is not heard, but {heard:?}");
    heard
}

/// A wake as a listener of one workspace takes it: a store tells whose run is due, where it knows.
fn plain(wake: Wake) -> Wake {
    match wake {
        Wake::DueIn(workspace) => {
            assert_eq!(workspace, WORKSPACE);
            Wake::Due
        }
        wake => wake,
    }
}

/// All that was told since the last look, which is there by now: this process tells it before it answers.
fn told(ear: &mut Receiver<Wake>) -> Vec<Wake> {
    std::iter::from_fn(|| ear.try_recv().ok().map(plain)).collect()
}

async fn a_run_that_becomes_due_is_told(world: World) {
    let mut ear = world.store().wakes();
    world.start("now").await;
    assert_eq!(told(&mut ear), [Wake::Due]);
    let delayed = Start { delay: Duration::from_millis(50), ..world.request("later") };
    world.begin(delayed).await;
    assert_eq!(told(&mut ear), [Wake::Due], "sooner than was known, perhaps");
    let mut driver = world.driven("driven").await;
    assert_eq!(told(&mut ear), [], "only its own node is told");
    world.start("now").await;
    assert_eq!(told(&mut ear), [], "a duplicate is nothing new");
    driver.child("c", world.run_id()).await;
    assert_eq!(told(&mut ear), [Wake::Due], "a child");
    world.crash().await;
    assert_eq!(told(&mut ear), [Wake::Due], "the run of a dead node");
    world.sweep(10).await;
    assert_eq!(told(&mut ear), [], "nothing was found");
}

async fn what_arrives_in_an_inbox_is_told(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    let mut ear = world.store().wakes();
    world.deliver_as("d", "t", "1").await.expect("open");
    assert_eq!(told(&mut ear), [Wake::Arrived(driver.id())]);
    world.deliver_as("d", "t", "1").await.expect("the same again");
    assert_eq!(told(&mut ear), [], "absorbed");
    let ask = ControlAction::RequestCancel { reason: "no longer wanted".to_owned() };
    world.control(driver.id(), ask).await.expect("every run can be asked");
    assert_eq!(told(&mut ear), [Wake::Arrived(driver.id())], "and the run is not taken from its driver");
    let handover = Handover { token: token("t"), payload: payload("2"), id: None };
    world.begin(Start { deliver: Some(handover), ..world.request("other") }).await;
    assert_eq!(told(&mut ear), [Wake::Arrived(driver.id())]);
}

async fn an_end_is_told_and_the_parent_hears_of_it(world: World) {
    let mut parent = world.driven("k").await;
    let (child, _) = parent.child("done", world.run_id()).await;
    let mut driver = world.claim_one().await;
    let mut ear = world.store().wakes();
    driver.complete("1").await;
    assert_eq!(told(&mut ear), [Wake::Ended(child), Wake::Arrived(parent.id())]);
    let (child, _) = parent.child("cancelled", world.run_id()).await;
    drop(told(&mut ear));
    world.cancel(child).await;
    let heard = told(&mut ear);
    assert!(heard.contains(&Wake::Ended(child)) && heard.contains(&Wake::Arrived(parent.id())), "{heard:?}");
    parent.complete("1").await;
    assert_eq!(told(&mut ear), [Wake::Ended(parent.id())]);
}

async fn an_operators_action_is_told_to_the_driver_it_takes_the_run_from(world: World) {
    let run = world.driven("k").await.id();
    let mut ear = world.store().wakes();
    world.control(run, ControlAction::Pause).await.expect("an open run may");
    assert!(told(&mut ear).contains(&Wake::Taken(run)));
    world.control(run, ControlAction::Resume).await.expect("a paused run may");
    assert_eq!(told(&mut ear), [Wake::Taken(run), Wake::Due]);
    world.control(run, ControlAction::Resume).await.expect("it is so already");
    assert_eq!(told(&mut ear), []);
    world.cancel(run).await;
    assert_eq!(told(&mut ear)[..2], [Wake::Taken(run), Wake::Ended(run)]);
}

async fn a_superseded_run_is_taken_and_ended(world: World) {
    let old = world.start("k").await.run.id();
    let mut ear = world.store().wakes();
    let other = Start { policy: Policy::SUPERSEDE, input: payload("2"), ..world.request("k") };
    assert_eq!(world.begin(other).await.superseded, Some(old));
    assert_eq!(told(&mut ear), [Wake::Taken(old), Wake::Ended(old), Wake::Settled, Wake::Due]);
}

async fn a_once_that_is_settled_or_free_again_is_told(world: World) {
    let run = world.start("k").await.run.id();
    let mut ear = world.store().wakes();
    let fence = world.grant(run, "sms").await;
    assert_eq!(told(&mut ear), [], "no listener waits for a claim");
    world.once(run, "sms", Ask::Release { fence }).await.expect("granted");
    assert_eq!(told(&mut ear), [Wake::Settled]);
    let fence = world.grant(run, "sms").await;
    world.once(run, "sms", Ask::Settle { fence, value: payload("7"), ttl: None }).await.expect("granted");
    assert_eq!(told(&mut ear), [Wake::Settled]);
}

async fn a_run_that_ends_frees_its_once_and_that_is_told(world: World) {
    let mut ear = world.store().wakes();
    let mut owner = world.driven("completed").await;
    world.grant(owner.id(), "sms").await;
    owner.complete("1").await;
    assert_eq!(told(&mut ear), [Wake::Ended(owner.id()), Wake::Settled]);
    let mut settled = world.driven("settled").await;
    let fence = world.grant(settled.id(), "sms").await;
    let settle = Ask::Settle { fence, value: payload("7"), ttl: None };
    world.once(settled.id(), "sms", settle).await.expect("granted");
    drop(told(&mut ear));
    settled.complete("1").await;
    assert_eq!(told(&mut ear), [Wake::Ended(settled.id())], "it was told before");
    let cancelled = world.driven("cancelled").await.id();
    world.grant(cancelled, "letter").await;
    world.cancel(cancelled).await;
    let heard = told(&mut ear);
    assert!(heard.contains(&Wake::Settled), "{heard:?}");
}

async fn a_pause_by_the_driver_is_told(world: World) {
    let mut driver = world.driven("k").await;
    let mut ear = world.store().wakes();
    driver.doubt("charge").await;
    assert_eq!(told(&mut ear), [Wake::Paused(driver.id())]);
}

async fn children_of_a_cancelled_run_are_due_and_that_is_told(world: World) {
    let mut parent = world.driven("k").await;
    parent.child("c", world.run_id()).await;
    let (reason, by) = ("no longer wanted".to_owned(), "ops".to_owned());
    let ask = ControlAction::RequestCancel { reason: reason.clone() };
    world.control(parent.id(), ask).await.expect("every run can be asked");
    let mut ear = world.store().wakes();
    parent.look().await.record(Entry::Cancelling { arrival: 1, reason: reason.clone(), by: by.clone() });
    parent.record(Entry::Cancelled { reason, by }).save().await;
    assert_eq!(told(&mut ear), [Wake::Ended(parent.id()), Wake::Due]);
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
    world.control(run, ControlAction::Pause).await.expect("an open run may");
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

/// Whether the run was told of since the last time; it is by now, because this process tells before it answers.
async fn moved(watch: &mut Watch) -> bool {
    tokio::select! {
        biased;
        () = watch.changed() => true,
        () = std::future::ready(()) => false,
    }
}

async fn who_watches_a_run_hears_of_its_entries_and_of_no_other_run(world: World) {
    let run = world.start("k").await.run;
    let mut watch = world.store().watch(run.id());
    world.driven("other").await;
    assert!(!moved(&mut watch).await, "another run");
    world.start("k").await;
    assert!(!moved(&mut watch).await, "a duplicate writes nothing");
    let mut driver = world.claim_one().await;
    assert!(moved(&mut watch).await, "a claim");
    driver.step("a").await.expect("it is its driver's");
    driver.step("b").await.expect("it is its driver's");
    assert!(moved(&mut watch).await, "progress, heard of once");
    assert!(!moved(&mut watch).await, "and not again");
    world.control(run.id(), ControlAction::Cancel { reason: String::new() }).await.expect("it is open");
    assert!(moved(&mut watch).await, "its end");
}

async fn an_end_in_a_second_instance_is_heard_by_who_watches(world: World) {
    let Some(second) = world.second().await else { return };
    let run = world.start("k").await.run;
    let mut watch = second.watch(run.id());
    world.control(run.id(), ControlAction::Cancel { reason: String::new() }).await.expect("it is open");
    let heard = tokio::time::timeout(Duration::from_secs(30), watch.changed()).await;
    assert!(heard.is_ok(), "the end is not heard");
}
