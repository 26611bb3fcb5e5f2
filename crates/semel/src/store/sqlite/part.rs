//! Parts of ledgers in SQLite. A ledger has no index: each row names the one before it, so the way to a part leads back from
//! the end. It is walked without reading entries, a bounded number of rows at a time, and what was found is remembered:
//! a reader of a long ledger, part by part, walks it once.

use std::collections::{BTreeMap, VecDeque};

use super::tx::{SqliteStoreTx, failed, read_ledger};
use crate::error::Result;
use crate::store::tx::LedgerRow;

/// Maximum number of rows walked in one go, which takes some milliseconds. Other readers are served in between.
const STRIDE: usize = 4_096;
/// Distance in rows between positions that are remembered.
const APART: usize = 256;
/// Maximum number of ledgers whose trails are remembered. The trail of one with 100,000 commits takes 10 KiB.
const TRAILS: usize = 64;

/// Where rows of long ledgers are: for each run, rows by the number of entries before them. Rows never move and are never
/// changed; a row that was deleted, and its number given to another, is told by its run and place.
#[derive(Default)]
pub(super) struct Trails(VecDeque<(i64, BTreeMap<u64, i64>)>);

impl Trails {
    /// A known row of a run at or behind this place, as near as possible.
    fn behind(&self, run: i64, seq: u64) -> Option<(u64, i64)> {
        let (_, trail) = self.0.iter().find(|(known, _)| *known == run)?;
        trail.range(seq..).next().map(|(seq, row)| (*seq, *row))
    }

    fn note(&mut self, run: i64, seq: u64, row: i64) {
        let trail = match self.0.iter_mut().position(|(known, _)| *known == run) {
            Some(at) => &mut self.0[at].1,
            None => {
                self.0.truncate(TRAILS - 1);
                self.0.push_front((run, BTreeMap::new()));
                &mut self.0[0].1
            }
        };
        trail.insert(seq, row);
    }

    fn forget(&mut self, run: i64) {
        self.0.retain(|(known, _)| *known != run);
    }
}

/// A row without its entries.
struct RowLink {
    prev: Option<i64>,
    run: i64,
    seq: u64,
}

impl SqliteStoreTx {
    /// Walks a run's ledger from its end, for as long as it is wanted.
    pub(super) fn walk(
        &self,
        num: i64,
        mut wanted: impl FnMut(&LedgerRow) -> bool,
    ) -> Result<Vec<LedgerRow>> {
        let last: Option<Option<i64>> =
            self.first("SELECT last FROM heads WHERE num = ?", [num], |row| row.get(0))?;
        let mut statement = self.statement("SELECT prev, run, seq, at, entries FROM ledger WHERE num = ?")?;
        let (mut rows, mut next) = (Vec::new(), last.flatten());
        while let Some(at) = next {
            let (prev, row) =
                statement.query_row([at], |row| Ok((row.get(0)?, read_ledger(row)?))).map_err(failed)?;
            next = if wanted(&row) { prev } else { None };
            rows.push(row);
        }
        Ok(rows)
    }

    fn step(&self, row: i64) -> Result<Option<RowLink>> {
        let sql = "SELECT prev, run, seq FROM ledger WHERE num = ?";
        self.first(sql, [row], |row| Ok(RowLink { prev: row.get(0)?, run: row.get(1)?, seq: row.get(2)? }))
    }

    /// Where to begin the walk to the commits before this place: none if there are none.
    fn begin_walk(&mut self, num: i64, end: u64) -> Result<Option<i64>> {
        let Some(last) = self.last_row_of(num)? else {
            self.trails.forget(num);
            return Ok(None);
        };
        let Some((seq, row)) = self.trails.behind(num, end) else { return Ok(Some(last)) };
        if self.step(row)?.is_some_and(|step| step.run == num && step.seq == seq) {
            return Ok(Some(row));
        }
        self.trails.forget(num);
        Ok(Some(last))
    }

    /// See [`LedgerRows::ledger_part`](crate::store::tx::LedgerRows::ledger_part).
    pub(super) fn part(
        &mut self,
        num: i64,
        from: u64,
        limit: usize,
        bytes: usize,
    ) -> Result<Option<Vec<LedgerRow>>> {
        // A commit has at least one entry, so that all commits of the part begin before this place.
        let end = from.saturating_add(limit as u64);
        let (mut next, mut wanted) = (self.begin_walk(num, end)?, VecDeque::new());
        let mut walked = 0;
        while let Some(row) = next {
            let Some(step) = self.step(row)? else { break };
            walked += 1;
            if step.seq >= end && (walked > STRIDE || walked % APART == 0) {
                self.trails.note(num, step.seq, row);
            }
            if walked > STRIDE && step.seq >= end {
                return Ok(None);
            }
            if step.seq < end {
                wanted.push_front(row);
                wanted.truncate(limit);
            }
            next = step.prev.filter(|_| step.seq >= from);
        }
        self.read_rows(wanted, bytes.max(1)).map(Some)
    }

    fn read_rows(&self, wanted: impl IntoIterator<Item = i64>, bytes: usize) -> Result<Vec<LedgerRow>> {
        let mut statement = self.statement("SELECT prev, run, seq, at, entries FROM ledger WHERE num = ?")?;
        let (mut rows, mut read) = (Vec::new(), 0);
        for row in wanted {
            if read >= bytes {
                break;
            }
            let row = statement.query_row([row], read_ledger).map_err(failed)?;
            read += row.text.len();
            rows.push(row);
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::store::sqlite::SqliteOptions;
    use crate::store::sqlite::open::File;

    /// More than are walked in one go, twice.
    const COMMITS: u64 = 2 * STRIDE as u64 + 500;

    /// Two runs whose commits alternate.
    fn long_ledgers(file: &File) -> SqliteStoreTx {
        let conn = file.connect().unwrap();
        let rows = format!(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 2 * {COMMITS} - 1)
             INSERT INTO ledger (num, prev, run, seq, at, entries)
             SELECT i + 1, iif(i < 2, NULL, i - 1), i % 2 + 1, i / 2, 0, '[' || i || ']' FROM n;
             INSERT INTO heads SELECT run, {COMMITS}, max(num), min(num), 0, 0 FROM ledger GROUP BY run"
        );
        conn.execute_batch(&rows).unwrap();
        SqliteStoreTx::new(conn, Time(0)).unwrap()
    }

    /// A part, and how often it had to be asked for.
    fn ask(tx: &mut SqliteStoreTx, run: i64, from: u64, limit: usize) -> (Vec<u64>, usize) {
        for asked in 1.. {
            if let Some(rows) = tx.part(run, from, limit, usize::MAX).unwrap() {
                assert!(rows.iter().all(|row| row.num == run));
                return (rows.iter().map(|row| row.seq).collect(), asked);
            }
        }
        unreachable!("some part is the last")
    }

    #[test]
    fn a_long_ledger_is_walked_once_and_in_strides() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::open(&SqliteOptions::new(folder.path().join("semel.db"))).unwrap();
        let mut tx = long_ledgers(&file);
        let (first, asked) = ask(&mut tx, 1, 1, 100);
        assert_eq!((first, asked), ((0..100).collect(), 3), "one stride after the other");
        for from in (101..=COMMITS).step_by(100) {
            let (part, asked) = ask(&mut tx, 1, from, 100);
            assert_eq!(part, (from - 1..(from + 99).min(COMMITS)).collect::<Vec<_>>());
            assert_eq!(asked, 1, "the way to entry {from} is known");
        }
        assert_eq!(ask(&mut tx, 2, COMMITS, 10).0, [COMMITS - 1], "the other's is another");
    }

    #[test]
    fn a_trail_whose_rows_are_gone_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::open(&SqliteOptions::new(folder.path().join("semel.db"))).unwrap();
        let mut tx = long_ledgers(&file);
        ask(&mut tx, 1, 1, 100);
        // The run's rows are another's now, as after a sweep and a new run.
        tx.conn
            .execute_batch("UPDATE ledger SET run = 3 WHERE run = 1; UPDATE heads SET num = 3 WHERE num = 1")
            .unwrap();
        tx.conn
            .execute_batch(
                "INSERT INTO heads SELECT 1, 1, num, num, 0, 0 FROM ledger WHERE run = 2 AND seq = 0",
            )
            .unwrap();
        tx.conn.execute_batch("UPDATE ledger SET run = 1 WHERE run = 2 AND seq = 0").unwrap();
        assert_eq!(ask(&mut tx, 1, 1, 10).0, [0]);
        tx.conn.execute_batch("UPDATE heads SET last = NULL WHERE num = 1").unwrap();
        assert_eq!(ask(&mut tx, 1, 1, 10).0, [0; 0], "forgotten");
    }
}
