//! Ledgers: the entries of runs, commit by commit.

use std::future::Future;

use crate::clock::Time;
use crate::error::Result;

/// The entries of one commit, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LedgerRow {
    /// The run.
    pub(crate) num: i64,
    /// How many entries come before these.
    pub(crate) seq: u64,
    pub(crate) at: Time,
    pub(crate) text: String,
}

/// Rows of ledgers in one transaction.
pub(crate) trait LedgerRows: Send {
    /// Appends the entries of one commit.
    fn append(&mut self, num: i64, seq: u64, text: &str) -> impl Future<Output = Result<()>> + Send;
    /// All of some runs' ledgers, in order, from the commit that contains entry number `from`.
    fn ledgers(&mut self, nums: &[i64], from: u64) -> impl Future<Output = Result<Vec<LedgerRow>>> + Send;
    /// The whole ledgers of some runs, in order: none after the one that exceeds `bytes`. A store for which each call is a
    /// round trip reads them by one statement.
    fn whole_ledgers(
        &mut self,
        nums: &[i64],
        bytes: usize,
    ) -> impl Future<Output = Result<Vec<LedgerRow>>> + Send {
        async move {
            let (mut rows, mut read) = (Vec::new(), 0);
            for num in nums {
                if read >= bytes.max(1) {
                    break;
                }
                let ledger = self.ledgers(&[*num], 0).await?;
                read += ledger.iter().map(|row| row.text.len()).sum::<usize>();
                rows.extend(ledger);
            }
            Ok(rows)
        }
    }
    /// The commits of a run from the one that contains entry number `from`: at most `limit`, and none after the one that
    /// exceeds `bytes`. None if there is still some way to go to that entry: then the verb is asked again, and others are
    /// served in between.
    fn ledger_part(
        &mut self,
        num: i64,
        from: u64,
        limit: usize,
        bytes: usize,
    ) -> impl Future<Output = Result<Option<Vec<LedgerRow>>>> + Send;
    /// The first commit of a run: what it was created with.
    fn ledger_first(&mut self, num: i64) -> impl Future<Output = Result<Option<LedgerRow>>> + Send;
    /// The last few commits of a run, the latest first.
    fn ledger_tail(&mut self, num: i64, limit: usize) -> impl Future<Output = Result<Vec<LedgerRow>>> + Send;
}
