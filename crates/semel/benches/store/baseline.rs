//! What PostgreSQL does without group commit: every step its own transaction, in one statement and one round trip, over a
//! pool. The same tables, the same guard, the same bytes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_postgres::{Client, NoTls, Statement};

use crate::Anything;
use crate::report::Rate;
use crate::turns::under_load;

const CONNECTIONS: usize = 16;

/// The server, if there is one; by its local socket, the fastest way on one machine.
pub(crate) fn url() -> Option<String> {
    let given = ["SEMEL_TEST_POSTGRES_SOCKET", "SEMEL_TEST_POSTGRES"];
    given.into_iter().find_map(|name| std::env::var(name).ok())
}

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
    let entries: Arc<str> = "x".repeat(140).into();
    let rate = under_load(callers, time, |run, mut turns| {
        let (pool, entries, run) = (pool.clone(), entries.clone(), run as i64);
        async move {
            let mut version = 0i64;
            while turns.begin() {
                let permit = pool.free.acquire().await.expect("never closed");
                let at = pool.next.lock().expect("no panic inside").pop().expect("a permit is a client");
                let (client, statement) = &pool.clients[at];
                let saved = client.execute(statement, &[&run, &version, &&*entries]).await?;
                pool.next.lock().expect("no panic inside").push(at);
                drop(permit);
                assert_eq!(saved, 1, "only this loop writes to the run");
                version += 2;
                turns.end();
            }
            Ok::<_, tokio_postgres::Error>(turns)
        }
    });
    Ok(rate.await?)
}
