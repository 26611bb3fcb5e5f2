//! A store with many ended runs, written by SQL: copies of one run that went the usual way.

use std::path::Path;

use rusqlite::Connection;
use tokio_postgres::NoTls;

use crate::Anything;

/// One run in ten thousand is of this workflow, and all of these are among the oldest tenth.
pub(crate) const RARE: &str = "refund";

/// When copies that are past their retention ended, in milliseconds since 1970.
pub(crate) const PAST: i64 = 1_000;

/// The workflow of a copy. `n` goes from 1, the oldest, to `runs`.
fn workflow(runs: u64) -> String {
    format!("CASE WHEN n < {runs} / 10 AND n % 1000 = 1 THEN '{RARE}' ELSE 'order' END")
}

/// The state of a copy. Of the older ones nine of ten are completed (4), the others have failed (5), are cancelled (6) or
/// timed out (7). The newest twentieth is cancelled: a list of completed runs has to pass all of these.
fn status(runs: u64) -> String {
    format!(
        "CASE WHEN n > {runs} - {runs} / 20 THEN 6 WHEN n % 20 = 3 THEN 5 WHEN n % 20 = 8 THEN 6 WHEN n % 50 = 11 THEN 7 \
         ELSE 4 END"
    )
}

/// Fills the file of a server that is not running.
pub(crate) fn sqlite(file: &Path, runs: u64) -> Anything<()> {
    let conn = Connection::open(file)?;
    conn.pragma_update(None, "synchronous", "off")?;
    conn.pragma_update(None, "cache_size", -400_000)?;
    let (workflow, status) = (workflow(runs), status(runs));
    conn.execute_batch(&format!(
        "BEGIN;
         CREATE TEMP TABLE n AS WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {runs})
             SELECT n FROM n;
         CREATE TEMP TABLE r AS SELECT * FROM runs LIMIT 1;
         CREATE TEMP TABLE l AS SELECT * FROM ledger ORDER BY seq;
         INSERT INTO runs (status, arrivals, due, node, ended, purge, holds_key, ties, purged, id, workspace, workflow,
             workflow_version, scope, key, fingerprint, lineage, parent, keep_history, keep_key, created)
             SELECT {status}, 0, NULL, NULL, r.created - 1000 * ({runs} - n), NULL, 1, 0, 0,
             CAST(printf('%016d', n) AS BLOB), r.workspace, {workflow}, r.workflow_version, r.scope, 'filled-' || n,
             r.fingerprint, CAST(printf('%016d', n) AS BLOB), NULL, r.keep_history, r.keep_key,
             r.created - 1000 * ({runs} - n) FROM n CROSS JOIN r ORDER BY n;
         INSERT INTO ledger (prev, run, seq, at, entries)
             SELECT NULL, runs.num, l.seq, l.at, l.entries FROM runs CROSS JOIN l WHERE runs.num > (SELECT num FROM r)
             ORDER BY runs.num, l.seq;
         UPDATE ledger SET prev = num - 1 WHERE seq > 0 AND run > (SELECT num FROM r);
         INSERT INTO heads SELECT run, (SELECT version FROM heads), max(num), min(num), 0, 0 FROM ledger
             WHERE run > (SELECT num FROM r) GROUP BY run;
         COMMIT;
         PRAGMA wal_checkpoint(TRUNCATE);"
    ))?;
    Ok(())
}

/// Fills the database of a server that is not running.
pub(crate) async fn postgres(url: &str, runs: u64) -> Anything<()> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let connected = tokio::spawn(connection);
    let (workflow, status) = (workflow(runs), status(runs));
    let fill = format!(
        "SET search_path = semel;
         BEGIN;
         CREATE TEMP TABLE r AS SELECT * FROM runs LIMIT 1;
         CREATE TEMP TABLE l AS SELECT * FROM ledger;
         INSERT INTO runs (id, workspace, workflow, workflow_version, scope, key, fingerprint, lineage, keep_history,
             keep_key, created, status, version, stalls, ended, holds_key, ties)
             SELECT lpad(to_hex(n), 32, '0')::uuid, r.workspace, {workflow}, r.workflow_version, r.scope, 'filled-' || n,
             r.fingerprint, lpad(to_hex(n), 32, '0')::uuid, r.keep_history, r.keep_key, r.created - 1000 * ({runs} - n),
             {status}, r.version, 0, r.created - 1000 * ({runs} - n), true, false
             FROM generate_series(1::bigint, {runs}) n CROSS JOIN r ORDER BY n;
         INSERT INTO ledger (run, seq, at, entries)
             SELECT runs.num, l.seq, l.at, l.entries FROM runs CROSS JOIN l WHERE runs.num > (SELECT num FROM r)
             ORDER BY runs.num, l.seq;
         COMMIT;"
    );
    client.batch_execute(&fill).await?;
    drop(client);
    connected.await??;
    Ok(())
}

/// Makes all copies past their retention, and lengthens the ledger of the newest by this number of entries.
pub(crate) fn expire_sqlite(file: &Path, entries: u64) -> Anything<()> {
    let conn = Connection::open(file)?;
    conn.pragma_update(None, "synchronous", "off")?;
    conn.execute_batch(&format!(
        "BEGIN;
         UPDATE runs SET ended = {PAST}, purge = {PAST} WHERE key LIKE 'filled-%';
         CREATE TEMP TABLE h AS SELECT * FROM heads ORDER BY num DESC LIMIT 1;
         CREATE TEMP TABLE m AS SELECT max(num) AS num FROM ledger;
         CREATE TEMP TABLE e AS SELECT entries FROM ledger ORDER BY num LIMIT 1;
         WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {entries})
             INSERT INTO ledger (num, prev, run, seq, at, entries)
             SELECT m.num + n, CASE WHEN n = 1 THEN h.last ELSE m.num + n - 1 END, h.num, h.version + n - 1, {PAST}, e.entries
             FROM n, h, m, e;
         UPDATE heads SET last = (SELECT max(num) FROM ledger), version = version + {entries}
             WHERE num = (SELECT num FROM h);
         COMMIT;
         PRAGMA wal_checkpoint(TRUNCATE);"
    ))?;
    Ok(())
}

/// The same for a database.
pub(crate) async fn expire_postgres(url: &str, entries: u64) -> Anything<()> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let connected = tokio::spawn(connection);
    let expire = format!(
        "SET search_path = semel;
         BEGIN;
         UPDATE runs SET ended = {PAST}, purge = {PAST} WHERE key LIKE 'filled-%';
         CREATE TEMP TABLE h AS SELECT num, version FROM runs WHERE key LIKE 'filled-%' ORDER BY num DESC LIMIT 1;
         CREATE TEMP TABLE e AS SELECT entries FROM ledger LIMIT 1;
         INSERT INTO ledger (run, seq, at, entries)
             SELECT h.num, h.version + n - 1, {PAST}, e.entries FROM generate_series(1::bigint, {entries}) n, h, e;
         UPDATE runs SET version = version + {entries} WHERE num = (SELECT num FROM h);
         COMMIT;
         VACUUM ANALYZE;"
    );
    for part in expire.split_inclusive("COMMIT;") {
        client.batch_execute(part).await?;
    }
    drop(client);
    connected.await??;
    Ok(())
}
