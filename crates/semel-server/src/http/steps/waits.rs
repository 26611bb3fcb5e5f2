//! What a run waits for, beside its steps: hooks, timers, children and remote steps. And its onces.

use std::collections::{HashMap, HashSet};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use semel::clock::Time;
use semel::id::RunId;
use semel::rules::entry::{Entry, Outcome};
use semel::rules::ledger::{HookState, Ledger, VisitRecord};
use semel::rules::path::Visit;
use semel::rules::status::Status;
use semel::store::{Find, FindBy, Numbered};

use crate::api::{ChildView, OnceView, TimerView, time, value};
use crate::app::App;
use crate::http::Problem;

/// Maximum number of children that are looked up for one answer: each costs a read.
const LOOKED_UP: usize = 50;
/// Number of concurrent look-ups.
const AT_ONCE: usize = 16;

/// Tokens that the run owns. They are freed with its end.
pub(super) fn open_hooks(ledger: &Ledger) -> Vec<String> {
    if ledger.run().status().is_terminal() {
        return Vec::new();
    }
    let token = |(_, record): (&Visit, &VisitRecord)| match record {
        VisitRecord::Hook { token, state: HookState::Open(_) } => Some(token.to_string()),
        _ => None,
    };
    let mut tokens: Vec<_> = ledger.records().filter_map(token).collect();
    tokens.sort();
    tokens.dedup();
    tokens
}

/// Timers that have not fired, the earliest first. An ended run has none.
pub(super) fn timers(ledger: &Ledger) -> Vec<TimerView> {
    if ledger.run().status().is_terminal() {
        return Vec::new();
    }
    let pending = |(visit, record): (&Visit, &VisitRecord)| match record {
        VisitRecord::Timer { at, fired: false } => Some((*at, visit.clone())),
        _ => None,
    };
    let mut timers: Vec<(Time, Visit)> = ledger.records().filter_map(pending).collect();
    timers.sort_by(|(at, visit), (other, next)| (at, &visit.path).cmp(&(other, &next.path)));
    let view = |(at, visit): (Time, Visit)| TimerView {
        path: visit.path.to_string(),
        tick: visit.tick,
        fires_at: time(at),
    };
    timers.into_iter().map(view).collect()
}

/// Results of `run_once`, as the ledger has them.
pub(super) fn onces(lines: &[Numbered]) -> Vec<OnceView> {
    let view = |line: &Numbered| match &line.entry {
        Entry::Once { label, scope, value: result, .. } => Some(OnceView {
            label: label.to_string(),
            scope: Some(scope.clone()).filter(|scope| !scope.is_empty()),
            recorded_at: time(line.at),
            value: value(result),
        }),
        _ => None,
    };
    lines.iter().filter_map(view).collect()
}

/// Child runs and remote steps in the order of their starts. Those that may still be open are looked up.
pub(super) async fn children(
    app: &App,
    ledger: &Ledger,
    lines: &[Numbered],
) -> Result<Vec<ChildView>, Problem> {
    let (mut views, mut seen) = (Vec::new(), HashSet::new());
    for line in lines {
        let Entry::ChildStarted { child, run, .. } = &line.entry else { continue };
        // After a restart the same child is recorded again.
        if !seen.insert(child) {
            continue;
        }
        let status = match ledger.record_at(child) {
            Some(VisitRecord::Child { outcome, .. }) => outcome.as_ref().map(status_of),
            // A restart or a fork has dropped it.
            _ => continue,
        };
        let (path, tick) = (child.path.to_string(), child.tick);
        views
            .push((*run, ChildView { path, tick, run: run.to_string(), workflow: None, status, node: None }));
    }
    let open = views.iter().filter(|(_, view)| view.status.is_none()).map(|(run, _)| *run);
    let found = look_up(app, ledger, open.take(LOOKED_UP).collect()).await?;
    let complete = |(run, mut view): (RunId, ChildView)| {
        if let Some((workflow, status, node)) = found.get(&run) {
            (view.workflow, view.status) = (Some(workflow.clone()), Some(*status));
            view.node.clone_from(node);
        }
        view
    };
    Ok(views.into_iter().map(complete).collect())
}

/// Workflow, status and node of a child.
type ChildFacts = (String, Status, Option<String>);

async fn look_up(
    app: &App,
    ledger: &Ledger,
    runs: Vec<RunId>,
) -> Result<HashMap<RunId, ChildFacts>, Problem> {
    let workspace = ledger.run().new.workspace;
    let find = async |id: RunId| {
        let found = app.store.find(Find { workspace, by: FindBy::Id(id) }).await?;
        let facts = |run: semel::rules::run::Run| {
            (run.new.workflow.to_string(), run.status(), run.state.node.map(|node| node.to_string()))
        };
        Ok::<_, Problem>(found.map(|(run, _)| (id, facts(run))))
    };
    let finds: Vec<_> = runs.into_iter().map(find).collect();
    let found: Vec<_> = stream::iter(finds).buffered(AT_ONCE).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

fn status_of(outcome: &Outcome) -> Status {
    match outcome {
        Outcome::Completed(_) => Status::Completed,
        Outcome::Failed(_) => Status::Failed,
        Outcome::Cancelled(_) => Status::Cancelled,
        Outcome::TimedOut => Status::TimedOut,
        Outcome::Purged(status) => *status,
    }
}
