//! The policy matrix on real runs: every preset, every state of the existing run, the same and another payload.

use super::world::{World, payload};
use crate::error::Error;
use crate::id::RunId;
use crate::rules::run::Run;
use crate::rules::start::{Policy, PolicyRow, Start, StartAction, StartVerdict};
use crate::rules::status::Status;

promises![
    every_policy_answers_as_its_matrix_says,
    a_refused_duplicate_changes_nothing,
    a_policy_of_ones_own_is_followed,
    only_what_failed_is_restarted,
];

/// What a preset answers about an open, completed, failed, cancelled and timed-out run.
type PresetAnswers = [&'static str; 5];

const REUSED: PresetAnswers = ["reused"; 5];
const TABLE: [(Policy, PresetAnswers, PresetAnswers); 6] = [
    (Policy::ATTACH, ["attached", "replayed", "attached", "attached", "attached"], REUSED),
    (Policy::STRICT, ["duplicate", "replayed", "duplicate", "duplicate", "duplicate"], REUSED),
    (Policy::REJECT, ["duplicate"; 5], REUSED),
    (
        Policy::UNIQUE_WHILE_OPEN,
        ["attached", "created", "created", "created", "created"],
        ["reused", "created", "created", "created", "created"],
    ),
    (Policy::RETRY_FAILED, ["attached", "replayed", "restarted", "attached", "restarted"], REUSED),
    (
        Policy::SUPERSEDE,
        ["attached", "replayed", "attached", "attached", "attached"],
        ["superseded", "created", "created", "created", "created"],
    ),
];

/// Where a state stands in [`PresetAnswers`].
fn column(status: Status) -> usize {
    match status {
        Status::Completed => 1,
        Status::Failed => 2,
        Status::Cancelled => 3,
        Status::TimedOut => 4,
        Status::Pending | Status::Running | Status::Waiting | Status::Paused => 0,
    }
}

async fn every_policy_answers_as_its_matrix_says(world: World) {
    for (n, (policy, same, other)) in TABLE.into_iter().enumerate() {
        for status in Status::ALL {
            for (input, answers) in [(r#"{"n":1}"#, same), (r#"{"n":2}"#, other)] {
                let key = format!("{n} {status} {input}");
                let existing = world.run_that_is(status, &key).await;
                let request = Start { policy, input: payload(input), ..world.request(&key) };
                let said = check(&world, existing, status, request, &key).await;
                assert_eq!(said, answers[column(status)], "{key}");
            }
        }
    }
}

/// Starts, looks whether all that the answer says is so, and gives the answer's name.
async fn check(world: &World, existing: RunId, status: Status, request: Start, key: &str) -> &'static str {
    let (before, new) = (world.run(existing).await, request.run);
    let answer = world.try_start(request).await;
    let (after, holder) = (world.run(existing).await, world.holder_of(key).await);
    let untouched = |after: &Run| *after == before && holder == Some(existing);
    match answer {
        Ok(started) if started.created() => {
            assert_eq!((started.run.id(), holder), (new, Some(new)), "{key}: the new run has the key");
            assert_eq!(world.run(new).await, started.run, "{key}");
            assert!(!after.state.holds_key, "{key}");
            let superseded = started.verdict == StartVerdict::Superseded;
            assert_eq!(started.superseded, superseded.then_some(existing), "{key}");
            let expected = if superseded { Status::Cancelled } else { status };
            assert_eq!(after.status(), expected, "{key}");
            if superseded { "superseded" } else { "created" }
        }
        Ok(started) => {
            assert_eq!((started.run.id(), &started.run), (existing, &after), "{key}");
            match started.verdict {
                StartVerdict::Restarted => {
                    assert_eq!(after.state.version, before.state.version + 1, "{key}");
                    assert_eq!((after.status(), holder), (Status::Pending, Some(existing)), "{key}");
                    "restarted"
                }
                verdict => {
                    assert!(untouched(&after), "{key}: {after:?}");
                    assert_eq!(started.outcome.is_some(), status.is_terminal(), "{key}");
                    if verdict == StartVerdict::Replayed { "replayed" } else { "attached" }
                }
            }
        }
        Err(Error::DuplicateRun { owner, status: said }) => {
            assert!(untouched(&after), "{key}: {after:?}");
            assert_eq!((owner, said), (existing, status), "{key}");
            "duplicate"
        }
        Err(Error::KeyReused { owner, pointers }) => {
            assert!(untouched(&after), "{key}: {after:?}");
            assert_eq!((owner, pointers), (existing, vec!["/input/n".to_owned()]), "{key}");
            "reused"
        }
        Err(other) => panic!("{key}: {other}"),
    }
}

async fn a_refused_duplicate_changes_nothing(world: World) {
    let mut driver = world.driven("k").await;
    driver.step("a").await.expect("ours");
    for policy in [Policy::REJECT, Policy::STRICT] {
        let answer = world.try_start(Start { policy, ..world.request("k") }).await;
        assert!(matches!(answer, Err(Error::DuplicateRun { .. })), "{answer:?}");
    }
    driver.step("b").await.expect("still ours: a refused start takes nothing away");
}

async fn a_policy_of_ones_own_is_followed(world: World) {
    let all = |action| PolicyRow {
        open: action,
        completed: action,
        failed: action,
        cancelled: action,
        timed_out: action,
    };
    let newest_wins = Policy { same: all(StartAction::Replace), other: all(StartAction::Replace) };
    let lenient = Policy { same: all(StartAction::Attach), other: all(StartAction::Attach) };
    let first = world.start("k").await.run.id();
    let second = world.begin(Start { policy: newest_wins, ..world.request("k") }).await;
    assert_eq!((second.verdict, second.superseded), (StartVerdict::Superseded, Some(first)));
    let third = Start { policy: lenient, input: payload("3"), ..world.request("k") };
    let third = world.begin(third).await;
    assert_eq!((third.verdict, third.run.id()), (StartVerdict::Attached, second.run.id()));
}

async fn only_what_failed_is_restarted(world: World) {
    let restart = |open, completed, cancelled| Policy {
        same: PolicyRow {
            open,
            completed,
            failed: StartAction::Restart,
            cancelled,
            timed_out: StartAction::Restart,
        },
        other: Policy::ATTACH.other,
    };
    let attach = StartAction::Attach;
    for wrong in [
        restart(StartAction::Restart, attach, attach),
        restart(attach, StartAction::Restart, attach),
        restart(attach, attach, StartAction::Restart),
    ] {
        let answer = world.try_start(Start { policy: wrong, ..world.request("k") }).await;
        assert!(matches!(answer, Err(Error::Validation(_))), "{answer:?}");
    }
    assert_eq!(world.list().await, []);
    let right = Start { policy: restart(attach, attach, attach), ..world.request("k") };
    assert_eq!(world.begin(right).await.verdict, StartVerdict::Created);
}
