//! What PostgreSQL does without group commit: every step its own transaction, in one statement and one round trip, over a
//! pool. The same tables, the same guard, the same bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls, Statement};

use crate::Anything;
use crate::report::{Latencies, Rate};

const CONNECTIONS: usize = 16;

const SETUP: &str = "
    DROP SCHEMA IF EXISTS one_by_one CASCADE;
    CREATE SCHEMA one_by_one;
    CREATE TABLE one_by_one.runs (num bigint PRIMARY KEY, version bigint NOT NULL) WITH (fillfactor = 80);
    CREATE TABLE one_by_one.ledger (run bigint, seq bigint, entries text NOT NULL, PRIMARY KEY (run, seq));";

const STEP: &str = "
    WITH saved AS (
        UPDATE one_by_one.runs SET version = version + 2 WHERE num = $1 AND version = $2 RETURNING num
    )
    INSERT INTO one_by_one.ledger SELECT num, $2, $3 FROM saved";

struct Pool {
    clients: Vec<(Client, Statement)>,
    free: Semaphore,
    next: std::sync::Mutex<Vec<usize>>,
}

/// `callers` runs commit one step after the other for a while.
pub(crate) async fn one_statement_per_step(url: &str, callers: usize, time: Duration) -> Anything<Rate> {
    let mut clients = Vec::new();
    for n in 0..CONNECTIONS {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        if n == 0 {
            client.batch_execute(SETUP).await?;
            let runs = "INSERT INTO one_by_one.runs SELECT n, 0 FROM generate_series(0, $1::bigint) n";
            client.execute(runs, &[&(callers as i64)]).await?;
        }
        let statement = client.prepare(STEP).await?;
        clients.push((client, statement));
    }
    let next = std::sync::Mutex::new((0..CONNECTIONS).collect());
    let pool = Arc::new(Pool { clients, free: Semaphore::new(CONNECTIONS), next });
    let stop = Arc::new(AtomicBool::new(false));
    let entries: Arc<str> = "x".repeat(140).into();
    let mut tasks = JoinSet::new();
    let begun = Instant::now();
    for run in 0..callers as i64 {
        let (pool, stop, entries) = (pool.clone(), stop.clone(), entries.clone());
        tasks.spawn(async move {
            let (mut latencies, mut version) = (Latencies::default(), 0i64);
            while !stop.load(Ordering::Relaxed) {
                let asked = Instant::now();
                let permit = pool.free.acquire().await.expect("never closed");
                let at = pool.next.lock().expect("no panic inside").pop().expect("a permit is a client");
                let (client, statement) = &pool.clients[at];
                let saved = client.execute(statement, &[&run, &version, &&*entries]).await?;
                pool.next.lock().expect("no panic inside").push(at);
                drop(permit);
                assert_eq!(saved, 1, "nobody else writes to this run");
                version += 2;
                latencies.add(asked.elapsed());
            }
            Ok::<_, tokio_postgres::Error>(latencies)
        });
    }
    tokio::time::sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    let elapsed = begun.elapsed();
    let mut all = Latencies::default();
    while let Some(latencies) = tasks.join_next().await {
        all.merge(&latencies??);
    }
    Ok(all.rate(elapsed))
}
