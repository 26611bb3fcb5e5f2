//! Records: small documents of the program around the store.

use std::collections::BTreeMap;

use super::MemoryTx;
use crate::error::Result;
use crate::rules::key::RecordId;
use crate::rules::path::Name;
use crate::rules::record::{Look, LookBy, Record};
use crate::store::tx::RecordRows;

impl RecordRows for MemoryTx<'_> {
    async fn record(&mut self, kind: &Name, id: &RecordId) -> Result<Option<Record>> {
        Ok(self.tables.records.get(kind).and_then(|records| records.get(id)).cloned())
    }

    async fn put_record(&mut self, record: &Record, replaces: Option<u64>) -> Result<bool> {
        let there = self.record(&record.kind, &record.id).await?.map(|there| there.version);
        if there != replaces {
            return Ok(false);
        }
        let records = self.write().records.entry(record.kind.clone()).or_default();
        records.insert(record.id.clone(), record.clone());
        Ok(true)
    }

    async fn records(&mut self, look: &Look) -> Result<Vec<Record>> {
        let Some(records) = self.tables.records.get(&look.kind) else { return Ok(Vec::new()) };
        let now = self.now;
        let there = records.values().filter(|record| record.expires.is_none_or(|at| at > now)).cloned();
        Ok(match &look.by {
            LookBy::Id(id) => there.filter(|record| record.id == *id).collect(),
            LookBy::Page { after, limit, newest_first: false } => {
                let behind = |record: &Record| after.as_ref().is_none_or(|after| record.id > *after);
                there.filter(behind).take(*limit).collect()
            }
            LookBy::Page { after, limit, newest_first: true } => {
                let behind = |record: &Record| after.as_ref().is_none_or(|after| record.id < *after);
                there.rev().filter(behind).take(*limit).collect()
            }
        })
    }

    async fn delete_expired_records(&mut self, limit: usize) -> Result<usize> {
        let all = self.tables.records.values().flat_map(BTreeMap::values);
        let expired = all.filter(|record| record.expires.is_some_and(|at| at <= self.now));
        let expired: Vec<_> =
            expired.map(|record| (record.kind.clone(), record.id.clone())).take(limit).collect();
        for (kind, id) in &expired {
            self.write().records.get_mut(kind).and_then(|records| records.remove(id));
        }
        Ok(expired.len())
    }
}
