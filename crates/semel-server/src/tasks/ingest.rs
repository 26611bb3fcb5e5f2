//! `ingest`: a document as rows with vectors, for searches by meaning.
//!
//! - [`document`]: the arguments, and where a text is divided. [`table`]: what the database must have, and its rows.
//! - [`vectors`]: what an answer with embeddings leaves in the ledger. [`reuse`]: which rows keep their vectors.
//!
//! A step `know` has parts that are steps of their own: `know/look` reads the table and divides the text; `know/embed`,
//! `know/embed#2` … ask for vectors, and their answers are recorded, so that none is paid for twice; `know/store` replaces the rows of the
//! document, in one commit with its outcome.

mod document;
mod reuse;
mod table;
mod vectors;

use std::sync::Arc;

use semel::rules::json::Payload;
use semel::{Attempt, Ctx, Result, fatal};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use self::document::Document;
use self::vectors::{Bill, Vectors};
use super::connection::{missing, named, target};
use super::database::{AnyPool, StatementLimits, begin_as};
use super::model::embed::{Embedding, embed};
use super::{Checks, Class, Executing, Kind, TaskCall, TaskEnd, TaskPart, model};
use crate::connections::{Connection, Connections, Database, DatabaseTarget, ModelTarget, RESULT};
use crate::databases::{Guarded, ResultBounds};
use crate::definitions::language::is_identifier;
use crate::definitions::shape::{Field, Shape};
use crate::definitions::template::Template;

/// Kinds of connections that have embeddings.
const EMBEDDERS: &[&str] = &["openai"];

pub(super) static KIND: Kind = Kind {
    name: "ingest",
    about: "Divides a document into chunks, and puts them with their embeddings into a table of PostgreSQL with pgvector, in one commit \
            with its outcome. Its value is `{document, chunks, embedded, model, usage?, cost?}`.",
    args: Shape::Object(&[
        Field::required("on", Shape::Name, "Connection that is the database: PostgreSQL with pgvector."),
        Field::required(
            "embed",
            Shape::Object(&[
                Field::required("on", Shape::Name, "Connection that has the embeddings: `openai`."),
                model::MODEL,
            ]),
            "What makes the vectors.",
        ),
        Field::new(
            "table",
            Shape::Fixed,
            "Table of the chunks, perhaps with a schema; `semel_chunks` if absent.",
        ),
        Field::required("document", Shape::Text, "Id of the document: its earlier chunks are replaced."),
        Field::required("text", Shape::Text, "Text of the document; an empty one removes its chunks."),
        Field::new(
            "format",
            Shape::Word(&["plain", "markdown"]),
            "How the text is divided: at sentences and paragraphs, or also at headings; `plain` if absent.",
        ),
        Field::new(
            "size",
            Shape::Integer(document::LEAST_SIZE as i64, document::MOST_SIZE as i64),
            "Maximum length of a chunk in characters; 1,000 if absent.",
        ),
        Field::new(
            "overlap",
            Shape::Integer(0, document::MOST_SIZE as i64 / 2),
            "How many characters a chunk repeats of the one before, at most half of `size`; 0 if absent.",
        ),
    ]),
    on: &["postgres"],
    tries: true,
    class: |_| Class::Transaction,
    check,
    execute,
};

fn check(args: &Template, checks: &mut Checks<'_>) {
    if checks.step.at_most_once {
        let hint =
            "remove `class`: embeddings are recorded when they are answered, and rows are committed once";
        checks.refuse(&checks.step.at.clone(), "the step cannot be at most once", hint);
    }
    if let Some((table, text)) = args.get("table").and_then(|table| Some((table, table.text()?)))
        && !(text.split('.').count() <= 2 && text.split('.').all(is_identifier))
    {
        let hint = "write `name` or `schema.name`, of letters, digits and `_`";
        checks.refuse(&table.at, format!("`{text}` is no name of a table"), hint);
    }
    let number = |name: &str| args.get(name).and_then(Template::integer);
    if let (Some(overlap), Some(at)) = (number("overlap"), args.get("overlap")) {
        let size = number("size").unwrap_or(document::SIZE as i64);
        if overlap > size / 2 {
            let hint = "half of `size` is the most";
            checks.refuse(&at.at, format!("an overlap of {overlap} is too much for a size of {size}"), hint);
        }
    }
}

/// The connection that has the embeddings.
pub(super) fn embedder(args: &Template) -> Option<(&Template, &'static [&'static str])> {
    args.get("embed")?.get("on").map(|on| (on, EMBEDDERS))
}

/// The parts of a step.
pub(super) fn parts(args: &Template) -> Vec<TaskPart<'_>> {
    let on = args.get("on").and_then(Template::text);
    let embedder = embedder(args).and_then(|(on, _)| on.text());
    [("look", Class::Keyed, on), ("embed", Class::Keyed, embedder), ("store", Class::Transaction, on)]
        .map(|(name, class, connection)| TaskPart { path: name.to_owned(), kind: name, class, connection })
        .into()
}

fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(async move {
        let document = Document::read(&call.args()?)?;
        let ingest = Ingest::new(call, &document).await;
        let look = ingest.look().await?;
        let (mut wanted, mut known) = (look.fresh.clone(), KnownVectors::new(look.places.len()));
        loop {
            ingest.embed(&look, &wanted, &mut known).await?;
            match ingest.store(&look, &known).await? {
                Stored::Done(value) => return Ok(TaskEnd::Kept(value)),
                // Then no row is needed any more: the next commit cannot come to this.
                Stored::Changed => wanted = known.missing(),
            }
        }
    })
}

/// What is known before anything is paid for. All of it is recorded, so that a replay divides and asks alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Look {
    /// Name of the model.
    model: String,
    /// Length of the vectors in the table.
    dimension: usize,
    /// Number of chunks of which vectors are asked in one call.
    batch: usize,
    /// First byte of each chunk in the text, and the byte after its last.
    places: Vec<(usize, usize)>,
    /// Chunks, counted from 0, that have no vector in the table yet.
    fresh: Vec<usize>,
}

/// What became of a commit.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Stored {
    /// The rows are there, and this is the value of the step.
    Done(Payload),
    /// Nothing was changed: a row whose vector was to stay is no longer there.
    Changed,
}

/// The vectors that were asked for.
#[derive(Debug)]
struct KnownVectors {
    /// By the number of the chunk, as pgvector reads it.
    vectors: Vec<Option<String>>,
    bill: Bill,
}

impl KnownVectors {
    fn new(chunks: usize) -> Self {
        Self { vectors: vec![None; chunks], bill: Bill::default() }
    }

    /// The chunks without a vector.
    fn missing(&self) -> Vec<usize> {
        let without = self.vectors.iter().enumerate().filter(|(_, vector)| vector.is_none());
        without.map(|(chunk, _)| chunk).collect()
    }
}

/// A document on its way into a table.
struct Ingest<'a> {
    call: TaskCall<'a>,
    document: &'a Document,
    /// The run, in the scope of the step.
    ctx: Ctx,
    connections: Arc<Connections>,
    source: Guarded<AnyPool>,
    limits: StatementLimits,
    embedder: std::result::Result<Arc<Connection>, String>,
}

impl<'a> Ingest<'a> {
    async fn new(call: TaskCall<'a>, document: &'a Document) -> Self {
        let connections = call.ctx.state::<Connections>();
        let name = |args: Option<&'a Template>| args.and_then(|on| on.get("on")?.text()).unwrap_or_default();
        let found = named(call.ctx, &connections, name(Some(call.args))).await;
        let embedder = named(call.ctx, &connections, name(call.args.get("embed"))).await;
        let (source, limits) = match target::<DatabaseTarget>(&found, KIND.on) {
            Ok((connection, target)) => match &target.database {
                Database::Postgres(pool) => {
                    (target.guarded(pool, connection), StatementLimits::new(call.step, connection, target))
                }
                _ => (Guarded::missing(connection.of_wrong_kind(KIND.on)), StatementLimits::missing()),
            },
            Err(why) => (Guarded::missing(why), StatementLimits::missing()),
        };
        let ctx = call.ctx.scope(&*call.step.name);
        Self { call, document, ctx, connections, source, limits, embedder }
    }

    /// Bounds of what is read of the table: numbers and hashes.
    fn bounds(&self) -> ResultBounds {
        ResultBounds { bytes: RESULT, redactor: self.limits.bounds.redactor.clone() }
    }

    fn step(&self, name: &str) -> semel::sdk::Step {
        let step = self.ctx.step(name);
        match self.call.step.retry {
            Some(retry) => step.retry(retry),
            None => step,
        }
    }

    /// Divides the text, and looks what the table has of it.
    async fn look(&self) -> Result<Look> {
        let step = self.step("look").timeout(self.limits.timeout);
        step.run(|attempt| self.looked(attempt)).await
    }

    async fn looked(&self, attempt: Attempt) -> Result<Look> {
        let _outside = attempt.outside();
        let (embedder, target): (_, &ModelTarget) = target(&self.embedder, EMBEDDERS).map_err(missing)?;
        let model = self.document.model.as_deref().or(target.model.as_deref()).ok_or_else(|| {
            let name = &embedder.name;
            missing(format!(
                "neither the step nor the connection `{name}` names a model; set `model` in one of them"
            ))
        })?;
        let table = &self.document.table;
        let dimension = table.dimension(&self.source, &self.limits.fence_table, &self.bounds()).await?;
        let places = self.document.places().await?;
        let hashes = self.document.hashes(model, &places);
        let rows = table.rows(&self.source, &self.document.id, &hashes, &self.bounds()).await?;
        let kept = reuse::rows_for(hashes.iter().map(String::as_str), &rows);
        let fresh = (0..places.len()).filter(|chunk| kept[*chunk].is_none()).collect();
        let batch = vectors::batch(dimension);
        Ok(Look { model: model.to_owned(), dimension, batch, places, fresh })
    }

    /// Asks for the vectors of these chunks; those that were answered in an earlier execution are not asked for again.
    async fn embed(&self, look: &Look, wanted: &[usize], known: &mut KnownVectors) -> Result<()> {
        for chunks in wanted.chunks(look.batch) {
            let texts: Vec<String> =
                chunks.iter().map(|chunk| self.document.chunk(look.places[*chunk]).to_owned()).collect();
            let recorded: Payload =
                self.step("embed").indexed().run(|attempt| self.asked(attempt, look, &texts)).await?;
            let answer = Vectors::read(&recorded)?;
            known.bill.add(&answer, chunks.len());
            for (chunk, vector) in chunks.iter().zip(answer.literals(look.dimension, &self.document.table)?) {
                known.vectors[*chunk] = Some(vector);
            }
        }
        Ok(())
    }

    async fn asked(&self, attempt: Attempt, look: &Look, texts: &[String]) -> Result<Payload> {
        let (connection, target): (_, &ModelTarget) = target(&self.embedder, EMBEDDERS).map_err(missing)?;
        let asked = Embedding {
            connection,
            target,
            model: Some(&look.model),
            texts,
            retry: self.call.step.retry.unwrap_or_default(),
            timeout: self.call.step.timeout.unwrap_or(connection.timeout),
        };
        let embedded = embed(&attempt, &self.connections, asked).await?;
        Vectors::of(connection, target, look, embedded).record()
    }

    /// Replaces the rows of the document, and commits them with the value of the step.
    async fn store(&self, look: &Look, known: &KnownVectors) -> Result<Stored> {
        let hashes = self.document.hashes(&look.model, &look.places);
        let tx = begin_as(&self.ctx, "store", self.call.step, &self.source, &self.limits).indexed();
        let stored = tx.run(async |mut tx| {
            let attempt = tx.attempt().clone();
            let (table, document) = (&self.document.table, &self.document.id);
            table.lock(&mut tx, document, &self.bounds()).await?;
            let open = || (0..hashes.len()).filter(|chunk| known.vectors[*chunk].is_none());
            let wanted: Vec<String> = open().map(|chunk| hashes[chunk].clone()).collect();
            let rows = table.rows_in(&mut tx, document, &wanted, &self.bounds()).await?;
            let kept = reuse::rows_for(wanted.iter().map(String::as_str), &rows);
            if kept.contains(&None) {
                return tx.commit(Stored::Changed).await;
            }
            let moved =
                open().zip(kept.into_iter().flatten()).map(|(chunk, from)| table::Moved { from, chunk });
            table.keep(&mut tx, document, &moved.collect::<Vec<_>>(), &self.bounds()).await?;
            let fresh = known.vectors.iter().enumerate().filter_map(|(chunk, vector)| {
                let text = self.document.chunk(look.places[chunk]);
                Some(table::Fresh { chunk, hash: &hashes[chunk], text, vector: vector.as_deref()? })
            });
            table.add(&mut tx, document, &fresh.collect::<Vec<_>>(), &self.bounds()).await?;
            let value = Payload::of(&self.value(look, known)).map_err(fatal)?;
            let kept = self.call.keep(&attempt, value, self.limits.bounds.bytes)?;
            tx.commit(Stored::Done(kept)).await
        });
        stored.await
    }

    fn value(&self, look: &Look, known: &KnownVectors) -> Json {
        let mut value =
            json!({"document": self.document.id, "chunks": look.places.len(), "model": look.model});
        known.bill.tell(&mut value);
        value
    }
}
