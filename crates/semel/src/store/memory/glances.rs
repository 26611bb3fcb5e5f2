//! What a list shows of runs beside their headers.

use super::MemoryTx;
use crate::error::Result;
use crate::rules::receipt::ReceiptKind;
use crate::store::tx::{GLANCE_BYTES, GLANCE_TAIL, GlanceRow, GlanceRows, LedgerRow, NOT_ABSORBED};

impl GlanceRows for MemoryTx<'_> {
    async fn glances(&mut self, nums: &[i64]) -> Result<Vec<GlanceRow>> {
        Ok(nums.iter().map(|num| self.glance(*num)).collect())
    }
}

impl MemoryTx<'_> {
    fn glance(&self, num: i64) -> GlanceRow {
        let absorbed = |kind: &ReceiptKind| kind.code() < NOT_ABSORBED;
        let receipts = self.tables.receipts.iter().filter(|((run, kind), _)| *run == num && absorbed(kind));
        let ledger = self.tables.ledger.get(&num).map_or(&[][..], Vec::as_slice);
        let text = |row: &LedgerRow| Some(row.text.clone()).filter(|text| text.len() <= GLANCE_BYTES);
        let hooks = self.tables.hooks.iter().filter(|(_, held)| held.num == num);
        let latest = hooks.min_by_key(|((_, token), held)| (std::cmp::Reverse(held.opened), token));
        GlanceRow {
            num,
            duplicates: receipts.map(|(_, receipts)| receipts.count).sum(),
            first: ledger.first().filter(|row| row.seq == 0).and_then(text),
            tail: ledger.iter().rev().take(GLANCE_TAIL).filter_map(text).collect(),
            hook: latest.map(|((_, token), held)| (token.clone(), held.visit.clone())),
        }
    }
}
