//! `http` and `webhook` of an owner that has lost its run: its request, or the answer to it, comes through when another owner has gone on.

use std::collections::BTreeMap;

use libtest_mimic::Trial;
use semel::rules::entry::Outcome;
use serde_json::json;

use super::play::configured;
use super::provider::Account;
use crate::databases::site::{Fixed, TESTED};
use crate::overtaken::{HeldLine, HeldPart, Hold, Overtaken, Route, overtaken};

const POST: &str = "http: {on: other, post: /charge, json: {n: 1}}, retry: {first: 10ms}";
const BY_KEY: &str = "by = 'key', header = 'Idempotency-Key', window";
const SEARCH: &str = "find = { get = '/found?reference={{ effect.key }}' }, found = '{{ body.items }}'";

/// What stands on the other side, and what is known about it.
struct ZombieCase {
    name: &'static str,
    /// Part of the provider's account.
    account: &'static str,
    /// Kind, and further members of the connection.
    connection: String,
    step: &'static str,
    /// What may be held. A request that is late is unknown to a look-up, which is why the look-up waits: no test can.
    parts: &'static [HeldPart],
    /// Whether it is in doubt.
    is_doubted: bool,
}

fn cases() -> [ZombieCase; 5] {
    let (both, http) = (&[HeldPart::Request, HeldPart::Answer], "kind = 'http'\nprofile =");
    let case = |name, account, connection, is_doubted| ZombieCase {
        name,
        account,
        connection,
        step: POST,
        parts: both,
        is_doubted,
    };
    [
        case("a_write_by_key", "keyed", format!("{http} {{ {BY_KEY} = 'for-ever' }}"), false),
        case("a_write_by_key_with_a_window", "keyed", format!("{http} {{ {BY_KEY} = '24h' }}"), false),
        case("a_write_by_nothing", "plain", format!("{http} {{ by = 'nothing' }}"), true),
        ZombieCase {
            parts: &[HeldPart::Answer],
            ..case(
                "a_write_by_look_up",
                "searched",
                format!("{http} {{ by = 'look-up', put = {{ json = '/reference' }}, {SEARCH} }}"),
                false,
            )
        },
        ZombieCase {
            step: "webhook: {on: other, path: /charge, type: paid, data: 1}, retry: {first: 10ms}",
            ..case("a_webhook", "notices", "kind = 'webhook'\nsecret = { env = 'SECRET' }".to_owned(), false)
        },
    ]
}

pub(super) fn trials() -> Vec<Trial> {
    let trial = |case: ZombieCase| {
        Trial::test(format!("tasks::{}_of_a_zombie_takes_place_once", case.name), move || {
            for part in case.parts {
                crate::world::runtime().block_on(once(&case, *part));
            }
            Ok(())
        })
    };
    cases().into_iter().map(trial).collect()
}

async fn once(case: &ZombieCase, part: HeldPart) {
    let account = Account::open(false);
    let address = account.address(case.account);
    let (host, path) = address.trim_start_matches("http://").split_once('/').expect("an address has a path");
    let line = HeldLine::to(host, Hold { marker: "POST /", part }).await;
    let steps = format!("steps: [{{name: charge, {}}}]", case.step);
    let build = |builder: semel::engine::Builder, route| {
        let host = if route == Route::Held { line.address() } else { host.to_owned() };
        let member = if case.account == "notices" { "url" } else { "base" };
        let text = format!("[connections.other]\n{member} = 'http://{host}/{path}'\n{}", case.connection);
        builder.state(configured(&text)).programs(Fixed::new(&steps))
    };
    let happened = || (!account.done().is_empty()).then(|| json!({"status": 200}));
    let Overtaken { outcome, doubt } = overtaken(&line, TESTED, build, happened).await;
    assert!(matches!(outcome, Outcome::Completed(_)), "{} {part:?}: {outcome:?}", case.name);
    assert_eq!(doubt.is_some(), case.is_doubted, "{} {part:?}", case.name);
    let expected = BTreeMap::from([(format!("/{}/charge", case.account), 1)]);
    assert_eq!(account.all_times(), expected, "{} {part:?}", case.name);
}
