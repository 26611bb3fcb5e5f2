//! Errors about missing parts say what to do, before a model is paid for.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use semel::clock::SystemClock;
use semel::id::WorkspaceId;
use semel::store::memory::MemoryStore;
use semel_server::access::Caller;
use semel_server::api::Permission;
use semel_server::app::App;
use serde_json::json;

use super::library::{Library, TABLE, steps};
use super::trial;
use crate::world::Api;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("what_the_database_lacks_is_told_before_anything_is_paid", lacking),
        trial("the_statement_that_is_told_makes_the_table", mended),
        trial("vectors_of_another_length_change_nothing", other_length),
        trial("a_push_says_which_connections_do_not_fit", pushed),
    ]
}

fn once() -> String {
    steps("").replace("attempts: 5", "attempts: 1")
}

async fn told(library: &Library) -> String {
    let failed = library.failure(&once(), json!({"id": "d", "text": "a"})).await;
    assert_eq!(failed.code.as_deref(), Some("CONNECTION"), "{failed:?}");
    failed.message
}

async fn lacking() -> Result<(), Failed> {
    let bare = Library::without_extension().await;
    let said = told(&bare).await;
    assert!(said.contains("CREATE EXTENSION vector"), "{said}");
    let library = Library::bare().await;
    for (script, wanted) in [
        ("SELECT 1", "is missing: make it"),
        ("CREATE TABLE semel_chunks (document text)", "no column `n`"),
        ("DROP TABLE semel_chunks", "is missing: make it"),
        (&TABLE.replace("vector(2)", "vector"), "ALTER COLUMN vector TYPE vector(N)"),
        ("DROP TABLE fenced_task_idempotency_lock", "connection check NAME --install"),
    ] {
        library.site.script(script).await;
        let said = told(&library).await;
        assert!(said.contains(wanted), "{script}: {said}");
    }
    let nameless = library
        .site
        .connections_with(&format!("[model]\nkind = 'openai'\nbase = '{}'\n", library.embedder.base()));
    let builder = semel::Engine::builder().store("memory:").state(nameless.unwrap());
    let engine = builder.programs(crate::databases::site::Fixed::new(&once())).open().await?;
    let run = engine.start(crate::databases::site::TESTED, json!({"id": "d", "text": "a"})).await?;
    let outcome = format!("{:?}", run.outcome().await?);
    assert!(outcome.contains("set `model` in one of them"), "{outcome}");
    assert_eq!((bare.embedder.counts(), library.embedder.counts()), ((0, 0), (0, 0)));
    Ok(())
}

async fn mended() -> Result<(), Failed> {
    let library = Library::bare().await;
    let said = told(&library).await;
    let statement = said.split('`').find(|part| part.starts_with("CREATE TABLE")).unwrap();
    library.site.script(&statement.replace("vector(N)", "public.vector(2)")).await;
    library.value(&once(), json!({"id": "d", "text": "a"})).await;
    assert_eq!(library.rows().await, ["a"]);
    Ok(())
}

async fn other_length() -> Result<(), Failed> {
    let library = Library::new().await;
    library.ingest("It is there.").await;
    let wide = steps("").replace("{on: model}", "{on: model, model: wide-2000}");
    let failed = library.failure(&wide, json!({"id": "d", "text": "It is not there."})).await;
    assert_eq!(failed.code.as_deref(), Some("MODEL"));
    let message = &failed.message;
    assert!(message.contains("have 2000 numbers") && message.contains("have 2:"), "{message}");
    assert_eq!(library.rows().await, ["It is there."]);
    assert_eq!(library.embedder.counts(), (2, 2), "it is not asked for again");
    Ok(())
}

async fn pushed() -> Result<(), Failed> {
    let library = Library::bare().await;
    let app = App {
        connections: Some(Arc::new(library.connections())),
        ..App::open(Arc::new(MemoryStore::new(Arc::new(SystemClock::new()))), Arc::new(SystemClock::new()))
    };
    let caller = Caller::new(WorkspaceId::DEFAULT, "author", vec![Permission::Admin]);
    let api = Api::serve_as(app, caller).await;
    for (on, embed, refused) in [
        ("bank", "model", None),
        ("model", "model", Some("the connection `model` is of the kind `openai`, and `postgres` is needed")),
        ("bank", "bank", Some("the connection `bank` is of the kind `postgres`, and `openai` is needed")),
        ("bank", "claude", Some("and `openai` is needed")),
        ("bank", "modl", Some("is it `model`?")),
    ] {
        let text = format!(
            "semel: 1\nname: a\nsteps:\n  - {{name: x, ingest: {{on: {on}, embed: {{on: {embed}}}, document: d, text: t}}}}"
        );
        let answer = api.post("/workflow-definitions?check=true", text).await;
        match refused {
            None => assert_eq!(answer.status, 200, "{}", answer.text),
            Some(why) => {
                assert_eq!(answer.status, 400, "{}", answer.text);
                assert!(answer.text.contains(why), "{}", answer.text);
            }
        }
    }
    Ok(())
}
