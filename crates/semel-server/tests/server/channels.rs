//! `mail`, `sms` and `call`: what is delivered when answers are lost, engines die and keys are forgotten. Deliveries are counted.

mod provider;
mod providers;
mod sink;
mod smtp;
mod zombies;

use std::process::Command;
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use semel::rules::entry::{Entry, Outcome, Resolution};
use semel::rules::json::Payload;
use semel::store::Store;
use semel::testing::{Ended, Scene};
use semel::{Ctx, Error, fatal};
use semel_server::config::Config;
use semel_server::connections::{Connections, Opening, SystemNames};
use semel_server::definitions::check::check;
use semel_server::definitions::expression::Data;
use semel_server::definitions::interpret::OpenHooks;
use semel_server::definitions::language::StepBody;
use semel_server::tasks::{TaskCall, TaskEnd};
use serde_json::Value;

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn()| {
        Trial::test(format!("channels::{name}"), move || {
            test();
            Ok(())
        })
    };
    let mut trials: Vec<_> = smtp::TESTS
        .iter()
        .chain(providers::TESTS)
        .chain(zombies::TESTS)
        .map(|(name, test)| trial(name, *test))
        .collect();
    let planted = [
        ("window-ignored", "channels::a_key_that_may_be_forgotten_is_not_sent_again"),
        ("message-id-per-try", "channels::a_mail_server_that_drops_repetitions_gets_equal_bytes"),
    ];
    trials.extend(planted.map(|(bug, test)| {
        Trial::test(format!("channels::the_bug_{}_is_found", bug.replace('-', "_")), move || found(bug, test))
    }));
    trials
}

/// Runs a test in a process that commits a bug; the test must fail.
fn found(bug: &str, test: &str) -> Result<(), Failed> {
    let this = std::env::current_exe()?;
    let ended = Command::new(this).args(["--exact", test]).env("SEMEL_SABOTAGE", bug).output()?;
    let said = String::from_utf8_lossy(&ended.stdout);
    let failed = !ended.status.success() && said.contains("1 failed");
    if failed { Ok(()) } else { Err(format!("the bug {bug} was not found by {test}: {said}").into()) }
}

/// The connections of a configuration, for an engine.
fn connections(text: &str, store: Arc<dyn Store>) -> Connections {
    let config: Config = toml::from_str(text).expect("it is a configuration");
    let environment = |_: &str| None;
    let opening = Opening { config: &config, store, environment: &environment, names: Arc::new(SystemNames) };
    Connections::open_with(opening).unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// Length of a text that steps can read: more than fits into the buffers of a connection.
const LARGE: usize = 1_500_000;

/// Executes the only step of a definition, as the interpreter does.
async fn sends(ctx: Ctx, step: String) -> semel::Result<Payload> {
    let text = format!("semel: 1\nname: sends\nsteps:\n  - {step}\n");
    let accepted = check(&text).map_err(|problems| fatal(format!("{problems:?}")))?;
    let step = &accepted.definition.steps[0];
    let StepBody::Task(kind, args) = &step.body else { return Err(fatal("the step is a task")) };
    let input = serde_json::json!({"large": "0123456789".repeat(LARGE / 10)});
    let (scope, hooks) = (Data::object([("input", Data::of_json(&input))]), OpenHooks::default());
    match (kind.execute)(TaskCall { ctx: &ctx, step, args, scope: &scope, hooks: &hooks }).await? {
        TaskEnd::Kept(value) | TaskEnd::Value(value) => Ok(value),
        other => Err(fatal(format!("{other:?}"))),
    }
}

/// How often a step was in doubt.
fn doubts<W, T>(ended: &Ended<W, T>) -> usize {
    ended
        .runs
        .iter()
        .flat_map(|(_, history)| history.entries())
        .filter(|entry| matches!(entry, Entry::StepInDoubt { .. }))
        .count()
}

/// The outcome of a run, without what differs from play to play.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Became {
    /// The step has a value with this id.
    Done(Value),
    Failed(String),
}

/// Starts a run, and plays the operator who looks at the provider when the step is in doubt.
async fn play<W>(scene: Scene<W>, step: &str, happened: impl Fn() -> bool) -> Result<Became, Error> {
    let run = scene.engine().start(sends, step.to_owned()).key("k").await?;
    let settled = scene.settle(&run, |_, _| match happened() {
        true => Resolution::Happened(Payload::of(&serde_json::json!({"id": "seen"})).expect("it is small")),
        false => Resolution::DidNotHappen,
    });
    Ok(match settled.await? {
        Outcome::Completed(value) => Became::Done(value.read::<Value>().expect("it is JSON")["id"].clone()),
        Outcome::Failed(failure) => Became::Failed(failure.code.unwrap_or_default()),
        other => Became::Failed(format!("{other:?}")),
    })
}
