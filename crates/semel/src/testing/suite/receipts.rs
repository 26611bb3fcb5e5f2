//! Receipts: what is kept of calls that changed nothing, on which run, and the list of them.

use super::world::{STRANGER, WORKSPACE, World, call, code, key, name, payload};
use crate::id::RunId;
use crate::rules::control::{Control, ControlAction};
use crate::rules::receipt::{Absorbed, ReceiptKind, ReceiptVerdict};
use crate::rules::start::{Policy, Start};
use crate::store::{AbsorbedCalls, DuplicatesPage, DuplicatesQuery, Origin};

promises![
    a_duplicate_start_says_who_sent_it_and_whether_it_asked_for_the_same,
    a_refused_start_leaves_the_differing_places_on_the_owner,
    a_policy_that_refuses_duplicates_leaves_a_receipt,
    a_call_id_of_another_call_leaves_a_receipt_on_its_run,
    a_late_result_says_under_which_fence_it_was_made,
    a_hook_in_conflict_is_noted_on_the_owner_of_the_token,
    duplicates_are_listed_the_latest_first,
    duplicates_are_listed_by_kind_key_and_time,
    a_list_of_duplicates_is_bounded_in_what_it_reads,
    a_list_of_duplicates_goes_on_after_its_last_row,
];

/// The latest receipt of a kind on a run.
async fn latest(world: &World, run: RunId, kind: ReceiptKind) -> Absorbed {
    let all = world.store().receipts(WORKSPACE, run).await.expect("known");
    let found = all.into_iter().find(|(found, _)| *found == kind);
    found.and_then(|(_, receipts)| receipts.recent.last().cloned()).expect("a receipt")
}

async fn a_duplicate_start_says_who_sent_it_and_whether_it_asked_for_the_same(world: World) {
    let run = world.start("k").await.run.id();
    let origin = Origin { by: Some("shop".to_owned()), request_id: Some("req-7".to_owned()) };
    origin.around(world.start("k")).await;
    let receipt = latest(&world, run, ReceiptKind::Start).await;
    let told = (receipt.by.as_deref(), receipt.request_id.as_deref(), receipt.same, receipt.verdict);
    assert_eq!(told, (Some("shop"), Some("req-7"), Some(true), Some(ReceiptVerdict::Attached)));
    let tolerant = Policy { other: Policy::ATTACH.same, ..Policy::ATTACH };
    world.begin(Start { input: payload("2"), policy: tolerant, ..world.request("k") }).await;
    let receipt = latest(&world, run, ReceiptKind::Start).await;
    assert_eq!((receipt.by, receipt.same), (None, Some(false)), "a call of the program itself");
}

async fn a_refused_start_leaves_the_differing_places_on_the_owner(world: World) {
    let long = "x".repeat(3_000);
    let first = Start { input: payload(r#"{"amount": 1999, "to": "A"}"#), ..world.request("k") };
    let run = world.begin(first).await.run.id();
    let other = payload(&format!(r#"{{"amount": 2999, "to": "A", "secret": "{long}"}}"#));
    assert_eq!(code(world.try_start(Start { input: other, ..world.request("k") }).await), "KEY_REUSED");
    let receipt = latest(&world, run, ReceiptKind::Refused).await;
    assert_eq!(
        (receipt.verdict, receipt.code.as_deref()),
        (Some(ReceiptVerdict::Refused), Some("KEY_REUSED"))
    );
    let [amount, secret] = receipt.pointers.as_slice() else { panic!("{receipt:?}") };
    let shown = (amount.pointer.as_str(), amount.held.as_deref(), amount.asked.as_deref());
    assert_eq!(shown, ("/input/amount", Some("1999"), Some("2999")));
    assert_eq!((secret.pointer.as_str(), &secret.held), ("/input/secret", &None));
    assert_eq!(secret.asked.as_ref().map(String::len), Some(200), "and no more of it is kept");
}

async fn a_policy_that_refuses_duplicates_leaves_a_receipt(world: World) {
    let run = world.start("k").await.run.id();
    let strict = Start { policy: Policy::preset("reject").expect("a preset"), ..world.request("k") };
    assert_eq!(code(world.try_start(strict).await), "DUPLICATE_RUN");
    let receipt = latest(&world, run, ReceiptKind::Refused).await;
    assert_eq!((receipt.code.as_deref(), receipt.pointers.len()), (Some("DUPLICATE_RUN"), 0));
}

async fn a_call_id_of_another_call_leaves_a_receipt_on_its_run(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    world.deliver_as("d", "t", "1").await.expect("accepted");
    assert_eq!(code(world.deliver_as("d", "t", "2").await), "KEY_REUSED");
    let receipt = latest(&world, driver.id(), ReceiptKind::Refused).await;
    assert_eq!((receipt.delivery_id.as_deref(), receipt.code.as_deref()), (Some("d"), Some("KEY_REUSED")));
    world.control_as("c", driver.id(), ControlAction::Pause).await.expect("paused");
    let resume = Control { id: Some(call("c")), ..World::action(driver.id(), ControlAction::Resume) };
    assert_eq!(code(world.try_control(resume).await), "KEY_REUSED");
    let receipt = latest(&world, driver.id(), ReceiptKind::Refused).await;
    assert_eq!((receipt.delivery_id.as_deref(), receipt.by.as_deref()), (Some("c"), Some("ann")));
}

async fn a_late_result_says_under_which_fence_it_was_made(world: World) {
    let mut driver = world.driven("k").await;
    let mut zombie = driver.clone();
    driver.step("a").await.expect("ours");
    assert_eq!(code(zombie.step("late").await), "CONCURRENCY_ERROR");
    let receipt = latest(&world, driver.id(), ReceiptKind::Result).await;
    assert_eq!((receipt.fence, receipt.expected, receipt.by.is_some()), (Some(2), Some(2), true));
    assert_eq!(receipt.code.as_deref(), Some("CONCURRENCY_ERROR"));
}

async fn a_hook_in_conflict_is_noted_on_the_owner_of_the_token(world: World) {
    let mut owner = world.driven("owner").await;
    assert_eq!(owner.open("t").await, None);
    let mut other = world.driven("other").await;
    assert_eq!(other.open("t").await, Some(owner.id()));
    let receipt = latest(&world, owner.id(), ReceiptKind::Refused).await;
    assert_eq!(receipt.code.as_deref(), Some("HOOK_CONFLICT"));
    assert_eq!(receipt.by, Some(other.id().to_string()));
}

async fn page(world: &World, query: DuplicatesQuery) -> DuplicatesPage {
    world.store().duplicates(query).await.expect("a page")
}

fn keys(page: &DuplicatesPage) -> Vec<&str> {
    page.rows.iter().map(|calls| calls.key.as_str()).collect()
}

/// Runs under these keys, each with a duplicate a second after the one before.
async fn duplicated(world: &World, all: &[&str]) {
    for key in all {
        world.start(key).await;
    }
    for key in all {
        world.pass(1_000);
        world.start(key).await;
    }
}

async fn duplicates_are_listed_the_latest_first(world: World) {
    duplicated(&world, &["a", "b", "c"]).await;
    world.pass(1_000);
    let a = world.start("a").await.run;
    let found = page(&world, DuplicatesQuery::all(WORKSPACE, 10)).await;
    assert_eq!((keys(&found), found.next, found.partial), (vec!["a", "c", "b"], None, false));
    let AbsorbedCalls { run, workflow, kind, count, latest, .. } = &found.rows[0];
    assert_eq!((*run, workflow, *kind, *count), (a.id(), &name("order"), ReceiptKind::Start, 2));
    assert_eq!(latest.at, world.now());
    assert_eq!(page(&world, DuplicatesQuery::all(STRANGER, 10)).await, DuplicatesPage::default());
}

async fn duplicates_are_listed_by_kind_key_and_time(world: World) {
    duplicated(&world, &["a", "b"]).await;
    let other = Start { input: payload("2"), ..world.request("a") };
    assert_eq!(code(world.try_start(other).await), "KEY_REUSED");
    let all = DuplicatesQuery::all(WORKSPACE, 10);
    let of_kind = |kind| DuplicatesQuery { kind: Some(kind), ..all.clone() };
    assert_eq!(keys(&page(&world, of_kind(ReceiptKind::Refused)).await), ["a"]);
    assert_eq!(keys(&page(&world, of_kind(ReceiptKind::Start)).await), ["b", "a"]);
    assert_eq!(keys(&page(&world, of_kind(ReceiptKind::Control)).await), [""; 0]);
    let under = DuplicatesQuery { key: Some(key("a")), ..all.clone() };
    assert_eq!(keys(&page(&world, under).await), ["a", "a"]);
    let since = DuplicatesQuery { since: Some(world.now()), ..all };
    assert_eq!(page(&world, since).await.rows.len(), 2, "of the last second");
}

async fn a_list_of_duplicates_is_bounded_in_what_it_reads(world: World) {
    duplicated(&world, &["a", "b", "c", "d"]).await;
    let query = DuplicatesQuery { key: Some(key("a")), look_at: 3, ..DuplicatesQuery::all(WORKSPACE, 10) };
    let first = page(&world, query.clone()).await;
    assert_eq!((first.rows.len(), first.partial, first.next.is_some()), (0, true, true));
    let second = page(&world, DuplicatesQuery { before: first.next, ..query }).await;
    assert_eq!((keys(&second), second.partial, second.next), (vec!["a"], false, None));
}

async fn a_list_of_duplicates_goes_on_after_its_last_row(world: World) {
    duplicated(&world, &["a", "b", "c"]).await;
    let mut query = DuplicatesQuery::all(WORKSPACE, 2);
    let first = page(&world, query.clone()).await;
    assert_eq!((keys(&first), first.partial), (vec!["c", "b"], false));
    query.before = first.next;
    let last = page(&world, query.clone()).await;
    assert_eq!((keys(&last), last.next), (vec!["a"], None));
    if let Some(before) = &mut query.before {
        before.run = world.run_id();
    }
    assert_eq!(code(world.store().duplicates(query).await), "NOT_FOUND", "a cursor of a run that is gone");
}
