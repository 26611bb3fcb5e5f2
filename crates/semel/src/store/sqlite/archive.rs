//! The rows of an archive, in SQLite.

use rusqlite::params;

use super::tx::read_record_row;
use super::tx::{RUN, RUNS, SqliteStoreTx, read_held_once, read_run};
use super::values::{Id, Text};
use crate::clock::Time;
use crate::error::Result;
use crate::id::{NodeId, RunId};
use crate::rules::archive::CallLine;
use crate::rules::attention::Attention;
use crate::rules::key::{CallId, Fingerprint, Token};
use crate::rules::path::Visit;
use crate::rules::record::Record;
use crate::rules::run::Run;
use crate::store::archive::{ArchiveRows, OnceAt, RecordAt};
use crate::store::tx::{HeldOnce, Watcher};

impl ArchiveRows for SqliteStoreTx {
    async fn runs_after(&mut self, num: i64, limit: usize) -> Result<Vec<Run>> {
        let sql = format!("SELECT {RUN} FROM {RUNS} WHERE num > ? ORDER BY num LIMIT ?");
        self.all(&sql, [num, limit as i64], read_run)
    }

    async fn tokens_of(&mut self, num: i64) -> Result<Vec<Token>> {
        let sql = "SELECT token FROM hooks WHERE run = ? ORDER BY token";
        self.all(sql, [num], |row| Ok(row.get::<_, Text<Token>>(0)?.0))
    }

    async fn calls_of(&mut self, num: i64) -> Result<Vec<CallLine>> {
        let sql = "SELECT scope, id, owner, fingerprint, result FROM calls WHERE run = ? ORDER BY scope, id";
        self.all(sql, [num], |row| {
            Ok(CallLine {
                scope: row.get(0)?,
                id: row.get::<_, Text<CallId>>(1)?.0,
                run: RunId(row.get::<_, Id>(2)?.0),
                fingerprint: Fingerprint(row.get(3)?),
                result: row.get(4)?,
            })
        })
    }

    async fn watchers_of(&mut self, num: i64) -> Result<Vec<Watcher>> {
        let sql = "SELECT watcher, visit FROM watchers WHERE run = ? ORDER BY rowid";
        self.all(sql, [num], |row| Ok(Watcher { num: row.get(0)?, visit: row.get::<_, Text<Visit>>(1)?.0 }))
    }

    async fn once_after(&mut self, at: Option<&OnceAt>, limit: usize) -> Result<Vec<HeldOnce>> {
        let columns = "SELECT owner, fence, value, expires, workspace, scope, label FROM once";
        let order = "ORDER BY workspace, scope, label LIMIT";
        match at {
            None => self.all(&format!("{columns} {order} ?"), [limit as i64], read_held_once),
            Some((workspace, scope, label)) => {
                let sql = format!("{columns} WHERE (workspace, scope, label) > (?, ?, ?) {order} ?");
                self.all(&sql, params![workspace, scope, label.as_str(), limit as i64], read_held_once)
            }
        }
    }

    async fn records_after(&mut self, at: Option<&RecordAt>, limit: usize) -> Result<Vec<Record>> {
        // The smallest of each comes before all.
        let (kind, id) = at.map_or(("", ""), |(kind, id)| (kind.as_str(), id.as_str()));
        self.all(include_str!("sql/records_after.sql"), params![kind, id, limit as i64], read_record_row)
    }

    async fn live_node(&mut self) -> Result<Option<NodeId>> {
        let sql = "SELECT id FROM nodes WHERE lease > ? LIMIT 1";
        self.first(sql, [self.now], |row| Ok(NodeId(row.get::<_, Id>(0)?.0)))
    }

    async fn restore_run(&mut self, run: &Run) -> Result<Option<i64>> {
        let Some(num) = self.insert_bare(&run.new, &run.state)? else { return Ok(None) };
        let sql = "UPDATE runs SET arrivals = ?2, purged = ?3, attention = ?4 WHERE num = ?1";
        let attention = run.state.attention.map(Attention::code);
        self.write(sql, params![num, run.arrivals, run.purged, attention])?;
        Ok(Some(num))
    }

    async fn restore_commit(&mut self, num: i64, seq: u64, at: Time, text: &str) -> Result<()> {
        self.append_row(num, seq, at, text)
    }

    async fn restore_message(&mut self, num: i64, arrival: u64, at: Time, text: &str) -> Result<()> {
        let sql = "INSERT INTO inbox (run, arrival, at, message) VALUES (?, ?, ?, ?)";
        self.write(sql, params![num, arrival, at, text]).map(drop)
    }

    async fn sound(&mut self) -> Result<Vec<String>> {
        let found = self.all("PRAGMA integrity_check", [], |row| row.get::<_, String>(0))?;
        Ok(found.into_iter().filter(|line| line != "ok").collect())
    }
}
