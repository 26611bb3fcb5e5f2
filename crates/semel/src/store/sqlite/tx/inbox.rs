//! Inboxes: messages that have arrived and are not consumed.

use rusqlite::{Row, params};

use super::{SqliteStoreTx, failed};
use crate::clock::Time;
use crate::error::Result;
use crate::rules::deliver::Unconsumed;
use crate::rules::entry::Message;
use crate::store::sqlite::values;
use crate::store::tx::{InboxRow, InboxRows, message_text};

impl InboxRows for SqliteStoreTx {
    async fn arrive(&mut self, num: i64, message: &Message) -> Result<Option<u64>> {
        let sql = include_str!("../sql/arrive.sql");
        let arrival = self.first(sql, params![num, self.now], |row| row.get::<_, u64>(0))?;
        if let Some(arrival) = arrival {
            let sql = "INSERT INTO inbox (run, arrival, at, message) VALUES (?, ?, ?, ?)";
            self.write(sql, params![num, arrival, self.now, message_text(message)])?;
        }
        Ok(arrival)
    }

    async fn inboxes(&mut self, nums: &[i64], from: u64, bytes: usize) -> Result<Vec<InboxRow>> {
        let sql =
            "SELECT run, arrival, at, message FROM inbox WHERE run = ? AND arrival >= ? ORDER BY arrival";
        // Nothing has a number that SQLite does not have.
        let Ok(from) = i64::try_from(from) else { return Ok(Vec::new()) };
        let (mut rows, mut read) = (Vec::new(), 0);
        let mut statement = self.statement(sql)?;
        for num in nums {
            let mut found = statement.query([*num, from]).map_err(failed)?;
            while read < bytes.max(1)
                && let Some(row) = found.next().map_err(failed)?
            {
                let row = read_inbox(row).map_err(failed)?;
                read += row.text.len();
                rows.push(row);
            }
        }
        Ok(rows)
    }

    async fn unconsumed(&mut self, num: i64) -> Result<Unconsumed> {
        Ok(self.first(values::UNCONSUMED, [num], values::unconsumed)?.unwrap_or_default())
    }

    async fn arrived(&mut self, num: i64, arrivals: &[u64]) -> Result<Vec<u64>> {
        let sql = "SELECT arrival FROM inbox WHERE run = ? AND arrival = ?";
        let mut there = Vec::new();
        // A number that SQLite does not have is not there.
        for arrival in arrivals.iter().filter_map(|arrival| i64::try_from(*arrival).ok()) {
            there.extend(self.first(sql, [num, arrival], |row| row.get::<_, u64>(0))?);
        }
        Ok(there)
    }

    async fn consume(&mut self, num: i64, arrival: u64) -> Result<bool> {
        Ok(self.write("DELETE FROM inbox WHERE run = ? AND arrival = ?", params![num, arrival])? == 1)
    }
}

fn read_inbox(row: &Row<'_>) -> rusqlite::Result<InboxRow> {
    Ok(InboxRow { num: row.get(0)?, arrival: row.get(1)?, at: Time(row.get(2)?), text: row.get(3)? })
}
