//! The fold as tables. Entries are written here as they are stored, so these are also their golden forms.

mod visits;

use super::*;
use crate::rules::entry::{decode, encode};
use crate::rules::path::Path;
use crate::rules::run::tests::run;

const CREATED: &str = r#"{"created":{"workflow":"order","workflowVersion":"1","input":{"n":9007199254740993},"key":"k","scope":"*","lineage":"run_00000000000000000000000001"}}"#;
const CLAIMED: &str = r#"{"claimed":{"node":"node_00000000000000000000000002"}}"#;
const STARTED: &str = r#"{"stepStarted":{"step":"a","attempt":1}}"#;
const STARTED_2: &str = r#"{"stepStarted":{"step":"a","attempt":2}}"#;
const CHARGING: &str = r#"{"stepStarted":{"step":"a","attempt":1,"class":"at-most-once"}}"#;
const COMPLETED: &str = r#"{"stepCompleted":{"step":"a","value":{"ok":true}}}"#;
const FAILED: &str = r#"{"stepFailed":{"step":"a","attempt":1,"error":{"kind":"fatal","message":"no"}}}"#;
const RETRYING: &str =
    r#"{"stepFailed":{"step":"a","attempt":1,"error":{"kind":"retryable","message":"no"},"retryAt":500}}"#;
const SKIPPED: &str = r#"{"stepSkipped":{"step":"a","reason":"not needed"}}"#;
const DOUBT: &str = r#"{"stepInDoubt":{"step":"a","reason":"no answer"}}"#;
const RESOLVED: &str = r#"{"stepResolved":{"step":"a","resolution":"didNotHappen","by":"ann"}}"#;
const TIMER: &str = r#"{"timerSet":{"timer":"a","at":500}}"#;
const FIRED: &str = r#"{"timerFired":{"timer":"a"}}"#;
const OPENED: &str = r#"{"hookOpened":{"hook":"a","token":"t"}}"#;
const CONFLICTED: &str =
    r#"{"hookConflicted":{"hook":"a","token":"t","owner":"run_00000000000000000000000003"}}"#;
const RECEIVED: &str = r#"{"hookReceived":{"hook":"a","arrival":1,"payload":5}}"#;
const CLOSED: &str = r#"{"hookClosed":{"hook":"a"}}"#;
const CHILD: &str =
    r#"{"childStarted":{"child":"a","run":"run_00000000000000000000000003","attached":false}}"#;
const CHILD_ENDED: &str = r#"{"childFinished":{"child":"a","arrival":2,"outcome":{"completed":7}}}"#;
const RECORDED: &str = r#"{"recorded":{"at":"a","value":"x"}}"#;
const ONCE: &str = r#"{"once":{"label":"sms","value":1}}"#;
const NOTED: &str = r#"{"noted":{"arrival":3}}"#;
const WAITING: &str = r#"{"waiting":{"due":900}}"#;
const PAUSED: &str = r#"{"paused":{"reason":{"operator":{"by":"ann"}}}}"#;
const RESUMED: &str = r#"{"resumed":{"by":"ann"}}"#;
const ENDED: &str = r#"{"completed":{"value":null}}"#;
const BROKE: &str = r#"{"failed":{"error":{"kind":"panic","message":"no"}}}"#;
const CANCELLED: &str = r#"{"cancelled":{"reason":"why","by":"ann"}}"#;
const TIMED_OUT: &str = r#"{"timedOut":{"limit":900}}"#;
const RESTARTED: &str = r#"{"restarted":{"from":"failure","by":"ann"}}"#;
const ANEW: &str = r#"{"restarted":{"from":"beginning","by":"ann"}}"#;
/// A race that its first branch has won.
const RACE: &str = r#"{"recorded":{"at":"r","value":0}}"#;
/// The node that drives it dies, and another one takes it over.
const CLAIMED_AGAIN: [&str; 2] = [WAITING, CLAIMED];
const RELEASED: &str = r#"{"keyReleased":{"by":"ann"}}"#;

/// One of each kind, and one of each spelling that omits the usual value.
const GOLDEN: [&str; 32] = [
    CREATED,
    CLAIMED,
    STARTED,
    CHARGING,
    COMPLETED,
    FAILED,
    RETRYING,
    SKIPPED,
    DOUBT,
    RESOLVED,
    TIMER,
    FIRED,
    OPENED,
    CONFLICTED,
    RECEIVED,
    CLOSED,
    CHILD,
    CHILD_ENDED,
    RECORDED,
    ONCE,
    NOTED,
    WAITING,
    PAUSED,
    RESUMED,
    ENDED,
    BROKE,
    CANCELLED,
    TIMED_OUT,
    RESTARTED,
    ANEW,
    RELEASED,
    STARTED_2,
];

fn entry(json: &str) -> Entry {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

fn header() -> Run {
    run(Status::Pending)
}

fn read(entries: &[&str]) -> Result<Ledger, RefusedEntry> {
    Ledger::read(header(), entries.iter().map(|json| entry(json)))
}

/// A run that is driven, and these entries.
fn driven(entries: &[&str]) -> Result<Ledger, RefusedEntry> {
    read(&[&[CREATED, CLAIMED], entries].concat())
}

fn visit(text: &str) -> Visit {
    Visit::first(Path::parse(text).unwrap())
}

/// The kind of an entry by its golden form.
fn kind(json: &str) -> &str {
    json.split('"').nth(1).unwrap()
}

#[test]
fn every_kind_of_entry_is_written_as_it_is_read() {
    let mut kinds = HashSet::new();
    for json in GOLDEN {
        assert_eq!(encode(&[entry(json)]), format!("[{json}]"));
        assert_eq!(entry(json).kind(), kind(json));
        kinds.insert(kind(json));
    }
    assert_eq!(kinds.len(), 28, "every kind is here");
    let all = format!("[{}]", GOLDEN.join(","));
    assert_eq!(encode(&decode(&all).unwrap()), all);
}

#[test]
fn what_is_rarely_there_is_written_too() {
    for json in [
        r#"{"created":{"workflow":"a","workflowVersion":"1","input":null,"key":"k","scope":"child","lineage":"run_00000000000000000000000001","deadline":5,"parent":{"run":"run_00000000000000000000000003","visit":"left/pack[item-3]#2"},"forkedFrom":["run_00000000000000000000000003",7]}}"#,
        r#"{"stepStarted":{"step":"a#2","attempt":3,"class":"reconcile"}}"#,
        r#"{"stepStarted":{"step":"a","attempt":1,"class":"tx"}}"#,
        r#"{"stepResolved":{"step":"a","resolution":{"happened":{"n":1}},"by":"ann"}}"#,
        r#"{"stepResolved":{"step":"a","resolution":{"giveUp":{"kind":"uncertain","message":"m"}},"by":"ann"}}"#,
        r#"{"childFinished":{"child":"a","arrival":1,"outcome":{"failed":{"kind":"timeout","message":"m"}}}}"#,
        r#"{"childFinished":{"child":"a","arrival":1,"outcome":{"cancelled":"why"}}}"#,
        r#"{"childFinished":{"child":"a","arrival":1,"outcome":"timedOut"}}"#,
        r#"{"waiting":{"due":null}}"#,
        r#"{"paused":{"reason":"inDoubt"}}"#,
        r#"{"paused":{"reason":"poisoned"}}"#,
        r#"{"paused":{"reason":{"diverged":"a step is gone"}}}"#,
    ] {
        assert_eq!(encode(&[entry(json)]), format!("[{json}]"));
    }
}

#[test]
fn a_ledger_begins_with_created_and_only_there() {
    for wrong in [&[][..], &[CLAIMED], &[CREATED, CREATED], &[CREATED, CLAIMED, CREATED]] {
        assert_eq!(read(wrong).unwrap_err(), RefusedEntry::Beginning, "{wrong:?}");
    }
}

/// Which entries may follow, by the record at the path.
#[test]
fn every_entry_about_a_path_fits_what_is_there_or_is_refused() {
    let probes = [
        STARTED,
        STARTED_2,
        COMPLETED,
        FAILED,
        SKIPPED,
        DOUBT,
        RESOLVED,
        TIMER,
        FIRED,
        OPENED,
        CONFLICTED,
        RECEIVED,
        CLOSED,
        CHILD,
        CHILD_ENDED,
        RECORDED,
    ];
    let table: [(&str, &[&str], &[&str]); 16] = [
        ("not there", &[], &[STARTED, SKIPPED, TIMER, OPENED, CONFLICTED, CHILD, RECORDED]),
        ("a step with a begun attempt", &[STARTED], &[STARTED_2, COMPLETED, FAILED, DOUBT]),
        ("a step between attempts", &[STARTED, RETRYING], &[STARTED_2]),
        ("a completed step", &[STARTED, COMPLETED], &[]),
        ("a failed step", &[STARTED, FAILED], &[]),
        ("a skipped step", &[SKIPPED], &[]),
        ("a step in doubt", &[STARTED, DOUBT], &[RESOLVED]),
        ("a step to be run again", &[STARTED, DOUBT, RESOLVED], &[STARTED_2]),
        ("a running timer", &[TIMER], &[FIRED]),
        ("a fired timer", &[TIMER, FIRED], &[]),
        ("an open hook", &[OPENED], &[RECEIVED, CLOSED]),
        ("a hook in conflict", &[CONFLICTED], &[]),
        ("a closed hook", &[OPENED, RECEIVED, CLOSED], &[]),
        ("a child that has not ended", &[CHILD], &[CHILD_ENDED]),
        ("a child that has ended", &[CHILD, CHILD_ENDED], &[]),
        ("a recorded value", &[RECORDED], &[]),
    ];
    for (what, before, fits) in table {
        assert_eq!(VisitRecord::describe(driven(before).unwrap().record_at(&visit("a"))), what);
        for probe in probes {
            let answer = driven(&[before, &[probe]].concat());
            match (fits.contains(&probe), answer) {
                (true, Ok(_)) => {}
                (false, Err(RefusedEntry::Visit { visit: at, entry, found })) => {
                    assert_eq!((at, &*entry, &*found), (visit("a"), kind(probe), what));
                }
                (fits, answer) => panic!("{probe} after {what}: should fit: {fits}, but {answer:?}"),
            }
        }
    }
}

/// Which entries may follow, by the status of the run.
#[test]
fn every_entry_about_the_run_fits_its_state_or_is_refused() {
    let probes = [
        CLAIMED, STARTED, ONCE, NOTED, WAITING, PAUSED, RESUMED, ENDED, BROKE, CANCELLED, TIMED_OUT,
        RESTARTED, RELEASED,
    ];
    let everywhere = [RELEASED];
    let running: &[&str] =
        &[CLAIMED, STARTED, ONCE, NOTED, WAITING, PAUSED, ENDED, BROKE, CANCELLED, TIMED_OUT];
    let table: [(Status, &[&str], &[&str]); 8] = [
        (Status::Pending, &[], &[CLAIMED, PAUSED, CANCELLED, TIMED_OUT]),
        (Status::Running, &[CLAIMED], running),
        (Status::Waiting, &[CLAIMED, WAITING], &[CLAIMED, PAUSED, CANCELLED, TIMED_OUT]),
        (Status::Paused, &[CLAIMED, PAUSED], &[RESUMED, CANCELLED]),
        (Status::Completed, &[CLAIMED, ENDED], &[]),
        (Status::Failed, &[CLAIMED, BROKE], &[RESTARTED]),
        (Status::Cancelled, &[CANCELLED], &[]),
        (Status::TimedOut, &[CLAIMED, TIMED_OUT], &[RESTARTED]),
    ];
    for (status, before, fits) in table {
        let before = [&[CREATED], before].concat();
        let ledger = read(&before).unwrap();
        assert_eq!((ledger.run().status(), ledger.run().state.version), (status, before.len() as u64));
        assert_eq!(
            ledger.run().state.node.is_some(),
            status == Status::Running,
            "only a running run is driven"
        );
        for probe in probes {
            let fits = fits.contains(&probe) || everywhere.contains(&probe);
            match read(&[before.as_slice(), &[probe]].concat()) {
                Ok(after) => {
                    assert!(fits, "{probe} on a run that is {status}");
                    assert_eq!(after.run().state.version, before.len() as u64 + 1);
                }
                Err(RefusedEntry::Status { from, entry }) => {
                    assert!(!fits, "{probe} on a run that is {status}");
                    assert_eq!((from, &*entry), (status, kind(probe)));
                }
                Err(other) => panic!("{probe} on a run that is {status}: {other}"),
            }
        }
    }
}

#[test]
fn what_stands_for_something_elsewhere_is_the_stores_to_write() {
    let mut ledger = driven(&[]).unwrap();
    for json in GOLDEN {
        let stores = [CREATED, CLAIMED, OPENED, CONFLICTED, CHILD, RESUMED, RESTARTED, ANEW, RELEASED];
        if stores.contains(&json) {
            assert_eq!(ledger.record(entry(json)), Err(RefusedEntry::Stores(kind(json).into())), "{json}");
        }
    }
    assert_eq!(ledger.commit(), None);
}

#[test]
fn a_refused_entry_changes_nothing() {
    let mut ledger = driven(&[STARTED]).unwrap();
    let before = format!("{ledger:?}");
    for wrong in [TIMER, FIRED, RECEIVED, CLOSED, CHILD_ENDED, STARTED, SKIPPED, RECORDED, RESOLVED] {
        assert!(ledger.record(entry(wrong)).is_err(), "{wrong}");
    }
    assert!(ledger.open_hook(visit("a"), Token::new("t").unwrap()).is_err());
    assert_eq!(format!("{ledger:?}"), before);
    assert_eq!(ledger.commit(), None, "and there is nothing to commit");
}

#[test]
fn what_an_operator_asked_for_is_refused_in_words_of_operators() {
    for (before, found) in [(&[][..], "not there"), (&[STARTED, COMPLETED], "a completed step")] {
        let refused = driven(&[before, &[RESOLVED]].concat()).unwrap_err().to_string();
        assert_eq!(refused, format!("a cannot be resolved: it is {found}, and only a step in doubt can be"));
    }
}

#[test]
fn an_uncertain_failure_is_no_occasion_for_another_try() {
    let uncertain = r#"{"stepFailed":{"step":"a","attempt":1,"error":{"kind":"uncertain","message":"no"},"retryAt":500}}"#;
    assert!(matches!(driven(&[STARTED, uncertain]), Err(RefusedEntry::Visit { .. })));
    assert!(driven(&[STARTED, &uncertain.replace(r#","retryAt":500"#, "")]).is_ok());
    let second = FAILED.replace("\"attempt\":1", "\"attempt\":2");
    assert!(
        matches!(driven(&[STARTED, &second]), Err(RefusedEntry::Visit { .. })),
        "of an attempt not begun"
    );
}

#[test]
fn a_label_has_one_result() {
    let sms = Label::new("sms").unwrap();
    assert_eq!(driven(&[ONCE, ONCE]).unwrap_err(), RefusedEntry::Once(sms.clone()));
    assert_eq!(driven(&[ONCE]).unwrap().once("", &sms).unwrap().text(), "1");
}

#[test]
fn a_run_does_not_complete_over_a_doubt() {
    assert_eq!(driven(&[CHARGING, DOUBT, ENDED]).unwrap_err(), RefusedEntry::InDoubt(visit("a")));
    for other in [BROKE, CANCELLED, TIMED_OUT] {
        assert!(driven(&[CHARGING, DOUBT, other]).is_ok(), "{other}");
    }
    assert!(driven(&[CHARGING, DOUBT, RESOLVED, ENDED]).is_ok());
    // The restart forgets it, because a keyed step simply runs again.
    assert!(driven(&[STARTED, DOUBT, BROKE, RESTARTED, CLAIMED, ENDED]).is_ok());
    assert!(matches!(
        driven(&[CHARGING, DOUBT, BROKE, RESTARTED, CLAIMED, ENDED]),
        Err(RefusedEntry::InDoubt(_))
    ));
}

/// Which records are left after a restart.
#[test]
fn a_restart_keeps_what_must_not_be_done_again() {
    let failed_child = CHILD_ENDED.replace(r#"{"completed":7}"#, r#"{"cancelled":"why"}"#);
    let table: [(&[&str], bool, bool); 14] = [
        (&[STARTED, COMPLETED], true, false),
        // Nothing took place, and the restarted run may need it.
        (&[SKIPPED], false, false),
        (&[STARTED, FAILED], false, false),
        (&[STARTED], false, false),
        (&[STARTED, DOUBT], false, false),
        (&[CHARGING], true, true),
        (&[CHARGING, COMPLETED], true, true),
        (&[CHARGING, DOUBT], true, true),
        (&[CHARGING, FAILED], false, false),
        (&[TIMER, FIRED], true, false),
        (&[TIMER], false, false),
        (&[OPENED, RECEIVED], true, false),
        (&[CHILD, CHILD_ENDED], true, false),
        (&[CHILD, &failed_child], false, false),
    ];
    for (before, from_failure, from_beginning) in table {
        for (restart, kept) in [(RESTARTED, from_failure), (ANEW, from_beginning)] {
            let ledger = driven(&[before, &[ONCE, BROKE, restart, CLAIMED]].concat()).unwrap();
            assert_eq!(ledger.record_at(&visit("a")).is_some(), kept, "{before:?} {restart}");
            assert_eq!(ledger.once("", &Label::new("sms").unwrap()).is_some(), restart == RESTARTED);
            assert_eq!((ledger.outcome(), ledger.pause()), (None, None));
        }
    }
}

/// A race at `r`, by what came before it: whether a retry from failure keeps it, and whether a fork does, with the
/// same effect keys and with fresh ones.
#[test]
fn a_race_is_kept_as_long_as_what_decided_it() {
    const GIVEN_UP: &str =
        r#"{"stepResolved":{"step":"a","resolution":{"giveUp":{"kind":"fatal","message":"m"}},"by":"ann"}}"#;
    const BEFORE: &str = r#"{"stepStarted":{"step":"b","attempt":1}}"#;
    const CAUGHT: &str = r#"{"stepFailed":{"step":"b","attempt":1,"error":{"kind":"fatal","message":"no"}}}"#;
    const OTHER: &str = r#"{"hookOpened":{"hook":"h","token":"u"}}"#;
    const DROPPED: &str = r#"{"hookClosed":{"hook":"h"}}"#;
    let failed_child = CHILD_ENDED.replace(r#"{"completed":7}"#, r#"{"cancelled":"why"}"#);
    let table: [(&[&str], [bool; 3]); 11] = [
        (&[STARTED, COMPLETED], [true, true, true]),
        (&[STARTED, FAILED], [false, true, true]),
        (&[OTHER, STARTED, FAILED, DROPPED], [false, true, true]),
        (&[CHARGING, FAILED], [false, true, true]),
        (&[CHARGING, DOUBT, GIVEN_UP], [false, true, true]),
        // Its failure was not why the run failed: the last outcome decided.
        (&[BEFORE, CAUGHT, STARTED, COMPLETED], [true, true, true]),
        (&[BEFORE, CAUGHT, TIMER, FIRED], [true, true, true]),
        (&[BEFORE, CAUGHT, OPENED, RECEIVED], [true, true, true]),
        (&[CONFLICTED], [false, false, false]),
        (&[CHILD, CHILD_ENDED], [true, true, false]),
        (&[CHILD, &failed_child], [false, false, false]),
    ];
    for (before, kept) in table {
        let decided = [before, &[RACE, BROKE]].concat();
        let retried = driven(&[&decided[..], &[RESTARTED, CLAIMED]].concat()).unwrap();
        let forked = |lineage| inherited(&decided, 100, lineage).contains(&format!("[{RACE}]"));
        let found =
            [retried.record_at(&visit("r")).is_some(), forked(Lineage::Inherited), forked(Lineage::Fresh)];
        assert_eq!(found, kept, "{before:?}");
        assert!(
            driven(&[&decided[..], &[ANEW, CLAIMED, RACE]].concat()).is_ok(),
            "{before:?}: it is decided anew"
        );
    }
}

/// Two steps at once in the winner: the one that failed was not the last to end.
#[test]
fn a_race_says_itself_by_which_failure_it_was_decided() {
    let by = r#"{"recorded":{"at":"r","value":0,"failed":"a"}}"#;
    assert_eq!(encode(&[entry(by)]), format!("[{by}]"));
    let ended = &[STARTED, FAILED, ONCE, by, BROKE];
    let retried = driven(&[&ended[..], &[RESTARTED, CLAIMED]].concat()).unwrap();
    assert_eq!(retried.record_at(&visit("r")), None);
    for lineage in [Lineage::Inherited, Lineage::Fresh] {
        assert_eq!(inherited(ended, 100, lineage), listed(&[STARTED, FAILED, ONCE, by]), "the failure, too");
    }
}

#[test]
fn a_race_within_a_race_is_undone_with_it() {
    let inner = r#"{"recorded":{"at":"inner","value":0}}"#;
    let retried = driven(&[STARTED, FAILED, inner, RACE, BROKE, RESTARTED, CLAIMED]).unwrap();
    assert_eq!((retried.record_at(&visit("inner")), retried.record_at(&visit("r"))), (None, None));
}

/// A fork inherits an intent from the whole ledger, including its outcome after the version of the fork.
#[test]
fn a_fork_decides_a_race_anew_if_its_reason_was_taken_back() {
    let retried = &[CHARGING, FAILED, RACE, BROKE, RESTARTED, CLAIMED, CHARGING];
    let charging = listed(&[CHARGING]);
    assert_eq!(inherited(retried, 5, Lineage::Inherited), charging, "it has begun again");
    assert_eq!(inherited(retried, 5, Lineage::Fresh), listed(&[CHARGING, FAILED, RACE]));
}

#[test]
fn a_hook_of_an_earlier_life_may_be_opened_again() {
    let life = &[OPENED, RECEIVED, CLOSED, BROKE, RESTARTED, CLAIMED];
    assert!(driven(&[OPENED, RECEIVED, CLOSED, OPENED]).is_err(), "not in the same one");
    let mut ledger = driven(life).unwrap();
    assert!(ledger.may_reopen(&visit("a")));
    let mut slim = ledger.clone().slim();
    for ledger in [&mut ledger, &mut slim] {
        ledger.open_hook(visit("a"), Token::new("t").unwrap()).unwrap();
    }
    let reopened = |again: &str| driven(&[&life[..], &[again]].concat()).unwrap();
    let Some(VisitRecord::Hook { state, .. }) = reopened(OPENED).record_at(&visit("a")).cloned() else {
        panic!("it is a hook")
    };
    assert_eq!(state, HookState::Open(vec![Payload::of(&5).unwrap()]), "with what it had received");
    assert!(matches!(
        reopened(CONFLICTED).record_at(&visit("a")),
        Some(VisitRecord::Hook { state: HookState::Conflicted(_), .. })
    ));
}

#[test]
fn an_attempt_at_most_once_is_not_followed_by_another_without_a_word_about_it() {
    let next = |class: &str| format!(r#"{{"stepStarted":{{"step":"a","attempt":2,"class":"{class}"}}}}"#);
    for (again, fits) in [(&*next("at-most-once"), false), (STARTED_2, false)] {
        assert_eq!(driven(&[CHARGING, CLAIMED_AGAIN[0], CLAIMED_AGAIN[1], again]).is_ok(), fits, "{again}");
        assert!(driven(&[CHARGING, DOUBT, RESOLVED, again]).is_ok(), "it did not happen: {again}");
        assert!(driven(&[CHARGING, RETRYING, again]).is_ok(), "it has failed: {again}");
    }
    let reconcile = CHARGING.replace("at-most-once", "reconcile");
    assert!(driven(&[&reconcile, &next("reconcile")]).is_ok(), "the provider was asked");
}

fn inherited(entries: &[&str], at: u64, lineage: Lineage) -> Vec<String> {
    let entries: Vec<Entry> =
        [&[CREATED, CLAIMED], entries].concat().iter().map(|json| entry(json)).collect();
    let kept = Ledger::inherited(&header(), &entries, at, lineage).unwrap();
    // Inherited entries can be read after the fork's own first entry.
    let fork = [vec![forked()], kept.clone(), vec![entry(CLAIMED)]].concat();
    Ledger::read(header(), fork).unwrap_or_else(|refused| panic!("{kept:?}: {refused}"));
    kept.iter().map(|entry| encode(std::slice::from_ref(entry))).collect()
}

fn forked() -> Entry {
    let Entry::Created(mut created) = entry(CREATED) else { unreachable!("it is") };
    created.forked_from = Some((created.lineage, 1));
    Entry::Created(created)
}

fn listed(entries: &[&str]) -> Vec<String> {
    entries.iter().map(|json| format!("[{json}]")).collect()
}

#[test]
fn a_fork_inherits_what_is_settled() {
    use Lineage::{Fresh, Inherited};
    let table: [(&[&str], &[&str]); 9] = [
        (&[STARTED, COMPLETED], &[STARTED, COMPLETED]),
        (&[STARTED, FAILED], &[STARTED, FAILED]),
        (&[STARTED, RETRYING], &[]),
        (&[TIMER], &[]),
        (&[TIMER, FIRED], &[TIMER, FIRED]),
        (&[OPENED, RECEIVED], &[]),
        (&[OPENED, RECEIVED, CLOSED], &[OPENED, RECEIVED, CLOSED]),
        (&[CHILD, CHILD_ENDED], &[]),
        (&[ONCE, NOTED, RECORDED, WAITING], &[ONCE, RECORDED]),
    ];
    for (entries, expected) in table {
        for lineage in [Inherited, Fresh] {
            assert_eq!(inherited(entries, 100, lineage), listed(expected), "{entries:?} {lineage:?}");
        }
    }
    assert_eq!(inherited(&[STARTED, COMPLETED, ONCE], 4, Fresh), listed(&[STARTED, COMPLETED]));
    assert_eq!(inherited(&[STARTED, COMPLETED, ONCE], 3, Fresh), listed(&[]), "not settled by then");
}

#[test]
fn a_fork_inherits_intents_with_the_lineage() {
    for (after, at) in
        [(&[COMPLETED][..], 2), (&[COMPLETED], 3), (&[DOUBT], 2), (&[], 2), (&[DOUBT, RESOLVED], 4)]
    {
        let entries = [&[CHARGING], after].concat();
        assert_eq!(inherited(&entries, at, Lineage::Inherited), listed(&entries), "{after:?}");
        assert_eq!(inherited(&entries, at, Lineage::Fresh), listed(&[]), "{after:?}");
    }
}

#[test]
fn a_fork_inherits_the_present_life_only() {
    use Lineage::{Fresh, Inherited};
    let twice = &[STARTED, FAILED, BROKE, RESTARTED, CLAIMED, STARTED, COMPLETED];
    assert_eq!(inherited(twice, 100, Fresh), listed(&[STARTED, COMPLETED]));
    assert_eq!(inherited(twice, 4, Fresh), listed(&[STARTED, FAILED]), "as it was then");
    let charged = &[CHARGING, FAILED, BROKE, RESTARTED, CLAIMED, CHARGING, COMPLETED];
    for at in [2, 4, 100] {
        let kept = inherited(charged, at, Inherited);
        assert_eq!(kept, listed(&[CHARGING, COMPLETED]), "the last outcome, at {at}");
    }
    assert_eq!(inherited(charged, 4, Fresh), listed(&[CHARGING, FAILED]));
    let anew = &[ONCE, STARTED, COMPLETED, BROKE, ANEW, CLAIMED, STARTED, COMPLETED, ONCE];
    assert_eq!(inherited(anew, 100, Fresh), listed(&[STARTED, COMPLETED, ONCE]));
}

#[test]
fn a_commit_carries_what_changes_together() {
    let mut ledger = driven(&[OPENED, r#"{"timerSet":{"timer":"b","at":500}}"#]).unwrap();
    ledger.saw_arrivals(4);
    ledger.record(entry(RECEIVED)).unwrap();
    ledger.record(entry(NOTED)).unwrap();
    ledger.record(entry(CLOSED)).unwrap();
    ledger.record(entry(r#"{"timerFired":{"timer":"b"}}"#)).unwrap();
    ledger.record(entry(WAITING)).unwrap();
    let commit = ledger.commit().unwrap();
    assert_eq!((commit.expected(), commit.count(), commit.run()), (4, 5, header().id()));
    assert_eq!((commit.status, commit.beyond().due, commit.seen), (Status::Waiting, Some(Time(900)), 4));
    let Beyond { not_before, consumed, closed, .. } = commit.beyond();
    assert_eq!((not_before, consumed.as_slice()), (&Some(Time(500)), &[1, 3][..]));
    assert_eq!((closed.as_slice(), commit.outcome()), (&[Token::new("t").unwrap()][..], None));
    assert!(!commit.is_plain() && !commit.is_progress());
    assert_eq!(ledger.commit(), None, "all of it is on its way");
}

#[test]
fn only_a_plain_step_is_progress() {
    let commit = |entries: &[&str]| {
        let mut ledger = driven(&[]).unwrap();
        for json in entries {
            ledger.record(entry(json)).unwrap();
        }
        ledger.commit().unwrap()
    };
    for (entries, plain, progress) in [
        (&[STARTED, COMPLETED][..], true, true),
        (&[ONCE], true, true),
        (&[TIMER], true, true),
        (&[TIMER, FIRED], true, false),
        (&[WAITING], true, false),
        (&[NOTED], false, false),
        (&[ENDED], true, false),
    ] {
        let commit = commit(entries);
        assert_eq!((commit.is_plain(), commit.is_progress()), (plain, progress), "{entries:?}");
        assert_eq!(commit.content, Content::Ready(format!("[{}]", entries.join(","))));
        assert_eq!(commit.count(), entries.len() as u64);
    }
    assert_eq!(commit(&[ENDED]).outcome(), Some(&Outcome::Completed(Payload::null())));
}

#[test]
fn drafts_are_settled_by_the_store() {
    let mut ledger = driven(&[]).unwrap();
    ledger.open_hook(visit("a"), Token::new("t").unwrap()).unwrap();
    let name = |text| Name::new(text).unwrap();
    ledger.start_child(visit("b"), header().id(), name("order"), name("1"), Payload::null()).unwrap();
    assert!(ledger.open_hook(visit("a"), Token::new("u").unwrap()).is_err(), "the path is taken");
    assert!(ledger.record(entry(RECEIVED)).is_err(), "nothing is received before the store has answered");
    ledger.record(entry(WAITING)).unwrap();
    let commit = ledger.commit().unwrap();
    assert_eq!((commit.count(), commit.is_plain()), (3, false));
    let Content::Drafts(drafts) = &commit.content else { panic!("drafts") };
    let child = drafts.iter().find_map(|d| if let Draft::StartChild(child) = d { Some(child) } else { None });
    let child = child.unwrap();
    assert_eq!(child.key.as_str(), ledger.effect_key(&visit("b"), "").to_string());
    let version = ledger.run().state.version;
    ledger.settle(&[entry(OPENED), entry(&CHILD.replace("\"a\"", "\"b\""))]).unwrap();
    assert_eq!(ledger.run().state.version, version, "they were counted when they were asked for");
    assert_eq!(VisitRecord::describe(ledger.record_at(&visit("a"))), "an open hook");
    assert_eq!(VisitRecord::describe(ledger.record_at(&visit("b"))), "a child that has not ended");
}

#[test]
fn a_token_is_closed_with_its_last_hook() {
    let closes = |ledger: &mut Ledger, hook: &str| {
        ledger.record(entry(&CLOSED.replace("\"a\"", &format!("\"{hook}\"")))).unwrap();
        ledger.commit().unwrap().beyond().closed.len()
    };
    let mut ledger = driven(&[OPENED, &OPENED.replace("\"a\"", "\"b\"")]).unwrap();
    assert_eq!((closes(&mut ledger, "b"), closes(&mut ledger, "a")), (0, 1));
    // A token that another run owns was never held.
    let mut ledger = driven(&[OPENED, &CONFLICTED.replace("\"a\"", "\"b\"")]).unwrap();
    assert_eq!(closes(&mut ledger, "a"), 1);
    // A hook that is being opened holds its token too.
    let mut ledger = driven(&[OPENED]).unwrap();
    ledger.open_hook(visit("b"), Token::new("t").unwrap()).unwrap();
    assert_eq!(closes(&mut ledger, "a"), 0);
}

#[test]
fn a_pause_has_its_reason_until_it_ends() {
    let doubt = r#"{"paused":{"reason":"inDoubt"}}"#;
    assert_eq!(driven(&[doubt]).unwrap().pause(), Some(&PauseReason::InDoubt));
    for end in [RESUMED, CANCELLED] {
        assert_eq!(driven(&[doubt, end]).unwrap().pause(), None, "{end}");
    }
}

#[test]
fn a_hook_of_an_earlier_life_is_opened_again_with_what_it_had_received() {
    let mut ledger = driven(&[OPENED, RECEIVED, BROKE, RESTARTED, CLAIMED]).unwrap();
    let state = |ledger: &Ledger| match ledger.record_at(&visit("a")) {
        Some(VisitRecord::Hook { state, .. }) => format!("{state:?}"),
        other => panic!("{other:?}"),
    };
    assert_eq!(state(&ledger), "Released([5])");
    ledger.open_hook(visit("a"), Token::new("t").unwrap()).unwrap();
    assert_eq!(state(&ledger), "Opening([5])");
    drop(ledger.commit().unwrap());
    ledger.settle(&[entry(OPENED)]).unwrap();
    assert_eq!(state(&ledger), "Open([5])");
    ledger.record(Entry::HookClosed { hook: visit("a") }).unwrap();
    assert_eq!(state(&ledger), "Closed([5])");
    assert_eq!(
        ledger.commit().unwrap().beyond().closed,
        [Token::new("t").unwrap()],
        "the token is held once only"
    );
}

#[test]
fn a_slim_ledger_takes_and_refuses_the_same_entries() {
    let entry = |text: &str| decode(&format!("[{text}]")).unwrap().remove(0);
    let entries: Vec<Entry> = GOLDEN.iter().map(|text| entry(text)).collect();
    let begin = || vec![entry(CREATED), entry(CLAIMED)];
    let mut taken = 0;
    for one in &entries {
        for two in &entries {
            let before = [begin(), vec![one.clone(), two.clone()]].concat();
            let Ok(whole) = Ledger::read(run(Status::Pending), before) else { continue };
            let slim = whole.clone().slim();
            for next in &entries {
                let (mut whole, mut slim) = (whole.clone(), slim.clone());
                let answers = [&mut whole, &mut slim].map(|ledger| ledger.record(next.clone()).is_ok());
                assert_eq!(answers[0], answers[1], "{next:?} after {one:?}, {two:?}");
                assert_eq!(whole.commit(), slim.commit(), "with its value: {next:?}");
                assert_eq!(whole.run(), slim.run());
                taken += usize::from(answers[0]);
            }
            let (mut whole, mut slim) = (whole, slim);
            let asked = |ledger: &mut Ledger| {
                ledger.open_hook(Visit::parse("a").unwrap(), Token::new("u").unwrap()).is_ok()
            };
            assert_eq!(asked(&mut whole), asked(&mut slim), "a hook after {one:?}, {two:?}");
        }
    }
    assert!(taken > 500, "{taken}");
}

#[test]
fn a_slim_ledger_has_room_for_many_steps() {
    let step = |n: usize| {
        let text = format!(
            r#"[{{"stepStarted":{{"step":"s{n}","attempt":1}}}},{{"stepCompleted":{{"step":"s{n}","value":"{}"}}}}]"#,
            "x".repeat(1_000)
        );
        decode(&text).unwrap()
    };
    let begin = [CREATED, CLAIMED].map(|text| decode(&format!("[{text}]")).unwrap()).concat();
    let mut slim = Ledger::read(run(Status::Pending), begin).unwrap().slim();
    for entry in (0..1_000).flat_map(step) {
        slim.record(entry).unwrap();
        slim.commit().unwrap();
    }
    assert!(slim.weight() < 50 * 1_000, "{}", slim.weight());
    assert_eq!(slim.records().count(), 0);
    assert!(slim.record(step(7).remove(0)).is_err(), "each step once");
}
