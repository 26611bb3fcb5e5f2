//! Effects of queues on a ledger, as tables: entries in, kinds of entries out.

use super::*;
use crate::rules::entry::{Created, Outcome, Resolution};
use crate::rules::run::tests::run;
use crate::rules::status::Status;
use uuid::Uuid;

const MOMENT: TimeAndChance = TimeAndChance { now: Time(1_000), random: 0.0 };

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn created(workflow: &str, input: &str, scope: Scope) -> Entry {
    Entry::Created(Box::new(Created {
        workflow: name(workflow),
        workflow_version: name("1"),
        input: Payload::parse(input).unwrap(),
        key: Key::new("the effect key").unwrap(),
        scope,
        lineage: RunId(Uuid::from_u128(1)),
        not_before: None,
        deadline: None,
        parent: None,
        forked_from: None,
    }))
}

fn claimed() -> Entry {
    Entry::Claimed { node: crate::id::NodeId(Uuid::from_u128(2)) }
}

const STEP: &str =
    r#"{"step":"left/charge#2","input":{"cents":7},"retry":{"maxAttempts":2,"initialMs":500,"jitter":0}}"#;

/// A claimed run of `queue:payments`, after these entries.
fn ledger(before: impl IntoIterator<Item = Entry>) -> Ledger {
    let first = [created("queue:payments", STEP, Scope::children())];
    Ledger::read(run(Status::Pending), first.into_iter().chain(before).chain([claimed()])).unwrap()
}

fn visit() -> Visit {
    Visit::parse("left/charge#2").unwrap()
}

fn failure(kind: FailureKind) -> Failure {
    Failure::new(kind, "no")
}

fn failed(kind: FailureKind) -> Report {
    Report::Failed { error: failure(kind), retry_after: None }
}

/// The entries of a first attempt that ended like this.
fn attempt(end: Entry) -> [Entry; 3] {
    [claimed(), Entry::step_started(visit(), 1, Class::Keyed), end]
}

fn retrying() -> Vec<Entry> {
    let (error, retry_at) = (failure(FailureKind::Retryable), Some(Time(1_500)));
    let end = Entry::StepFailed { step: visit(), attempt: 1, error, retry_at };
    attempt(end).into_iter().chain([Entry::Waiting { due: retry_at }]).collect()
}

fn asked() -> Messages {
    vec![(3, Message::ParentCancelled { parent: RunId(Uuid::from_u128(9)) })]
}

/// Messages with their numbers.
type Messages = Vec<(u64, Message)>;

/// Kinds of the entries in the next commit of a ledger.
fn kinds(ledger: &mut Ledger) -> Vec<&'static str> {
    let Some(commit) = ledger.commit() else { return Vec::new() };
    let text = commit.text().expect("no drafts here");
    crate::rules::entry::decode(text).unwrap().iter().map(Entry::kind).collect()
}

#[test]
fn names_of_queues_and_their_workflows_belong_together() {
    assert_eq!(workflow(&name("payments")).unwrap(), name("queue:payments"));
    assert_eq!(queue(&name("queue:payments")), Some(name("payments")));
    assert_eq!(queue(&name("queue:")), None);
    assert_eq!(queue(&name("payments")), None);
    assert!(workflow(&name(&"x".repeat(200))).is_err());
}

#[test]
fn a_claimed_step_is_handed_out_with_key_attempt_and_fence() {
    let task = hand(&mut ledger([]), &[], MOMENT.now).unwrap().unwrap();
    let shown = serde_json::to_value(&task).unwrap();
    let expected = serde_json::json!({
        "run": "run_00000000000000000000000001", "queue": "payments", "step": "left/charge#2",
        "input": {"cents": 7}, "key": "the effect key", "attempt": 1, "fence": 2,
    });
    assert_eq!(shown, expected);
    let again = hand(&mut ledger(retrying()), &[], MOMENT.now).unwrap().unwrap();
    assert_eq!((again.attempt, again.fence, again.key), (2, 6, task.key));
    let taken_over = hand(&mut ledger([claimed()]), &[], MOMENT.now).unwrap().unwrap();
    assert_eq!((taken_over.attempt, taken_over.fence), (1, 3), "nothing is known of the first try");
}

#[test]
fn a_step_that_was_started_by_itself_has_a_key_of_its_own() {
    let first = [created("queue:payments", STEP, Scope::stored("*".to_owned())), claimed()];
    let mut ledger = Ledger::read(run(Status::Pending), first).unwrap();
    let task = hand(&mut ledger, &[], MOMENT.now).unwrap().unwrap();
    assert_eq!(task.key.as_str(), ledger.effect_key(&visit(), "").to_string());
}

#[test]
fn what_cannot_be_handed_out_is_settled() {
    let doubt = |resolution| {
        let end = Entry::StepInDoubt { step: visit(), reason: "no answer".to_owned() };
        let paused = Entry::Paused { reason: PauseReason::InDoubt };
        let (by, resumed) = ("ann".to_owned(), Entry::Resumed { by: "ann".to_owned() });
        let resolved = Entry::StepResolved { step: visit(), resolution, by };
        attempt(end).into_iter().chain([paused, resolved, resumed]).collect::<Vec<_>>()
    };
    let happened = doubt(Resolution::Happened(Payload::null()));
    let given_up = doubt(Resolution::GiveUp(failure(FailureKind::Fatal)));
    let table: [(Ledger, Messages, &[&str]); 3] = [
        (ledger(happened), vec![], &["completed"]),
        (ledger(given_up), vec![], &["failed"]),
        (ledger(retrying()), asked(), &["cancelling", "cancelled"]),
    ];
    for (mut ledger, inbox, wanted) in table {
        assert_eq!(hand(&mut ledger, &inbox, MOMENT.now).unwrap(), None);
        assert_eq!(kinds(&mut ledger), wanted);
    }
    let again = hand(&mut ledger(doubt(Resolution::DidNotHappen)), &[], MOMENT.now).unwrap().unwrap();
    assert_eq!(again.attempt, 2);
}

#[test]
fn an_input_that_is_no_step_fails_and_says_why() {
    for (workflow, input) in [("queue:payments", r#"{"cents":7}"#), ("queue:payments", "1"), ("order", STEP)]
    {
        let first = [created(workflow, input, Scope::children()), claimed()];
        let mut ledger = Ledger::read(run(Status::Pending), first).unwrap();
        assert_eq!(hand(&mut ledger, &[], MOMENT.now).unwrap(), None);
        let Some(Outcome::Failed(failure)) = ledger.outcome() else { panic!("{workflow} {input}") };
        assert_eq!(failure.kind, FailureKind::Fatal);
        assert!(failure.message.contains("no queue") || failure.message.contains("not a step"), "{failure}");
    }
}

#[test]
fn a_report_is_the_end_of_an_attempt_and_of_what_follows() {
    use FailureKind::{Fatal, Retryable, Timeout, Uncertain};
    let done = || Report::Completed(Payload::null());
    let (end, wait) = (["stepStarted", "stepFailed", "failed"], ["stepStarted", "stepFailed", "waiting"]);
    let doubt = ["stepStarted", "stepInDoubt", "paused"];
    let cancelled: &[&str] = &["stepStarted", "stepFailed", "cancelling", "cancelled"];
    let table: [(Ledger, Report, Messages, &[&str]); 9] = [
        (ledger([]), done(), vec![], &["stepStarted", "stepCompleted", "completed"]),
        (ledger(retrying()), done(), vec![], &["stepStarted", "stepCompleted", "completed"]),
        (ledger([]), done(), asked(), &["stepStarted", "stepCompleted", "completed"]),
        (ledger([]), failed(Retryable), vec![], &wait),
        (ledger([]), failed(Timeout), vec![], &wait),
        (ledger([]), failed(Fatal), vec![], &end),
        (ledger(retrying()), failed(Retryable), vec![], &end),
        (ledger([]), failed(Uncertain), vec![], &doubt),
        (ledger([]), failed(Retryable), asked(), cancelled),
    ];
    for (n, (mut ledger, said, inbox, wanted)) in table.into_iter().enumerate() {
        report(&mut ledger, &said, &inbox, MOMENT).unwrap();
        assert_eq!(kinds(&mut ledger), wanted, "line {n}");
    }
}

#[test]
fn the_next_try_is_due_after_the_steps_pause_or_the_workers_own() {
    for (retry_after, due) in [(None, 1_500), (Some(Duration::from_secs(9)), 10_000)] {
        let mut ledger = ledger([]);
        let error = failure(FailureKind::Retryable);
        report(&mut ledger, &Report::Failed { error, retry_after }, &[], MOMENT).unwrap();
        assert_eq!(ledger.commit().unwrap().beyond().due, Some(Time(due)));
    }
}

#[test]
fn a_report_is_known_again_by_what_it_says() {
    let done = |json: &str| Report::Completed(Payload::parse(json).unwrap());
    let all = [done("1"), done("2"), failed(FailureKind::Retryable), failed(FailureKind::Uncertain)];
    for (n, first) in all.iter().enumerate() {
        let mut ledger = ledger([]);
        report(&mut ledger, first, &[], MOMENT).unwrap();
        let commit = ledger.commit().unwrap();
        let written = crate::rules::entry::decode(commit.text().expect("no drafts here")).unwrap();
        for (m, second) in all.iter().enumerate() {
            assert_eq!(is_reported(&written, second), n == m, "{first:?} {second:?}");
        }
    }
    let mut ledger = ledger([]);
    report(&mut ledger, &done(r#"{"v":1}"#), &[], MOMENT).unwrap();
    let commit = ledger.commit().unwrap();
    let written = crate::rules::entry::decode(commit.text().expect("no drafts here")).unwrap();
    assert!(is_reported(&written, &done(r#"{ "v": 1.0 }"#)), "the same value, spelt otherwise");
    assert!(!is_reported(&[claimed()], &all[0]), "another worker has it");
    assert!(!is_reported(&[], &all[0]));
}
