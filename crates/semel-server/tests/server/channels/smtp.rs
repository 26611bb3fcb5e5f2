//! Mails through a real mail server that breaks off at each stage of the dialogue.

use std::collections::HashSet;
use std::sync::Arc;

use semel::Error;
use semel::clock::SystemClock;
use semel::store::memory::MemoryStore;
use semel::testing::{Crasher, Ended, Scene};
use semel_server::connections::Checked;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::sink::Sink;
use super::{Became, connections, doubts, play, sends};
use crate::world::runtime;

pub(super) const TESTS: &[(&str, fn())] = &[
    ("a_mail_is_accepted_as_it_was_written", is_written),
    ("what_breaks_off_before_the_last_dot_did_not_take_place", before_the_dot),
    ("what_breaks_off_after_the_last_dot_is_in_doubt", after_the_dot),
    ("a_mail_that_is_refused_did_not_take_place", refused),
    ("a_mail_is_accepted_once_whatever_write_the_engine_dies_at", crashes),
    ("a_mail_server_that_drops_repetitions_gets_equal_bytes", repeated),
    ("a_mail_goes_over_an_encrypted_line_to_a_server_that_knows_the_password", encrypted),
];

const MAIL: &str = "{name: thanks, mail: {on: post, to: ann@example.com, cc: [Ben <ben@example.com>], \
                    bcc: eve@example.com, subject: Grüße, text: \"Hello\\n.\\nBye\", html: <p>Hello</p>}, \
                    retry: {attempts: 3, first: 1s}}";
const REPEATS: &str = "repeat = 'message-id'";

/// Plays a step against a mail server with a plan.
fn crasher(
    sink: &Arc<Sink>,
    more: &'static str,
    plan: &'static [&'static str],
    step: String,
) -> Crasher<Arc<Sink>, Became> {
    let of_world = sink.clone();
    Crasher::new(
        move || {
            of_world.plan(plan);
            of_world.clone()
        },
        move |sink: &Arc<Sink>, builder| {
            let config = sink.config(more);
            builder.state_of_store(move |store| connections(&config, store)).workflow("sends", sends)
        },
        async move |scene: Scene<Arc<Sink>>| -> Result<Became, Error> {
            let sink = scene.world().clone();
            play(scene, &step, || !sink.accepted().is_empty()).await
        },
    )
}

/// The ids of all mails, each once: what is delivered by a server that drops repetitions.
fn ids(sink: &Sink) -> HashSet<String> {
    sink.accepted().into_iter().map(|mail| mail.id).collect()
}

fn id_of(ended: &Ended<Arc<Sink>, Became>) -> Value {
    match &ended.value {
        Became::Done(id) => id.clone(),
        other @ Became::Failed(_) => panic!("{other:?}"),
    }
}

fn is_written() {
    let sink = Arc::new(Sink::start());
    let ended = crasher(&sink, "message-id-domain = 'mail.example.com'", &[], MAIL.to_owned()).undisturbed();
    let accepted = sink.accepted();
    let [mail] = &accepted[..] else { panic!("{accepted:?}") };
    assert_eq!(id_of(&ended), json!(mail.id));
    assert!(mail.id.starts_with("<e1") && mail.id.ends_with("@mail.example.com>"), "{}", mail.id);
    assert_eq!(mail.to, ["ann@example.com", "ben@example.com", "eve@example.com"]);
    assert!(mail.text.contains("Hello\r\n.\r\nBye") && !mail.text.contains("eve@"), "{}", mail.text);
    assert!(mail.text.contains("From: Shop <shop@example.com>\r\n"), "{}", mail.text);
}

fn before_the_dot() {
    const PLANS: &[&[&str]] = &[&["greeting"], &["ehlo"], &["mail"], &["rcpt"], &["data"], &["mail", "data"]];
    let sink = Arc::new(Sink::start());
    for plan in PLANS {
        for more in ["", REPEATS] {
            let ended = crasher(&sink, more, plan, MAIL.to_owned()).undisturbed();
            assert_eq!(
                (doubts(&ended), sink.accepted().len()),
                (0, 1),
                "{plan:?} {more}\n{}",
                ended.history()
            );
        }
    }
    // The line breaks within the mail. Whether the last dot was written by then is up to the buffers of the system: it is certain
    // that the mail is accepted once, and the step is in doubt at most if the dot was written.
    let step =
        "{name: thanks, mail: {on: post, to: ann@example.com, subject: Large, text: '{{ input.large }}'}}";
    let ended = crasher(&sink, "", &["body"], step.to_owned()).undisturbed();
    assert_eq!(sink.accepted().len(), 1);
    assert!(doubts(&ended) <= 1, "{}", ended.history());
}

fn after_the_dot() {
    const PLANS: &[&[&str]] = &[&["dot"], &["lost"]];
    let sink = Arc::new(Sink::start());
    for plan in PLANS {
        let ended = crasher(&sink, "", plan, MAIL.to_owned()).undisturbed();
        // The operator has seen to it that it is there once.
        assert_eq!((doubts(&ended), sink.accepted().len()), (1, 1), "{plan:?}\n{}", ended.history());
    }
    // All of a small mail is written before its sender learns that the server has gone.
    let ended = crasher(&sink, "", &["body"], MAIL.to_owned()).undisturbed();
    assert!(doubts(&ended) <= 1);
    assert_eq!(sink.accepted().len(), 1);
}

fn refused() {
    // A plan, the code of the failure (none if it is sent in the end), and how many are accepted.
    const CASES: &[(&[&str], &str, usize)] = &[
        (&["refuse-mail:550"], "SMTP", 0),
        (&["refuse-rcpt:550"], "SMTP", 0),
        (&["refuse-dot:554"], "SMTP", 0),
        (&["refuse-rcpt:450", "refuse-dot:451", "refuse-mail:421"], "SMTP", 0),
        (&["refuse-rcpt:450", "refuse-dot:451"], "", 1),
    ];
    let sink = Arc::new(Sink::start());
    for (plan, code, accepted) in CASES {
        let ended = crasher(&sink, "", plan, MAIL.to_owned()).undisturbed();
        let failed = match &ended.value {
            Became::Failed(code) => code.as_str(),
            Became::Done(_) => "",
        };
        assert_eq!((failed, doubts(&ended), sink.accepted().len()), (*code, 0, *accepted), "{plan:?}");
    }
}

fn crashes() {
    let sink = Arc::new(Sink::start());
    let once = |_: &Ended<Arc<Sink>, bool>| assert_eq!(sink.accepted().len(), 1);
    let crasher = anonymous(&sink, "", &[]);
    let plays = crasher.every_boundary(once) + crasher.every_fault(once);
    assert!(plays > 8, "{plays}");
    let by_id = |ended: &Ended<Arc<Sink>, bool>| {
        assert_eq!(ids(&sink).len(), 1);
        assert_eq!(doubts(ended), 0, "{}", ended.history());
    };
    let crasher = anonymous(&sink, REPEATS, &[]);
    let plays = crasher.every_boundary(by_id) + crasher.every_fault(by_id);
    assert!(plays > 8, "{plays}");
}

/// The same, whose value says nothing of ids: an operator does not know them.
fn anonymous(
    sink: &Arc<Sink>,
    more: &'static str,
    plan: &'static [&'static str],
) -> Crasher<Arc<Sink>, bool> {
    let of_world = sink.clone();
    Crasher::new(
        move || {
            of_world.plan(plan);
            of_world.clone()
        },
        move |sink: &Arc<Sink>, builder| {
            let config = sink.config(more);
            builder.state_of_store(move |store| connections(&config, store)).workflow("sends", sends)
        },
        async move |scene: Scene<Arc<Sink>>| -> Result<bool, Error> {
            let sink = scene.world().clone();
            let became = play(scene, MAIL, || !sink.accepted().is_empty()).await?;
            Ok(matches!(became, Became::Done(_)))
        },
    )
}

fn repeated() {
    let sink = Arc::new(Sink::start());
    let ended = crasher(&sink, REPEATS, &["dot", "dot"], MAIL.to_owned()).undisturbed();
    let accepted = sink.accepted();
    assert_eq!((doubts(&ended), accepted.len()), (0, 3), "{}", ended.history());
    assert_eq!(accepted[0], accepted[1], "the same bytes on each attempt");
    assert_eq!(accepted[1], accepted[2], "the same bytes on each attempt");
    // Nothing is known of the last attempt either: a repeated refusal says nothing about those before it.
    let ended = crasher(&sink, REPEATS, &["dot", "refuse-dot:554"], MAIL.to_owned()).undisturbed();
    assert_eq!((doubts(&ended), sink.accepted().len()), (1, 1), "{}", ended.history());
}

/// A server that wants encryption and a password gets a mail only if its certificate is trusted and it takes the password.
fn encrypted() {
    let folder = TempDir::new().expect("a folder");
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).expect("the folder is ours");
        file.display().to_string()
    };
    let certificate =
        || rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let (own, stranger) = (certificate(), certificate());
    let (trusted, key) =
        (write("own.pem", &own.cert.pem()), write("key.pem", &own.signing_key.serialize_pem()));
    let untrusted = write("stranger.pem", &stranger.cert.pem());
    let (right, wrong) = (write("right", "open sesame"), write("wrong", "open barley"));
    for (mode, option) in [("starttls", None), ("implicit", Some("--implicit"))] {
        let options = ["--tls", &trusted, &key, "--user", "shop:open sesame"].into_iter().chain(option);
        let sink = Arc::new(Sink::start_with(&options.collect::<Vec<_>>()));
        for (ca, password, told) in
            [(&trusted, &right, "accepted"), (&trusted, &wrong, "535"), (&untrusted, &right, "certificate")]
        {
            let config = format!(
                "[connections.post]\nkind = 'smtp'\nhost = 'localhost'\nport = {}\ntls = '{mode}'\nca-file = '{ca}'\n\
                 user = 'shop'\npassword = {{ file = '{password}' }}\nfrom = 'shop@example.com'\n",
                sink.port()
            );
            let (checked, became) = (checked(&config), delivered(&sink, config.clone()));
            let is_right = told == "accepted";
            assert!(checked.is_fine == is_right && checked.found.contains(told), "{mode}: {checked:?}");
            assert!(!checked.found.contains("open "), "the password is told: {checked:?}");
            assert_eq!(matches!(became, Became::Done(_)), is_right, "{mode} {told}: {became:?}");
            assert_eq!(sink.accepted().len(), usize::from(is_right), "{mode} {told}");
        }
    }
}

/// What `semel connection check` says of the connection.
fn checked(config: &str) -> Checked {
    let connections = connections(config, Arc::new(MemoryStore::new(Arc::new(SystemClock::new()))));
    let post = connections.all().next().expect("there is one").clone();
    runtime().block_on(post.look(&connections, false))
}

/// The end of a step that sends a mail over the connection of a configuration.
fn delivered(sink: &Arc<Sink>, config: String) -> Became {
    let of_world = sink.clone();
    let crasher = Crasher::new(
        move || {
            of_world.plan(&[]);
            of_world.clone()
        },
        move |_: &Arc<Sink>, builder| {
            let config = config.clone();
            builder.state_of_store(move |store| connections(&config, store)).workflow("sends", sends)
        },
        async move |scene: Scene<Arc<Sink>>| -> Result<Became, Error> { play(scene, MAIL, || false).await },
    );
    crasher.undisturbed().value
}
