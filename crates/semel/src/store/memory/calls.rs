//! Calls that are remembered under an id, and receipts of absorbed duplicates.

use super::MemoryTx;
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::deliver::PastCall;
use crate::rules::key::CallId;
use crate::rules::receipt::{ReceiptKind, Receipts};
use crate::store::duplicates::{AbsorbedCalls, DuplicatePlace, DuplicateRow, DuplicatesQuery};
use crate::store::tx::{CallAt, CallRows};

impl CallRows for MemoryTx<'_> {
    async fn call(&mut self, workspace: WorkspaceId, scope: &str, id: &CallId) -> Result<Option<PastCall>> {
        Ok(self.tables.calls.get(&(workspace, scope.to_owned(), id.clone())).map(|(_, call)| call.clone()))
    }

    async fn insert_call(
        &mut self,
        at: CallAt<'_>,
        num: i64,
        call: &PastCall,
        replaces: Option<RunId>,
    ) -> Result<bool> {
        let at = (at.workspace, at.scope.to_owned(), at.id.clone());
        if self.tables.calls.get(&at).is_some_and(|(_, taken)| Some(taken.run) != replaces) {
            return Ok(false);
        }
        self.write().calls.insert(at, (num, call.clone()));
        Ok(true)
    }

    async fn add_receipts(&mut self, num: i64, kind: ReceiptKind, receipts: &Receipts) -> Result<()> {
        if self.tables.runs.contains_key(&num) {
            let held = self.write().receipts.entry((num, kind));
            held.and_modify(|held| held.merge(receipts.clone())).or_insert_with(|| receipts.clone());
        }
        Ok(())
    }

    async fn duplicates(
        &mut self,
        query: &DuplicatesQuery,
        before: Option<DuplicatePlace>,
    ) -> Result<Vec<DuplicateRow>> {
        let tables = &self.tables;
        let read = |((num, kind), receipts): (&(i64, ReceiptKind), &Receipts)| {
            let run = tables.runs.get(num).filter(|run| run.new.workspace == query.workspace)?;
            let at = DuplicatePlace { last: receipts.last, num: *num, kind: *kind };
            let wanted = query.kind.is_none_or(|wanted| wanted == *kind)
                && query.key.as_ref().is_none_or(|wanted| *wanted == run.new.key);
            let calls = wanted.then(|| AbsorbedCalls {
                run: run.id(),
                workflow: run.new.workflow.clone(),
                key: run.new.key.clone(),
                scope: run.new.scope.clone(),
                kind: *kind,
                count: receipts.count,
                first: receipts.first,
                latest: receipts.recent.last().cloned().unwrap_or_default(),
            });
            Some(DuplicateRow { at, run: run.id(), calls })
        };
        let mut rows: Vec<_> = tables.receipts.iter().filter_map(read).collect();
        rows.retain(|row| {
            before.is_none_or(|before| row.at < before)
                && query.since.is_none_or(|since| row.at.last >= since)
        });
        rows.sort_unstable_by_key(|row| std::cmp::Reverse(row.at));
        rows.truncate(query.rows());
        Ok(rows)
    }

    async fn receipts(&mut self, num: i64) -> Result<Vec<(ReceiptKind, Receipts)>> {
        let held = self.tables.receipts.range((num, ReceiptKind::Start)..=(num, ReceiptKind::Refused));
        Ok(held.map(|((_, kind), receipts)| (*kind, receipts.clone())).collect())
    }
}
