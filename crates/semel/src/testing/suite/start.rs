//! Start: one run per workspace, scope and key, as long as the key is remembered.

use std::time::Duration;

use super::world;
use super::world::{ORDER, STRANGER, WORKSPACE, World, code, name, payload, refused};
use crate::error::Error;
use crate::rules::control::ControlAction;
use crate::rules::entry::{Entry, Outcome};
use crate::rules::key::KeyScope;
use crate::rules::receipt::ReceiptKind;
use crate::rules::run::Retention;
use crate::rules::start::{Policy, Start, StartAction as Do, StartVerdict};
use crate::rules::status::Status;
use crate::store::{Find, FindBy, LeaseAct};

promises![
    same_key_starts_one_run,
    a_completed_run_is_replayed_with_its_result,
    a_key_is_unique_in_its_scope_only,
    keys_that_look_alike_are_different_keys,
    a_key_of_another_workspace_is_not_seen,
    reordered_input_is_the_same_input,
    another_input_is_refused_naming_what_differs,
    another_workflow_is_refused_naming_it,
    excluded_pointers_do_not_count,
    a_refused_start_burns_no_key,
    a_start_without_a_key_gets_one_of_its_own,
    a_start_without_a_key_is_kept_as_it_is_answered,
    a_key_may_be_spelled_like_the_id_of_a_later_run,
    a_repeated_request_finds_the_run_it_created,
    a_repeated_request_finds_its_run_after_it_was_superseded,
    a_run_id_is_never_given_twice,
    a_run_id_with_another_input_is_refused,
    a_forgotten_history_does_not_free_the_key,
    a_key_is_free_after_its_retention,
    a_key_never_expires_while_its_run_is_open,
    a_history_may_outlive_its_key,
    a_key_kept_for_ever_is_never_free,
    a_delayed_run_is_not_due_before_its_time,
    a_start_may_carry_the_claim,
    a_start_by_a_dead_node_is_left_to_others,
    the_deadline_counts_from_the_creation,
    superseding_ends_the_old_run_and_starts_the_new_one,
    a_released_key_starts_another_run,
    a_restarted_run_keeps_what_it_has_done,
];

async fn same_key_starts_one_run(world: World) {
    let first = world.start("k").await;
    let second = world.start("k").await;
    assert_eq!((first.verdict, second.verdict), (StartVerdict::Created, StartVerdict::Attached));
    assert!(first.created() && !second.created());
    assert_eq!(second.run, first.run);
    assert_eq!(world.list().await, std::slice::from_ref(&first.run));
    assert_eq!(world.absorbed(first.run.id(), ReceiptKind::Start).await, 1);
}

async fn a_completed_run_is_replayed_with_its_result(world: World) {
    let mut driver = world.driven("k").await;
    driver.complete(r#"{"paid":true}"#).await;
    let again = world.start("k").await;
    assert_eq!((again.verdict, again.run.id()), (StartVerdict::Replayed, driver.id()));
    assert_eq!(again.outcome, Some(Outcome::Completed(payload(r#"{"paid":true}"#))));
}

async fn a_key_is_unique_in_its_scope_only(world: World) {
    let requests = || {
        let request = |scope, workflow, version| Start {
            scope,
            workflow: name(workflow),
            workflow_version: name(version),
            ..world.request("k")
        };
        [
            request(KeyScope::Workspace, ORDER, "1"),
            request(KeyScope::Workflow, ORDER, "1"),
            request(KeyScope::Workflow, "refund", "1"),
            request(KeyScope::WorkflowVersion, ORDER, "1"),
            request(KeyScope::WorkflowVersion, ORDER, "2"),
            request(KeyScope::WorkflowVersion, "refund", "1"),
        ]
    };
    let mut created = Vec::new();
    for request in requests() {
        let started = world.begin(request).await;
        assert_eq!(started.verdict, StartVerdict::Created);
        created.push(started.run.id());
    }
    for (request, owner) in requests().into_iter().zip(&created) {
        assert_eq!(world.begin(request).await.run.id(), *owner);
    }
    // In the scope of a workflow, its version is none of the key's business.
    let newer = Start { workflow_version: name("2"), scope: KeyScope::Workflow, ..world.request("k") };
    assert_eq!(world.begin(newer).await.run.id(), created[1]);
}

async fn keys_that_look_alike_are_different_keys(world: World) {
    let keys = [
        "a",
        "A",
        "a ",
        " a",
        "a:b",
        "a/b",
        "a|b",
        "a%b",
        "a%2Fb",
        "a\\b",
        "a'b",
        "a\"b",
        "a_b",
        "a?b",
        "a*b",
        "\u{e9}",
        "e\u{301}",
        "\u{ff41}",
        "\u{430}",
        "ss",
        "\u{df}",
        "i",
        "\u{131}",
        "a\u{200b}",
        "null",
        "0",
        "00",
        "\u{1f600}",
        "\u{fb33}",
        "%00",
        "\\u0000",
    ];
    let mut owners = Vec::new();
    for key in keys {
        let started = world.start(key).await;
        assert_eq!(started.verdict, StartVerdict::Created, "{key:?} is a key of its own");
        assert_eq!(started.run.new.key.as_str(), key);
        owners.push(started.run.id());
    }
    for (key, owner) in keys.into_iter().zip(owners) {
        assert_eq!(world.holder_of(key).await, Some(owner), "{key:?}");
    }
}

async fn a_key_of_another_workspace_is_not_seen(world: World) {
    let ours = world.start("k").await;
    let theirs = world.begin(Start { workspace: STRANGER, ..world.request("k") }).await;
    assert_eq!(theirs.verdict, StartVerdict::Created);
    assert_ne!(theirs.run.id(), ours.run.id());
    assert_eq!(world.holder_of("k").await, Some(ours.run.id()));
}

async fn reordered_input_is_the_same_input(world: World) {
    let input = |json| Start { input: payload(json), ..world.request("k") };
    let first = world.begin(input(r#"{"a":1,"b":[2.50,{"x":"é","y":null}]}"#)).await;
    let again = world.begin(input("{ \"b\": [2.5, {\"y\":null, \"x\":\"\\u00e9\"}],\n \"a\": 1e0 }")).await;
    assert_eq!((again.verdict, again.run.id()), (StartVerdict::Attached, first.run.id()));
}

async fn another_input_is_refused_naming_what_differs(world: World) {
    let input = |json| Start { input: payload(json), ..world.request("k") };
    let first = world.begin(input(r#"{"amount":1,"items":["a","b"],"to":"ann"}"#)).await;
    let other = world.try_start(input(r#"{"amount":2,"items":["a","c"],"to":"ann","now":true}"#)).await;
    let Error::KeyReused { owner, pointers } = refused(other) else { panic!("not a reused key") };
    assert_eq!(owner, first.run.id());
    assert_eq!(pointers, ["/input/amount", "/input/items/1", "/input/now"]);
    // Two integers that only a double would take for one.
    let exact = world.begin(Start { input: payload("9007199254740993"), ..world.request("big") }).await;
    let near = world.try_start(Start { input: payload("9007199254740992"), ..world.request("big") }).await;
    assert!(matches!(refused(near), Error::KeyReused { owner, .. } if owner == exact.run.id()));
}

async fn another_workflow_is_refused_naming_it(world: World) {
    let first = world.start("k").await;
    let other = world.try_start(Start { workflow: name("refund"), ..world.request("k") }).await;
    let Error::KeyReused { owner, pointers } = refused(other) else { panic!("not a reused key") };
    assert_eq!((owner, pointers), (first.run.id(), vec!["/workflow".to_owned()]));
}

async fn excluded_pointers_do_not_count(world: World) {
    let input = |json| Start {
        input: payload(json),
        excluded: vec!["/sent".to_owned(), "/trace/id".to_owned()],
        ..world.request("k")
    };
    let first = world.begin(input(r#"{"n":1,"sent":10,"trace":{"id":"a"}}"#)).await;
    let again = world.begin(input(r#"{"n":1,"sent":11,"trace":{"id":"b"}}"#)).await;
    assert_eq!(again.run.id(), first.run.id());
    let other = world.try_start(input(r#"{"n":2,"sent":12,"trace":{"id":"c"}}"#)).await;
    let Error::KeyReused { pointers, .. } = refused(other) else { panic!("not a reused key") };
    assert_eq!(pointers, ["/input/n"]);
}

async fn a_refused_start_burns_no_key(world: World) {
    let mut impossible = world.request("k");
    impossible.policy.same.completed = Do::Restart;
    assert_eq!(code(world.try_start(impossible.clone()).await), "VALIDATION_ERROR");
    assert_eq!(world.holder_of("k").await, None);
    let first = world.start("k").await;
    assert_eq!(first.verdict, StartVerdict::Created);
    for policy in [Policy::REJECT, Policy::STRICT] {
        let refused = world.try_start(Start { policy, ..world.request("k") }).await;
        assert_eq!(code(refused), "DUPLICATE_RUN");
    }
    let other = Start { input: payload("5"), ..world.request("k") };
    let never = other.run;
    assert_eq!(code(world.try_start(other).await), "KEY_REUSED");
    assert_eq!(world.find(FindBy::Id(never)).await, None);
    assert_eq!(world.list().await, [first.run], "nothing but the first run, as it was");
}

async fn a_start_without_a_key_gets_one_of_its_own(world: World) {
    let keyless = || Start::new(WORKSPACE, world.run_id(), name(ORDER), payload(r#"{"n":1}"#), None);
    let (first, second) = (world.begin(keyless()).await, world.begin(keyless()).await);
    assert_ne!(first.run.id(), second.run.id());
    assert_eq!(first.run.new.key.as_str(), first.run.id().to_string(), "the key is shown");
    let again = world.start(first.run.new.key.as_str()).await;
    assert_eq!((again.verdict, again.run.id()), (StartVerdict::Attached, first.run.id()));
}

async fn a_start_without_a_key_is_kept_as_it_is_answered(world: World) {
    let (lives, dead) = (world.node().await, world.node().await);
    world.lease(dead, LeaseAct::Leave).await.expect("a node may go");
    let (soon, later) = (Duration::from_secs(1), Duration::from_mins(1));
    let mut runs = 0;
    for claim in [None, Some(lives), Some(dead)] {
        for (delay, timeout) in [(Duration::ZERO, None), (soon, None), (Duration::ZERO, Some(later))] {
            world.pass(7);
            let new = Start::new(WORKSPACE, world.run_id(), name(ORDER), payload("7"), None);
            let start = Start { delay, timeout, claim, ..new };
            let started = world.begin(start.clone()).await;
            runs += 1;
            let kept = world.run(start.run).await;
            assert_eq!((started.verdict, &started.run), (StartVerdict::Created, &kept), "{start:?}");
            assert_eq!((kept.new.created, kept.state.ended), (world.now(), None));
            let due = (kept.status() == Status::Pending).then(|| world.now().after(delay));
            assert_eq!(kept.state.due, due, "{start:?}");
            assert_eq!(world.entries(start.run).await, started.entries);
            let again = world.begin(start).await;
            assert_eq!((again.verdict, again.run), (StartVerdict::Created, kept));
        }
    }
    assert_eq!(world.list().await.len(), runs);
}

/// The first start has the key, whatever the key looks like.
async fn a_key_may_be_spelled_like_the_id_of_a_later_run(world: World) {
    let later = world.run_id();
    let first = world.start(&later.to_string()).await;
    let new = |input: &str| Start::new(WORKSPACE, later, name(ORDER), payload(input), None);
    let input = first.entries.first().and_then(|entry| match entry {
        Entry::Created(created) => Some(created.input.text().to_owned()),
        _ => None,
    });
    let second = world.begin(new(&input.expect("a run begins with its input"))).await;
    assert_eq!((second.verdict, second.run.id()), (StartVerdict::Attached, first.run.id()));
    assert_eq!(code(world.try_start(new("\"other\"")).await), "KEY_REUSED");
    assert_eq!(world.list().await.len(), 1);
}

async fn a_repeated_request_finds_the_run_it_created(world: World) {
    for (preset, policy) in Policy::PRESETS {
        let request = Start { policy, ..world.request(preset) };
        let first = world.begin(request.clone()).await;
        let again = world.begin(request).await;
        assert_eq!((again.verdict, &again.run), (StartVerdict::Created, &first.run), "{preset}");
        assert_eq!(
            again.entries, first.entries,
            "{preset}: the node that claimed it with the start can drive it"
        );
        assert_eq!(again.entries, world.entries(first.run.id()).await, "{preset}");
        assert_eq!(world.kinds(first.run.id()).await, ["created"], "{preset}");
        assert_eq!(world.absorbed(first.run.id(), ReceiptKind::Start).await, 0, "{preset}");
    }
}

/// Its answer was lost, another start took the key, and then the first is sent again.
async fn a_repeated_request_finds_its_run_after_it_was_superseded(world: World) {
    let lost = Start { policy: Policy::SUPERSEDE, ..world.request("k") };
    let old = world.begin(lost.clone()).await.run.id();
    let newer = Start { input: payload("2"), policy: Policy::SUPERSEDE, ..world.request("k") };
    let new = world.begin(newer).await.run.id();
    let again = world.begin(lost.clone()).await;
    assert_eq!((again.run.id(), again.run.status()), (old, Status::Cancelled));
    assert_eq!(world.holder_of("k").await, Some(new), "the repeated request takes nothing back");
    assert_eq!(world.run(new).await.status(), Status::Pending);
    // The same if no run has the key now.
    world.control(new, ControlAction::ReleaseKey).await.expect("an open run can give up its key");
    assert_eq!(world.begin(lost).await.run.id(), old);
    assert_eq!(world.list().await.len(), 2);
}

async fn a_run_id_with_another_input_is_refused(world: World) {
    for key in [None, Some("k")] {
        let run = world.run_id();
        let key = key.map(super::world::key);
        let request = |json| Start::new(WORKSPACE, run, name("order"), payload(json), key.clone());
        world.begin(request(r#"{"n":1}"#)).await;
        let error = world.try_start(request(r#"{"n":2}"#)).await.expect_err("another input");
        let Error::KeyReused { owner, pointers } = &error else { panic!("{error}") };
        assert_eq!((*owner, &**pointers), (run, &["/input/n".to_owned()][..]), "{key:?}");
        // Also when it has lost its key since.
        world.control(run, ControlAction::ReleaseKey).await.expect("an open run may");
        assert_eq!(code(world.try_start(request(r#"{"n":2}"#)).await), "KEY_REUSED", "{key:?}");
        assert_eq!(world.begin(request(r#"{"n":1}"#)).await.verdict, StartVerdict::Created, "{key:?}");
    }
}

async fn a_run_id_is_never_given_twice(world: World) {
    let first = world.start("k").await.run;
    for taken in [
        Start { run: first.id(), ..world.request("other") },
        Start { run: first.id(), workspace: STRANGER, ..world.request("k") },
    ] {
        assert_eq!(code(world.try_start(taken).await), "VALIDATION_ERROR");
    }
    assert_eq!(world.holder_of("other").await, None);
    assert_eq!(world.list().await, [first]);
}

fn kept(history: u64, key: u64) -> Retention {
    Retention { history: Duration::from_millis(history), key: Duration::from_millis(key) }
}

async fn a_forgotten_history_does_not_free_the_key(world: World) {
    let request = || Start { retention: kept(10, 20), ..world.request("k") };
    let mut driver = world.drive(request()).await;
    driver.complete("7").await;
    world.pass(10);
    assert_eq!(world.sweep(10).await.histories, 1);
    assert_eq!(world.entries(driver.id()).await, []);
    world.pass(9);
    let again = world.begin(request()).await;
    assert_eq!((again.verdict, again.run.id()), (StartVerdict::Replayed, driver.id()));
    let gone = Some(Outcome::Purged(Status::Completed));
    assert_eq!(again.outcome, gone, "the result went with the history");
    let other = world.try_start(Start { input: payload("5"), ..request() }).await;
    let Error::KeyReused { owner, pointers } = refused(other) else { panic!("not a reused key") };
    assert_eq!((owner, pointers), (driver.id(), vec![]), "only the hash is left to compare");
}

async fn a_key_is_free_after_its_retention(world: World) {
    let request = || Start { retention: kept(10, 20), policy: Policy::REJECT, ..world.request("k") };
    let mut driver = world.drive(request()).await;
    driver.complete("7").await;
    world.pass(19);
    assert_eq!(code(world.try_start(request()).await), "DUPLICATE_RUN");
    world.pass(1);
    assert_eq!(world.holder_of("k").await, None, "also before the sweep");
    let second = world.begin(request()).await;
    assert_eq!(second.verdict, StartVerdict::Created);
    assert_eq!(world.sweep(10).await.runs, 1);
    assert_eq!(world.find(FindBy::Id(driver.id())).await, None);
    assert_eq!(world.holder_of("k").await, Some(second.run.id()), "the sweep took the old run only");
}

async fn a_key_never_expires_while_its_run_is_open(world: World) {
    let mut runs = Vec::new();
    for status in [Status::Pending, Status::Waiting, Status::Paused] {
        let key = status.to_string();
        let mut driver = world.drive(Start { retention: kept(1, 1), ..world.request(&key) }).await;
        match status {
            Status::Waiting => drop(driver.wait(None).await),
            Status::Paused => drop(world.control(driver.id(), ControlAction::Pause).await),
            _ => {}
        }
        runs.push((key, driver.id()));
    }
    world.clock().advance(Duration::from_hours(400 * 24));
    let swept = world.sweep(100).await;
    assert_eq!((swept.histories, swept.runs), (0, 0));
    for (key, run) in runs {
        assert_eq!(world.start(&key).await.run.id(), run, "{key}");
    }
}

async fn a_history_may_outlive_its_key(world: World) {
    let request = || Start { retention: kept(20, 10), ..world.request("k") };
    let mut driver = world.drive(request()).await;
    driver.complete("7").await;
    world.pass(10);
    assert_eq!(world.begin(request()).await.verdict, StartVerdict::Created);
    assert_eq!(world.kinds(driver.id()).await, ["created", "claimed", "completed"]);
    assert_eq!(world.sweep(10).await.runs, 0);
    world.pass(10);
    assert_eq!(world.sweep(10).await.runs, 1);
}

async fn a_key_kept_for_ever_is_never_free(world: World) {
    let retention = Retention { history: Duration::ZERO, key: Duration::MAX };
    let mut driver = world.drive(Start { retention, ..world.request("k") }).await;
    driver.complete("7").await;
    assert_eq!(world.sweep(10).await.histories, 1);
    world.clock().advance(Duration::from_hours(300_000));
    world.sweep(10).await;
    let again = world.start("k").await;
    assert_eq!((again.verdict, again.run.id()), (StartVerdict::Replayed, driver.id()));
    assert_eq!(again.run.new.retention, retention);
}

async fn a_delayed_run_is_not_due_before_its_time(world: World) {
    let node = world.node().await;
    let delay = Duration::from_millis(500);
    let request = Start { delay, claim: Some(node), ..world.request("k") };
    let run = world.begin(request).await.run;
    assert_eq!(
        (run.status(), run.state.due, run.state.node),
        (Status::Pending, Some(world.after(500)), None)
    );
    world.pass(499);
    assert_eq!(world.try_claim(node, 10).await.expect("alive"), []);
    world.pass(1);
    assert_eq!(world.claim_one().await.id(), run.id());
}

async fn a_start_may_carry_the_claim(world: World) {
    let node = world.node().await;
    let run = world.begin(Start { claim: Some(node), ..world.request("k") }).await.run;
    assert_eq!((run.status(), run.state.node, run.state.due), (Status::Running, Some(node), None));
    assert_eq!(world.kinds(run.id()).await, ["created", "claimed"]);
    assert_eq!(run.state.version, 2);
    assert_eq!(world.try_claim(node, 10).await.expect("alive"), []);
}

/// Its node stood still past its lease and then starts a run. A run that it owned now, after its runs were given
/// away, would never be driven.
async fn a_start_by_a_dead_node_is_left_to_others(world: World) {
    let dead = world.node().await;
    world.crash().await;
    let run = world.begin(Start { claim: Some(dead), ..world.request("k") }).await.run;
    assert_eq!((run.status(), run.state.node), (Status::Pending, None));
    assert_eq!(world.claim_one().await.id(), run.id());
}

async fn the_deadline_counts_from_the_creation(world: World) {
    let request = Start { timeout: Some(Duration::from_millis(300)), ..world.request("k") };
    let run = world.begin(request).await.run;
    world.pass(100);
    let driver = world.claim_one().await;
    assert_eq!(driver.ledger.created().deadline, Some(world.after(200)));
    assert_eq!(driver.ledger.created().lineage, run.id(), "a new run is the root of its own lineage");
}

async fn superseding_ends_the_old_run_and_starts_the_new_one(world: World) {
    let mut old = world.driven("k").await;
    assert_eq!(old.open("t").await, None);
    let (child, _) = old.child("child", world.run_id()).await;
    let newer = Start { input: payload("2"), policy: Policy::SUPERSEDE, ..world.request("k") };
    let started = world.begin(newer).await;
    assert_eq!((started.verdict, started.superseded), (StartVerdict::Superseded, Some(old.id())));
    assert!(started.created());
    let ended = world.run(old.id()).await;
    assert_eq!((ended.status(), ended.state.holds_key), (Status::Cancelled, false));
    assert_eq!(world.holder_of("k").await, Some(started.run.id()));
    assert_eq!(world.owner_of("t").await, None);
    assert_eq!(world.inbox(child).await.len(), 1, "the child is told");
    assert_eq!(code(old.step("late").await), "CONCURRENCY_ERROR");
}

async fn a_released_key_starts_another_run(world: World) {
    let first = world.start("k").await.run.id();
    assert!(world.control(first, ControlAction::ReleaseKey).await.expect("an open run may").changed);
    assert_eq!(world.holder_of("k").await, None);
    let second = world.start("k").await;
    assert_eq!(second.verdict, StartVerdict::Created);
    assert_eq!(world.run(first).await.status(), Status::Pending, "the first goes on");
    assert_eq!(world.claim_all().await.len(), 2);
}

async fn a_restarted_run_keeps_what_it_has_done(world: World) {
    let retry = || Start { policy: Policy::RETRY_FAILED, ..world.request("k") };
    let mut driver = world.drive(retry()).await;
    driver.step("pay").await.expect("ours");
    let key = driver.ledger.effect_key(&world::visit("pay"), "");
    driver.fail().await;
    let again = world.begin(retry()).await;
    assert_eq!((again.verdict, again.run.id()), (StartVerdict::Restarted, driver.id()));
    assert_eq!((again.run.status(), again.outcome), (Status::Pending, None));
    let next = world.claim_one().await;
    assert!(next.ledger.record_at(&world::visit("pay")).is_some(), "its result is kept");
    assert_eq!(next.ledger.effect_key(&world::visit("pay"), ""), key);
    let restarted = |entry: &Entry| matches!(entry, Entry::Restarted { by, .. } if by == "start");
    assert!(world.entries(driver.id()).await.iter().any(restarted));
    let find = Find { workspace: STRANGER, by: FindBy::Id(driver.id()) };
    assert_eq!(world.store().find(find).await.expect("a look-up"), None);
}
