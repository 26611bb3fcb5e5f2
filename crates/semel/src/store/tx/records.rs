//! Records: small documents of the program around the store.

use std::future::Future;

use crate::error::Result;
use crate::rules::key::RecordId;
use crate::rules::path::Name;
use crate::rules::record::{Look, Record};

/// Rows of records in one transaction.
pub(crate) trait RecordRows: Send {
    /// A record, locked, whether or not it has expired.
    fn record(&mut self, kind: &Name, id: &RecordId) -> impl Future<Output = Result<Option<Record>>> + Send;
    /// Writes a record in place of a version, or, with none, where there is none; false if that is not so.
    fn put_record(
        &mut self,
        record: &Record,
        replaces: Option<u64>,
    ) -> impl Future<Output = Result<bool>> + Send;
    /// Records that have not expired, in the order that is asked for.
    fn records(&mut self, look: &Look) -> impl Future<Output = Result<Vec<Record>>> + Send;
    /// Forgets records that have expired.
    fn delete_expired_records(&mut self, limit: usize) -> impl Future<Output = Result<usize>> + Send;
}
