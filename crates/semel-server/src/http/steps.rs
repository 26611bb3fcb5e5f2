//! A run with its steps: the fold of its ledger, and the times of its entries.

mod attempts;
mod waits;

use semel::rules::entry::{Entry, Outcome, PauseReason};
use semel::rules::ledger::{Ledger, VisitRecord};
use semel::rules::path::Visit;
use semel::rules::queue::queue;
use semel::rules::run::Run;
use semel::rules::status::Status;
use semel::rules::step::StepState;
use semel::store::{LedgerPart, Numbered, Part};

use self::attempts::Trace;
use super::Problem;
use super::view::{add_glance, duplicates_view, failure_view, pause_words, run_view};
use crate::api::{ForkedFrom, RunDetail, StepCounts, StepStatus, StepView, time, value};
use crate::app::App;

/// Maximum number of entries read for the steps of a run.
const MAX_ENTRIES: usize = 10_000;
/// Maximum bytes read for the steps, not counting the last commit.
const MAX_BYTES: usize = 8 * 1024 * 1024;
/// Entries read from the end of a ledger, to find the current pause reason.
const TAIL: u64 = 16;
/// Maximum bytes of these entries, not counting the last commit.
const TAIL_BYTES: usize = 1024 * 1024;

/// The run as it was at the version of its header.
pub(super) async fn detail(app: &App, run: &Run, outcome: Option<&Outcome>) -> Result<RunDetail, Problem> {
    let (workspace, id) = (run.new.workspace, run.id());
    let part = Part { workspace, run: id, from: 1, limit: MAX_ENTRIES, bytes: MAX_BYTES };
    let LedgerPart { entries: mut lines, next } = app.store.ledger_part(part).await?;
    // Later entries belong to a later version.
    lines.retain(|line| line.number <= run.state.version);
    let next = next.filter(|next| *next <= run.state.version);
    let unconsumed = app.store.unconsumed(workspace, id).await?;
    let duplicates = duplicates_view(app.store.receipts(workspace, id).await?);
    let mut detail = RunDetail {
        run: run_view(run, outcome),
        input: None,
        deadline: None,
        steps: Vec::new(),
        step_counts: None,
        hooks: Vec::new(),
        children: Vec::new(),
        timers: Vec::new(),
        onces: Vec::new(),
        unconsumed,
        duplicates,
        next_entry: next,
    };
    let glances = app.store.glances(vec![run.clone()]).await?;
    for glance in &glances {
        add_glance(&mut detail.run, glance);
    }
    // A purged history has no entries.
    if !lines.is_empty() {
        let entries = lines.iter().map(|line| line.entry.clone());
        let ledger = Ledger::read(run.clone(), entries)
            .map_err(|source| semel::Error::Corrupt { at: id.to_string(), source: source.into() })?;
        let created = ledger.created();
        detail.input = Some(value(&created.input));
        // Also of an input that is too large for a list.
        detail.run.input_bytes = Some(created.input.text().len() as u64);
        detail.run.forked_from =
            created.forked_from.map(|(run, version)| ForkedFrom { run: run.to_string(), version });
        detail.deadline = ledger.deadline().map(time);
        detail.steps = steps(&ledger, &lines);
        detail.onces = waits::onces(&lines);
        if next.is_none() {
            detail.step_counts = Some(step_counts(&detail.steps));
            detail.run.pause_reason = ledger.pause().map(pause_words);
            detail.hooks = waits::open_hooks(&ledger);
            detail.timers = waits::timers(&ledger);
            detail.children = waits::children(app, &ledger, &lines).await?;
        } else if run.status() == Status::Paused {
            detail.run.pause_reason = last_pause(app, run).await?.as_ref().map(pause_words);
        }
    }
    Ok(detail)
}

/// Why a run is paused, from its last entries, without a read of the whole ledger.
pub(super) async fn last_pause(app: &App, run: &Run) -> Result<Option<PauseReason>, Problem> {
    let (workspace, last) = (run.new.workspace, run.state.version);
    // The pause is usually the last entry, which is read alone: the entries before it may be large.
    for count in [1, TAIL] {
        let from = last.saturating_sub(count - 1).max(1);
        let part = Part { workspace, run: run.id(), from, limit: count as usize, bytes: TAIL_BYTES };
        let reason = |line: Numbered| match line.entry {
            Entry::Paused { reason } => Some(reason),
            _ => None,
        };
        let found = app.store.ledger_part(part).await?.entries.into_iter().rev().find_map(reason);
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn step_counts(steps: &[StepView]) -> StepCounts {
    let mut counts = StepCounts::default();
    for step in steps {
        match step.status {
            StepStatus::Completed | StepStatus::Skipped => counts.done += 1,
            StepStatus::Running | StepStatus::Retrying | StepStatus::InDoubt => counts.open += 1,
            StepStatus::Failed => counts.failed += 1,
        }
    }
    counts
}

fn steps(ledger: &Ledger, lines: &[Numbered]) -> Vec<StepView> {
    let traces = attempts::traces(lines, queue(&ledger.run().new.workflow).is_some());
    let view = |(visit, record): (&Visit, &VisitRecord)| match record {
        VisitRecord::Step(step) => {
            traces.get(visit).map(|trace| (trace.place, step_view(ledger, visit, step, trace)))
        }
        _ => None,
    };
    let mut steps: Vec<_> = ledger.records().filter_map(view).collect();
    steps.sort_by_key(|(place, _)| *place);
    steps.into_iter().map(|(_, step)| step).collect()
}

fn step_view(ledger: &Ledger, visit: &Visit, step: &StepState, trace: &Trace<'_>) -> StepView {
    let status = match step {
        StepState::Started { .. } => StepStatus::Running,
        StepState::Retrying { .. } | StepState::Cleared { .. } => StepStatus::Retrying,
        StepState::Completed(_) => StepStatus::Completed,
        StepState::Failed(_) | StepState::GivenUp { .. } => StepStatus::Failed,
        StepState::Skipped => StepStatus::Skipped,
        StepState::InDoubt { .. } => StepStatus::InDoubt,
    };
    let settled = step.is_settled();
    StepView {
        path: visit.path.to_string(),
        tick: visit.tick,
        status,
        class: trace.class,
        attempts: trace.attempts.iter().map(attempts::AttemptTrace::view).collect(),
        effect_key: ledger.effect_key(visit, "").to_string(),
        note: trace.note.map(value),
        started_at: trace.attempts.last().map(|attempt| time(attempt.began)),
        ended_at: trace.ended.filter(|_| settled).map(time),
        retry_at: match step {
            StepState::Retrying { at, .. } => Some(time(*at)),
            _ => None,
        },
        value: match step {
            StepState::Completed(result) => Some(value(result)),
            _ => None,
        },
        error: match step {
            StepState::Failed(error)
            | StepState::Retrying { error, .. }
            | StepState::GivenUp { error, .. } => Some(failure_view(error)),
            _ => trace.error.as_ref().filter(|_| !settled).map(failure_view),
        },
        reason: trace.reason.clone().filter(|_| matches!(status, StepStatus::Skipped | StepStatus::InDoubt)),
    }
}
