//! Ledgers: the entries of runs, commit by commit.

use tokio_postgres::Row;

use super::{Params, PgStoreTx};
use crate::clock::Time;
use crate::error::Result;
use crate::store::postgres::rows::{self, bigint, column};
use crate::store::tx::{LedgerRow, LedgerRows, TxTime};

impl LedgerRows for PgStoreTx<'_> {
    async fn append(&mut self, num: i64, seq: u64, text: &str) -> Result<()> {
        let insert = "INSERT INTO ledger (run, seq, at, entries) VALUES ($1, $2, $3, $4)";
        self.write(insert, &[&num, &(seq as i64), &self.now().0, &text]).await?;
        Ok(())
    }

    async fn ledgers(&mut self, nums: &[i64], from: u64) -> Result<Vec<LedgerRow>> {
        let rows = self.rows(include_str!("../sql/ledgers.sql"), &[&nums, &(from as i64)]).await?;
        rows.iter().map(ledger_row).collect()
    }

    async fn whole_ledgers(&mut self, nums: &[i64], bytes: usize) -> Result<Vec<LedgerRow>> {
        if nums.is_empty() {
            return Ok(Vec::new());
        }
        let params: Params<'_> = &[&nums, &bigint(bytes.max(1))];
        let rows = self.rows(include_str!("../sql/whole_ledgers.sql"), params).await?;
        rows.iter().map(ledger_row).collect()
    }

    async fn ledger_part(
        &mut self,
        num: i64,
        from: u64,
        limit: usize,
        bytes: usize,
    ) -> Result<Option<Vec<LedgerRow>>> {
        // Nothing has a number that PostgreSQL does not have.
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        let params: Params<'_> = &[&num, &from, &bigint(limit), &bigint(bytes.max(1))];
        let rows = self.rows(include_str!("../sql/ledger_part.sql"), params).await?;
        rows.iter().map(ledger_row).collect::<Result<_>>().map(Some)
    }

    async fn ledger_first(&mut self, num: i64) -> Result<Option<LedgerRow>> {
        let first = "SELECT run, seq, at, entries FROM ledger WHERE run = $1 AND seq = 0";
        self.rows(first, &[&num]).await?.first().map(ledger_row).transpose()
    }

    async fn ledger_tail(&mut self, num: i64, limit: usize) -> Result<Vec<LedgerRow>> {
        if let Some((_, tail)) = self.tail.as_ref().filter(|(run, _)| *run == num && limit <= rows::TAIL) {
            return Ok(tail.iter().take(limit).cloned().collect());
        }
        let last = "SELECT run, seq, at, entries FROM ledger WHERE run = $1 ORDER BY seq DESC LIMIT $2";
        self.rows(last, &[&num, &bigint(limit)]).await?.iter().map(ledger_row).collect()
    }
}

fn ledger_row(row: &Row) -> Result<LedgerRow> {
    let seq = column::<i64>(row, 1)? as u64;
    Ok(LedgerRow { num: column(row, 0)?, seq, at: Time(column(row, 2)?), text: column(row, 3)? })
}
