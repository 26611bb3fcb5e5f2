//! A database with a table of chunks, a model of embeddings, and an engine with connections to both.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use semel::Engine;
use semel::engine::Builder;
use semel::rules::entry::{Failure, Outcome};
use semel::store::Store;
use semel::store::memory::MemoryStore;
use semel::tx::deadpool_postgres::Pool;
use semel::tx::{PgPoolOptions, TxSource as _};
use semel_server::connections::Connections;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::embedder::{Embedder, vector};
use crate::databases::site::{Fixed, Site, SiteKind, TESTED};

/// A fresh schema in the database with pgvector, and a model.
#[derive(Clone)]
pub(super) struct Library {
    pub(super) site: Site,
    pub(super) embedder: Embedder,
}

/// The table as the page of tasks has it. The type is in another schema than the table, as it often is.
pub(super) const TABLE: &str = "CREATE TABLE semel_chunks (document text NOT NULL, n integer NOT NULL, hash text NOT NULL, \
                                text text NOT NULL, vector public.vector(2) NOT NULL, PRIMARY KEY (document, n))";

/// A step that ingests the input, with these further arguments.
pub(super) fn steps(more: &str) -> String {
    format!(
        "steps:
  - name: know
    retry: {{attempts: 5, first: 1ms}}
    ingest: {{on: bank, embed: {{on: model}}, document: '{{{{ input.id }}}}', text: '{{{{ input.text }}}}'{more}}}"
    )
}

/// Sentences that are a chunk each if a chunk has 50 characters.
pub(super) fn sentences(range: std::ops::Range<u32>) -> String {
    range.map(|n| format!("This is sentence number {n:04} of the document. ")).collect()
}

impl Library {
    /// With the fence table and the table of chunks.
    pub(super) async fn new() -> Self {
        let library = Self::bare().await;
        library.site.script(TABLE).await;
        library
    }

    /// With the fence table only.
    pub(super) async fn bare() -> Self {
        static EXTENSION: OnceCell<()> = OnceCell::const_new();
        static SCHEMAS: AtomicUsize = AtomicUsize::new(0);
        let url = std::env::var("SEMEL_TEST_PGVECTOR").expect("main has seen to it that there is a server");
        let pool = PgPoolOptions::new(&url).build().expect("an address");
        let made = EXTENSION.get_or_init(async || {
            pool.script("CREATE EXTENSION IF NOT EXISTS vector").await.expect("pgvector is there");
        });
        made.await;
        let name = format!("library_{}_{}", std::process::id(), SCHEMAS.fetch_add(1, Ordering::Relaxed));
        pool.script(&format!("CREATE SCHEMA {name}")).await.expect("a schema");
        Self::at(format!("{url}?schema={name}")).await
    }

    /// In a database of its own, which does not have the extension.
    pub(super) async fn without_extension() -> Self {
        let url = std::env::var("SEMEL_TEST_PGVECTOR").expect("main has seen to it that there is a server");
        let pool = PgPoolOptions::new(&url).build().expect("an address");
        let name = format!("bare_{}", std::process::id());
        pool.script(&format!("CREATE DATABASE {name}")).await.expect("a database");
        Self::at(format!("{}/{name}", url.rsplit_once('/').expect("an address").0)).await
    }

    async fn at(url: String) -> Self {
        let folder = Arc::new(TempDir::new().expect("a folder"));
        let site = Site { kind: SiteKind::Postgres, url, folder };
        let library = Self { site, embedder: Embedder::start() };
        let checked = library.site.checked(true).await;
        assert!(checked.is_fine, "{checked:?}");
        library
    }

    /// Connections `bank` and `model`, as a server opens them.
    pub(super) fn connections(&self) -> Connections {
        self.connections_to(&self.embedder.base())
    }

    /// The same with the embedder at this address.
    pub(super) fn connections_to(&self, base: &str) -> Connections {
        let model = format!(
            "[model]\nkind = 'openai'\nbase = '{base}'\nmodel = 'small-2'\nprice = {{ in = 1.0, out = 0.0 }}\n\
             [claude]\nkind = 'anthropic'\nbase = '{base}'\nmodel = 'small-2'\n"
        );
        self.site.connections_with(&model).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Gives an engine the connections and a definition.
    pub(super) fn build(&self, builder: Builder, steps: &str) -> Builder {
        builder.state(self.connections()).programs(Fixed::new(steps))
    }

    /// Executes a definition.
    pub(super) async fn outcome(&self, steps: &str, input: Value) -> Outcome {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(semel::clock::SystemClock::new())));
        let engine = self.build(Engine::builder().store(store), steps).open().await.expect("an engine");
        let run = engine.start(TESTED, input).await.expect("it starts");
        let outcome = run.outcome().await.expect("it ends");
        let replay = engine.replay(run.id()).await.expect("it can be replayed");
        assert!(replay.is_identical(), "{replay}");
        outcome
    }

    pub(super) async fn value(&self, steps: &str, input: Value) -> Value {
        crate::databases::value_of(self.outcome(steps, input).await)
    }

    pub(super) async fn failure(&self, steps: &str, input: Value) -> Failure {
        match self.outcome(steps, input).await {
            Outcome::Failed(failure) => failure,
            other => panic!("{other:?}"),
        }
    }

    /// Ingests a text as the document `d`, in chunks of a sentence.
    pub(super) async fn ingest(&self, text: &str) -> Value {
        self.value(&steps(", size: 50"), json!({"id": "d", "text": text})).await
    }

    /// The texts of the document `d` in their order. Their numbers have no gaps, and each has the vector of its text.
    pub(super) async fn rows(&self) -> Vec<String> {
        let pool = self.pool();
        let client = pool.get().await.expect("the database is there");
        let select = "SELECT n, text, vector::text, hash FROM semel_chunks WHERE document = 'd' ORDER BY n";
        let rows = client.query(select, &[]).await.expect("the table is there");
        let text = |(at, row): (usize, &semel::tx::tokio_postgres::Row)| {
            let text: String = row.get(1);
            assert_eq!(usize::try_from(row.get::<_, i32>(0)).expect("above 0"), at + 1, "{text}");
            let numbers: Vec<f64> = serde_json::from_str(row.get(2)).expect("a vector");
            assert_eq!(numbers, vector("small-2", &text), "{text}");
            assert_eq!(row.get::<_, String>(3).len(), 64);
            text
        };
        rows.iter().enumerate().map(text).collect()
    }

    /// The database without the server.
    pub(super) fn pool(&self) -> Pool {
        PgPoolOptions::new(&self.site.url).build().expect("an address")
    }

    /// Creates a library on a thread of its own: a play has a runtime already.
    pub(super) fn fresh() -> Self {
        let made = std::thread::spawn(|| crate::world::runtime().block_on(Self::new()));
        made.join().expect("a database can be made")
    }

    /// The rows, asked on a thread of its own.
    pub(super) fn rows_apart(&self) -> Vec<String> {
        let library = self.clone();
        let asked = std::thread::spawn(move || crate::world::runtime().block_on(library.rows()));
        asked.join().expect("the database answers")
    }
}
