//! The rows of an archive, in memory.

use super::{MemoryTables, MemoryTx};
use crate::clock::Time;
use crate::error::Result;
use crate::id::NodeId;
use crate::rules::archive::CallLine;
use crate::rules::key::Token;
use crate::rules::record::Record;
use crate::rules::run::{Run, RunState};
use crate::store::archive::{ArchiveRows, OnceAt, RecordAt};
use crate::store::tx::{HeldOnce, InboxRow, LedgerRow, Watcher};

impl ArchiveRows for MemoryTx<'_> {
    async fn runs_after(&mut self, num: i64, limit: usize) -> Result<Vec<Run>> {
        let after = self.tables.runs.range(num.saturating_add(1)..);
        Ok(after.take(limit).map(|(_, run)| run.clone()).collect())
    }

    async fn tokens_of(&mut self, num: i64) -> Result<Vec<Token>> {
        let owned = self.tables.hooks.iter().filter(|(_, held)| held.num == num);
        Ok(owned.map(|((_, token), _)| token.clone()).collect())
    }

    async fn calls_of(&mut self, num: i64) -> Result<Vec<CallLine>> {
        let of = self.tables.calls.iter().filter(|(_, (run, _))| *run == num);
        let line = |((_, scope, id), (_, call)): (&(_, String, _), &(_, crate::rules::deliver::PastCall))| {
            CallLine {
                scope: scope.clone(),
                id: Clone::clone(id),
                run: call.run,
                fingerprint: call.fingerprint,
                result: call.result,
            }
        };
        let mut calls: Vec<CallLine> = of.map(line).collect();
        calls.sort_by(|a, b| (&a.scope, &a.id).cmp(&(&b.scope, &b.id)));
        Ok(calls)
    }

    async fn watchers_of(&mut self, num: i64) -> Result<Vec<Watcher>> {
        Ok(self.tables.watchers.get(&num).cloned().unwrap_or_default())
    }

    async fn once_after(&mut self, at: Option<&OnceAt>, limit: usize) -> Result<Vec<HeldOnce>> {
        let after = self.tables.once.iter().filter(|(found, _)| at.is_none_or(|at| *found > at));
        let mut rows: Vec<_> = after.collect();
        rows.sort_by_key(|(at, _)| *at);
        let held = |((workspace, scope, label), row): (&OnceAt, &crate::rules::once::OnceRow)| HeldOnce {
            workspace: *workspace,
            scope: scope.clone(),
            label: label.clone(),
            row: row.clone(),
        };
        Ok(rows.into_iter().take(limit).map(held).collect())
    }

    async fn records_after(&mut self, at: Option<&RecordAt>, limit: usize) -> Result<Vec<Record>> {
        let all = self.tables.records.values().flat_map(|kind| kind.values());
        let behind = |record: &&Record| at.is_none_or(|(kind, id)| (&record.kind, &record.id) > (kind, id));
        Ok(all.filter(behind).take(limit).cloned().collect())
    }

    async fn live_node(&mut self) -> Result<Option<NodeId>> {
        let now = self.now;
        let live = self.tables.nodes.iter().find(|(_, node)| node.lease.is_some_and(|until| until > now));
        Ok(live.map(|(node, _)| *node))
    }

    async fn restore_run(&mut self, run: &Run) -> Result<Option<i64>> {
        let held = run.state.holds_key && self.tables.keys.contains_key(&MemoryTables::key(run));
        if held || self.tables.ids.contains_key(&run.id()) {
            return Ok(None);
        }
        let tables = self.write();
        tables.last_num += 1;
        let num = tables.last_num;
        tables.ids.insert(run.id(), num);
        tables.children.extend(run.new.parent.map(|parent| (parent, num)));
        tables.listed.insert((run.new.workspace, run.new.created, num));
        let bare = RunState { due: None, node: None, purge: None, holds_key: false, ..run.state.clone() };
        tables.runs.insert(num, Run { num, state: bare, ..run.clone() });
        tables.update(num, |restored| restored.state = run.state.clone());
        Ok(Some(num))
    }

    async fn restore_commit(&mut self, num: i64, seq: u64, at: Time, text: &str) -> Result<()> {
        let row = LedgerRow { num, seq, at, text: text.to_owned() };
        self.write().ledger.entry(num).or_default().push(row);
        Ok(())
    }

    async fn restore_message(&mut self, num: i64, arrival: u64, at: Time, text: &str) -> Result<()> {
        let row = InboxRow { num, arrival, at, text: text.to_owned() };
        self.write().inbox.entry(num).or_default().insert(arrival, row);
        Ok(())
    }
}
