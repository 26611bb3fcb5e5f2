//! Export and import: what moves to another store is the same there, and goes on there.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::record::keep;
use super::world::{LEASE, STRANGER, World, code, name, payload, refused};
use super::{Home, SuiteFuture};
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::archive::{ArchiveLine, Checker, Finding};
use crate::rules::control::ControlAction;
use crate::rules::once::{Ask, OnceAnswer};
use crate::rules::receipt::ReceiptKind;
use crate::rules::run::Retention;
use crate::rules::start::{Policy, Start, StartVerdict};
use crate::rules::status::Status;
use crate::store::Store;
use crate::store::archive::{Archive, Imported};
use crate::store::memory::MemoryStore;

promises![
    an_export_has_all_and_is_sound,
    what_is_imported_is_exported_again_byte_for_byte,
    what_is_imported_goes_on,
    an_import_can_be_repeated_and_nothing_else_goes_in_between,
    in_which_order_an_archive_has_the_waiters_does_not_matter,
    a_workspace_can_be_exported_alone,
    an_import_waits_until_no_node_is_at_work,
];

/// A memory store as the other side of a move.
struct InMemory(MemoryStore);

impl Home for InMemory {
    fn open(&self) -> SuiteFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async { Ok(Arc::new(self.0.clone()) as Arc<dyn Store>) })
    }

    fn second(&self) -> SuiteFuture<'_, Result<Option<Arc<dyn Store>>>> {
        Box::pin(async { self.open().await.map(Some) })
    }
}

/// An empty store in memory with the same clock.
async fn elsewhere(world: &World) -> World {
    let home = InMemory(MemoryStore::new(world.clock().clone()));
    World::at(Box::new(home), world.clock().clone()).await.expect("memory is always there")
}

fn archive(world: &World) -> &dyn Archive {
    world.store().archive().expect("a store has an archive")
}

async fn exported(world: &World, workspace: Option<WorkspaceId>) -> Vec<ArchiveLine> {
    let mut lines = Vec::new();
    let mut each = |line| {
        lines.push(line);
        ControlFlow::Continue(())
    };
    archive(world).export(workspace, &mut each).await.expect("an export is always possible");
    lines
}

async fn import(world: &World, lines: &[ArchiveLine]) -> Result<Imported> {
    archive(world).import(lines.to_vec()).await
}

fn text(lines: &[ArchiveLine]) -> String {
    lines.iter().map(|line| serde_json::to_string(line).expect("plain data") + "\n").collect()
}

fn findings(lines: &[ArchiveLine]) -> Vec<Finding> {
    let mut checker = Checker::default();
    lines.iter().flat_map(|line| checker.check(line)).collect()
}

/// The runs of a full store that matter afterwards.
struct Full {
    hooked: RunId,
    driven: RunId,
    parent: RunId,
    child: RunId,
    forgotten: RunId,
    waiter: RunId,
}

/// One of everything.
async fn fill(world: &World) -> Full {
    for status in Status::ALL {
        world.run_that_is(status, &format!("{status}")).await;
    }
    let mut parent = world.driven("parent").await;
    let (child, _) = parent.child("sub", world.run_id()).await;
    parent.wait(None).await;
    let full = Full {
        hooked: hooked(world).await,
        driven: driven(world).await,
        parent: parent.id(),
        child,
        forgotten: forgotten(world).await,
        waiter: once(world).await,
    };
    let mut again = world.request("WAITING");
    (again.policy, again.input) = (Policy::SUPERSEDE, payload("2"));
    assert_eq!(world.begin(again).await.verdict, StartVerdict::Superseded);
    let stranger = world.run_id();
    world.begin(Start::new(STRANGER, stranger, name("other"), payload("[1, 2]"), None)).await;
    for (id, body) in [("a", "{\n \"n\": 1.50 }"), ("b", "2")] {
        world.store().keep(keep(id, body, None)).await.expect("whatever is there");
    }
    world.store().keep(keep("b", "3", Some(1))).await.expect("seen");
    world.clock().advance(LEASE);
    full
}

/// Waits for a token, with a delivery on its way and one that was absorbed.
async fn hooked(world: &World) -> RunId {
    let mut driver = world.driven("hooked").await;
    driver.open("t").await;
    driver.wait(None).await;
    for _ in 0..2 {
        world.deliver_as("d", "t", "{\n \"a\": 9007199254740993 }").await.expect("it has an owner");
    }
    world.start("hooked").await;
    driver.id()
}

/// Has a driver.
async fn driven(world: &World) -> RunId {
    let mut driver = world.driven("driven").await;
    driver.step("one").await.expect("ours");
    world.pass(5);
    driver.step("two").await.expect("ours");
    world.control_as("p", driver.id(), ControlAction::ReleaseKey).await.expect("it has its key");
    driver.id()
}

/// Only its key is left.
async fn forgotten(world: &World) -> RunId {
    let mut request = world.request("forgotten");
    request.retention = Retention { history: Duration::from_millis(1), key: Duration::MAX };
    let mut driver = world.drive(request).await;
    driver.complete("7").await;
    world.pass(1);
    world.sweep(10).await;
    driver.id()
}

/// One settled value, and one that a run waits for. Gives the run that waits.
async fn once(world: &World) -> RunId {
    let (owner, waiter) = (world.start("owner").await.run.id(), world.start("waiter").await.run.id());
    let fence = world.grant(owner, "settled").await;
    let settle = Ask::Settle { fence, value: payload("1.50"), ttl: None };
    world.once(owner, "settled", settle).await.expect("ours");
    world.grant(owner, "held").await;
    assert_eq!(world.once(waiter, "held", Ask::Claim).await.expect("asked"), OnceAnswer::InFlight(owner));
    waiter
}

async fn an_export_has_all_and_is_sound(world: World) {
    assert_eq!(exported(&world, None).await, []);
    fill(&world).await;
    let lines = exported(&world, None).await;
    assert_eq!(findings(&lines), []);
    assert_eq!(archive(&world).sound().await.expect("asked"), Vec::<String>::new());
    let count = |kind: fn(&ArchiveLine) -> bool| lines.iter().filter(|line| kind(line)).count();
    assert_eq!(count(|line| matches!(line, ArchiveLine::Run(_))), world.list().await.len() + 1);
    assert_eq!(count(|line| matches!(line, ArchiveLine::Watcher(_))), 1);
    assert_eq!(count(|line| matches!(line, ArchiveLine::Once(_))), 2);
    assert_eq!(count(|line| matches!(line, ArchiveLine::Record(_))), 2);
    // A page is 200 runs: the next ones are there as well.
    for n in 0..450 {
        world.start(&format!("many-{n}")).await;
    }
    assert_eq!(exported(&world, None).await.len(), lines.len() + 450);
}

async fn what_is_imported_is_exported_again_byte_for_byte(world: World) {
    let other = elsewhere(&world).await;
    fill(&other).await;
    let before = exported(&other, None).await;
    let imported = import(&world, &before).await.expect("an empty store");
    assert_eq!(imported, Imported { made: before.len(), absorbed: 0 });
    assert_eq!(text(&exported(&world, None).await), text(&before));
    let third = elsewhere(&world).await;
    import(&third, &exported(&world, None).await).await.expect("an empty store");
    assert_eq!(text(&exported(&third, None).await), text(&before));
}

async fn what_is_imported_goes_on(mut world: World) {
    let other = elsewhere(&world).await;
    let full = fill(&other).await;
    import(&world, &exported(&other, None).await).await.expect("an empty store");
    world.reopen().await;
    // Keys, receipts, call ids, tokens, versions of records.
    assert_eq!(code(world.store().keep(keep("b", "4", Some(1))).await), "CONCURRENCY_ERROR");
    assert_eq!(world.store().keep(keep("b", "4", Some(2))).await.expect("seen").version, 3);
    assert_eq!(world.start("hooked").await.run.id(), full.hooked);
    assert_eq!(world.absorbed(full.hooked, ReceiptKind::Start).await, 2, "one there, one here");
    assert!(world.deliver_as("d", "t", "{\"a\": 9007199254740993}").await.expect("the same").absorbed);
    assert_eq!(code(world.deliver_as("d", "t", "0").await), "KEY_REUSED");
    assert_eq!(world.deliver("t", "2").await.arrival, 2);
    assert_eq!(world.start("forgotten").await.run.id(), full.forgotten);
    assert!(world.start("driven").await.created(), "its key was released");
    // No run has a driver: every run that can go on is due.
    let mut claimed = world.claim_all().await;
    let mut taken = |id: RunId| {
        let at = claimed.iter().position(|driver| driver.id() == id).expect("it is due");
        claimed.remove(at)
    };
    taken(full.driven).step("three").await.expect("ours");
    let mut hooked = taken(full.hooked);
    assert_eq!(hooked.receive("t"), ["{\n \"a\": 9007199254740993 }", "2"]);
    hooked.save().await;
    // The end of a child reaches its parent, and the end of an owner its watchers.
    taken(full.child).complete("3").await;
    assert_eq!(world.inbox(full.parent).await.len(), 1);
    assert!(matches!(world.once(full.waiter, "settled", Ask::Claim).await, Ok(OnceAnswer::Settled(_))));
    let owner = world.holder_of("owner").await.expect("it is open");
    world.cancel(owner).await;
    assert_eq!(world.inbox(full.waiter).await.len(), 1);
}

async fn an_import_can_be_repeated_and_nothing_else_goes_in_between(world: World) {
    let other = elsewhere(&world).await;
    let full = fill(&other).await;
    let lines = exported(&other, None).await;
    let (first, rest) = lines.split_at(3);
    import(&world, first).await.expect("an empty store");
    let all = import(&world, &lines).await.expect("the same again");
    assert_eq!(all, Imported { made: rest.len(), absorbed: first.len() });
    assert_eq!(import(&world, &lines).await.expect("and again").made, 0);
    // What has gone on is another than in the archive.
    let before = text(&exported(&world, None).await);
    world.deliver("t", "2").await;
    let error = refused(import(&world, &lines).await);
    assert!(error.to_string().contains(&full.hooked.to_string()), "{error}");
    assert_ne!(text(&exported(&world, None).await), before);
    // A key that another run holds, a run that does not exist, two runs that want one token.
    let third = elsewhere(&world).await;
    third.start("COMPLETED").await;
    assert_eq!(code(import(&third, &lines).await), "DUPLICATE_RUN");
    assert_eq!(third.list().await.len(), 1, "all or nothing");
    let watcher: Vec<_> =
        lines.iter().filter(|line| matches!(line, ArchiveLine::Watcher(_))).cloned().collect();
    assert_eq!(code(import(&third, &watcher).await), "VALIDATION_ERROR");
    let twice = [lines[0].clone(), lines[0].clone()];
    assert_eq!(code(import(&elsewhere(&world).await, &twice).await), "VALIDATION_ERROR");
}

async fn in_which_order_an_archive_has_the_waiters_does_not_matter(world: World) {
    let other = elsewhere(&world).await;
    let owner = other.start("owner").await.run.id();
    other.grant(owner, "held").await;
    for n in 0..3 {
        let waiter = other.start(&format!("waiter-{n}")).await.run.id();
        other.once(waiter, "held", Ask::Claim).await.expect("asked");
    }
    let lines = exported(&other, None).await;
    // As earlier versions wrote them: in the order in which they came.
    let mut unsorted = lines.clone();
    let once = unsorted
        .iter_mut()
        .find_map(|line| if let ArchiveLine::Once(once) = line { Some(once) } else { None });
    let waiters = &mut once.expect("it is held").waiters;
    assert_eq!(waiters.len(), 3);
    waiters.reverse();
    assert_eq!(import(&world, &unsorted).await.expect("an empty store").made, lines.len());
    for again in [&unsorted, &lines] {
        assert_eq!(import(&world, again).await.expect("the same again").absorbed, lines.len());
    }
    assert_eq!(text(&exported(&world, None).await), text(&lines));
}

async fn a_workspace_can_be_exported_alone(world: World) {
    fill(&world).await;
    let (all, stranger) = (exported(&world, None).await, exported(&world, Some(STRANGER)).await);
    assert_eq!(stranger.len(), 1);
    let own = exported(&world, Some(super::world::WORKSPACE)).await;
    assert_eq!(own.len() + stranger.len() + 2, all.len(), "records belong to none");
    assert!(own.iter().all(|line| line.workspace() != Some(STRANGER)));
}

async fn an_import_waits_until_no_node_is_at_work(world: World) {
    let other = elsewhere(&world).await;
    other.start("k").await;
    let lines = exported(&other, None).await;
    let node = world.node().await;
    let error = refused(import(&world, &lines).await);
    assert!(error.to_string().contains(&node.to_string()), "{error}");
    assert_eq!(world.list().await, []);
    world.clock().advance(LEASE);
    assert_eq!(import(&world, &lines).await.expect("no node is left").made, 1);
}
