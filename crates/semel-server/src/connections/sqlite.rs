//! Connections of the kind `sqlite`: a file on the server's machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use semel::tx::SqliteDb;
use semel::tx::rusqlite::{self, Connection, OpenFlags};

use super::database::{Database, DatabaseFound, DatabaseSettings};
use super::kind::{ConnectionKind, Environment, Settings, Target};
use super::members::Members;
use super::secret::Redactor;
use crate::databases::queue::QUEUE;
use crate::databases::sqlite::SqliteFile;

pub(super) static KIND: ConnectionKind = ConnectionKind { name: "sqlite", read };

/// How long another process may hold the lock of the file.
const BUSY: Duration = Duration::from_secs(10);

struct SqliteSettings {
    database: DatabaseSettings,
    path: PathBuf,
}

fn read(members: &mut Members<'_>) -> Option<Box<dyn Settings>> {
    let database = DatabaseSettings::read(members);
    let path = members.needed("path", "the path of the file")?.into();
    Some(Box::new(SqliteSettings { database, path }))
}

impl Settings for SqliteSettings {
    fn open(self: Box<Self>, _: Environment<'_>) -> Result<Box<dyn Target>, Vec<(String, String)>> {
        let path = &self.path;
        if !path.is_file() {
            // A file that is made by a typing error would be an empty database.
            let why =
                format!("there is no file {}; make it with `sqlite3`, or correct the path", path.display());
            return Err(vec![("path".to_owned(), why)]);
        }
        let file = open(path).map_err(|error| {
            vec![("path".to_owned(), format!("the file {} cannot be opened: {error}", path.display()))]
        })?;
        Ok(self.database.target(Database::Sqlite(file), Redactor::default()))
    }
}

fn open(path: &Path) -> rusqlite::Result<SqliteFile> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let writer = Connection::open_with_flags(path, flags)?;
    writer.busy_timeout(BUSY)?;
    // As the library opens it again after an error: readers do not wait for writers, and a commit is on the disk.
    writer.pragma_update(None, "journal_mode", "wal")?;
    writer.pragma_update(None, "synchronous", "full")?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let reader = Connection::open_with_flags(path, flags)?;
    reader.busy_timeout(BUSY)?;
    Ok(SqliteFile { writer: SqliteDb::new(writer), reader: SqliteDb::new(reader) })
}

/// Looks what is there.
pub(super) async fn look(file: &SqliteFile, fence_table: &str) -> Result<DatabaseFound, String> {
    let fence = fence_table.rsplit('.').next().unwrap_or_default().to_owned();
    let looked = file.reader.call(move |conn| {
        let there = |table: &str| {
            let look = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1 COLLATE NOCASE";
            conn.query_row(look, [table], |row| row.get::<_, i64>(0)).map(|count| count > 0)
        };
        Ok((there(&fence)?, there(QUEUE)?))
    });
    let (has_fence, has_queue) = looked.await.map_err(|error| super::database::told(&error))?;
    let about = format!("opened, SQLite {}", rusqlite::version());
    Ok(DatabaseFound { about, has_fence, has_queue })
}
