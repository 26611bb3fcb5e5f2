//! The databases of the phase: the `bank` in PostgreSQL, the `stock` in MariaDB, the `till` in SQLite, the `library` in PostgreSQL with
//! pgvector. Each has a table in which every row is an effect, and the tables of Semel.

use std::path::Path;

use libtest_mimic::Failed;
use semel::tx::deadpool_postgres::Pool;
use semel::tx::sqlx::{self, MySqlPool};
use semel::tx::{BranchName, PgPoolOptions, SqliteDb, TwoPhase as _, TxSource as _};
use serde_json::Value;

use super::deeds::Deeds;

/// The four databases.
pub(super) struct Databases {
    bank: Pool,
    stock: MySqlPool,
    till: SqliteDb,
    library: Pool,
    /// Variables with the addresses, for the server.
    pub(super) env: Vec<(String, String)>,
    /// The connections, as the server's file has them.
    pub(super) config: String,
}

/// What an effect is in a database, and what a message is.
const DEEDS: &str = "SELECT place, n FROM deed ORDER BY n";
/// The chunks of documents, once for each time that they were written.
const CHUNKS: &str = "SELECT place, deed.n FROM deed JOIN semel_chunks ON document = place ORDER BY deed.n";
/// The table of chunks, and a trigger that notes every row that is ever written there: a commit that replaces rows leaves no more of them.
const LIBRARY: &str = "CREATE TABLE semel_chunks (document text NOT NULL, n integer NOT NULL, hash text NOT NULL, text text NOT NULL, \
    vector public.vector(2) NOT NULL, PRIMARY KEY (document, n));
    CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO deed (place) VALUES (NEW.document); RETURN NULL; END $$;
    CREATE TRIGGER noted AFTER INSERT ON semel_chunks FOR EACH ROW EXECUTE FUNCTION noted();";

impl Databases {
    /// Makes a schema, a database and a file that nothing else uses.
    pub(super) async fn open(name: &str, folder: &Path, services: [&str; 3]) -> Result<Self, Failed> {
        let [postgres, mariadb, pgvector] = services;
        let bank_url = schema(postgres, name, "").await?;
        let extension = "CREATE EXTENSION IF NOT EXISTS vector SCHEMA public";
        let library_url = schema(pgvector, name, extension).await?;
        let server = MySqlPool::connect(mariadb).await?;
        server.script(&format!("CREATE DATABASE {name} CHARACTER SET utf8mb4")).await?;
        let (before, _) = mariadb.rsplit_once('/').ok_or("the URL of MariaDB names a database")?;
        let stock_url = format!("{before}/{name}");
        let file = folder.join("till.db");
        drop(std::fs::File::create(&file)?);
        let till = SqliteDb::open(&file).await?;
        let databases = Self {
            bank: PgPoolOptions::new(&bank_url).build()?,
            stock: MySqlPool::connect(&stock_url).await?,
            till,
            library: PgPoolOptions::new(&library_url).build()?,
            env: [("BANK_URL", bank_url), ("STOCK_URL", stock_url), ("LIBRARY_URL", library_url)]
                .map(|(name, url)| (name.to_owned(), url))
                .into(),
            config: format!(
                "[connections.bank]\nkind = \"postgres\"\nurl = {{ env = \"BANK_URL\" }}\n\
                 [connections.stock]\nkind = \"mysql\"\nurl = {{ env = \"STOCK_URL\" }}\n\
                 [connections.library]\nkind = \"postgres\"\nurl = {{ env = \"LIBRARY_URL\" }}\n\
                 [connections.till]\nkind = \"sqlite\"\npath = \"{}\"\n",
                file.display()
            ),
        };
        databases.make_tables().await?;
        Ok(databases)
    }

    async fn make_tables(&self) -> Result<(), Failed> {
        let table = |key: &str| format!("CREATE TABLE deed (n {key}, place varchar(200) NOT NULL)");
        let postgres = table("bigint GENERATED ALWAYS AS IDENTITY");
        self.bank.script(&postgres).await?;
        self.library.script(&format!("{postgres};{LIBRARY}")).await?;
        self.till.script(&table("integer PRIMARY KEY AUTOINCREMENT")).await?;
        self.stock.script(&table("bigint AUTO_INCREMENT PRIMARY KEY")).await?;
        Ok(())
    }

    /// Adds the rows, the messages in the queue tables, and the chunks.
    pub(super) async fn count(&self, deeds: &mut Deeds) -> Result<(), Failed> {
        for (place, n) in self.rows(DEEDS).await? {
            deeds.add(&place, n.unsigned_abs());
        }
        let messages = ["SELECT data::text, number FROM semel_queue", "SELECT data, number FROM semel_queue"];
        for (data, n) in self.rows_of(messages).await? {
            let data: Value = serde_json::from_str(&data)?;
            deeds.add(data["at"].as_str().unwrap_or_default(), n.unsigned_abs());
        }
        for chunk in self.library.get().await?.query(CHUNKS, &[]).await? {
            deeds.add(chunk.get(0), chunk.get::<_, i64>(1).unsigned_abs());
        }
        Ok(())
    }

    async fn rows(&self, sql: &'static str) -> Result<Vec<(String, i64)>, Failed> {
        self.rows_of([sql, sql]).await
    }

    /// The rows of those that are no library: the first statement is that of PostgreSQL.
    async fn rows_of(&self, [postgres, other]: [&'static str; 2]) -> Result<Vec<(String, i64)>, Failed> {
        let mut all: Vec<(String, i64)> = sqlx::query_as(other).fetch_all(&self.stock).await?;
        let of_bank = self.bank.get().await?.query(postgres, &[]).await?;
        all.extend(of_bank.iter().map(|row| (row.get::<_, String>(0), row.get::<_, i64>(1))));
        let of_till = self.till.call(move |conn| {
            let mut statement = conn.prepare(other)?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<Result<Vec<(String, i64)>, _>>()
        });
        all.extend(of_till.await?);
        Ok(all)
    }

    /// The prepared branches of these runs that have not been ended.
    pub(super) async fn branches(&self, runs: &[String]) -> Result<Vec<BranchName>, Failed> {
        let mut branches = self.bank.prepared().await?;
        branches.extend(self.stock.prepared().await?);
        branches.retain(|branch| runs.contains(&branch.run));
        Ok(branches)
    }
}

/// The address of a new schema in a PostgreSQL; `before` is executed outside of it.
async fn schema(server: &str, name: &str, before: &str) -> Result<String, Failed> {
    let outer = PgPoolOptions::new(server).build()?;
    outer.script(&format!("CREATE SCHEMA {name}; {before}")).await?;
    let sign = if server.contains('?') { '&' } else { '?' };
    Ok(format!("{server}{sign}schema={name}"))
}
