//! Records: written under their guard, and read.

use crate::error::Result;
use crate::rules::record::{self, Keep, KeepStep, Look, Record};
use crate::store::tx::{StoreTx, Verb, race};

impl Verb for Keep {
    type Answer = Record;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Record> {
        let existing = tx.record(&self.kind, &self.id).await?;
        let found = existing.as_ref().map(|record| record.version);
        match record::decide(self, existing, tx.now())? {
            // A row that does not exist cannot be locked: another transaction may have inserted it since.
            KeepStep::Write(record) if !tx.put_record(&record, found).await? => Err(race()),
            KeepStep::Write(record) | KeepStep::Repeated(record) => Ok(record),
        }
    }
}

impl Verb for Look {
    type Answer = Vec<Record>;
    const READS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<Record>> {
        tx.records(self).await
    }
}
