//! Inboxes: messages that have arrived and are not consumed.

use std::collections::BTreeMap;

use super::MemoryTx;
use crate::error::Result;
use crate::rules::deliver::Unconsumed;
use crate::rules::entry::Message;
use crate::rules::status::Status;
use crate::store::tx::{InboxRow, InboxRows};

impl InboxRows for MemoryTx<'_> {
    async fn arrive(&mut self, num: i64, message: &Message) -> Result<Option<u64>> {
        let Some(run) = self.tables.runs.get(&num).filter(|run| !run.status().is_terminal()) else {
            return Ok(None);
        };
        let (now, arrival, waits) = (self.now, run.arrivals + 1, run.status() == Status::Waiting);
        let tables = self.write();
        tables.update(num, |run| {
            run.arrivals = arrival;
            if waits {
                run.state.due = Some(run.state.due.map_or(now, |due| due.min(now)));
            }
        });
        let row = InboxRow { num, arrival, at: now, text: crate::store::tx::message_text(message) };
        tables.inbox.entry(num).or_default().insert(arrival, row);
        Ok(Some(arrival))
    }

    async fn inboxes(&mut self, nums: &[i64], from: u64, bytes: usize) -> Result<Vec<InboxRow>> {
        let boxes = nums.iter().filter_map(|num| self.tables.inbox.get(num));
        let mut read = 0;
        let fits = |row: &&InboxRow| {
            let before = read;
            read += row.text.len();
            before < bytes.max(1)
        };
        Ok(boxes
            .flat_map(|inbox| inbox.range(from..).map(|(_, row)| row))
            .take_while(fits)
            .cloned()
            .collect())
    }

    async fn unconsumed(&mut self, num: i64) -> Result<Unconsumed> {
        let rows = self.tables.inbox.get(&num).into_iter().flat_map(BTreeMap::values);
        Ok(rows.fold(Unconsumed::default(), |all, row| Unconsumed {
            count: all.count + 1,
            bytes: all.bytes + row.text.len() as u64,
        }))
    }

    async fn arrived(&mut self, num: i64, arrivals: &[u64]) -> Result<Vec<u64>> {
        let inbox = self.tables.inbox.get(&num);
        let there = |arrival: &&u64| inbox.is_some_and(|inbox| inbox.contains_key(arrival));
        Ok(arrivals.iter().filter(there).copied().collect())
    }

    async fn consume(&mut self, num: i64, arrival: u64) -> Result<bool> {
        if !self.tables.inbox.get(&num).is_some_and(|inbox| inbox.contains_key(&arrival)) {
            return Ok(false);
        }
        self.write().inbox.entry(num).or_default().remove(&arrival);
        Ok(true)
    }
}
