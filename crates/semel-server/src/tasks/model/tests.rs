//! Models, agents and planners against a server that plays them and counts: what is asked, what is asked again, and what a crash at
//! every boundary leaves of it.

#![expect(clippy::unwrap_used, reason = "a test that fails by unwrap says where")]

mod agents;
mod kills;
mod llms;
mod real;
mod server;

use semel::Engine;
use semel::engine::Builder;
use semel::rules::entry::{Failure, Outcome};
use semel::store::memory::MemoryStore;
use serde_json::{Value as Json, json};
use std::sync::Arc;

use self::server::{Say, Script, Scripted};
use crate::config::Config;
use crate::connections::{Connections, Opening, SystemNames};
use crate::definitions::check::check;
use crate::definitions::interpret::tests::{Fixed, TESTED};

/// A secret that must be nowhere.
const SECRET: &str = "canary-of-the-model-key";

/// Connections of every kind that the tests need, to one server.
fn connections(server: &Scripted) -> Connections {
    let base = server.base();
    opened(&format!(
        "[model]\nkind = 'openai'\nbase = '{base}/v1'\nkey = {{ env = 'KEY' }}\nmodel = 'small'\nprice = {{ in = 1.0, out = 10.0 }}\n\
         [claude]\nkind = 'anthropic'\nbase = '{base}/v1'\nkey = {{ env = 'KEY' }}\nmodel = 'small'\n\
         [shop]\nkind = 'http'\nbase = '{base}'\nprofile = {{ by = 'key', header = 'Idempotency-Key', window = 'for-ever' }}\n\
         [crm]\nkind = 'mcp'\nurl = '{base}/mcp'\ntools = {{ find = 'reads', book = {{ key-in = 'request' }} }}\n"
    ))
}

fn opened(connections: &str) -> Connections {
    let config = Config { connections: toml::from_str(connections).unwrap(), ..Config::default() };
    let store = Arc::new(MemoryStore::new(Arc::new(semel::clock::SystemClock::new())));
    let environment = |name: &str| (name == "KEY").then(|| SECRET.to_owned());
    let opening = Opening { config: &config, store, environment: &environment, names: Arc::new(SystemNames) };
    Connections::open_with(opening).unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// An engine with the definition of these steps, whose connections lead to the server.
fn built(server: &Scripted, steps: &str, builder: Builder) -> Builder {
    defined(connections(server), steps, builder)
}

fn defined(connections: Connections, steps: &str, builder: Builder) -> Builder {
    let text = format!("semel: 1\nname: tested\n{steps}");
    let definition = check(&text).unwrap_or_else(|problems| panic!("{problems:#?}")).definition;
    builder.state(connections).programs(Fixed(Arc::new(definition)))
}

/// What became of a run, and its history as text.
struct Ran {
    outcome: Outcome,
    history: String,
}

async fn ran(server: &Scripted, steps: &str) -> Ran {
    ran_with(connections(server), steps).await
}

async fn ran_with(connections: Connections, steps: &str) -> Ran {
    let engine = defined(connections, steps, Engine::builder().store("memory:")).open().await.unwrap();
    let run = engine.start(TESTED, json!({"order": "o7"})).await.unwrap();
    let outcome = run.outcome().await.unwrap();
    let replay = engine.replay(run.id()).await.unwrap();
    assert!(replay.is_identical(), "{replay}");
    let ledger = run.ledger().await.unwrap();
    let history: String = ledger.iter().map(|line| serde_json::to_string(&line.entry).unwrap()).collect();
    assert!(!history.contains(SECRET), "the secret is recorded: {history}");
    Ran { outcome, history }
}

async fn value(server: &Scripted, steps: &str) -> Json {
    match ran(server, steps).await.outcome {
        Outcome::Completed(value) => value.read().unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn failure(server: &Scripted, steps: &str) -> Failure {
    match ran(server, steps).await.outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

fn scripted(script: Script) -> Scripted {
    Scripted::start(script)
}

/// A text as an answer.
fn text(text: &str) -> Say {
    Say::Text(text.to_owned())
}
