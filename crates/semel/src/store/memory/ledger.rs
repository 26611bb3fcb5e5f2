//! Ledgers: the entries of runs, commit by commit.

use super::MemoryTx;
use crate::error::Result;
use crate::store::tx::{LedgerRow, LedgerRows};

impl LedgerRows for MemoryTx<'_> {
    async fn append(&mut self, num: i64, seq: u64, text: &str) -> Result<()> {
        let row = LedgerRow { num, seq, at: self.now, text: text.to_owned() };
        self.write().ledger.entry(num).or_default().push(row);
        Ok(())
    }

    async fn ledgers(&mut self, nums: &[i64], from: u64) -> Result<Vec<LedgerRow>> {
        let mut rows = Vec::new();
        for num in nums {
            let all = self.tables.ledger.get(num).map_or(&[][..], Vec::as_slice);
            // Entry number `from` stands in the last commit with fewer entries before it.
            let first = all.partition_point(|row| row.seq < from).saturating_sub(1);
            rows.extend_from_slice(&all[first..]);
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
        let all = self.ledgers(&[num], from).await?;
        let mut read = 0;
        let fits = |row: &LedgerRow| {
            let before = read;
            read += row.text.len();
            before < bytes.max(1)
        };
        Ok(Some(all.into_iter().take(limit).take_while(fits).collect()))
    }

    async fn ledger_first(&mut self, num: i64) -> Result<Option<LedgerRow>> {
        Ok(self.tables.ledger.get(&num).and_then(|rows| rows.first()).cloned())
    }

    async fn ledger_tail(&mut self, num: i64, limit: usize) -> Result<Vec<LedgerRow>> {
        let all = self.tables.ledger.get(&num).map_or(&[][..], Vec::as_slice);
        Ok(all.iter().rev().take(limit).cloned().collect())
    }
}
