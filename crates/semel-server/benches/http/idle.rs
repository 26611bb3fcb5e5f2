//! A thousand workers that wait for work on PostgreSQL, each with a workflow of its own and none due: what that costs the server and
//! the database.

use std::time::Duration;

use semel::clock::{Clock as _, SystemClock};
use semel::id::NodeId;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

use crate::figures::Figures;
use crate::server::Process;
use crate::wire::Wire;
use crate::{Anything, Extent, setting};

/// How long a claim waits for work, and how long a worker is believed in.
const WAIT_MS: u64 = 30_000;
const LEASE_MS: u64 = 60_000;
/// Linux counts the processor time of processes in hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;
/// What is asked for: percent of a processor in use, by the server and the database together.
const PERCENT: f64 = 10.0;

pub(crate) async fn measure(extent: &Extent, figures: &mut Figures) -> Anything<()> {
    let Ok(url) = std::env::var("SEMEL_TEST_POSTGRES") else {
        println!("Idle claims are left out: run under scripts/with-postgres");
        return Ok(());
    };
    let workers: usize = setting("SEMEL_BENCH_IDLE", 1_000);
    println!("{workers} workers wait for work at a server on PostgreSQL");
    let (server, database) = (Process::spawn_on(&url).await?, Database::connect(&url).await?);
    let before = Usage::of(&server, &database, extent.time).await?;
    let mut waiting = JoinSet::new();
    for n in 0..workers {
        let (mut wire, node) = registered(&server.url, n).await?;
        waiting.spawn(async move {
            loop {
                let claim = json!({
                    "node": node, "workflows": [{"workflow": format!("idle-{n}")}], "limit": 10, "waitMs": WAIT_MS,
                });
                let (status, answer) = wire.post("/workers/claim", &claim.to_string()).await?;
                if status != 200 {
                    return Anything::<()>::Err(format!("{status}: {answer}").into());
                }
            }
        });
    }
    let with = tokio::select! {
        with = Usage::of(&server, &database, extent.time.max(Duration::from_secs(10))) => with?,
        Some(ended) = waiting.join_next() => return ended?,
    };
    figures.number("idleClaims.postgres.serverCoresPercentBefore", before.server * 100.0);
    figures.number("idleClaims.postgres.serverCoresPercent", with.server * 100.0);
    figures.number("idleClaims.postgres.databaseCoresPercent", with.database * 100.0);
    figures.limit("idleClaims.postgres.coresPercent", (with.server + with.database) * 100.0, PERCENT);
    Ok(())
}

/// A connection, and the node of a worker that has registered on it.
async fn registered(url: &str, n: usize) -> Anything<(Wire, String)> {
    let mut wire = Wire::connect(url).await?;
    let node = NodeId(SystemClock::new().uuid()).to_string();
    let join = json!({"node": node, "name": format!("idle-{n}"), "serves": [format!("idle-{n}@1")], "leaseMs": LEASE_MS});
    let (status, answer) = wire.post("/workers", &join.to_string()).await?;
    if status < 300 { Ok((wire, node)) } else { Err(format!("{status}: {answer}").into()) }
}

/// The processes of the database.
struct Database(tokio_postgres::Client);

impl Database {
    async fn connect(url: &str) -> Anything<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        Ok(Self(client))
    }

    async fn processes(&self) -> Anything<Vec<u32>> {
        let rows = self.0.query("SELECT pid FROM pg_stat_activity", &[]).await?;
        Ok(rows.iter().map(|row| row.get::<_, i32>(0).unsigned_abs()).collect())
    }
}

/// Processors in use.
struct Usage {
    server: f64,
    database: f64,
}

impl Usage {
    async fn of(server: &Process, database: &Database, time: Duration) -> Anything<Self> {
        let processes = database.processes().await?;
        let of_database = || processes.iter().map(|pid| seconds(*pid)).sum::<f64>();
        let (server_before, database_before) = (seconds(server.pid()), of_database());
        tokio::time::sleep(time).await;
        let share = |after: f64, before: f64| (after - before) / time.as_secs_f64();
        Ok(Self {
            server: share(seconds(server.pid()), server_before),
            database: share(of_database(), database_before),
        })
    }
}

/// Processor time of a process; none of one that has ended.
fn seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // `pid (name) state …`: the name may contain anything.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let fields = after.split_whitespace().skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SECOND
}
