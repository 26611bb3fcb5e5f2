//! The visits of one execution.

use super::*;
use crate::rules::path::InvalidPath;

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

#[test]
fn a_second_visit_is_an_error_unless_counted() {
    let mut ledger = driven(&[]).unwrap();
    ledger.begin();
    assert_eq!(ledger.visit_once(path("pay")), Ok(Visit::first(path("pay"))));
    assert_eq!(ledger.visit_once(path("pay")), Err(InvalidPath::DuplicateStep(path("pay"))));
    assert_eq!(ledger.visit_counted(path("turn")).to_string(), "turn");
    assert_eq!(ledger.visit_counted(path("turn")).to_string(), "turn#2");
    assert_eq!(ledger.visit_once(path("turn")), Err(InvalidPath::DuplicateStep(path("turn"))));
    let third = ledger.visit_counted(path("turn")).to_string();
    assert_eq!(third, "turn#3", "a visit that was refused does not count, nor undo any");
    assert_eq!(
        ledger.visit_counted(path("pay")).to_string(),
        "pay#2",
        "the one that was not counted was the first"
    );
    assert_eq!(ledger.records().count(), 0, "a visit records nothing");
}

#[test]
fn an_execution_visits_what_is_recorded_once() {
    let mut ledger = driven(&[STARTED, COMPLETED]).unwrap();
    for _ in 0..2 {
        // Each execution begins without visits.
        ledger.begin();
        let a = Visit::first(path("a"));
        assert_eq!((ledger.unvisited(), ledger.missing()), (1, vec![a.clone()]));
        assert!(!ledger.has_visited(&a));
        assert_eq!(ledger.visit_once(path("new")), Ok(Visit::first(path("new"))));
        assert_eq!(ledger.visit_once(path("a")), Ok(a.clone()));
        assert!(ledger.has_visited(&a));
        assert_eq!((ledger.unvisited(), ledger.missing()), (0, Vec::new()));
        assert_eq!(ledger.visit_once(path("a")), Err(InvalidPath::DuplicateStep(path("a"))));
        assert_eq!(ledger.records().count(), 1);
    }
}

#[test]
fn what_is_carried_over_may_be_visited_once_and_is_not_missing() {
    let mut ledger = driven(&[STARTED, COMPLETED, BROKE, RESTARTED, CLAIMED]).unwrap();
    ledger.begin();
    assert_eq!((ledger.unvisited(), ledger.missing()), (0, Vec::new()));
    assert_eq!(ledger.visit_once(path("a")), Ok(Visit::first(path("a"))));
    assert_eq!(ledger.unvisited(), 0);
    assert_eq!(ledger.visit_once(path("a")), Err(InvalidPath::DuplicateStep(path("a"))));
}

#[test]
fn what_is_carried_over_need_not_be_visited_again() {
    let to_visit = |entries: &[&str]| {
        let mut ledger = driven(entries).unwrap();
        ledger.begin();
        ledger.unvisited()
    };
    assert_eq!(to_visit(&[STARTED, COMPLETED]), 1);
    let carried = [STARTED, COMPLETED, BROKE, RESTARTED, CLAIMED];
    assert_eq!(to_visit(&carried), 0);
    let [started, completed] = [STARTED, COMPLETED].map(|entry| entry.replace(r#""a""#, r#""b""#));
    assert_eq!(to_visit(&[&carried[..], &[&started, &completed]].concat()), 1, "what this life has done is");
}
