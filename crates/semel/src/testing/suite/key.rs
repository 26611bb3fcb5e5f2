//! Lists of keys: who holds them, and who has lost them.

use super::world::{STRANGER, WORKSPACE, World, key};
use crate::rules::control::ControlAction;
use crate::rules::key::Scope;
use crate::rules::run::Run;
use crate::rules::start::Start;
use crate::store::{KeyPage, KeyPrefix, KeyQuery};

promises![
    keys_are_listed_by_their_beginning,
    a_key_is_listed_with_the_runs_that_have_lost_it,
    keys_come_in_pages_without_gap_or_repetition,
];

fn query(prefix: &str) -> KeyQuery {
    let scope = Scope::parse("*").expect("a scope");
    let keys = KeyPrefix { scope, prefix: prefix.to_owned() };
    KeyQuery { workspace: WORKSPACE, keys, after: None, limit: 100 }
}

async fn page(world: &World, query: KeyQuery) -> KeyPage {
    world.store().keys(query).await.expect("a listing is always possible")
}

fn keys(page: &KeyPage) -> Vec<&str> {
    page.runs.iter().map(|run| run.new.key.as_str()).collect()
}

async fn keys_are_listed_by_their_beginning(world: World) {
    for text in ["order-2", "order-1", "order", "other", "p%"] {
        world.start(text).await;
    }
    world.begin(Start { workspace: STRANGER, ..world.request("order-3") }).await;
    for (prefix, expected) in [
        ("", vec!["order", "order-1", "order-2", "other", "p%"]),
        ("order", vec!["order", "order-1", "order-2"]),
        ("order-", vec!["order-1", "order-2"]),
        ("p%", vec!["p%"]),
        ("q", vec![]),
    ] {
        let page = page(&world, query(prefix)).await;
        assert_eq!((keys(&page), &page.next), (expected, &None), "{prefix:?}");
    }
}

async fn a_key_is_listed_with_the_runs_that_have_lost_it(world: World) {
    let mut runs = Vec::new();
    for _ in 0..3 {
        let run = world.start("k").await.run.id();
        world.control(run, ControlAction::ReleaseKey).await.expect("a key can be released");
        runs.insert(0, run);
    }
    let lost = page(&world, query("k")).await;
    assert_eq!(lost.runs.iter().map(Run::id).collect::<Vec<_>>(), runs, "the latest first");
    assert!(lost.runs.iter().all(|run| !run.state.holds_key));
    let holder = world.start("k").await.run.id();
    runs.insert(0, holder);
    let all = page(&world, query("k")).await;
    assert_eq!(all.runs.iter().map(Run::id).collect::<Vec<_>>(), runs, "the holder comes first");
    assert!(all.runs[0].state.holds_key);
}

async fn keys_come_in_pages_without_gap_or_repetition(world: World) {
    for n in 0..6 {
        for _ in 0..n % 3 {
            let run = world.start(&format!("k{n}")).await.run.id();
            world.control(run, ControlAction::ReleaseKey).await.expect("a key can be released");
        }
        if n != 4 {
            world.start(&format!("k{n}")).await;
        }
    }
    let whole = page(&world, query("")).await;
    assert_eq!(whole.next, None);
    for limit in 3..8 {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = page(&world, KeyQuery { after, limit, ..query("") }).await;
            assert!(page.runs.len() <= limit);
            found.extend(page.runs);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, whole.runs, "{limit}");
    }
    let behind = KeyQuery { after: Some(key("k3")), ..query("k") };
    assert!(keys(&page(&world, behind).await).iter().all(|key| *key > "k3"));
}
