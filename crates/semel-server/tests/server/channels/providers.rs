//! Messages through providers, each of which behaves as its page says.

use semel::Error;
use semel::clock::Clock as _;
use semel::testing::{Crasher, Scene};

use super::provider::{Fate, Manner, Provider};
use super::{Became, connections, doubts, play, sends};

pub(super) const TESTS: &[(&str, fn())] = &[
    ("a_lost_answer_is_asked_for_again_while_the_key_is_known", replays),
    ("a_key_that_may_be_forgotten_is_not_sent_again", forgotten),
    ("without_a_key_a_lost_answer_is_a_doubt", doubtful),
    ("a_look_up_tells_what_became_of_a_lost_answer", looked_up),
    ("a_message_is_delivered_once_whatever_write_the_engine_dies_at", crashes),
    ("a_request_of_a_zombie_changes_nothing", zombies),
];

const HOUR: i64 = 3_600_000;
const KEYED: Manner = Manner::Replays("idempotency-key", 24 * HOUR);
const BREVO: Manner = Manner::Refuses("/headers/idempotencyKey", HOUR / 4);
const POSTMARK: Manner = Manner::Searched("/Metadata/semel");
const SINCH: Manner = Manner::Replays("idempotency-key", HOUR / 6);

const MAIL: &str = "mail: {on: post, from: shop@example.com, to: ann@example.com, subject: Hi, text: Hello}";
const SMS: &str = "sms: {on: post, to: '+41791234567', text: Hello}";
const CALL: &str = "call: {on: post, to: '+41791234567', text: Hello, voice: en-US-Standard-A}";
const SOON: &str = "retry: {attempts: 3, first: 1s}";

/// Every class that a provider can have.
const CLASSES: [(&str, Manner, &str); 7] = [
    ("resend", KEYED, MAIL),
    ("sparkpost", KEYED, MAIL),
    ("brevo", BREVO, MAIL),
    ("postmark", POSTMARK, MAIL),
    ("sinch", SINCH, CALL),
    ("twilio", Manner::Repeats, SMS),
    ("sendgrid", Manner::Repeats, MAIL),
];

/// Plays a step against a provider. The provider's time is that of the engine.
fn crasher(
    provider: &Provider,
    profile: &'static str,
    plan: &'static [Fate],
    task: &'static str,
    retry: &'static str,
) -> Crasher<Provider, bool> {
    let of_world = provider.clone();
    let step = format!("{{name: message, {task}, {retry}}}");
    Crasher::new(
        move || {
            of_world.plan(plan);
            of_world.clone()
        },
        move |provider: &Provider, builder| {
            let config = provider.config(profile);
            builder.state_of_store(move |store| connections(&config, store)).workflow("sends", sends)
        },
        async move |scene: Scene<Provider>| -> Result<bool, Error> {
            let provider = scene.world().clone();
            let ticks = scene.clone();
            let told = provider.clone();
            let ticking = ticks.until(async || {
                told.desk().now = ticks.clock().now().0;
                false
            });
            let played = play(scene, &step, || !provider.desk().delivered.is_empty());
            tokio::select! {
                became = played => Ok(matches!(became?, Became::Done(_))),
                () = ticking => Err(Error::Validation("time has no end".to_owned())),
            }
        },
    )
}

fn replays() {
    for (profile, manner, task) in CLASSES.into_iter().filter(|(_, manner, _)| *manner != Manner::Repeats) {
        let provider = Provider::start(manner);
        let ended = crasher(&provider, profile, &[Fate::Lost], task, SOON).undisturbed();
        let desk = provider.desk();
        assert!(ended.value, "{profile}\n{}", ended.history());
        assert_eq!((doubts(&ended), desk.delivered.len()), (0, 1), "{profile}\n{}", ended.history());
    }
}

fn forgotten() {
    // By the second try the provider has forgotten the key, whatever the jitter takes off the pause.
    for (profile, manner, task, retry) in [
        ("resend", KEYED, MAIL, "retry: {attempts: 3, first: 50h, most: 60h}"),
        ("brevo", BREVO, MAIL, "retry: {attempts: 3, first: 1h, most: 2h}"),
        ("sinch", SINCH, CALL, "retry: {attempts: 3, first: 1h, most: 2h}"),
    ] {
        let provider = Provider::start(manner);
        let ended = crasher(&provider, profile, &[Fate::Lost], task, retry).undisturbed();
        let desk = provider.desk();
        assert_eq!(
            (doubts(&ended), desk.calls, desk.delivered.len()),
            (1, 1, 1),
            "{profile} {retry}\n{}",
            ended.history()
        );
    }
}

fn doubtful() {
    /// A plan, and how many doubts, calls and deliveries there are.
    type Case = (&'static [Fate], (usize, usize, usize));
    const CASES: &[Case] = &[
        (&[Fate::Lost], (1, 1, 1)),
        (&[Fate::Status(500)], (1, 2, 1)),
        (&[Fate::Status(429)], (0, 2, 1)),
        (&[Fate::Status(400)], (0, 1, 0)),
    ];
    for (profile, manner, task) in CLASSES.into_iter().filter(|(_, manner, _)| *manner == Manner::Repeats) {
        let provider = Provider::start(manner);
        for (plan, counted) in CASES {
            let ended = crasher(&provider, profile, plan, task, SOON).undisturbed();
            let desk = provider.desk();
            let found = (doubts(&ended), desk.calls, desk.delivered.len());
            assert_eq!(found, *counted, "{profile} {plan:?}\n{}", ended.history());
        }
    }
}

fn looked_up() {
    const CASES: &[(&[Fate], usize)] = &[(&[Fate::Lost], 1), (&[Fate::Status(500)], 2), (&[], 1)];
    let provider = Provider::start(POSTMARK);
    for (plan, calls) in CASES {
        let ended = crasher(&provider, "postmark", plan, MAIL, SOON).undisturbed();
        let desk = provider.desk();
        let found = (doubts(&ended), desk.calls, desk.delivered.len());
        assert_eq!(found, (0, *calls, 1), "{plan:?}\n{}", ended.history());
    }
}

fn crashes() {
    for (profile, manner, task) in CLASSES {
        let provider = Provider::start(manner);
        let plays = crasher(&provider, profile, &[], task, SOON).every_boundary(|ended| {
            assert_eq!(provider.desk().delivered.len(), 1, "{profile}\n{}", ended.history());
            let may_be_in_doubt = manner == Manner::Repeats;
            assert!(may_be_in_doubt || doubts(ended) == 0, "{profile}\n{}", ended.history());
        });
        assert!(plays > 4, "{profile}: {plays}");
    }
}

fn zombies() {
    // The request of the dead engine arrives after that of the next one.
    for (profile, manner, task) in CLASSES.into_iter().filter(|(_, manner, _)| *manner != POSTMARK) {
        let provider = Provider::start(manner);
        crasher(&provider, profile, &[Fate::Late], task, SOON).every_boundary(|ended| {
            let desk = provider.desk();
            // Without a key the operator finds nothing and says that the effect did not take place.
            let most = if manner == Manner::Repeats { 2 } else { 1 };
            assert!((1..=most).contains(&desk.delivered.len()), "{profile}\n{}", ended.history());
            assert!(manner != Manner::Repeats || doubts(ended) > 0, "{profile}\n{}", ended.history());
        });
    }
}
