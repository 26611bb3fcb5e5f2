//! Pages of runs that fit a query.

use super::read::known;
use crate::error::Result;
use crate::store::list::{Scan, Scanned, place};
use crate::store::tx::{StoreTx, Verb};
use crate::store::{Page, Query};

impl Verb for Query {
    type Answer = Page;
    const READS: bool = true;
    const SCANS: bool = true;

    /// The first index that yields the whole page answers. If none does, the pass that came farthest does: whatever it
    /// did not find down to there does not exist.
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Page> {
        if self.limit == 0 {
            return Ok(Page::default());
        }
        let before = match self.before {
            Some(run) => Some(place(&known(tx, self.workspace, run).await?)),
            None => None,
        };
        // One more than is shown tells whether there is a next page.
        let limit = self.limit.saturating_add(1);
        let mut farthest = Scanned::default();
        for index in self.indexes() {
            let scanned = tx.list(&Scan { query: self, index, before, limit }).await?;
            let Some((stopped_at, _)) = scanned.stopped_at else {
                return Ok(page_of(scanned, self.limit));
            };
            if farthest.stopped_at.is_none_or(|(other, _)| stopped_at < other) {
                farthest = scanned;
            }
        }
        Ok(page_of(farthest, self.limit))
    }
}

fn page_of(mut found: Scanned, limit: usize) -> Page {
    let partial = found.stopped_at.is_some() && found.runs.len() < limit;
    let full = found.runs.len() > limit;
    found.runs.truncate(limit);
    let next = match found.stopped_at {
        Some((_, run)) => Some(run),
        None => found.runs.last().filter(|_| full).map(crate::rules::run::Run::id),
    };
    Page { runs: found.runs, next, partial }
}
