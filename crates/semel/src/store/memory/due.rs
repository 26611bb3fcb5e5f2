//! Due runs: what a claim looks for, and takes.

use std::ops::Bound;

use super::MemoryTx;
use crate::clock::Time;
use crate::error::Result;
use crate::rules::claim::Drives;
use crate::rules::family::Family;
use crate::rules::run::Run;
use crate::store::tx::DueRows;

impl DueRows for MemoryTx<'_> {
    async fn due(&mut self, workflows: &[Drives], limit: usize) -> Result<Vec<Run>> {
        let mut found = Vec::new();
        for drives in workflows {
            let (from, to) = ((drives.clone(), Time(i64::MIN), 0), (drives.clone(), self.now, i64::MAX));
            found.extend(self.tables.due.range(from..=to).take(limit).map(|(_, due, num)| (*due, *num)));
        }
        found.sort_unstable();
        found.dedup();
        Ok(found.iter().take(limit).map(|(_, num)| self.tables.runs[num].clone()).collect())
    }

    async fn dues(&mut self, workflows: &[Drives], after: Time) -> Result<Vec<Option<Time>>> {
        let first = |drives: &Drives| {
            let later = (Bound::Excluded((drives.clone(), after, i64::MAX)), Bound::Unbounded);
            let next = self.tables.due.range(later).next();
            next.filter(|(of, ..)| of == drives).map(|(_, due, _)| *due)
        };
        Ok(workflows.iter().map(first).collect())
    }

    async fn due_in(&mut self, families: &[Family], limit: usize) -> Result<Vec<Run>> {
        let due = |family: &Family| {
            let (from, to) = ((family.clone(), Time(i64::MIN), 0), (family.clone(), self.now, i64::MAX));
            self.tables.due_by_family.range(from..=to).take(limit).map(|(_, due, num)| (*due, *num))
        };
        let mut found: Vec<_> = families.iter().flat_map(due).collect();
        found.sort_unstable();
        Ok(found.iter().take(limit).map(|(_, num)| self.tables.runs[num].clone()).collect())
    }

    async fn next_due_in(&mut self, families: &[Family], after: Time) -> Result<Option<Time>> {
        let first = |family: &Family| {
            let later = (Bound::Excluded((family.clone(), after, i64::MAX)), Bound::Unbounded);
            let next = self.tables.due_by_family.range(later).next();
            next.filter(|(of, ..)| of == family).map(|(_, due, _)| *due)
        };
        Ok(families.iter().filter_map(first).min())
    }

    async fn overdue(&mut self, limit: usize) -> Result<Vec<Run>> {
        let nums = self.tables.deadlines.range(..=(self.now, i64::MAX)).take(limit);
        Ok(nums.map(|(_, num)| self.tables.runs[num].clone()).collect())
    }
}
