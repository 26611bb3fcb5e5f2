//! The rows of receipts.

use tokio_postgres::Row;

use super::rows::{column, corrupt};
use super::tx::{Params, PgTx};
use crate::clock::Time;
use crate::error::Result;
use crate::rules::receipt::{ReceiptKind, Receipts};
use crate::store::tx::race;

impl PgTx<'_> {
    pub(super) async fn write_receipts(
        &mut self,
        num: i64,
        kind: ReceiptKind,
        receipts: &Receipts,
    ) -> Result<()> {
        // The lock keeps the run from being forgotten meanwhile, and is in nobody's way who only changes it. The sum is
        // read by another statement: what waits for a lock reads other rows as they were before it has waited.
        let lock = "SELECT num FROM runs WHERE num = $1 FOR KEY SHARE";
        let read = "SELECT kind, count, first, last, recent FROM receipts WHERE run = $1 AND kind = $2";
        let Some(_) = self.row(lock, &[&num]).await? else { return Ok(()) };
        let found = self.row(read, &[&num, &kind.code()]).await?;
        let sum = match &found {
            Some(row) => {
                let mut sum = receipts_of(row)?;
                sum.merge(receipts.clone());
                sum
            }
            None => receipts.clone(),
        };
        let before = found.as_ref().map(|row| column::<i64>(row, 1)).transpose()?;
        // Guarded by the count, which only grows: another process may have added to it since.
        let upsert = "INSERT INTO receipts AS x (run, kind, count, first, last, recent) VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (run, kind) DO UPDATE SET count = $3, first = $4, last = $5, recent = $6 WHERE x.count = $7";
        let recent = serde_json::to_string(&sum.recent).expect("receipts are plain data");
        let params: Params<'_> =
            &[&num, &kind.code(), &(sum.count as i64), &sum.first.0, &sum.last.0, &recent, &before];
        match self.write(upsert, params).await? {
            1 => Ok(()),
            _ => Err(race()),
        }
    }

    pub(super) async fn read_receipts(&self, num: i64) -> Result<Vec<(ReceiptKind, Receipts)>> {
        let read = "SELECT kind, count, first, last, recent FROM receipts WHERE run = $1 ORDER BY kind";
        let of = |row: &Row| {
            let code = column(row, 0)?;
            let kind =
                ReceiptKind::from_code(code).ok_or_else(|| corrupt(row, format!("{code} is no kind")))?;
            Ok((kind, receipts_of(row)?))
        };
        self.rows(read, &[&num]).await?.iter().map(of).collect()
    }
}

/// Reads the columns after the first.
fn receipts_of(row: &Row) -> Result<Receipts> {
    Ok(Receipts {
        count: column::<i64>(row, 1)? as u64,
        first: Time(column(row, 2)?),
        last: Time(column(row, 3)?),
        recent: serde_json::from_str(column(row, 4)?).map_err(|e| corrupt(row, e))?,
    })
}
