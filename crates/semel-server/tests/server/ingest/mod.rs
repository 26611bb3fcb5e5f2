//! `ingest` with a real pgvector: rows and outcome are there together, once, whatever happens in between, and no vector is paid for
//! twice.

#![expect(clippy::unwrap_used, reason = "a test that fails by unwrap says where")]

mod crash;
mod embedder;
mod library;
mod operator;

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use semel::Engine;
use semel::clock::SystemClock;
use semel::id::WorkspaceId;
use semel::store::Store;
use semel::store::memory::MemoryStore;
use semel_server::access::Caller;
use semel_server::api::Permission;
use semel_server::app::App;
use serde_json::{Value, json};

use self::library::{Library, sentences, steps};
use crate::databases::site::TESTED;
use crate::world::{Api, runtime};

/// One trial of a test.
fn trial<F>(name: &str, test: impl Fn() -> F + Send + 'static) -> Trial
where
    F: Future<Output = Result<(), Failed>>,
{
    Trial::test(format!("ingest::{name}"), move || runtime().block_on(test()))
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut all = vec![
        trial("a_document_is_rows_with_the_vectors_of_their_texts", ingested),
        trial("a_changed_document_pays_for_what_has_changed_only", changed),
        trial("old_and_new_rows_are_replaced_in_one_commit", together),
        trial("a_row_that_vanishes_meanwhile_is_embedded_again", vanished),
        trial("runs_that_replace_one_document_leave_one_of_its_texts", crowded),
        trial("tokens_and_cost_are_part_of_the_sums_of_the_run", added_up),
        trial("hostile_texts_are_kept_as_they_are_or_refused_before_anything_is_paid", hostile),
    ];
    all.extend(crash::trials());
    all.extend(operator::trials());
    all
}

async fn ingested() -> Result<(), Failed> {
    let library = Library::new().await;
    let told = library.ingest(&sentences(0..70)).await;
    let expected = json!({"document": "d", "chunks": 70, "embedded": 70, "model": "small-2",
        "usage": {"in": 700, "out": 0}, "cost": 0.0007});
    assert_eq!(told, expected);
    let rows = library.rows().await;
    assert_eq!((rows.len(), &*rows[69]), (70, "This is sentence number 0069 of the document."));
    assert_eq!(library.embedder.counts(), (2, 2), "64 in the first call, 6 in the second one");
    // Another document, in a table of its own with a name that is a word of SQL, and divided at headings.
    library.site.script("CREATE TABLE \"order\" (LIKE semel_chunks INCLUDING ALL)").await;
    let text = "# Ink\n\nInk is blue, and it dries slowly.\n\n# Paper\n\nPaper is white, and it burns.";
    let told = library
        .value(
            &steps(", table: order, format: markdown, size: 60, overlap: 0"),
            json!({"id": "stock", "text": text}),
        )
        .await;
    assert_eq!(told["chunks"], 2, "{told}");
    let first = library.site.text("SELECT text FROM \"order\" WHERE document = 'stock' AND n = 2").await;
    assert_eq!(first, "# Paper\n\nPaper is white, and it burns.");
    Ok(())
}

async fn changed() -> Result<(), Failed> {
    let library = Library::new().await;
    library.ingest(&sentences(0..10)).await;
    library.embedder.texts();
    let told = library.ingest(&sentences(0..10)).await;
    assert_eq!((&told["embedded"], &told["chunks"]), (&json!(0), &json!(10)));
    assert!(library.embedder.texts().is_empty(), "nothing has changed");
    // Two new ones in front, the others move, four are gone, and one is there twice.
    let text = sentences(50..52) + &sentences(3..9) + &sentences(3..4);
    let told = library.ingest(&text).await;
    assert_eq!((&told["embedded"], &told["chunks"]), (&json!(3), &json!(9)));
    let numbers = |texts: Vec<String>| -> Vec<u32> {
        texts.iter().map(|text| text.split(' ').nth(4).unwrap().parse().unwrap()).collect()
    };
    assert_eq!(numbers(library.embedder.texts()), [50, 51, 3], "a row is kept for one chunk");
    assert_eq!(numbers(library.rows().await), [50, 51, 3, 4, 5, 6, 7, 8, 3]);
    // The vectors of another model are others, of the same length.
    let other = steps(", size: 50").replace("{on: model}", "{on: model, model: other-2}");
    let told = library.value(&other, json!({"id": "d", "text": text})).await;
    assert_eq!((&told["embedded"], &told["model"]), (&json!(9), &json!("other-2")));
    // Other documents stay as they are, and an empty one has no rows.
    library.value(&steps(""), json!({"id": "e", "text": "Another one."})).await;
    let told = library.ingest(" \n ").await;
    assert_eq!((&told["chunks"], library.rows().await.len()), (&json!(0), 0));
    assert_eq!(library.site.number("SELECT count(*) FROM semel_chunks").await, 1);
    Ok(())
}

async fn together() -> Result<(), Failed> {
    let library = Library::new().await;
    library.ingest(&sentences(0..5)).await;
    let before = library.rows().await;
    // The value cannot be shaped, which is found out when the rows are replaced and not yet committed.
    let kept = steps(", size: 50") + "\n    keep: '{{ this.nothing }}'";
    let failed = library.failure(&kept, json!({"id": "d", "text": sentences(3..8)})).await;
    assert_eq!(failed.code.as_deref(), Some("EXPRESSION"));
    assert_eq!(library.rows().await, before);
    let outcomes = "SELECT count(*) FROM fenced_task_idempotency_lock WHERE outcome IS NOT NULL";
    assert_eq!(library.site.number(outcomes).await, 1);
    let kept = steps(", size: 50") + "\n    keep: '{{ this.chunks }}'";
    let told = library.value(&kept, json!({"id": "d", "text": sentences(3..8)})).await;
    assert_eq!((told, library.rows().await.len()), (json!(5), 5));
    assert_eq!(library.site.number(outcomes).await, 2);
    Ok(())
}

async fn vanished() -> Result<(), Failed> {
    let library = Library::new().await;
    library.ingest(&sentences(0..5)).await;
    library.embedder.texts();
    library.embedder.hold();
    let cleared = async {
        library.embedder.arrived().await;
        library.site.script("DELETE FROM semel_chunks WHERE n < 3").await;
        library.embedder.release();
    };
    let text = sentences(0..6);
    let (told, ()) = tokio::join!(library.ingest(&text), cleared);
    assert_eq!((&told["chunks"], &told["embedded"]), (&json!(6), &json!(6)));
    assert_eq!(library.rows().await.len(), 6);
    assert_eq!(library.embedder.texts().len(), 6, "one, and then the other five");
    Ok(())
}

async fn crowded() -> Result<(), Failed> {
    let library = Library::new().await;
    let texts: Vec<String> = (0..8).map(|n| sentences(n * 3..n * 3 + 20)).collect();
    futures_util::future::join_all(texts.iter().map(|text| library.ingest(text))).await;
    let rows = library.rows().await;
    let found = rows.iter().map(|row| format!("{row} ")).collect::<String>();
    assert!(texts.contains(&found), "it is none of the texts: {found}");
    Ok(())
}

async fn added_up() -> Result<(), Failed> {
    let library = Library::new().await;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
    let builder = library.build(Engine::builder().store(store.clone()), &steps(", size: 50"));
    let engine = builder.open().await?;
    let run = engine.start(TESTED, json!({"id": "d", "text": sentences(0..70)})).await?;
    run.outcome().await?;
    let caller = Caller::new(WorkspaceId::DEFAULT, "reader", vec![Permission::Admin]);
    let app = App::open(store, Arc::new(SystemClock::new()));
    let told: Value =
        Api::serve_as(app, caller).await.get(&format!("/workflow-runs/{}/cost", run.id())).await.ok();
    let model = &told["models"][0];
    assert_eq!((&model["connection"], &model["model"]), (&json!("model"), &json!("small-2")), "{told}");
    assert_eq!(
        (&told["calls"], &told["usage"]["in"], &told["cost"]),
        (&json!(2), &json!(700), &json!(0.0007))
    );
    Ok(())
}

async fn hostile() -> Result<(), Failed> {
    let library = Library::new().await;
    for (input, why) in [
        (json!({"id": "", "text": "a"}), "EXPRESSION"),
        (json!({"id": "d", "text": {"a": 1}}), "EXPRESSION"),
        (json!({"id": "d", "text": sentences(0..1_001)}), "TOO_LARGE"),
    ] {
        assert_eq!(library.failure(&steps(", size: 50"), input).await.code.as_deref(), Some(why));
    }
    assert_eq!(library.embedder.counts(), (0, 0), "nothing was paid");
    let quoted = "it's \\ \"quoted\"; DROP TABLE semel_chunks; -- {{ $1 }} \u{1f9f5}\u{202e} \u{fffd}";
    library.ingest(quoted).await;
    assert_eq!(library.rows().await.concat().replace(' ', ""), quoted.replace(' ', ""));
    // Two MiB, of which nothing is lost: without a blank, and with some.
    for text in ["x".repeat((2 << 20) - 1_000), "word ".repeat(400_000).trim().to_owned()] {
        // A debug build on a busy machine divides slowly.
        let patient = steps(", size: 20000") + "\n    timeout: 5m";
        let told = library.value(&patient, json!({"id": "d", "text": text})).await;
        let rows = library.rows().await;
        assert_eq!((&told["chunks"], rows.len() >= 100), (&json!(rows.len()), true));
        assert_eq!(rows.concat().replace(' ', ""), text.replace(' ', ""));
    }
    Ok(())
}
