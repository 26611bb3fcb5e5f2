//! Reading: look-ups, ledgers, inboxes, receipts; and who may not see them.

use super::world::{ORDER, STRANGER, WORKSPACE, World, code, key, name, token};
use crate::id::RunId;
use crate::rules::control::ControlAction;
use crate::rules::key::{KeyScope, Scope};
use crate::rules::receipt::{RECENT, ReceiptKind};
use crate::rules::start::Start;
use crate::store::{Find, FindBy, Part};

promises![
    a_run_is_found_by_id_key_and_token,
    a_strangers_look_ups_find_nothing,
    a_ledger_is_read_from_any_entry,
    a_ledger_is_read_in_parts,
    a_part_of_a_ledger_is_bounded_in_bytes,
    an_inbox_is_read_in_parts,
    messages_are_counted_until_they_are_consumed,
    entries_say_when_they_were_committed,
    receipts_count_all_and_keep_the_latest,
    receipts_of_different_kinds_are_kept_apart,
    reading_changes_nothing,
];

async fn a_run_is_found_by_id_key_and_token(world: World) {
    let scope = |scope| Scope::of(scope, &name(ORDER), &name("1"));
    let request = Start { scope: KeyScope::WorkflowVersion, ..world.request("k") };
    let mut driver = world.drive(request).await;
    driver.open("t").await;
    let by_key = FindBy::Key(scope(KeyScope::WorkflowVersion), key("k"));
    for by in [FindBy::Id(driver.id()), by_key, FindBy::Token(token("t"))] {
        let found = world.find(by.clone()).await.unwrap_or_else(|| panic!("{by:?}"));
        assert_eq!(found, world.run(driver.id()).await);
    }
    let elsewhere = FindBy::Key(scope(KeyScope::Workflow), key("k"));
    for by in [FindBy::Id(world.run_id()), elsewhere, FindBy::Token(token("u"))] {
        assert_eq!(world.find(by).await, None);
    }
}

async fn a_strangers_look_ups_find_nothing(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    let scope = Scope::of(KeyScope::Workspace, &name(ORDER), &name("1"));
    for by in [FindBy::Id(driver.id()), FindBy::Key(scope, key("k")), FindBy::Token(token("t"))] {
        let find = Find { workspace: STRANGER, by };
        assert_eq!(world.store().find(find).await.expect("a look-up"), None);
    }
    let (store, run) = (world.store(), driver.id());
    assert_eq!(code(store.ledger(STRANGER, run, 1).await), "NOT_FOUND");
    assert_eq!(code(store.inbox(STRANGER, run, 1).await), "NOT_FOUND");
    assert_eq!(code(store.receipts(STRANGER, run).await), "NOT_FOUND");
    let unknown: RunId = world.run_id();
    assert_eq!(code(store.ledger(WORKSPACE, unknown, 1).await), "NOT_FOUND");
    assert_eq!(code(store.inbox(WORKSPACE, unknown, 1).await), "NOT_FOUND");
    assert_eq!(code(store.receipts(WORKSPACE, unknown).await), "NOT_FOUND");
}

async fn a_ledger_is_read_from_any_entry(world: World) {
    let mut driver = world.driven("k").await;
    for n in 0..4 {
        driver.step(&format!("step-{n}")).await.expect("ours");
    }
    let whole = world.store().ledger(WORKSPACE, driver.id(), 1).await.expect("known");
    assert_eq!(whole.iter().map(|line| line.number).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    for from in 0..=12u64 {
        let part = world.store().ledger(WORKSPACE, driver.id(), from).await.expect("known");
        assert_eq!(part, whole[from.saturating_sub(1).min(10) as usize..], "from {from}");
    }
}

async fn a_ledger_is_read_in_parts(world: World) {
    let mut driver = world.driven("k").await;
    for n in 0..4 {
        driver.step(&format!("step-{n}")).await.expect("ours");
    }
    let run = driver.id();
    let whole = world.store().ledger(WORKSPACE, run, 1).await.expect("known");
    for (from, limit) in (1..=12u64).flat_map(|from| (1..=12).map(move |limit| (from, limit))) {
        let part = Part { workspace: WORKSPACE, run, from, limit, bytes: usize::MAX };
        let part = world.store().ledger_part(part).await.expect("known");
        let begin = (from as usize - 1).min(whole.len());
        let end = (begin + limit).min(whole.len());
        assert_eq!(part.entries, whole[begin..end], "{limit} from {from}");
        let next = (begin < end && end < whole.len()).then_some(end as u64 + 1);
        assert_eq!(part.next, next, "{limit} from {from}");
    }
    let strange = Part { workspace: STRANGER, run, from: 1, limit: 1, bytes: 1 };
    assert_eq!(code(world.store().ledger_part(strange).await), "NOT_FOUND");
}

async fn a_part_of_a_ledger_is_bounded_in_bytes(world: World) {
    let mut driver = world.driven("k").await;
    for n in 0..6 {
        driver.step(&format!("step-{n}")).await.expect("ours");
    }
    let run = driver.id();
    let whole = world.store().ledger(WORKSPACE, run, 1).await.expect("known");
    for bytes in [0, 1, 300, 1_000] {
        let (mut entries, mut parts, mut from) = (Vec::new(), 0, Some(1));
        while let Some(first) = from {
            let part = Part { workspace: WORKSPACE, run, from: first, limit: 1_000, bytes };
            let part = world.store().ledger_part(part).await.expect("known");
            assert!(!part.entries.is_empty(), "however long an entry is, it can be read");
            entries.extend(part.entries);
            (parts, from) = (parts + 1, part.next);
        }
        assert_eq!(entries, whole);
        assert!(bytes > 1 || parts >= 7, "{parts} parts of {bytes} bytes");
    }
}

async fn an_inbox_is_read_in_parts(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    for n in 0..5 {
        world.deliver("t", &format!("\"{n}{}\"", "x".repeat(1_000))).await;
    }
    let (run, whole) = (driver.id(), world.inbox(driver.id()).await);
    let part = async |from, limit, bytes| {
        let part = Part { workspace: WORKSPACE, run, from, limit, bytes };
        world.store().inbox_part(part).await.expect("known")
    };
    for (from, limit, bytes, expected) in [
        (1, 10, usize::MAX, 0..5),
        (1, 2, usize::MAX, 0..2),
        (3, 10, usize::MAX, 2..5),
        (1, 10, 1_500, 0..2),
        (4, 10, 0, 3..4),
        (6, 10, 1_500, 5..5),
    ] {
        assert_eq!(part(from, limit, bytes).await, whole[expected], "{limit} from {from}, {bytes} bytes");
    }
    let strange = Part { workspace: STRANGER, run, from: 1, limit: 1, bytes: 1 };
    assert_eq!(code(world.store().inbox_part(strange).await), "NOT_FOUND");
}

async fn messages_are_counted_until_they_are_consumed(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    let run = driver.id();
    for n in 0..3 {
        assert_eq!(world.store().unconsumed(WORKSPACE, run).await.expect("known"), n);
        world.deliver("t", "1").await;
    }
    assert_eq!(world.store().unconsumed(WORKSPACE, run).await.expect("known"), 3);
    assert_eq!(code(world.store().unconsumed(STRANGER, run).await), "NOT_FOUND");
}

async fn entries_say_when_they_were_committed(world: World) {
    let began = world.now();
    let mut driver = world.driven("k").await;
    world.pass(5);
    driver.step("a").await.expect("ours");
    let ledger = world.store().ledger(WORKSPACE, driver.id(), 1).await.expect("known");
    assert_eq!(
        ledger.iter().map(|line| line.at).collect::<Vec<_>>(),
        [began, began, world.now(), world.now()]
    );
    assert_eq!(world.run(driver.id()).await.new.created, began);
}

async fn receipts_count_all_and_keep_the_latest(world: World) {
    let run = world.start("k").await.run.id();
    assert_eq!(world.store().receipts(WORKSPACE, run).await.expect("known"), []);
    let first = world.after(1);
    let calls = RECENT as u64 + 7;
    for n in 1..=calls {
        world.pass(1);
        world.start("k").await;
        // Read now and then: what is written in portions adds up.
        if n % 20 == 0 {
            assert_eq!(world.absorbed(run, ReceiptKind::Start).await, n);
        }
    }
    let receipts = world.store().receipts(WORKSPACE, run).await.expect("known");
    let [(ReceiptKind::Start, starts)] = receipts.as_slice() else { panic!("{receipts:?}") };
    assert_eq!((starts.count, starts.first, starts.last), (calls, first, world.now()));
    assert_eq!(starts.recent.len(), RECENT);
    assert!(starts.recent.windows(2).all(|pair| pair[0].at < pair[1].at));
    assert_eq!(starts.recent.last().map(|absorbed| absorbed.at), Some(world.now()));
}

async fn receipts_of_different_kinds_are_kept_apart(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    world.start("k").await;
    for _ in 0..2 {
        world.deliver_as("d", "t", "1").await.expect("accepted or absorbed");
    }
    let mut zombie = driver.clone();
    for _ in 0..2 {
        world.control_as("c", driver.id(), ControlAction::Pause).await.expect("done or absorbed");
    }
    assert_eq!(code(zombie.step("late").await), "CONCURRENCY_ERROR");
    assert_eq!(code(world.deliver_as("d", "t", "2").await), "KEY_REUSED");
    let receipts = world.store().receipts(WORKSPACE, driver.id()).await.expect("known");
    let counted: Vec<_> = receipts.iter().map(|(kind, receipts)| (*kind, receipts.count)).collect();
    assert_eq!(counted, ReceiptKind::ALL.map(|kind| (kind, 1)));
    assert!(receipts.iter().all(|(_, receipts)| receipts.recent[0].verdict.is_some()), "{receipts:?}");
    assert_eq!(world.store().receipts(WORKSPACE, driver.id()).await.expect("known"), receipts);
}

async fn reading_changes_nothing(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    world.deliver("t", "1").await;
    let before = (world.run(driver.id()).await, world.inbox(driver.id()).await);
    for _ in 0..3 {
        world.find(FindBy::Token(token("t"))).await;
        world.list().await;
        world.entries(driver.id()).await;
    }
    assert_eq!((world.run(driver.id()).await, world.inbox(driver.id()).await), before);
    driver.step("a").await.expect("still ours");
}
