//! Ledgers: the entries of runs, commit by commit.

use rusqlite::Row;

use super::SqliteStoreTx;
use crate::clock::Time;
use crate::error::Result;
use crate::store::tx::{LedgerRow, LedgerRows};

impl LedgerRows for SqliteStoreTx {
    async fn append(&mut self, num: i64, seq: u64, text: &str) -> Result<()> {
        self.append_row(num, seq, self.now, text)
    }

    async fn ledgers(&mut self, nums: &[i64], from: u64) -> Result<Vec<LedgerRow>> {
        let mut rows = Vec::new();
        for num in nums {
            // Entry number `from` stands in the last commit with fewer entries before it.
            rows.extend(self.walk(*num, |row| row.seq >= from)?.into_iter().rev());
        }
        Ok(rows)
    }

    async fn ledger_part(
        &mut self,
        num: i64,
        from: u64,
        limit: usize,
        bytes: usize,
    ) -> Result<Option<Vec<LedgerRow>>> {
        self.part(num, from, limit, bytes)
    }

    async fn ledger_first(&mut self, num: i64) -> Result<Option<LedgerRow>> {
        let sql = "SELECT prev, run, seq, at, entries FROM ledger WHERE num = (SELECT first FROM heads WHERE num = ?)";
        self.first(sql, [num], read_ledger)
    }

    async fn ledger_tail(&mut self, num: i64, limit: usize) -> Result<Vec<LedgerRow>> {
        let mut left = limit;
        let wanted = |_: &LedgerRow| {
            left = left.saturating_sub(1);
            left > 0
        };
        self.walk(num, wanted)
    }
}

pub(in crate::store::sqlite) fn read_ledger(row: &Row<'_>) -> rusqlite::Result<LedgerRow> {
    Ok(LedgerRow { num: row.get(1)?, seq: row.get(2)?, at: Time(row.get(3)?), text: row.get(4)? })
}
