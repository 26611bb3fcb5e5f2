//! Connections of the kind `postgres`.

use std::time::Duration;

use semel::tx::PgPoolOptions;
use semel::tx::deadpool_postgres::Pool;

use super::database::{Database, DatabaseFound, DatabaseSettings, IDLE, ServerSettings, told};
use super::kind::{ConnectionKind, Environment, Settings, Target};
use super::members::Members;
use crate::databases::queue::QUEUE;

pub(super) static KIND: ConnectionKind = ConnectionKind { name: "postgres", read };

/// How long a statement may take, if the operator does not say it. Longer than the timeouts of steps: it ends statements whose step
/// has given them up.
const STATEMENT: Duration = Duration::from_mins(5);

struct PostgresSettings {
    database: DatabaseSettings,
    server: ServerSettings,
    statement_timeout: Duration,
}

fn read(members: &mut Members<'_>) -> Option<Box<dyn Settings>> {
    let database = DatabaseSettings::read(members);
    let statement_timeout = members.duration("statement-timeout").unwrap_or(STATEMENT);
    let server = ServerSettings::read(members)?;
    Some(Box::new(PostgresSettings { database, server, statement_timeout }))
}

impl Settings for PostgresSettings {
    fn open(self: Box<Self>, environment: Environment<'_>) -> Result<Box<dyn Target>, Vec<(String, String)>> {
        let wrong = |why: String| vec![("url".to_owned(), why)];
        let (url, redactor) = self.server.address(environment, &["postgres", "postgresql"]).map_err(wrong)?;
        let milliseconds = |time: Duration| time.as_millis().to_string();
        let settings = vec![
            ("lock_timeout", milliseconds(self.server.lock_timeout)),
            ("statement_timeout", milliseconds(self.statement_timeout)),
            ("idle_in_transaction_session_timeout", milliseconds(IDLE)),
            // Statements are taken apart by these rules.
            ("standard_conforming_strings", "on".to_owned()),
        ];
        let options = PgPoolOptions { connections: self.server.pool, settings, ..PgPoolOptions::new(url) };
        let pool = options.build().map_err(|error| wrong(redactor.text(&told(&error))))?;
        Ok(self.database.target(Database::Postgres(pool), redactor))
    }
}

/// Looks what is there.
pub(super) async fn look(pool: &Pool, fence_table: &str) -> Result<DatabaseFound, String> {
    let client = pool.get().await.map_err(|error| told(&error))?;
    let look = "SELECT current_setting('server_version'), to_regclass($1)::text, to_regclass($2)::text, \
                current_setting('max_prepared_transactions')::bigint";
    let row = client.query_one(look, &[&fence_table, &QUEUE]).await.map_err(|error| told(&error))?;
    let there = |index: usize| row.get::<_, Option<String>>(index).is_some();
    let mut about = format!("reached, PostgreSQL {}", row.get::<_, String>(0));
    if row.get::<_, i64>(3) == 0 {
        about.push_str(
            "; it has no prepared transactions, which a `transaction` with another database needs: ",
        );
        about.push_str(PREPARED);
    }
    Ok(DatabaseFound { about, has_fence: there(1), has_queue: there(2) })
}

/// What to do about a server that cannot prepare transactions.
const PREPARED: &str = "set `max_prepared_transactions = 100` in postgresql.conf and restart the server";

/// Why transactions of this database cannot be prepared; none if they can.
pub(super) async fn refuses_to_prepare(pool: &Pool) -> Result<Option<String>, String> {
    let client = pool.get().await.map_err(|error| told(&error))?;
    let ask = "SELECT current_setting('max_prepared_transactions')::bigint";
    let most: i64 = client.query_one(ask, &[]).await.map_err(|error| told(&error))?.get(0);
    Ok((most == 0).then(|| {
        format!("it has no prepared transactions, which a commit in several databases needs: {PREPARED}")
    }))
}
