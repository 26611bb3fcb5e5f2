//! A server that is started with hundreds of thousands of runs past their retention, one of which has a long ledger: how long
//! until it is ready, and how long a start takes at most while all of them are forgotten.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use tokio_postgres::NoTls;

use crate::figures::Figures;
use crate::fill;
use crate::reads::{millis, template, timed};
use crate::server::Process;
use crate::wire::Wire;
use crate::{Anything, setting};

/// What is asked for, in milliseconds: the time until the server is ready.
const READY: f64 = 2_000.0;
/// What is asked for, in milliseconds: the longest time that a start takes meanwhile.
const WRITE: f64 = 250.0;
/// Between two starts.
const GAP: Duration = Duration::from_millis(5);
/// Number of starts between two checks whether all is forgotten.
const LOOK_EVERY: u64 = 100;
/// Nothing takes this long.
const PATIENCE: Duration = Duration::from_mins(20);

/// Where the rows are counted.
enum Rows {
    Sqlite(Connection),
    Postgres(tokio_postgres::Client),
}

impl Rows {
    fn sqlite(file: &Path) -> Anything<Self> {
        Ok(Self::Sqlite(Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?))
    }

    async fn postgres(url: &str) -> Anything<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        Ok(Self::Postgres(client))
    }

    /// Whether a run is left that is to be forgotten.
    async fn are_left(&self) -> Anything<bool> {
        let past = fill::PAST;
        Ok(match self {
            Self::Sqlite(conn) => {
                let sql = format!("SELECT EXISTS (SELECT 1 FROM runs WHERE purge <= {past})");
                conn.query_row(&sql, [], |row| row.get(0))?
            }
            Self::Postgres(client) => {
                let sql = format!("SELECT EXISTS (SELECT 1 FROM semel.runs WHERE purge <= {past})");
                client.query_one(&sql, &[]).await?.get(0)
            }
        })
    }
}

pub(crate) async fn measure(figures: &mut Figures) -> Anything<()> {
    let runs: u64 = setting("SEMEL_BENCH_FORGOTTEN", 400_000);
    let entries: u64 = setting("SEMEL_BENCH_LEDGER", 100_000);
    let mut server = Process::spawn()?;
    println!("A server on SQLite with {runs} runs past their retention, one with {entries} entries");
    template(&server).await?;
    server.kill()?;
    fill::sqlite(&server.file(), runs)?;
    fill::expire_sqlite(&server.file(), entries)?;
    let rows = Rows::sqlite(&server.file())?;
    forgotten(&mut server, "forget.sqlite", &rows, figures).await?;
    drop((rows, server));
    let Ok(url) = std::env::var("SEMEL_TEST_POSTGRES") else {
        println!("PostgreSQL is left out: run under scripts/with-postgres");
        return Ok(());
    };
    println!("The same on PostgreSQL");
    let mut server = Process::spawn_on(&url).await?;
    template(&server).await?;
    server.kill()?;
    fill::postgres(&url, runs).await?;
    fill::expire_postgres(&url, entries).await?;
    let rows = Rows::postgres(&url).await?;
    forgotten(&mut server, "forget.postgres", &rows, figures).await
}

/// Starts the server, and then one run after the other until all that is past its retention is gone.
async fn forgotten(server: &mut Process, name: &str, rows: &Rows, figures: &mut Figures) -> Anything<()> {
    let begun = Instant::now();
    server.start()?;
    let mut wire = Wire::connect(&server.url).await?;
    timed(&mut wire, "/readyz").await?;
    figures.limit(&format!("{name}.readyMs"), millis(begun.elapsed()), READY);
    if !rows.are_left().await? {
        return Err("all was forgotten before the server was ready".into());
    }
    let mut longest = Duration::ZERO;
    for n in 0u64.. {
        let body =
            format!(r#"{{"workflow":"order","idempotencyKey":"beside-{n}","input":{{"cents":1999}}}}"#);
        let asked = Instant::now();
        let (status, answer) = wire.post("/workflow-runs", &body).await?;
        if status != 201 {
            return Err(format!("{status}: {answer}").into());
        }
        longest = longest.max(asked.elapsed());
        if n.is_multiple_of(LOOK_EVERY) && !rows.are_left().await? {
            break;
        }
        if begun.elapsed() > PATIENCE {
            return Err("there is no end of what is to be forgotten".into());
        }
        tokio::time::sleep(GAP).await;
    }
    figures.limit(&format!("{name}.longestStartMs"), millis(longest), WRITE);
    figures.number(&format!("{name}.allForgottenSeconds"), begun.elapsed().as_secs_f64());
    Ok(())
}
