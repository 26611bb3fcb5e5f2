//! Figures on their way to the store: added up per workspace and minute, written behind.
//!
//! No call waits for them. They are written by the periodic sweep when some seconds of them have come together, and before
//! they are read. A crash loses those of the last seconds.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::meters::CommitFigures;
use super::verbs::{ClaimRows, EndedRun};
use super::{Saved, Started};
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::id::WorkspaceId;
use crate::rules::control::{ControlAction, Controlled};
use crate::rules::deliver::Delivered;
use crate::rules::path::Name;
use crate::rules::run::NewRun;
use crate::rules::start::StartVerdict;
use crate::rules::stats::{Stats, WorkflowStats};
use crate::rules::status::Status;

/// How long figures are collected before the sweep writes them.
const COLLECT: Duration = Duration::from_secs(5);

/// Most workspaces and minutes that are collected. Beyond it nothing is counted until they are written: only a process that
/// never sweeps reaches it.
const MOST: usize = 10_000;

const MINUTE: i64 = 60_000;

/// The minute of a time, counted from 1970.
pub(crate) fn minute_of(time: Time) -> i64 {
    time.0.div_euclid(MINUTE)
}

/// The time at which a minute begins.
pub(crate) fn time_of(minute: i64) -> Time {
    Time(minute.saturating_mul(MINUTE))
}

/// Figures of a workspace, all together and by workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MinuteStats {
    pub(crate) total: Stats,
    pub(crate) workflows: WorkflowStats,
}

impl MinuteStats {
    pub(crate) fn add(&mut self, more: &Self) {
        self.total.add(&more.total);
        self.workflows.add(&more.workflows);
    }
}

/// Figures by workspace and minute.
pub(crate) type CollectedStats = HashMap<(WorkspaceId, i64), MinuteStats>;

#[derive(Debug, Default)]
struct PendingStats {
    minutes: CollectedStats,
    /// Time of the first of them.
    since: Option<Time>,
}

/// The figures that are not written yet.
#[derive(Debug)]
pub(crate) struct StatsBuffer {
    /// The process whose figures they are: each writes rows of its own.
    server: Uuid,
    pending: Mutex<PendingStats>,
    writing: tokio::sync::Mutex<()>,
}

impl StatsBuffer {
    pub(crate) fn new(server: Uuid) -> Self {
        Self { server, pending: Mutex::default(), writing: tokio::sync::Mutex::default() }
    }

    pub(crate) fn server(&self) -> Uuid {
        self.server
    }

    /// Waits for one's turn to write.
    pub(crate) async fn writing(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.writing.lock().await
    }

    /// Whether enough time of them has come together.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.lock().since.is_some_and(|since| since.after(COLLECT) <= now)
    }

    /// Takes all of them out, to write them.
    pub(crate) fn take(&self) -> CollectedStats {
        std::mem::take(&mut *self.lock()).minutes
    }

    /// Puts back what could not be written.
    pub(crate) fn put_back(
        &self,
        now: Time,
        minutes: impl IntoIterator<Item = ((WorkspaceId, i64), MinuteStats)>,
    ) {
        let mut pending = self.lock();
        pending.since.get_or_insert(now);
        for (at, more) in minutes {
            pending.minutes.entry(at).or_default().add(&more);
        }
    }

    fn note(&self, now: Time, workspace: WorkspaceId, workflow: Option<&Name>, change: impl Fn(&mut Stats)) {
        let mut pending = self.lock();
        let at = (workspace, minute_of(now));
        if pending.minutes.len() >= MOST && !pending.minutes.contains_key(&at) {
            return;
        }
        pending.since.get_or_insert(now);
        let minute = pending.minutes.entry(at).or_default();
        change(&mut minute.total);
        if let Some(workflow) = workflow {
            change(minute.workflows.of(workflow));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PendingStats> {
        // The map is whole after every statement, so a panic elsewhere does not spoil it.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What each answer of the store adds.
impl StatsBuffer {
    pub(crate) fn started(&self, now: Time, started: &Started) {
        let new = &started.run.new;
        self.note(now, new.workspace, Some(&new.workflow), |stats| {
            *match started.verdict {
                StartVerdict::Created => &mut stats.created,
                StartVerdict::Attached => &mut stats.attached,
                StartVerdict::Replayed => &mut stats.replayed,
                StartVerdict::Restarted => &mut stats.restarted,
                StartVerdict::Superseded => &mut stats.superseded,
            } += 1;
            stats.cancelled += u64::from(started.superseded.is_some());
        });
        if let Some(delivered) = &started.delivered {
            self.delivered(now, new.workspace, delivered);
        }
    }

    /// A call that was refused because a run owns its key or its id.
    pub(crate) fn refused(&self, now: Time, workspace: WorkspaceId, workflow: Option<&Name>, error: &Error) {
        if matches!(error, Error::KeyReused { .. } | Error::CallReused { .. } | Error::DuplicateRun { .. }) {
            self.note(now, workspace, workflow, |stats| stats.refused += 1);
        }
    }

    pub(crate) fn committed(&self, now: Time, saved: &Result<Saved>, figures: &CommitFigures) {
        let (new, tally) = (&*figures.new, figures.tally);
        match saved {
            Ok(_) => self.note(now, new.workspace, Some(&new.workflow), |stats| {
                stats.steps += u64::from(tally.steps);
                stats.retries += u64::from(tally.retries);
                stats.doubts_opened += u64::from(tally.in_doubt);
                if let Some(status) = figures.ends {
                    ended(stats, status, lasted(new, now));
                }
            }),
            Err(Error::Concurrency { .. }) => {
                self.note(now, new.workspace, Some(&new.workflow), |stats| stats.stale += 1);
            }
            Err(_) => {}
        }
    }

    pub(crate) fn delivered(&self, now: Time, workspace: WorkspaceId, delivered: &Delivered) {
        self.note(now, workspace, None, |stats| match delivered.absorbed {
            true => stats.duplicate_deliveries += 1,
            false => stats.deliveries += 1,
        });
    }

    pub(crate) fn controlled(&self, now: Time, controlled: &Controlled, action: &ControlAction) {
        let new = &controlled.run.new;
        self.note(now, new.workspace, Some(&new.workflow), |stats| match action {
            _ if !controlled.changed => stats.duplicate_controls += 1,
            ControlAction::Cancel { .. } => ended(stats, Status::Cancelled, lasted(new, now)),
            ControlAction::Resolve { .. } => stats.doubts_settled += 1,
            _ => {}
        });
    }

    pub(crate) fn claimed(&self, now: Time, claimed: &ClaimRows) {
        for rows in &claimed.runs {
            if let Some(late) = rows.late {
                let new = &rows.run.new;
                self.note(now, new.workspace, Some(&new.workflow), |stats| stats.lateness.count(late));
            }
        }
    }

    pub(crate) fn swept(&self, now: Time, runs: &[EndedRun]) {
        for new in runs.iter().filter_map(|run| run.timed_out.as_deref()) {
            self.note(now, new.workspace, Some(&new.workflow), |stats| {
                ended(stats, Status::TimedOut, lasted(new, now));
            });
        }
    }
}

/// Milliseconds from the creation of a run.
fn lasted(new: &NewRun, now: Time) -> u64 {
    now.0.saturating_sub(new.created.0).max(0).unsigned_abs()
}

fn ended(stats: &mut Stats, status: Status, ms: u64) {
    *match status {
        Status::Completed => &mut stats.completed,
        Status::Failed => &mut stats.failed,
        Status::Cancelled => &mut stats.cancelled,
        Status::TimedOut => &mut stats.timed_out,
        Status::Pending | Status::Running | Status::Waiting | Status::Paused => return,
    } += 1;
    stats.duration.count(ms);
}

/// A question for the figures of a workspace.
#[derive(Clone, Copy, Debug)]
pub struct StatsQuery {
    /// Workspace whose figures are asked for.
    pub workspace: WorkspaceId,
    /// Time from which on figures are counted, rounded down to a whole step.
    pub from: Time,
    /// Time until which figures are counted.
    pub to: Time,
    /// Minutes that are added up into one bucket. Steps of whole hours read the figures of hours, which are kept longer.
    pub step: u32,
    /// Whether to add up the figures of each workflow, over the whole time.
    pub workflows: bool,
}

impl StatsQuery {
    /// Most buckets of an answer.
    pub const MOST_BUCKETS: i64 = 1_500;

    /// Refuses a question that is not possible, or whose answer would be too long.
    pub fn check(&self) -> Result<()> {
        let Self { from, to, step, .. } = *self;
        if step == 0 || to <= from {
            return Err(Error::Validation(
                "`to` has to be after `from`, and a step at least a minute".to_owned(),
            ));
        }
        let buckets = to.0.saturating_sub(from.0) / i64::from(step).saturating_mul(MINUTE);
        match buckets <= Self::MOST_BUCKETS {
            true => Ok(()),
            false => Err(Error::Validation(format!(
                "that would be {buckets} buckets; at most {} are answered: ask for a longer step or a shorter time",
                Self::MOST_BUCKETS
            ))),
        }
    }
}

/// Figures of one stretch of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsBucket {
    /// Time at which it begins.
    pub at: Time,
    /// What happened in it.
    pub stats: Stats,
}

/// Figures of a workspace over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsSeries {
    /// Buckets in which something happened, in order.
    pub buckets: Vec<StatsBucket>,
    /// Figures by workflow over the whole time, if they were asked for.
    pub workflows: WorkflowStats,
    /// Whether a bound on the rows to read was reached: the latest figures are missing.
    pub partial: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_wait_for_some_seconds_and_survive_a_failed_write() {
        let buffer = StatsBuffer::new(Uuid::nil());
        let (workspace, workflow) = (WorkspaceId::DEFAULT, Name::new("order").unwrap());
        let note = |ms| buffer.note(Time(ms), workspace, Some(&workflow), |stats| stats.steps += 1);
        assert!(!buffer.is_due(Time(i64::MAX)), "there are none");
        note(59_000);
        note(61_000);
        assert_eq!((buffer.is_due(Time(63_999)), buffer.is_due(Time(64_000))), (false, true));
        let taken = buffer.take();
        assert!(!buffer.is_due(Time(i64::MAX)), "they are taken");
        note(59_500);
        buffer.put_back(Time(64_000), taken);
        let all = buffer.take();
        let steps = |minute| all[&(workspace, minute)].total.steps;
        assert_eq!((steps(0), steps(1), all.len()), (2, 1, 2));
        assert_eq!(all[&(workspace, 0)].workflows.named[&workflow].steps, 2);
    }

    #[test]
    fn what_is_collected_without_being_written_is_bounded() {
        let buffer = StatsBuffer::new(Uuid::nil());
        for minute in 0..=MOST as i64 {
            buffer.note(time_of(minute), WorkspaceId::DEFAULT, None, |stats| stats.steps += 1);
        }
        assert_eq!(buffer.take().len(), MOST);
    }

    #[test]
    fn a_question_for_too_much_says_what_to_ask_instead() {
        let query = StatsQuery {
            workspace: WorkspaceId::DEFAULT,
            from: Time(0),
            to: Time(MINUTE * 1_500),
            step: 1,
            workflows: false,
        };
        assert!(query.check().is_ok());
        let refused = StatsQuery { to: Time(MINUTE * 1_501), ..query }.check().unwrap_err().to_string();
        assert!(refused.contains("longer step"), "{refused}");
        assert!(StatsQuery { to: Time(0), ..query }.check().is_err());
        assert!(StatsQuery { step: 0, ..query }.check().is_err());
    }
}
