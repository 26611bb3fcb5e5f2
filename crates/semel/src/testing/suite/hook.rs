//! Lists of open hooks: their orders, prefixes and pages.

use super::world::{STRANGER, WORKSPACE, World, token};
use crate::store::{Capped, HookOrder, HookPage, HookQuery};

promises![
    hooks_are_listed_by_token_and_by_age,
    hooks_come_in_pages_without_gap_or_repetition,
    a_hook_shows_where_it_was_opened_and_what_is_delivered,
    a_hook_that_is_closed_or_whose_run_has_ended_is_not_listed,
];

fn query(order: HookOrder) -> HookQuery {
    HookQuery { workspace: WORKSPACE, prefix: String::new(), order, after: None, limit: 100 }
}

async fn page(world: &World, query: HookQuery) -> HookPage {
    world.store().hooks(query).await.expect("a listing is always possible")
}

fn tokens(page: &HookPage) -> Vec<String> {
    page.hooks.iter().map(|hook| hook.token.to_string()).collect()
}

async fn hooks_are_listed_by_token_and_by_age(world: World) {
    for text in ["b:2", "a:1", "b:1", "c%"] {
        world.driven(text).await.open(text).await;
        world.pass(5);
    }
    let theirs = HookQuery { workspace: STRANGER, ..query(HookOrder::Token) };
    assert_eq!(page(&world, theirs).await, HookPage::default());
    assert_eq!(tokens(&page(&world, query(HookOrder::Token)).await), ["a:1", "b:1", "b:2", "c%"]);
    assert_eq!(tokens(&page(&world, query(HookOrder::Age)).await), ["b:2", "a:1", "b:1", "c%"]);
    let begins = |prefix: &str| HookQuery { prefix: prefix.to_owned(), ..query(HookOrder::Token) };
    assert_eq!(tokens(&page(&world, begins("b:")).await), ["b:1", "b:2"]);
    assert_eq!(tokens(&page(&world, begins("c%")).await), ["c%"]);
    assert_eq!(page(&world, begins("d")).await, HookPage::default());
}

async fn hooks_come_in_pages_without_gap_or_repetition(world: World) {
    // Some are opened at the same time.
    for n in 0..7 {
        let text = format!("t{}", (n * 3) % 7);
        world.driven(&text).await.open(&text).await;
        world.pass(n % 2);
    }
    for order in [HookOrder::Token, HookOrder::Age] {
        let whole = tokens(&page(&world, query(order)).await);
        assert_eq!(whole.len(), 7);
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = page(&world, HookQuery { after, limit: 2, ..query(order) }).await;
            found.extend(tokens(&page));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, whole, "{order:?}");
        assert_eq!(page(&world, HookQuery { limit: 0, ..query(order) }).await, HookPage::default());
    }
}

async fn a_hook_shows_where_it_was_opened_and_what_is_delivered(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("one \"two\"").await;
    driver.open("one").await;
    let opened = world.now();
    world.pass(10);
    for _ in 0..3 {
        world.deliver("one", "1").await;
    }
    let shown = page(&world, query(HookOrder::Token)).await;
    assert_eq!(tokens(&shown), ["one", "one \"two\""]);
    let [one, two] = &shown.hooks[..] else { panic!("two hooks") };
    assert_eq!((one.run.id(), one.opened), (driver.id(), opened));
    assert!(one.visit.is_some() && one.visit != two.visit);
    assert_eq!(one.deliveries, Capped { count: 3, more: false });
    assert_eq!(two.deliveries, Capped { count: 0, more: false });
    for _ in 0..120 {
        world.deliver("one \"two\"", "2").await;
    }
    let shown = page(&world, query(HookOrder::Token)).await;
    assert_eq!(shown.hooks[0].deliveries, Capped { count: 3, more: true });
    assert_eq!(shown.hooks[1].deliveries, Capped { count: 97, more: true });
    assert_eq!(shown.hooks[0].token, token("one"));
}

async fn a_hook_that_is_closed_or_whose_run_has_ended_is_not_listed(world: World) {
    let mut closes = world.driven("closes").await;
    closes.open("closed").await;
    closes.close("closed").await;
    let mut ends = world.driven("ends").await;
    ends.open("ended").await;
    ends.complete("1").await;
    assert_eq!(page(&world, query(HookOrder::Age)).await, HookPage::default());
}
