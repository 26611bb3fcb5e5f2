//! The schema: its versions, and how a database gets from one to the next.

use tokio_postgres::{Client, Error as PgError};

use super::schema::{Schema, collision};
use crate::error::{Error, Result};

/// One script per version, in order: script n leads to version n. What is here is never changed, only added to.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("migrations/001_schema.sql"),
    include_str!("migrations/002_records.sql"),
    include_str!("migrations/003_waiters.sql"),
    include_str!("migrations/004_due_by_version.sql"),
    include_str!("migrations/005_lists.sql"),
    include_str!("migrations/006_nodes.sql"),
    include_str!("migrations/007_deadlines.sql"),
    include_str!("migrations/008_families.sql"),
    include_str!("migrations/009_room.sql"),
    include_str!("migrations/010_receipts.sql"),
    include_str!("migrations/011_stats.sql"),
    include_str!("migrations/012_questions.sql"),
    include_str!("migrations/013_hooks.sql"),
];

/// A number of our own among the database's advisory locks ("semel").
const LOCK: i64 = 0x0073_656d_656c;

/// Brings the database up to the version that this Semel knows, in one transaction. Two processes that open it at once
/// go one after the other: `IF NOT EXISTS` alone would let both create, and one fail.
pub(super) async fn migrate(client: &mut Client, schema: &Schema) -> Result<()> {
    let open =
        |source: PgError| Error::Open { what: "the schema of Semel".to_owned(), source: source.into() };
    let known = MIGRATIONS.len() as i64;
    let tx = client.transaction().await.map_err(open)?;
    tx.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await.map_err(open)?;
    if let Schema::Named(schema) = schema {
        // Asked first, because CREATE needs a right that a user of an existing schema may not have.
        let there = tx
            .query_opt("SELECT 1 FROM pg_namespace WHERE nspname = $1", &[&schema.as_str()])
            .await
            .map_err(open)?;
        if there.is_none() {
            tx.batch_execute(&format!("CREATE SCHEMA \"{schema}\"")).await.map_err(open)?;
        }
    }
    let found = version(&tx).await.map_err(open)?;
    if found > known {
        return Err(Error::NewerSchema { found, known });
    }
    for script in &MIGRATIONS[usize::try_from(found).unwrap_or_default()..] {
        if let Err(error) = tx.batch_execute(script).await {
            return Err(match schema {
                Schema::Named(schema) => collision(error, schema.as_str()),
                Schema::InSearchPath => open(error),
            });
        }
    }
    if found < known {
        tx.execute("UPDATE semel_schema SET version = $1", &[&known]).await.map_err(open)?;
    }
    tx.commit().await.map_err(open)
}

async fn version(tx: &tokio_postgres::Transaction<'_>) -> Result<i64, PgError> {
    let there = tx.query_one("SELECT to_regclass('semel_schema') IS NOT NULL", &[]).await?;
    if !there.try_get::<_, bool>(0)? {
        let create =
            "CREATE TABLE semel_schema (version bigint NOT NULL); INSERT INTO semel_schema VALUES (0)";
        tx.batch_execute(create).await?;
    }
    tx.query_one("SELECT version FROM semel_schema", &[]).await?.try_get(0)
}
