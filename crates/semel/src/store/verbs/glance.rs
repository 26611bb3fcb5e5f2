//! A glance at the runs of a page.

use crate::error::{Error, Result};
use crate::rules::entry::{Created, Entry, decode};
use crate::rules::glance::GlanceFacts;
use crate::rules::run::Run;
use crate::store::Glance;
use crate::store::tx::{GlanceRow, StoreTx, Verb};

/// Looks at runs whose headers the store has just given.
pub(crate) struct LookAt(pub(crate) Vec<Run>);

impl Verb for LookAt {
    type Answer = Vec<Glance>;
    const READS: bool = true;
    const SCANS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<Glance>> {
        let nums: Vec<i64> = self.0.iter().map(|run| run.num).collect();
        let rows = tx.glances(&nums).await?;
        self.0.iter().zip(rows).map(|(run, row)| glance(run, row)).collect()
    }
}

fn glance(run: &Run, row: GlanceRow) -> Result<Glance> {
    // The sweep may not be through with a history that is forgotten.
    let row = if run.purged { GlanceRow { duplicates: row.duplicates, ..GlanceRow::default() } } else { row };
    let entries = |text: &String| {
        decode(text).map_err(|e| Error::Corrupt { at: format!("ledger {}", run.num), source: e.into() })
    };
    let first = row.first.as_ref().map(entries).transpose()?.and_then(|all| all.into_iter().next());
    let created = match first {
        Some(Entry::Created(created)) => Some(created),
        _ => None,
    };
    let mut tail = Vec::new();
    for text in &row.tail {
        tail.extend(entries(text)?.into_iter().rev());
    }
    let facts = GlanceFacts { tail, hook: row.hook };
    let size = |created: &Created| created.input.text().len() as u64;
    Ok(Glance {
        duplicates: row.duplicates,
        forked_from: created.as_ref().and_then(|created| created.forked_from),
        input_bytes: created.as_deref().map(size),
        pause: facts.pause(run),
        now: facts.now(run),
    })
}
