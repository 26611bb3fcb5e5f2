//! The database of transactional steps: where it is, how it is made, and what is in it.

use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::tx::deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime, Timeouts};
use semel::tx::tokio_postgres::{self, NoTls};
use semel::tx::{self, SqliteDb};
use semel::{Ctx, Engine, FailExt as _, Result};
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::execute::{Rows, row};
use crate::proxy::Proxy;
use crate::said::PATIENCE;

/// A row, as the checker sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) at: String,
    pub(crate) key: String,
    pub(crate) number: u64,
}

/// A connection that does not answer for this long is dead.
pub(crate) const ANSWER: Duration = Duration::from_secs(2);

/// Nothing in this table is unique but the number.
const SQLITE: &str =
    "CREATE TABLE IF NOT EXISTS effects (number INTEGER PRIMARY KEY, place TEXT, effect_key TEXT)";
const POSTGRES: &str =
    "CREATE TABLE IF NOT EXISTS effects (number bigserial PRIMARY KEY, place text, effect_key text)";

impl Rows {
    /// Opens the database at an address, a file or `postgres://…`; nothing is done there before it is used.
    pub(crate) async fn open(address: &str) -> Result<Self> {
        if !address.starts_with("postgres://") {
            return Ok(Self::Sqlite(SqliteDb::open(address).await?));
        }
        let config: tokio_postgres::Config = address.parse().fatal()?;
        let method = ManagerConfig { recycling_method: RecyclingMethod::Verified };
        let manager = Manager::from_config(config, NoTls, method);
        let limits = Timeouts { wait: None, create: Some(ANSWER), recycle: Some(ANSWER) };
        let pool = Pool::builder(manager).max_size(6).runtime(Runtime::Tokio1).timeouts(limits);
        Ok(Self::Postgres(pool.build().fatal()?))
    }

    /// Makes its tables.
    pub(crate) async fn install(&self) -> Result<()> {
        match self {
            Self::Sqlite(db) => {
                tx::install(db).await?;
                Ok(db.call(|conn| conn.execute_batch(SQLITE)).await?)
            }
            Self::Postgres(pool) => {
                tx::install(pool).await?;
                Ok(pool.get().await?.batch_execute(POSTGRES).await?)
            }
        }
    }

    /// All that is in it.
    pub(crate) async fn read(&self) -> Result<Vec<Row>> {
        const ALL: &str = "SELECT place, effect_key, number FROM effects";
        match self {
            Self::Sqlite(db) => {
                let read = db.call(|conn| {
                    let mut all = conn.prepare(ALL)?;
                    let row = |row: &tx::rusqlite::Row<'_>| {
                        let number: i64 = row.get(2)?;
                        Ok(Row { at: row.get(0)?, key: row.get(1)?, number: number as u64 })
                    };
                    all.query_map([], row)?.collect()
                });
                Ok(read.await?)
            }
            Self::Postgres(pool) => {
                let rows = pool.get().await?.query(ALL, &[]).await?;
                let row = |row: &tokio_postgres::Row| {
                    let number: i64 = row.try_get(2)?;
                    Ok(Row { at: row.try_get(0)?, key: row.try_get(1)?, number: number as u64 })
                };
                rows.iter().map(row).collect()
            }
        }
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![a_row_is_there_once_although_the_line_has_fallen_silent]
}

async fn insert(ctx: Ctx, at: String) -> Result<u64> {
    row(&ctx, "insert", at).await
}

/// The pool has a connection that is dead without a sign.
async fn a_row_is_there_once_although_the_line_has_fallen_silent() -> Result<(), Failed> {
    let cluster = Cluster::start().await?;
    let line = Proxy::to(cluster.address()).await?;
    let rows = Rows::open(&Cluster::url(line.address())).await?;
    rows.install().await?;
    let engine =
        Engine::builder().store("memory:").state(rows.clone()).workflow("insert", insert).open().await?;
    for at in ["one", "two"] {
        line.silence();
        line.pass();
        let run = engine.start(insert, at.to_owned()).await?;
        let ended = tokio::time::timeout(PATIENCE, run.result()).await;
        ended.map_err(|_| format!("run {at} hangs"))??;
    }
    let there: Vec<_> = rows.read().await?.into_iter().map(|row| row.at).collect();
    assert_eq!(there, ["one", "two"]);
    Ok(())
}
