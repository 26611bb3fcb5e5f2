//! The table of chunks in the user's database: what it must have, and the statements that replace the rows of a document.

use std::fmt;

use semel::tx::PgOpen;
use semel::{Fail, Result};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::reuse::Row;
use crate::databases::{Bound, Guarded, ResultBounds, SqlResult, SqlSource as _};
use crate::tasks::connection::missing;
use crate::tasks::database::AnyPool;

/// Name of the table, if the author does not say it.
pub(super) const TABLE: &str = "semel_chunks";
/// The columns of the table.
const COLUMNS: [&str; 5] = ["document", "n", "hash", "text", "vector"];
/// Maximum number of rows in one statement.
const ROWS: usize = 100;

/// A table of chunks, perhaps with a schema. Its name is quoted, as it is in statements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table(String);

/// A row that stays, for another chunk perhaps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    /// Number that it has.
    pub(super) from: i64,
    /// Chunk, counted from 0, that it is from now on.
    pub(super) chunk: usize,
}

/// A row that is new.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fresh<'a> {
    /// Chunk, counted from 0.
    pub(super) chunk: usize,
    pub(super) hash: &'a str,
    pub(super) text: &'a str,
    /// The vector, as pgvector reads it.
    pub(super) vector: &'a str,
}

/// What there is in a database.
#[derive(Debug, Deserialize)]
struct TableFound {
    /// Whether the extension is there.
    extension: bool,
    /// Whether the fence table is there.
    fence: bool,
    /// Names and types of the table's columns; none if it is missing.
    columns: Option<Map<String, Json>>,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The number of a chunk in its document: 1, 2, 3 …
fn number(chunk: usize) -> Json {
    json!(chunk + 1)
}

impl Table {
    /// The table with this name, which the check has found to be one.
    pub(super) fn new(name: &str) -> Self {
        let parts: Vec<String> = name.split('.').map(|part| format!("\"{part}\"")).collect();
        Self(parts.join("."))
    }

    /// The statement that makes the table, with vectors of this length.
    pub(super) fn create(&self, length: impl fmt::Display) -> String {
        format!(
            "CREATE TABLE {self} (document text NOT NULL, n integer NOT NULL, hash text NOT NULL, text text NOT NULL, \
             vector vector({length}) NOT NULL, PRIMARY KEY (document, n))"
        )
    }

    /// The length of the table's vectors; an error says what an operator has to make first.
    pub(super) async fn dimension(
        &self,
        source: &Guarded<AnyPool>,
        fence: &str,
        bounds: &ResultBounds,
    ) -> Result<usize> {
        let text = "SELECT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'vector') AS extension, \
                    to_regclass($2) IS NOT NULL AS fence, \
                    (SELECT json_object_agg(attname, format_type(atttypid, atttypmod)) FROM pg_attribute \
                      WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped) AS columns";
        let values = vec![json!(self.0), json!(fence)];
        let result = source.read(Bound { text: text.to_owned(), values }, bounds).await?;
        let found = rows::<TableFound>(&result)?
            .into_iter()
            .next()
            .ok_or_else(|| missing("the database says nothing"))?;
        self.length_in(&found, fence).map_err(missing)
    }

    fn length_in(&self, found: &TableFound, fence: &str) -> std::result::Result<usize, String> {
        if !found.extension {
            return Err(
                "the database has no pgvector: install it on its server, and let an administrator execute \
                        `CREATE EXTENSION vector` in the database"
                    .to_owned(),
            );
        }
        if !found.fence {
            return Err(format!(
                "the fence table `{fence}` is missing: make it with `semel connection check NAME --install`"
            ));
        }
        let Some(columns) = &found.columns else {
            return Err(format!(
                "the table {self} is missing: make it, with the length of the model's vectors for N: `{}`",
                self.create('N')
            ));
        };
        if let Some(absent) = COLUMNS.into_iter().find(|name| !columns.contains_key(*name)) {
            return Err(format!(
                "the table {self} has no column `{absent}`: it is made by `{}`",
                self.create('N')
            ));
        }
        let kind = columns["vector"].as_str().unwrap_or_default();
        let length =
            kind.rsplit_once("vector(").and_then(|(_, length)| length.strip_suffix(')')?.parse().ok());
        length.ok_or_else(|| {
            format!(
                "the column `vector` of the table {self} is of the type `{kind}`, and it must be `vector(N)`, with the length of \
                 the model's vectors for N: `ALTER TABLE {self} ALTER COLUMN vector TYPE vector(N)`"
            )
        })
    }

    /// The rows of a document with one of these hashes.
    pub(super) async fn rows(
        &self,
        source: &Guarded<AnyPool>,
        document: &str,
        hashes: &[String],
        bounds: &ResultBounds,
    ) -> Result<Vec<Row>> {
        read_rows(&source.read(self.select(document, hashes), bounds).await?)
    }

    /// The same in an open transaction.
    pub(super) async fn rows_in(
        &self,
        conn: &mut PgOpen,
        document: &str,
        hashes: &[String],
        bounds: &ResultBounds,
    ) -> Result<Vec<Row>> {
        read_rows(&execute(conn, self.select(document, hashes), bounds).await?)
    }

    fn select(&self, document: &str, hashes: &[String]) -> Bound {
        let most = super::document::MOST_CHUNKS;
        let text = format!(
            "SELECT n, hash FROM {self} WHERE document = $1 AND hash = ANY($2) ORDER BY n LIMIT {most}"
        );
        Bound { text, values: vec![json!(document), json!(hashes)] }
    }

    /// Lets no other transaction replace the same document until this one ends: two of them would give the same numbers.
    pub(super) async fn lock(&self, conn: &mut PgOpen, document: &str, bounds: &ResultBounds) -> Result<()> {
        let text = "SELECT pg_advisory_xact_lock(hashtextextended($2, to_regclass($1)::oid::bigint))::text AS locked";
        execute(conn, Bound { text: text.to_owned(), values: vec![json!(self.0), json!(document)] }, bounds)
            .await?;
        Ok(())
    }

    /// Removes the rows of the document, except for these, which get the numbers of their chunks.
    pub(super) async fn keep(
        &self,
        conn: &mut PgOpen,
        document: &str,
        moved: &[Moved],
        bounds: &ResultBounds,
    ) -> Result<()> {
        let from: Vec<i64> = moved.iter().map(|moved| moved.from).collect();
        let to: Vec<Json> = moved.iter().map(|moved| number(moved.chunk)).collect();
        let statement = |text: String, values: Vec<Json>| Bound { text, values };
        let delete = format!("DELETE FROM {self} WHERE document = $1 AND NOT (n = ANY($2))");
        execute(conn, statement(delete, vec![json!(document), json!(from)]), bounds).await?;
        if from.iter().zip(&to).all(|(from, to)| json!(from) == *to) {
            return Ok(());
        }
        // By way of the numbers below 0, which are free: a row may get a number that another one still has.
        let away = format!("UPDATE {self} SET n = -n WHERE document = $1");
        execute(conn, statement(away, vec![json!(document)]), bounds).await?;
        let back = format!(
            "UPDATE {self} AS kept SET n = moved.becomes FROM unnest($2::int[], $3::int[]) AS moved (was, becomes) \
             WHERE kept.document = $1 AND kept.n = -moved.was"
        );
        execute(conn, statement(back, vec![json!(document), json!(from), json!(to)]), bounds).await?;
        Ok(())
    }

    /// Adds rows to the document.
    pub(super) async fn add(
        &self,
        conn: &mut PgOpen,
        document: &str,
        fresh: &[Fresh<'_>],
        bounds: &ResultBounds,
    ) -> Result<()> {
        for rows in fresh.chunks(ROWS) {
            let mut values = vec![json!(document)];
            let mut places = Vec::new();
            for Fresh { chunk, hash, text, vector } in rows {
                let first = values.len() + 1;
                places.push(format!("($1, ${first}, ${}, ${}, ${})", first + 1, first + 2, first + 3));
                values.extend([number(*chunk), json!(hash), json!(text), json!(vector)]);
            }
            let columns = COLUMNS.join(", ");
            let text = format!("INSERT INTO {self} ({columns}) VALUES {}", places.join(", "));
            execute(conn, Bound { text, values }, bounds).await?;
        }
        Ok(())
    }
}

async fn execute(conn: &mut PgOpen, bound: Bound, bounds: &ResultBounds) -> Result<SqlResult> {
    Guarded::<AnyPool>::execute(conn, bound, bounds).await
}

fn rows<T: for<'de> Deserialize<'de>>(result: &SqlResult) -> Result<Vec<T>> {
    #[derive(Deserialize)]
    struct SelectedRows<T> {
        rows: Vec<T>,
    }
    Ok(result.value.read::<SelectedRows<T>>().map_err(Fail::retryable)?.rows)
}

fn read_rows(result: &SqlResult) -> Result<Vec<Row>> {
    #[derive(Deserialize)]
    struct Numbered {
        n: i64,
        hash: String,
    }
    Ok(rows::<Numbered>(result)?.into_iter().map(|row| (row.n, row.hash)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_the_statement_that_makes_it() {
        let table = Table::new("docs.chunks");
        let columns = |kind: &str| {
            let all =
                COLUMNS.map(|name| (name.to_owned(), json!(if name == "vector" { kind } else { "text" })));
            Some(Map::from_iter(all))
        };
        let length =
            |extension, fence, columns| table.length_in(&TableFound { extension, fence, columns }, "lock");
        assert_eq!(length(true, true, columns("vector(1536)")), Ok(1536));
        assert_eq!(length(true, true, columns("extensions.vector(3)")), Ok(3));
        for (told, found) in [
            ("CREATE EXTENSION vector", length(false, true, None)),
            ("connection check NAME --install", length(true, false, None)),
            ("CREATE TABLE \"docs\".\"chunks\" (document text NOT NULL", length(true, true, None)),
            ("no column `document`", length(true, true, Some(Map::new()))),
            ("ALTER COLUMN vector TYPE vector(N)", length(true, true, columns("vector"))),
            ("of the type `text`", length(true, true, columns("text"))),
        ] {
            assert!(found.clone().is_err_and(|why| why.contains(told)), "{told}: {found:?}");
        }
    }
}
