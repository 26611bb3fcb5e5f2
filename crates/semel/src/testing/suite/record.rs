//! Records: small documents whose version guards their writes.

use std::time::Duration;

use super::world::{World, code, name, payload};
use crate::error::Result;
use crate::rules::key::RecordId;
use crate::rules::record::{Keep, Look, LookBy, Record};

promises![
    a_record_is_created_if_it_is_not_there,
    a_record_is_changed_by_who_has_seen_its_version,
    a_record_is_written_over_if_no_version_is_expected,
    a_repeated_write_of_a_record_is_one_write,
    records_are_listed_in_the_order_of_their_ids_both_ways,
    kinds_of_records_do_not_meet,
    an_expired_record_is_gone_before_the_sweep,
    an_expired_record_is_removed_by_the_sweep,
    records_are_there_after_reopening,
];

pub(super) fn keep(id: &str, body: &str, expected: Option<u64>) -> Keep {
    Keep { kind: name("thing"), id: self::id(id), body: payload(body), expected, ttl: None }
}

fn brief(id: &str, millis: u64) -> Keep {
    Keep { ttl: Some(Duration::from_millis(millis)), ..keep(id, "1", None) }
}

fn id(text: &str) -> RecordId {
    RecordId::new(text).expect("cases use proper ids")
}

async fn write(world: &World, keep: Keep) -> Result<Record> {
    world.store().keep(keep).await
}

pub(super) async fn look(world: &World, by: LookBy) -> Vec<Record> {
    world.store().records(Look { kind: name("thing"), by }).await.expect("a look is always possible")
}

async fn find(world: &World, text: &str) -> Option<Record> {
    let mut found = look(world, LookBy::Id(id(text))).await;
    assert!(found.len() <= 1, "an id is unique: {found:?}");
    found.pop()
}

async fn page(world: &World, after: Option<&str>, limit: usize, newest_first: bool) -> Vec<String> {
    let page = LookBy::Page { after: after.map(id), limit, newest_first };
    look(world, page).await.into_iter().map(|record| record.id.to_string()).collect()
}

async fn a_record_is_created_if_it_is_not_there(world: World) {
    assert_eq!(find(&world, "a").await, None);
    let written = write(&world, keep("a", r#"{"n":1}"#, Some(0))).await.expect("there is none");
    let Keep { kind, id, body, .. } = keep("a", r#"{"n":1}"#, None);
    assert_eq!(written, Record { kind, id, version: 1, body, at: world.now(), expires: None });
    assert_eq!(find(&world, "a").await, Some(written.clone()));
    assert_eq!(code(write(&world, keep("a", "2", Some(0))).await), "CONCURRENCY_ERROR");
    assert_eq!(find(&world, "a").await, Some(written));
}

async fn a_record_is_changed_by_who_has_seen_its_version(world: World) {
    assert_eq!(code(write(&world, keep("a", "1", Some(1))).await), "CONCURRENCY_ERROR", "there is none");
    write(&world, keep("a", "1", Some(0))).await.expect("there is none");
    world.pass(5);
    let second = write(&world, keep("a", "2", Some(1))).await.expect("seen");
    assert_eq!((second.version, second.at), (2, world.now()));
    for stale in [0, 1, 3, u64::MAX] {
        let refused = write(&world, keep("a", "3", Some(stale))).await.expect_err("not what is there");
        assert_eq!(refused.code(), "CONCURRENCY_ERROR");
        assert!(refused.to_string().contains("thing a"), "it says which: {refused}");
    }
    assert_eq!(find(&world, "a").await, Some(second));
}

async fn a_record_is_written_over_if_no_version_is_expected(world: World) {
    for n in 1..4 {
        let written = write(&world, keep("a", &n.to_string(), None)).await.expect("whatever is there");
        assert_eq!((written.version, written.body.text()), (n, n.to_string().as_str()));
    }
}

async fn a_repeated_write_of_a_record_is_one_write(world: World) {
    let mut versions = Vec::new();
    for expected in [0, 0, 1, 1] {
        world.pass(5);
        let body = format!("{{\"after\":{expected}}}");
        versions.push(write(&world, keep("a", &body, Some(expected))).await.expect("the same again").version);
    }
    assert_eq!(versions, [1, 1, 2, 2]);
}

async fn records_are_listed_in_the_order_of_their_ids_both_ways(world: World) {
    // The order is that of the bytes, whatever a language says.
    let ids = ["0", "9", "A", "Z", "a", "a b", "ab", "b", "ß", "ä", "日本", "🦀"];
    for n in [3, 7, 1, 11, 5, 9, 0, 2, 4, 6, 8, 10] {
        write(&world, keep(ids[n], "1", Some(0))).await.expect("there is none");
    }
    let down: Vec<_> = ids.iter().rev().copied().collect();
    for (newest_first, wanted) in [(false, ids.to_vec()), (true, down)] {
        assert_eq!(page(&world, None, 100, newest_first).await, wanted);
        for limit in [1, 2, 5, 12] {
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let some = page(&world, after.as_deref(), limit, newest_first).await;
                assert!(some.len() <= limit, "{some:?}");
                let Some(last) = some.last() else { break };
                after = Some(last.clone());
                seen.extend(some);
            }
            assert_eq!(seen, wanted, "in pages of {limit}");
        }
        assert_eq!(
            page(&world, Some("aa"), 1, newest_first).await.len(),
            1,
            "what is not there is a place too"
        );
        assert_eq!(page(&world, None, 0, newest_first).await, [""; 0]);
    }
}

async fn kinds_of_records_do_not_meet(world: World) {
    let other = |id| Keep { kind: name("thing-a"), ..keep(id, "2", Some(0)) };
    write(&world, keep("a", "1", Some(0))).await.expect("there is none");
    for id in ["a", "b"] {
        write(&world, other(id)).await.expect("there is none");
    }
    assert_eq!(page(&world, None, 10, false).await, ["a"]);
    assert_eq!(find(&world, "b").await, None);
    assert_eq!(find(&world, "a").await.map(|record| record.body), Some(payload("1")));
}

async fn an_expired_record_is_gone_before_the_sweep(world: World) {
    let written = write(&world, brief("a", 10)).await.expect("whatever is there");
    assert_eq!(written.expires, Some(world.after(10)));
    write(&world, keep("b", "1", None)).await.expect("whatever is there");
    world.pass(9);
    assert_eq!(page(&world, None, 1, false).await, ["a"]);
    assert_eq!(code(write(&world, keep("a", "2", Some(0))).await), "CONCURRENCY_ERROR");
    world.pass(1);
    assert_eq!(find(&world, "a").await, None);
    assert_eq!(page(&world, None, 1, false).await, ["b"], "it takes no place on a page");
    assert_eq!(code(write(&world, keep("a", "2", Some(1))).await), "CONCURRENCY_ERROR");
    let again = write(&world, keep("a", "2", Some(0))).await.expect("it is gone");
    assert_eq!((again.version, again.expires), (1, None));
    assert_eq!(world.sweep(10).await.records, 0, "what has come back stays");
    assert_eq!(find(&world, "a").await, Some(again));
}

async fn an_expired_record_is_removed_by_the_sweep(world: World) {
    for n in 0..5 {
        write(&world, brief(&n.to_string(), n * 10)).await.expect("whatever is there");
    }
    write(&world, keep("for ever", "1", None)).await.expect("whatever is there");
    world.pass(30);
    let first = world.sweep(3).await;
    assert_eq!((first.records, first.more), (3, true), "a bounded amount at a time");
    let second = world.sweep(3).await;
    assert_eq!((second.records, second.more), (1, false));
    assert_eq!(world.sweep(3).await.records, 0);
    assert_eq!(page(&world, None, 10, false).await, ["4", "for ever"]);
}

async fn records_are_there_after_reopening(mut world: World) {
    let kept = write(&world, keep("a", r#"{"amount":9007199254740993}"#, None)).await;
    let brief = write(&world, brief("b", 10)).await.expect("whatever is there");
    world.reopen().await;
    assert_eq!(find(&world, "a").await, kept.ok());
    assert_eq!(find(&world, "b").await, Some(brief));
    assert_eq!(code(write(&world, keep("a", "2", Some(0))).await), "CONCURRENCY_ERROR");
    world.pass(10);
    world.reopen().await;
    assert_eq!(page(&world, None, 10, true).await, ["a"]);
}
