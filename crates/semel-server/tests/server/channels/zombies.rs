//! Mails of an owner that has lost its run, by SMTP and by a provider that is searched: a mail, or the answer to it, comes through when
//! another owner has gone on.

use std::collections::HashSet;
use std::sync::Arc;

use semel::clock::SystemClock;
use semel::engine::Builder;
use semel::rules::entry::Outcome;
use semel::store::memory::MemoryStore;
use serde_json::json;

use super::connections;
use super::provider::{Manner, Provider};
use super::sink::Sink;
use crate::databases::site::{Fixed, TESTED};
use crate::overtaken::{HeldLine, HeldPart, Hold, Overtaken, Route, overtaken};

pub(super) const TESTS: &[(&str, fn())] = &[
    ("a_mail_of_a_zombie_is_in_doubt_and_accepted_once", at_most_once),
    ("a_mail_of_a_zombie_has_the_id_of_the_next_one", repeated),
    ("a_mail_of_a_zombie_is_found_by_the_look_up", looked_up),
];

const STEPS: &str = "steps:
  - {name: thanks, retry: {first: 10ms}, mail: {on: post, from: shop@example.com, to: ann@example.com, subject: Hi, text: Hello}}";

/// What the engines are given: a configuration in which the port of the other side is that of the line.
fn build<'a>(config: &'a str, port: u16, line: &'a HeldLine) -> impl Fn(Builder, Route) -> Builder + 'a {
    move |builder, route| {
        let held = line.address();
        let (_, near) = held.rsplit_once(':').expect("an address has a port");
        let config = match route {
            Route::Held => config.replace(&port.to_string(), near),
            Route::Direct => config.to_owned(),
        };
        let store = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
        builder.state(connections(&config, store)).programs(Fixed::new(STEPS))
    }
}

/// The end of the mail is held, or the answer to it.
async fn mailed(sink: &Sink, more: &str, part: HeldPart) -> Overtaken {
    sink.plan(&[]);
    let (config, port) = (sink.config(more), sink.port());
    let line = HeldLine::to(&format!("127.0.0.1:{port}"), Hold { marker: "\r\n.\r\n", part }).await;
    let happened = || (!sink.accepted().is_empty()).then(|| json!({"id": "seen"}));
    let ended = overtaken(&line, TESTED, build(&config, port, &line), happened).await;
    assert!(matches!(ended.outcome, Outcome::Completed(_)), "{part:?}: {:?}", ended.outcome);
    ended
}

fn at_most_once() {
    let sink = Sink::start();
    for part in [HeldPart::Request, HeldPart::Answer] {
        let ended = crate::world::runtime().block_on(mailed(&sink, "", part));
        assert_eq!(ended.doubt.as_deref(), Some("thanks"), "{part:?}");
        assert_eq!(sink.accepted().len(), 1, "{part:?}");
    }
}

fn repeated() {
    let sink = Sink::start();
    for part in [HeldPart::Request, HeldPart::Answer] {
        let ended = crate::world::runtime().block_on(mailed(&sink, "repeat = 'message-id'", part));
        assert_eq!(ended.doubt, None, "{part:?}");
        // The receiving side drops the second one by its id.
        let ids: HashSet<String> = sink.accepted().into_iter().map(|mail| mail.id).collect();
        assert_eq!((sink.accepted().len(), ids.len()), (2, 1), "{part:?}");
    }
}

/// Only the answer is held: a request that is late is not known to the search, which is what `settle` is for.
fn looked_up() {
    let provider = Provider::start(Manner::Searched("/Metadata/semel"));
    let (config, port) = (provider.config("postmark"), provider.port());
    let ended = crate::world::runtime().block_on(async {
        let hold = Hold { marker: "POST /", part: HeldPart::Answer };
        let line = HeldLine::to(&format!("127.0.0.1:{port}"), hold).await;
        overtaken(&line, TESTED, build(&config, port, &line), || None).await
    });
    assert!(matches!(ended.outcome, Outcome::Completed(_)), "{:?}", ended.outcome);
    assert_eq!((ended.doubt, provider.desk().delivered.len()), (None, 1));
}
