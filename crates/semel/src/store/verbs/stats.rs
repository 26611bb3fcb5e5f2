//! Write the figures that were collected, and read those of a stretch of time.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::id::WorkspaceId;
use crate::rules::stats::{Stats, StatsSpan, WorkflowStats};
use crate::store::stats::{MinuteStats, minute_of, time_of};
use crate::store::tx::{StatsAt, StatsLook, StatsRow, StoreTx, Verb};
use crate::store::{StatsBucket, StatsQuery, StatsSeries};

/// Most rows of which an answer is made.
const ROWS: usize = 10_000;
/// Most rows with figures of workflows, which are larger.
const WORKFLOW_ROWS: usize = 500;
/// Number of minutes from which on the figures of workflows are read by the hour.
const BY_HOUR: i64 = 3 * 60;

/// Adds figures to those that are stored.
pub(crate) struct FlushStats {
    pub(crate) server: Uuid,
    pub(crate) minutes: Vec<((WorkspaceId, i64), MinuteStats)>,
}

impl Verb for FlushStats {
    type Answer = ();

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<()> {
        let mut sums: BTreeMap<StatsAt, MinuteStats> = BTreeMap::new();
        for ((workspace, minute), more) in &self.minutes {
            for span in StatsSpan::ALL {
                let minute = minute - minute.rem_euclid(span.minutes());
                let at = StatsAt { workspace: *workspace, span, minute, server: self.server };
                sums.entry(at).or_default().add(more);
            }
        }
        for (at, more) in sums {
            let mut sum = match tx.stats_at(&at).await? {
                Some(row) => MinuteStats { total: total_of(&row)?, workflows: workflows_of(&row)? },
                None => MinuteStats::default(),
            };
            sum.add(&more);
            let text = |sum: serde_json::Result<String>| sum.expect("figures are plain data");
            let (body, workflows) =
                (text(serde_json::to_string(&sum.total)), text(serde_json::to_string(&sum.workflows)));
            tx.put_stats(&at, &body, &workflows).await?;
        }
        Ok(())
    }
}

fn total_of(row: &StatsRow) -> Result<Stats> {
    serde_json::from_str(&row.body).map_err(|e| corrupt(row, e))
}

fn workflows_of(row: &StatsRow) -> Result<WorkflowStats> {
    let text = row.workflows.as_deref().unwrap_or("{}");
    serde_json::from_str(text).map_err(|e| corrupt(row, e))
}

fn corrupt(row: &StatsRow, error: serde_json::Error) -> Error {
    Error::Corrupt { at: format!("stats of minute {}", row.minute), source: error.into() }
}

impl Verb for StatsQuery {
    type Answer = StatsSeries;
    const READS: bool = true;
    const SCANS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<StatsSeries> {
        let step = i64::from(self.step);
        let span = if step % 60 == 0 { StatsSpan::Hour } else { StatsSpan::Minute };
        let rows = tx.stats(&self.look(span, step, ROWS)).await?;
        let mut series = StatsSeries { partial: rows.len() >= ROWS, ..StatsSeries::default() };
        let mut buckets: BTreeMap<i64, Stats> = BTreeMap::new();
        for row in &rows {
            let bucket = row.minute - row.minute.rem_euclid(step);
            buckets.entry(bucket).or_default().add(&total_of(row)?);
        }
        let bucket = |(minute, stats)| StatsBucket { at: time_of(minute), stats };
        series.buckets = buckets.into_iter().map(bucket).collect();
        if self.workflows {
            let long = minute_of(self.to) - minute_of(self.from) >= BY_HOUR || span == StatsSpan::Hour;
            let span = if long { StatsSpan::Hour } else { StatsSpan::Minute };
            let look = StatsLook { workflows: true, ..self.look(span, span.minutes(), WORKFLOW_ROWS) };
            let rows = tx.stats(&look).await?;
            series.partial |= rows.len() >= WORKFLOW_ROWS;
            for row in &rows {
                series.workflows.add(&workflows_of(row)?);
            }
        }
        Ok(series)
    }
}

impl StatsQuery {
    /// Whole steps, so that no bucket is a part of one.
    fn look(&self, span: StatsSpan, step: i64, limit: usize) -> StatsLook {
        let from = minute_of(self.from);
        let to = minute_of(Time(self.to.0.saturating_sub(1))) + 1;
        let from = from - from.rem_euclid(step);
        StatsLook { workspace: self.workspace, span, from, to, workflows: false, limit }
    }
}
