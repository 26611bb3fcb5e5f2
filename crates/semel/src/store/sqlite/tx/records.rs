//! Records: small documents of the program around the store.

use rusqlite::{Row, params};

use super::SqliteStoreTx;
use crate::clock::Time;
use crate::error::Result;
use crate::rules::json::Payload;
use crate::rules::key::RecordId;
use crate::rules::path::Name;
use crate::rules::record::{Look, LookBy, Record};
use crate::store::sqlite::values::Text;
use crate::store::tx::RecordRows;

impl RecordRows for SqliteStoreTx {
    async fn record(&mut self, kind: &Name, id: &RecordId) -> Result<Option<Record>> {
        self.read_record(kind, id)
    }

    async fn put_record(&mut self, record: &Record, replaces: Option<u64>) -> Result<bool> {
        let Record { kind, id, version, body, at, expires } = record;
        let (kind, id, body) = (kind.as_str(), id.as_str(), body.text());
        let written = match replaces {
            None => {
                let sql = include_str!("../sql/insert_record.sql");
                self.write(sql, params![kind, id, version, body, at, expires])?
            }
            Some(seen) => {
                let sql = include_str!("../sql/replace_record.sql");
                self.write(sql, params![kind, id, version, body, at, expires, seen])?
            }
        };
        Ok(written == 1)
    }

    async fn records(&mut self, look: &Look) -> Result<Vec<Record>> {
        match &look.by {
            LookBy::Id(id) => {
                let found = self.read_record(&look.kind, id)?;
                let there = |record: &Record| record.expires.is_none_or(|at| at > self.now);
                Ok(found.into_iter().filter(there).collect())
            }
            LookBy::Page { after, limit, newest_first } => {
                let (behind, order) = if *newest_first { ("<", "DESC") } else { (">", "ASC") };
                let behind = match after {
                    Some(_) => format!("id {behind} ?2"),
                    None => "?2 IS NULL".to_owned(),
                };
                let sql = format!(include_str!("../sql/records.sql"), behind = behind, order = order);
                let after = after.as_ref().map(RecordId::as_str);
                self.all(&sql, params![look.kind.as_str(), after, self.now, *limit as i64], read_record_row)
            }
        }
    }

    async fn delete_expired_records(&mut self, limit: usize) -> Result<usize> {
        let sql = "DELETE FROM records WHERE rowid IN (SELECT rowid FROM records WHERE expires <= ? LIMIT ?)";
        self.write(sql, params![self.now, limit as i64])
    }
}

impl SqliteStoreTx {
    pub(in crate::store::sqlite) fn read_record(&self, kind: &Name, id: &RecordId) -> Result<Option<Record>> {
        let sql = "SELECT kind, id, version, body, at, expires FROM records WHERE kind = ? AND id = ?";
        self.first(sql, [kind.as_str(), id.as_str()], read_record_row)
    }
}

pub(in crate::store::sqlite) fn read_record_row(row: &Row<'_>) -> rusqlite::Result<Record> {
    Ok(Record {
        kind: row.get::<_, Text<Name>>(0)?.0,
        id: row.get::<_, Text<RecordId>>(1)?.0,
        version: row.get(2)?,
        body: row.get::<_, Text<Payload>>(3)?.0,
        at: Time(row.get(4)?),
        expires: row.get::<_, Option<i64>>(5)?.map(Time),
    })
}
