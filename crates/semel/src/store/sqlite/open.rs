//! Opening the file: the lock, the pragmas, the migrations.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::SqliteOptions;
use super::checkpoint::LOG_PAGES;
use super::private;
use super::tx::reopen;
use crate::error::{Error, Result, Source};
use crate::sabotage::{self, Bug};

/// The schema, one script per version. A new version is appended; what has been released is never changed.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("migrations/001_schema.sql"),
    include_str!("migrations/002_records.sql"),
    include_str!("migrations/003_driven.sql"),
    include_str!("migrations/004_waiters.sql"),
    include_str!("migrations/005_due_by_version.sql"),
    include_str!("migrations/006_lists.sql"),
    include_str!("migrations/007_nodes.sql"),
    include_str!("migrations/008_deadlines.sql"),
    include_str!("migrations/009_families.sql"),
    include_str!("migrations/010_receipts.sql"),
    include_str!("migrations/011_stats.sql"),
    include_str!("migrations/012_questions.sql"),
    include_str!("migrations/013_hooks.sql"),
];

/// Marks the file as ours (`Sml1`), so that a foreign database is not taken for one of an earlier version.
const APPLICATION_ID: i64 = 0x536d_6c31;

/// An open store file: where it is, and the lock that keeps other processes out.
pub(super) struct File {
    pub(super) path: PathBuf,
    cache_bytes: usize,
    _lock: fs::File,
}

impl File {
    /// Locks the file and brings its schema up to date.
    pub(super) fn open(options: &SqliteOptions) -> Result<Self> {
        let path = options.path.clone();
        let lock = lock(&path)?;
        // SQLite gives its log and its index the permissions of the file.
        private::create(&path)
            .map_err(|e| Error::Open { what: path.display().to_string(), source: e.into() })?;
        let file = Self { path, cache_bytes: options.cache_bytes, _lock: lock };
        if fs::metadata(&file.path).is_ok_and(|found| found.len() > 0) {
            // Before the first connection that is set up to write, which would turn a foreign database to WAL.
            schema_version(&file.connect_to_look()?).map_err(|e| file.cannot_open(e))?;
        }
        let mut conn = file.connect()?;
        migrate(&mut conn).map_err(|e| file.cannot_open(e))?;
        reopen(&conn, options.clock.now()).map_err(|e| file.cannot_open(e.into()))?;
        // Closed, SQLite has carried its log over and removed it.
        conn.close().map_err(|(_, e)| file.cannot_open(e.into()))?;
        lengthen_log(&file.path).map_err(|e| file.cannot_open(e.into()))?;
        Ok(file)
    }

    /// The connection that writes.
    pub(super) fn connect(&self) -> Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(&self.path, flags).map_err(|e| self.cannot_open(e.into()))?;
        let pragmas = || -> rusqlite::Result<()> {
            settle_plans(&conn)?;
            conn.busy_timeout(Duration::from_secs(10))?;
            conn.pragma_update(None, "journal_mode", "wal")?;
            conn.pragma_update(None, "synchronous", synchronous())?;
            // Checkpoints are made beside the writer, not in its way.
            conn.pragma_update(None, "wal_autocheckpoint", 0)?;
            conn.pragma_update(None, "temp_store", "memory")?;
            conn.pragma_update(None, "cache_size", self.cache_kib())
        };
        pragmas().map_err(|e| self.cannot_open(e.into()))?;
        Ok(conn)
    }

    /// A connection that changes nothing of its own, but may take back what a crash has left half done: a file whose making
    /// was cut off cannot be read otherwise.
    fn connect_to_look(&self) -> Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Connection::open_with_flags(&self.path, flags).map_err(|e| self.cannot_open(e.into()))
    }

    /// A connection that only reads.
    pub(super) fn connect_reader(&self) -> Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(&self.path, flags).map_err(|e| self.cannot_open(e.into()))?;
        let settings = || -> rusqlite::Result<()> {
            settle_plans(&conn)?;
            conn.busy_timeout(Duration::from_secs(10))?;
            conn.pragma_update(None, "cache_size", self.cache_kib())
        };
        settings().map_err(|e| self.cannot_open(e.into()))?;
        Ok(conn)
    }

    /// As SQLite wants it: negative for a size instead of a number of pages.
    fn cache_kib(&self) -> i64 {
        -((self.cache_bytes / 1024) as i64)
    }

    fn cannot_open(&self, error: Source) -> Error {
        match error.downcast::<Error>() {
            Ok(error) => *error,
            Err(source) => Error::Open { what: self.path.display().to_string(), source },
        }
    }
}

/// Every commit is synced before it is answered.
fn synchronous() -> &'static str {
    if sabotage::commits(Bug::SyncNever) {
        return "off";
    }
    match sabotage::commits(Bug::SyncAtCheckpoints) || sabotage::commits(Bug::AnswerBeforeSync) {
        true => "normal",
        false => "full",
    }
}

/// Without it SQLite plans a statement anew whenever other values are bound to it, which takes longer than the statement.
fn settle_plans(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

/// Gives the write-ahead log its blocks beforehand, so that commits write over them and need not lengthen the file. SQLite
/// takes a log without a valid header for an empty one. A log that a crash has left is not touched.
fn lengthen_log(path: &Path) -> std::io::Result<()> {
    /// A page of 4 KiB and its header, and some more for what comes while the log is being carried over.
    const BYTES: usize = (4_096 + 24) * (LOG_PAGES as usize + 256);
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    if fs::metadata(&name).is_ok_and(|log| log.len() > 0) {
        return Ok(());
    }
    let mut log = private::create(Path::new(&name))?;
    log.write_all(&vec![0; BYTES])?;
    log.sync_all()
}

/// SQLite's own locks let several processes write in turns. Ours says that there is one: the writer's view of the
/// nodes, and the recovery of their runs at start, rely on it.
fn lock(path: &Path) -> Result<fs::File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let what = || Path::new(&name).display().to_string();
    let file = private::create(Path::new(&name));
    let file = file.map_err(|e| Error::Open { what: what(), source: e.into() })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(Error::Locked { path: path.display().to_string() }),
        Err(fs::TryLockError::Error(e)) => Err(Error::Open { what: what(), source: e.into() }),
    }
}

/// The version of the schema, if it is one that we know.
fn schema_version(conn: &Connection) -> Result<i64, Source> {
    let found: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let id: i64 = conn.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if id != APPLICATION_ID && (found != 0 || tables != 0) {
        return Err("it is a SQLite database, but not one of Semel's; choose another file".into());
    }
    let known = MIGRATIONS.len() as i64;
    if found > known {
        return Err(Box::new(Error::NewerSchema { found, known }));
    }
    Ok(found)
}

fn migrate(conn: &mut Connection) -> Result<(), Source> {
    let found = schema_version(conn)?;
    for (version, script) in (1..).zip(MIGRATIONS).skip(found as usize) {
        let tx = conn.transaction()?;
        tx.execute_batch(script)?;
        tx.pragma_update(None, "user_version", version)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.commit()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a crash in the first transaction leaves it: pages in the file, and the journal that takes them back.
    #[test]
    fn a_file_whose_making_was_cut_off_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("half.db"), folder.path().join("semel.db"));
        let half = Connection::open(&from).unwrap();
        let filling = "PRAGMA cache_size = 1; BEGIN; CREATE TABLE t (x);
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
            INSERT INTO t SELECT zeroblob(4000) FROM n;";
        half.execute_batch(filling).unwrap();
        fs::copy(&from, &to).unwrap();
        fs::copy(folder.path().join("half.db-journal"), folder.path().join("semel.db-journal")).unwrap();
        assert!(fs::metadata(&to).unwrap().len() > 0);
        File::open(&SqliteOptions::new(to)).unwrap();
    }

    /// What the head of a run says of it decides whether its end may leave everything else alone.
    #[test]
    fn heads_of_an_earlier_version_learn_of_ties() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("semel.db");
        let old = Connection::open(&path).unwrap();
        old.execute_batch(MIGRATIONS[0]).unwrap();
        old.execute_batch(MIGRATIONS[1]).unwrap();
        old.pragma_update(None, "user_version", 2).unwrap();
        old.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        for (num, running, ties) in [(1, true, false), (2, true, true), (3, false, true)] {
            let run = "INSERT INTO runs VALUES (?1, 1, 0, NULL, NULL, NULL, NULL, 1, ?2, 0, CAST(?1 AS BLOB), x'00', \
                 'w', '1', 's', ?1, x'00', x'00', NULL, 0, 0, 0)";
            old.execute(run, (num, ties)).unwrap();
            old.execute("INSERT INTO heads VALUES (?, 1, NULL, NULL, ?, 0)", (num, running)).unwrap();
        }
        drop(old);
        let conn = File::open(&SqliteOptions::new(path)).unwrap().connect().unwrap();
        let mut heads = conn.prepare("SELECT running FROM heads ORDER BY num").unwrap();
        let running: Vec<i64> = heads.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        assert_eq!(running, [1, 2, 0]);
    }

    #[test]
    fn every_commit_is_synced() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::open(&SqliteOptions::new(folder.path().join("semel.db"))).unwrap();
        let conn = file.connect().unwrap();
        let pragma = |name: &str| {
            conn.pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0)).unwrap()
        };
        assert_eq!(pragma("synchronous"), 2.into());
        assert_eq!(pragma("journal_mode"), "wal".to_owned().into());
        assert_eq!(pragma("wal_autocheckpoint"), 0.into());
    }
}
