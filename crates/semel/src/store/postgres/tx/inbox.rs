//! Inboxes: messages that have arrived and are not consumed.

use tokio_postgres::Row;

use super::{Params, PgStoreTx};
use crate::clock::Time;
use crate::error::Result;
use crate::rules::deliver::Unconsumed;
use crate::rules::entry::Message;
use crate::store::postgres::rows::{bigint, column};
use crate::store::tx::{InboxRow, InboxRows, TxTime, message_text};

impl InboxRows for PgStoreTx<'_> {
    async fn arrive(&mut self, num: i64, message: &Message) -> Result<Option<u64>> {
        let insert = include_str!("../sql/arrive.sql");
        let row = self.write_row(insert, &[&num, &self.now().0, &message_text(message)]).await?;
        row.map(|row| Ok(column::<i64>(&row, 0)? as u64)).transpose()
    }

    async fn inboxes(&mut self, nums: &[i64], from: u64, bytes: usize) -> Result<Vec<InboxRow>> {
        // Nothing has a number that PostgreSQL does not have.
        let Ok(from) = i64::try_from(from) else { return Ok(Vec::new()) };
        let read = |row: &Row| {
            let arrival = column::<i64>(row, 1)? as u64;
            Ok(InboxRow { num: column(row, 0)?, arrival, at: Time(column(row, 2)?), text: column(row, 3)? })
        };
        let params: Params<'_> = &[&nums, &from, &bigint(bytes.max(1))];
        self.rows(include_str!("../sql/inboxes.sql"), params).await?.iter().map(read).collect()
    }

    async fn unconsumed(&mut self, num: i64) -> Result<Unconsumed> {
        let sum =
            "SELECT count(*), coalesce(sum(octet_length(message)), 0)::bigint FROM inbox WHERE run = $1";
        let rows = self.rows(sum, &[&num]).await?;
        let read = |row: &Row| {
            Ok(Unconsumed { count: column::<i64>(row, 0)? as u64, bytes: column::<i64>(row, 1)? as u64 })
        };
        rows.first().map_or(Ok(Unconsumed::default()), read)
    }

    async fn arrived(&mut self, num: i64, arrivals: &[u64]) -> Result<Vec<u64>> {
        let there = "SELECT arrival FROM inbox WHERE run = $1 AND arrival = ANY ($2)";
        // A number that PostgreSQL does not have is not there.
        let arrivals: Vec<_> = arrivals.iter().filter_map(|arrival| i64::try_from(*arrival).ok()).collect();
        let rows = self.rows(there, &[&num, &arrivals]).await?;
        rows.iter().map(|row| Ok(column::<i64>(row, 0)? as u64)).collect()
    }

    async fn consume(&mut self, num: i64, arrival: u64) -> Result<bool> {
        let delete = "DELETE FROM inbox WHERE run = $1 AND arrival = $2";
        Ok(self.write(delete, &[&num, &(arrival as i64)]).await? == 1)
    }

    async fn consume_all(&mut self, num: i64, arrivals: &[u64]) -> Result<()> {
        let delete = "DELETE FROM inbox WHERE run = $1 AND arrival = ANY ($2)";
        let arrivals: Vec<_> = arrivals.iter().map(|arrival| *arrival as i64).collect();
        self.write(delete, &[&num, &arrivals]).await.map(drop)
    }
}
