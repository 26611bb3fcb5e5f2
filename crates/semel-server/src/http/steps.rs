//! A run with its steps: what the fold of its ledger says, and when its entries were written.

use std::collections::HashMap;

use semel::clock::Time;
use semel::rules::entry::{Class, Entry, Failure, Outcome, PauseReason};
use semel::rules::ledger::{HookState, Ledger, Record};
use semel::rules::path::Visit;
use semel::rules::run::Run;
use semel::rules::status::Status;
use semel::rules::step::Step;
use semel::store::{LedgerPart, Numbered, Part};

use super::Problem;
use super::view::{duplicates_view, failure_view, pause_words, run_view};
use crate::api::{RunDetail, StepStatus, StepView, time, value};
use crate::app::App;

/// Most entries that are read for the steps of a run.
const MAX_ENTRIES: usize = 10_000;
/// Most bytes that are read for them, but for the last commit.
const MAX_BYTES: usize = 8 * 1024 * 1024;
/// Entries from the end of a longer ledger, for what the run is about now.
const TAIL: u64 = 16;

/// The run as it was at the version of its header.
pub(super) async fn detail(app: &App, run: &Run, outcome: Option<&Outcome>) -> Result<RunDetail, Problem> {
    let (workspace, id) = (run.new.workspace, run.id());
    let part = Part { workspace, run: id, from: 1, limit: MAX_ENTRIES, bytes: MAX_BYTES };
    let LedgerPart { entries: mut lines, next } = app.store.ledger_part(part).await?;
    // What was written since is another version's.
    lines.retain(|line| line.number <= run.state.version);
    let next = next.filter(|next| *next <= run.state.version);
    let unconsumed = app.store.unconsumed(workspace, id).await?;
    let duplicates = duplicates_view(app.store.receipts(workspace, id).await?);
    let mut detail = RunDetail {
        run: run_view(run, outcome),
        input: None,
        pause_reason: None,
        steps: Vec::new(),
        hooks: Vec::new(),
        unconsumed,
        duplicates,
        next_entry: next,
    };
    // A forgotten history has no entries.
    if !lines.is_empty() {
        let entries = lines.iter().map(|line| line.entry.clone());
        let ledger = Ledger::read(run.clone(), entries)
            .map_err(|source| semel::Error::Corrupt { at: id.to_string(), source: source.into() })?;
        detail.input = Some(value(&ledger.created().input));
        detail.steps = steps(&ledger, &lines);
        if next.is_none() {
            detail.pause_reason = ledger.pause().map(pause_words);
            detail.hooks = open_hooks(&ledger);
        } else if run.status() == Status::Paused {
            detail.pause_reason = last_pause(app, run).await?.as_ref().map(pause_words);
        }
    }
    Ok(detail)
}

/// Why a run is paused, without a read of its whole ledger: its last entries say so.
pub(super) async fn last_pause(app: &App, run: &Run) -> Result<Option<PauseReason>, Problem> {
    let from = run.state.version.saturating_sub(TAIL - 1).max(1);
    let (workspace, limit, bytes) = (run.new.workspace, TAIL as usize, MAX_BYTES);
    let tail = app.store.ledger_part(Part { workspace, run: run.id(), from, limit, bytes }).await?;
    let reason = |line: Numbered| match line.entry {
        Entry::Paused { reason } => Some(reason),
        _ => None,
    };
    Ok(tail.entries.into_iter().rev().find_map(reason))
}

/// The tokens that it owns. They go with its end.
fn open_hooks(ledger: &Ledger) -> Vec<String> {
    if ledger.run().status().is_terminal() {
        return Vec::new();
    }
    let token = |(_, record): (&Visit, &Record)| match record {
        Record::Hook { token, state: HookState::Open(_) } => Some(token.to_string()),
        _ => None,
    };
    let mut tokens: Vec<_> = ledger.records().filter_map(token).collect();
    tokens.sort();
    tokens.dedup();
    tokens
}

/// What the entries say about one step beside where it stands.
#[derive(Default)]
struct Trace {
    place: usize,
    class: Class,
    attempts: u32,
    started: Option<Time>,
    ended: Option<Time>,
    reason: Option<String>,
    error: Option<Failure>,
}

fn steps(ledger: &Ledger, lines: &[Numbered]) -> Vec<StepView> {
    let traces = traces(lines);
    let view = |(visit, record): (&Visit, &Record)| match record {
        Record::Step(step) => {
            traces.get(visit).map(|trace| (trace.place, step_view(ledger, visit, step, trace)))
        }
        _ => None,
    };
    let mut steps: Vec<_> = ledger.records().filter_map(view).collect();
    steps.sort_by_key(|(place, _)| *place);
    steps.into_iter().map(|(_, step)| step).collect()
}

fn traces(lines: &[Numbered]) -> HashMap<&Visit, Trace> {
    let mut traces: HashMap<&Visit, Trace> = HashMap::new();
    for (place, line) in lines.iter().enumerate() {
        let Some(visit) = line.entry.visit() else { continue };
        let trace = traces.entry(visit).or_insert_with(|| Trace { place, ..Trace::default() });
        match &line.entry {
            Entry::StepStarted { attempt, class, .. } => {
                (trace.attempts, trace.class, trace.started, trace.ended) =
                    (*attempt, *class, Some(line.at), None);
            }
            Entry::StepFailed { error, .. } => {
                (trace.error, trace.ended) = (Some(error.clone()), Some(line.at));
            }
            Entry::StepSkipped { reason, .. } | Entry::StepInDoubt { reason, .. } => {
                (trace.reason, trace.ended) = (Some(reason.clone()), Some(line.at));
            }
            Entry::StepCompleted { .. } | Entry::StepResolved { .. } => trace.ended = Some(line.at),
            _ => {}
        }
    }
    traces
}

fn step_view(ledger: &Ledger, visit: &Visit, step: &Step, trace: &Trace) -> StepView {
    let status = match step {
        Step::Started { .. } => StepStatus::Running,
        Step::Retrying { .. } | Step::Cleared { .. } => StepStatus::Retrying,
        Step::Completed(_) => StepStatus::Completed,
        Step::Failed(_) | Step::GivenUp { .. } => StepStatus::Failed,
        Step::Skipped => StepStatus::Skipped,
        Step::InDoubt { .. } => StepStatus::InDoubt,
    };
    let settled = step.is_settled();
    StepView {
        path: visit.path.to_string(),
        tick: visit.tick,
        status,
        class: trace.class,
        attempts: trace.attempts,
        effect_key: ledger.effect_key(visit, "").to_string(),
        started_at: trace.started.map(time),
        ended_at: trace.ended.filter(|_| settled).map(time),
        retry_at: match step {
            Step::Retrying { at, .. } => Some(time(*at)),
            _ => None,
        },
        value: match step {
            Step::Completed(result) => Some(value(result)),
            _ => None,
        },
        error: match step {
            Step::Failed(error) | Step::Retrying { error, .. } | Step::GivenUp { error, .. } => {
                Some(failure_view(error))
            }
            _ => trace.error.as_ref().filter(|_| !settled).map(failure_view),
        },
        reason: trace.reason.clone().filter(|_| matches!(status, StepStatus::Skipped | StepStatus::InDoubt)),
    }
}
