//! Pages of runs that fit a query, and of keys.

use super::read::known;
use crate::error::Result;
use crate::rules::run::Run;
use crate::store::list::{Index, KeyPage, KeyQuery, Merged, Pass, Range, Scan, Scanned, place};
use crate::store::tx::{KeyScan, StoreTx, Verb};
use crate::store::{Page, Query};

impl Verb for Query {
    type Answer = Page;
    const READS: bool = true;
    const SCANS: bool = true;

    /// The first pass that yields the whole page answers. If none does, the one that came farthest does: whatever it
    /// did not find down to there does not exist.
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Page> {
        if self.limit == 0 {
            return Ok(Page::default());
        }
        let behind = match self.before {
            Some(run) => Some(place(&known(tx, self.workspace, run).await?)),
            None => None,
        };
        let range = Range::of(self, behind);
        // One more than is shown tells whether there is a next page.
        let limit = self.limit.saturating_add(1);
        let mut farthest = Scanned::default();
        for pass in self.passes() {
            let scanned = match pass {
                Pass::Keys => match self.by_keys(tx, range, limit).await? {
                    Some(found) => found,
                    None => continue,
                },
                Pass::Ordered(indexes) => self.by_indexes(tx, &indexes, range, limit).await?,
            };
            let Some((stopped_at, _)) = scanned.stopped_at else {
                return Ok(page_of(scanned, self.limit));
            };
            if farthest.stopped_at.is_none_or(|(other, _)| self.order.puts(other, stopped_at)) {
                farthest = scanned;
            }
        }
        Ok(page_of(farthest, self.limit))
    }
}

impl Query {
    /// One pass over each of these, which share the bound on rows.
    async fn by_indexes<T: StoreTx>(
        &self,
        tx: &mut T,
        indexes: &[Index<'_>],
        range: Range,
        limit: usize,
    ) -> Result<Scanned> {
        let look_at = (self.look_at / indexes.len()).max(1);
        let mut merged = Merged::new(self.order, limit, range);
        for index in indexes {
            let scan = Scan { query: self, index: *index, range: merged.range, limit, look_at };
            merged.add(tx.list(&scan).await?);
            // The run that a lineage belongs to has inherited nothing.
            if let Index::Lineage(lineage) = index {
                let own = tx.run(*lineage).await?.filter(|run| self.wants(run) && range.has(place(run)));
                merged.add(Scanned { runs: own.into_iter().collect(), stopped_at: None });
            }
        }
        Ok(merged.finish())
    }

    /// All runs whose keys have the prefix, if they are few.
    async fn by_keys<T: StoreTx>(&self, tx: &mut T, range: Range, limit: usize) -> Result<Option<Scanned>> {
        let Some(keys) = &self.key_prefix else { return Ok(None) };
        let mut merged = Merged::new(self.order, usize::MAX, range);
        for held in [true, false] {
            let scan = KeyScan { workspace: self.workspace, keys, after: None, held, limit: self.look_at };
            let mut runs = tx.keys(&scan).await?;
            if runs.len() >= self.look_at {
                return Ok(None);
            }
            runs.retain(|run| self.wants(run) && range.has(place(run)));
            merged.add(Scanned { runs, stopped_at: None });
        }
        let mut found = merged.finish();
        found.runs.truncate(limit);
        Ok(Some(found))
    }
}

fn page_of(mut found: Scanned, limit: usize) -> Page {
    let partial = found.stopped_at.is_some() && found.runs.len() < limit;
    let full = found.runs.len() > limit;
    found.runs.truncate(limit);
    let next = match found.stopped_at {
        Some((_, run)) => Some(run),
        None => found.runs.last().filter(|_| full).map(Run::id),
    };
    Page { runs: found.runs, next, partial }
}

impl Verb for KeyQuery {
    type Answer = KeyPage;
    const READS: bool = true;
    const SCANS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<KeyPage> {
        if self.limit == 0 {
            return Ok(KeyPage::default());
        }
        let limit = self.limit.saturating_add(1);
        let (mut runs, mut end) = (Vec::new(), None);
        for held in [true, false] {
            let Self { workspace, keys, after, .. } = self;
            let scan = KeyScan { workspace: *workspace, keys, after: after.as_ref(), held, limit };
            let found = tx.keys(&scan).await?;
            if let Some(last) = found.last().filter(|_| found.len() == limit) {
                // What is behind it has not been read.
                let last = last.new.key.clone();
                end = Some(end.map_or(last.clone(), |end: crate::rules::key::Key| end.min(last)));
            }
            runs.extend(found);
        }
        runs.sort_by(|one, other| {
            let place = |run: &Run| (std::cmp::Reverse(run.state.holds_key), std::cmp::Reverse(run.num));
            one.new.key.cmp(&other.new.key).then_with(|| place(one).cmp(&place(other)))
        });
        if let Some(end) = end {
            runs.retain(|run| run.new.key <= end);
        }
        Ok(keys_of(runs, self.limit))
    }
}

/// The runs of whole keys, as many as fit. A key that so many runs have lost that it does not fit is cut short.
fn keys_of(mut runs: Vec<Run>, limit: usize) -> KeyPage {
    if runs.len() <= limit {
        return KeyPage { runs, next: None };
    }
    let split = runs[limit].new.key.clone();
    let whole = runs.iter().take(limit).take_while(|run| run.new.key != split).count();
    runs.truncate(if whole == 0 { limit } else { whole });
    let next = runs.last().map(|run| run.new.key.clone());
    KeyPage { runs, next }
}
