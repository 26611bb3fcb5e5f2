//! Converts runs and entries of the store to their form on the wire.

use semel::rules::entry::{Failure, Outcome, PauseReason};
use semel::rules::glance::{self, DoesNow};
use semel::rules::receipt::{Absorbed, ReceiptKind, Receipts};
use semel::rules::run::Run;
use semel::store::{Glance, Numbered};

use crate::api::{
    AbsorbedView, DeliverAnswer, DuplicatesView, EntryView, FailureView, ForkedFrom, NowKind, NowView,
    RunView, time, value,
};

/// A run and its outcome.
pub(super) fn run_view(run: &Run, outcome: Option<&Outcome>) -> RunView {
    let (new, state) = (&run.new, &run.state);
    RunView {
        id: new.id.to_string(),
        workflow: new.workflow.to_string(),
        workflow_version: new.workflow_version.to_string(),
        status: state.status,
        version: state.version,
        key: new.key.to_string(),
        scope: new.scope.as_str().to_owned(),
        holds_key: state.holds_key,
        lineage: new.lineage.to_string(),
        parent: new.parent.map(|parent| parent.to_string()),
        node: state.node.map(|node| node.to_string()),
        created_at: time(new.created),
        due_at: state.due.map(time),
        ended_at: state.ended.map(time),
        result: match outcome {
            Some(Outcome::Completed(result)) => Some(value(result)),
            _ => None,
        },
        error: match outcome {
            Some(Outcome::Failed(failure)) => Some(failure_view(failure)),
            _ => None,
        },
        cancel_reason: match outcome {
            Some(Outcome::Cancelled(reason)) => Some(reason.clone()),
            _ => None,
        },
        pause_reason: None,
        purged: run.purged,
        unserved: false,
        paused_for: state.attention,
        now: None,
        duplicate_count: None,
        forked_from: None,
        input_bytes: None,
    }
}

/// Adds what a glance at a run tells.
pub(super) fn add_glance(view: &mut RunView, glance: &Glance) {
    view.duplicate_count = Some(glance.duplicates);
    view.forked_from = glance.forked_from.map(|(run, version)| ForkedFrom { run: run.to_string(), version });
    view.input_bytes = glance.input_bytes;
    view.pause_reason = glance.pause.as_ref().map(pause_words);
    view.now = glance.now.as_ref().map(now_view);
}

fn now_view(now: &DoesNow) -> NowView {
    NowView {
        kind: match now.kind {
            glance::NowKind::Step => NowKind::Step,
            glance::NowKind::Hook => NowKind::Hook,
            glance::NowKind::Timer => NowKind::Timer,
            glance::NowKind::Retry => NowKind::Retry,
            glance::NowKind::Child => NowKind::Child,
            glance::NowKind::Doubt => NowKind::Doubt,
        },
        path: now.visit.as_ref().map(|visit| visit.path.to_string()),
        token: now.token.as_ref().map(ToString::to_string),
        run: now.child.map(|child| child.to_string()),
        until: now.until.map(time),
        attempt: now.attempt,
    }
}

/// A failure of a run or step.
pub(super) fn failure_view(failure: &Failure) -> FailureView {
    let Failure { kind, message, code, data } = failure.clone();
    FailureView { kind, message, code, data: data.as_ref().map(value) }
}

/// Why a run is paused, as text.
pub(super) fn pause_words(reason: &PauseReason) -> String {
    match reason {
        PauseReason::Operator { by } => format!("paused by {by}; resume it to continue"),
        PauseReason::InDoubt => "a step is in doubt; resolve it".to_owned(),
        PauseReason::Poisoned => {
            "its nodes died repeatedly before it made progress; find the cause, then resume it".to_owned()
        }
        PauseReason::Diverged(why) => format!("the code no longer matches the ledger: {why}"),
    }
}

/// One entry of a ledger.
pub(super) fn entry_view(line: &Numbered) -> EntryView {
    EntryView {
        number: line.number,
        at: time(line.at),
        kind: line.entry.kind().to_owned(),
        entry: serde_json::value::to_raw_value(&line.entry).expect("entries are plain data with text keys"),
    }
}

/// Absorbed duplicates and refused calls, by kind.
pub(super) fn duplicates_view(receipts: Vec<(ReceiptKind, Receipts)>) -> Vec<DuplicatesView> {
    let view = |(kind, all): (ReceiptKind, Receipts)| DuplicatesView {
        kind,
        count: all.count,
        first_at: time(all.first),
        last_at: time(all.last),
        recent: all.recent.into_iter().map(absorbed_view).collect(),
    };
    receipts.into_iter().map(view).collect()
}

/// One absorbed duplicate or refused call.
pub(super) fn absorbed_view(receipt: Absorbed) -> AbsorbedView {
    let Absorbed { at, detail, verdict, code, by, request_id, same, pointers, delivery_id, fence, expected } =
        receipt;
    let at = time(at);
    AbsorbedView { at, detail, verdict, code, by, request_id, same, pointers, delivery_id, fence, expected }
}

/// The answer to a delivery.
pub(super) fn delivered_view(delivered: &semel::rules::deliver::Delivered) -> DeliverAnswer {
    DeliverAnswer { run: delivered.run.to_string(), arrival: delivered.arrival, absorbed: delivered.absorbed }
}
