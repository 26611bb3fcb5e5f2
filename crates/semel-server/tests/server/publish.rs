//! `publish` with real brokers: each message is in its stream once, whatever dies, breaks or is forgotten; or the step is in doubt.

#![expect(clippy::unwrap_used, reason = "a test that fails by unwrap says where")]

pub(crate) mod place;
mod relay;
mod zombies;

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::engine::{Code, Programs};
use semel::id::WorkspaceId;
use semel::rules::entry::{Outcome, Resolution};
use semel::rules::family::Family;
use semel::rules::path::Name;
use semel::sabotage::{Bug, VARIABLE};
use semel::testing::{Crasher, Ended, Moment, Scene};
use semel::{Engine, WorkflowRef};
use semel_server::definitions::check::check;
use semel_server::definitions::interpret::code_of;
use semel_server::definitions::language::Definition;
use serde_json::{Value as Json, json};

use self::place::{Broker, Place};
use self::relay::{Relay, Trouble};

/// A test that is made with each broker.
type NamedTest = (&'static str, fn(Broker));

const BROKERS: [Broker; 2] = [Broker::Nats, Broker::Redis];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let each: [NamedTest; 8] = [
        ("every_boundary_puts_one_message", every_boundary),
        ("an_answer_that_is_lost_is_asked_for_again", |broker| lost(broker, Trouble::LoseAnswer)),
        ("a_request_that_is_lost_is_sent_again", |broker| lost(broker, Trouble::LoseRequest)),
        ("an_answer_that_is_lost_last_is_found", found_at_last),
        ("a_request_that_is_lost_last_has_failed", absent_at_last),
        ("what_is_refused_has_failed_for_certain", refused),
        ("a_message_has_its_headers_and_its_data", carried),
        ("a_zombie_puts_nothing", zombies::put_nothing),
    ];
    for broker in BROKERS {
        for (name, test) in each {
            trials.push(trial(format!("publish::{broker:?}::{name}").to_lowercase(), move || test(broker)));
        }
        let killers: [NamedTest; 2] = [
            ("one_that_is_killed_between_has_one_message", killed_between),
            ("one_that_is_killed_meanwhile_has_all_messages", killed_meanwhile),
        ];
        for (name, test) in killers {
            trials.push(alone(format!("publish::{broker:?}::{name}").to_lowercase(), move || test(broker)));
        }
    }
    trials
        .push(trial("publish::nats::beyond_the_window_the_stream_is_searched".to_owned(), beyond_the_window));
    trials.push(trial("publish::nats::a_stream_that_was_purged_leaves_a_doubt".to_owned(), purged));
    trials.push(trial("publish::redis::beyond_the_window_a_doubt_is_visible".to_owned(), forgotten_marker));
    trials.push(trial("publish::at_most_once_is_in_doubt_without_an_answer".to_owned(), at_most_once));
    trials.push(trial("publish::a_check_of_a_connection_tells_what_is_there".to_owned(), checked));
    for (bug, test) in [
        (Bug::WindowIgnored, "publish::nats::beyond_the_window_the_stream_is_searched"),
        (Bug::SearchIsSkipped, "publish::nats::beyond_the_window_the_stream_is_searched"),
        (Bug::MarkerIsNotSet, "publish::redis::every_boundary_puts_one_message"),
    ] {
        trials.push(trial(format!("publish::the_bug_{}_is_found", bug.name()), move || found(bug, test)));
    }
    trials
}

pub(crate) fn trial(name: String, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        let _together = ALONE.read().unwrap_or_else(PoisonError::into_inner);
        test();
        Ok::<(), Failed>(())
    })
}

/// A test that kills a broker is alone with it.
pub(crate) fn alone(name: String, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        let _alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
        test();
        Ok::<(), Failed>(())
    })
}

static ALONE: RwLock<()> = RwLock::new(());

/// One definition, for every version of its family.
pub(crate) struct PublishProgram(Arc<Definition>);

impl Programs for PublishProgram {
    fn families(&self) -> Vec<Family> {
        vec![Family::new("def1_").unwrap()]
    }

    fn code(&self, _: WorkspaceId, _: &Name, _: &Name) -> Option<Code> {
        Some(code_of(self.0.clone()))
    }
}

pub(crate) const TESTED: WorkflowRef<Json, Json> = WorkflowRef::new("tested").version("def1_tested");

pub(crate) fn program(steps: &str) -> PublishProgram {
    let text = format!("semel: 1\nname: tested\nsteps:\n{steps}");
    let accepted = check(&text).unwrap_or_else(|problems| panic!("{problems:#?}\n{text}"));
    PublishProgram(Arc::new(accepted.definition))
}

/// A step that puts a message into the place, and what else it has.
pub(crate) fn step(name: &str, place: &Place, more: &str) -> String {
    let into = place.place();
    format!("  - {{name: {name}, publish: {{on: events, {into}, data: {{from: {name}}}}}{more}}}\n")
}

/// Tries that follow each other fast enough for a test.
pub(crate) const OFTEN: &str = ", timeout: 2s, retry: {attempts: 40, first: 20ms, most: 200ms}";

/// What survives the crashes of a play.
#[derive(Clone, Debug)]
struct Scenery {
    place: Place,
    url: String,
    lives: Arc<AtomicUsize>,
}

impl Scenery {
    fn of(place: Place) -> Self {
        Self { url: place.broker.url(), place, lives: Arc::default() }
    }

    /// Whether an engine has died before this one.
    fn is_after_a_crash(&self) -> bool {
        self.lives.fetch_add(1, Ordering::SeqCst) > 0
    }
}

type Play = Crasher<Scenery, String>;

/// A play of these steps; `before` is done before an engine begins.
fn play(
    scenery: impl Fn() -> Scenery + 'static,
    steps: fn(&Place) -> String,
    before: fn(&Scene<Scenery>),
) -> Play {
    Crasher::new(
        scenery,
        move |scenery: &Scenery, builder| {
            let builder = builder.state(scenery.place.connections(&scenery.url));
            builder.programs(program(&steps(&scenery.place)))
        },
        async move |scene: Scene<Scenery>| {
            before(&scene);
            let run = scene.engine().start(TESTED, json!({})).key("k").await?;
            let keys = scene.world().place.clone();
            // A doubt is settled by what is in the stream.
            let became = |_, path: &str| match keys.keys().is_empty() {
                true => Resolution::DidNotHappen,
                false => {
                    Resolution::Happened(semel::rules::json::Payload::of(&json!({"found": path})).unwrap())
                }
            };
            Ok(match scene.settle(&run, became).await? {
                Outcome::Completed(_) => "completed".to_owned(),
                Outcome::Failed(failure) => failure.code.unwrap_or_default(),
                other => format!("{other:?}"),
            })
        },
    )
}

fn doubts(ended: &Ended<Scenery, String>) -> usize {
    ended.history().count("stepInDoubt")
}

fn nothing(_: &Scene<Scenery>) {}

fn three(place: &Place) -> String {
    let more = step("more", place, OFTEN);
    let one = step("one", place, OFTEN);
    format!(
        "{one}  - name: each\n    for_each: {{in: '{{{{ [2, 3] }}}}', parallel: 2}}\n    steps:\n    {more}"
    )
}

fn every_boundary(broker: Broker) {
    let play = play(move || Scenery::of(Place::fresh(broker)), three, nothing);
    let check = |ended: &Ended<Scenery, String>| {
        ended.world.place.has_each_once(3);
        assert_eq!(doubts(ended), 0);
    };
    let plays = play.every_boundary(check) + play.every_fault(check);
    assert!(plays > 15, "{plays}");
}

fn one(place: &Place) -> String {
    step("one", place, OFTEN)
}

/// The broker has forgotten the message, and the engine knows that it may have.
fn forget(scene: &Scene<Scenery>) {
    if scene.world().is_after_a_crash() {
        scene.world().place.forget();
        scene.clock().advance(Duration::from_hours(1));
    }
}

fn beyond_the_window() {
    let scenery = || Scenery::of(Place::with_window(Broker::Nats, Duration::from_millis(100)));
    let play = play(scenery, one, forget);
    let check = |ended: &Ended<Scenery, String>| {
        ended.world.place.has_each_once(1);
        assert_eq!(doubts(ended), 0);
    };
    let plays = play.every_boundary(check);
    assert!(plays > 5, "{plays}");
    for moment in [Moment::Entered, Moment::Returned] {
        let ended = play.crash_at("one", moment);
        assert_eq!(ended.value, "completed");
        check(&ended);
    }
}

/// What the stream had is gone, so it cannot say whether it had the message.
fn purged() {
    let play = play(
        || Scenery::of(Place::with_window(Broker::Nats, Duration::from_millis(100))),
        one,
        |scene| {
            if scene.world().is_after_a_crash() {
                scene.world().place.forget();
                scene.world().place.purge();
                scene.clock().advance(Duration::from_hours(1));
            }
        },
    );
    let ended = play.crash_at("one", Moment::Returned);
    assert!(doubts(&ended) > 0, "{}", ended.history());
    assert!(ended.history().to_string().contains("removed messages"), "{}", ended.history());
}

fn forgotten_marker() {
    let scenery = || Scenery::of(Place::with_window(Broker::Redis, Duration::from_millis(300)));
    let play = play(scenery, one, forget);
    let ended = play.crash_at("one", Moment::Returned);
    ended.world.place.has_each_once(1);
    assert!(doubts(&ended) > 0, "{}", ended.history());
    // Where the marker still is, it tells, however much time has passed for the engine.
    let scenery = || Scenery::of(Place::fresh(Broker::Redis));
    let play = self::play(scenery, one, |scene| {
        if scene.world().is_after_a_crash() {
            scene.clock().advance(Duration::from_hours(1));
        }
    });
    let ended = play.crash_at("one", Moment::Returned);
    ended.world.place.has_each_once(1);
    assert_eq!(doubts(&ended), 0, "{}", ended.history());
}

fn killed_between(broker: Broker) {
    for moment in [Moment::Entered, Moment::Returned] {
        let play = play(
            move || Scenery::of(Place::fresh(broker)),
            three,
            |scene| {
                if scene.world().is_after_a_crash() {
                    scene.world().place.broker.crash();
                }
            },
        );
        let ended = play.crash_at("one", moment);
        ended.world.place.has_each_once(3);
        assert_eq!(doubts(&ended), 0);
    }
}

/// The broker is killed while a run puts messages there, and the engine lives.
fn killed_meanwhile(broker: Broker) {
    let place = Place::fresh(broker);
    let puts = step("put", &place, OFTEN);
    let steps = format!(
        "  - name: each\n    for_each: {{in: '{{{{ range(60) }}}}', parallel: 3}}\n    steps:\n    {puts}"
    );
    crate::world::runtime().block_on(async {
        let builder = Engine::builder().store("memory:").state(place.connections(&broker.url()));
        let engine = builder.programs(program(&steps)).open().await.unwrap();
        let run = engine.start(TESTED, json!({})).await.unwrap();
        let (kills, killed) = (place.clone(), tokio::sync::oneshot::channel());
        std::thread::spawn(move || {
            for there in [10, 30] {
                while kills.keys().len() < there {}
                broker.crash();
            }
            killed.0.send(()).expect("the test still waits");
        });
        killed.1.await.unwrap();
        let outcome = run.outcome().await.unwrap();
        assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
    });
    place.has_each_once(60);
}

/// A play through a line on which the first requests meet trouble.
fn troubled(
    broker: Broker,
    troubles: usize,
    trouble: Trouble,
    steps: fn(&Place) -> String,
) -> Ended<Scenery, String> {
    let relay = Relay::to(broker, troubles, trouble);
    let url = relay.url();
    let scenery = move || Scenery { url: url.clone(), ..Scenery::of(Place::fresh(broker)) };
    let ended = play(scenery, steps, nothing).undisturbed();
    assert_eq!(relay.met(), troubles, "the trouble was met");
    ended
}

fn lost(broker: Broker, trouble: Trouble) {
    let ended = troubled(broker, 3, trouble, one);
    assert_eq!(ended.value, "completed", "{}", ended.history());
    ended.world.place.has_each_once(1);
    assert_eq!(doubts(&ended), 0);
}

fn only_once(place: &Place) -> String {
    step("one", place, ", timeout: 1s, retry: {attempts: 1}")
}

fn found_at_last(broker: Broker) {
    let ended = troubled(broker, 1, Trouble::LoseAnswer, only_once);
    assert_eq!(ended.value, "completed", "{}", ended.history());
    ended.world.place.has_each_once(1);
    assert_eq!(doubts(&ended), 0, "it is found");
}

fn absent_at_last(broker: Broker) {
    let ended = troubled(broker, 1, Trouble::LoseRequest, only_once);
    assert!(matches!(&*ended.value, "PUBLISH" | "TIMEOUT"), "{}: {}", ended.value, ended.history());
    assert_eq!(ended.world.place.keys(), [""; 0]);
    assert_eq!(doubts(&ended), 0, "it certainly is not there");
}

fn refused(broker: Broker) {
    let scenery = move || {
        let place = Place::fresh(broker);
        place.spoil();
        Scenery::of(place)
    };
    let ended = play(scenery, only_once, nothing).undisturbed();
    assert_eq!(ended.value, "PUBLISH", "{}", ended.history());
    assert_eq!(doubts(&ended), 0);
    let unreachable =
        move || Scenery { url: broker.url_at("127.0.0.1:1"), ..Scenery::of(Place::fresh(broker)) };
    let ended = play(unreachable, only_once, nothing).undisturbed();
    assert_eq!(ended.value, "CONNECTION", "{}", ended.history());
}

fn carried(broker: Broker) {
    let steps = |place: &Place| {
        let into = place.place();
        format!(
            "  - {{name: one, publish: {{on: events, {into}, data: plain, headers: {{kind: '{{{{ run.key }}}}'}}}}}}\n"
        )
    };
    let ended = play(move || Scenery::of(Place::fresh(broker)), steps, nothing).undisturbed();
    let place = &ended.world.place;
    let key = place.keys().remove(0);
    assert_eq!(key.len(), 34, "the effect key: {key}");
    assert_eq!(place.carried(), ("plain".to_owned(), "k".to_owned()));
    let value = ended.history().to_string();
    assert!(value.contains(&place.name), "{value}");
}

fn at_most_once() {
    let steps = |place: &Place| {
        step("one", place, ", class: at-most-once, timeout: 1s, retry: {attempts: 5, first: 20ms}")
    };
    for broker in BROKERS {
        let ended = troubled(broker, 1, Trouble::LoseAnswer, steps);
        ended.world.place.has_each_once(1);
        assert!(doubts(&ended) > 0, "{}", ended.history());
    }
}

fn checked() {
    let look = |text: &str| {
        let connections = place::connections(text);
        place::outside(async {
            let connection = connections.all().next().unwrap().clone();
            connection.look(&connections, false).await
        })
    };
    for (kind, more, broker) in [("nats", "", Broker::Nats), ("redis", "window = '24h'", Broker::Redis)] {
        let at =
            |url: &str| format!("[connections.a]\nkind = '{kind}'\nurl = '{url}'\ntimeout = '5s'\n{more}\n");
        let found = look(&at(&broker.url()));
        assert!(found.is_fine, "{found:?}");
        let found = look(&at(&broker.url_at("127.0.0.1:1")));
        assert!(!found.is_fine && found.found.contains("cannot be reached"), "{found:?}");
    }
}

/// Runs a test of this program with a deliberate bug: it must fail.
fn found(bug: Bug, test: &str) {
    let this = std::env::current_exe().unwrap();
    let mut command = Command::new(&this);
    let ended = command.args(["--exact", test]).env(VARIABLE, bug.name()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success(), "nothing was found:\n{said}");
    assert!(
        said.contains("is there twice") || said.contains("assertion"),
        "it fails by what it counts:\n{said}"
    );
}
