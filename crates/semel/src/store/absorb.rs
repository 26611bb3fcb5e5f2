//! Receipts of calls that changed nothing: what they say, and the run that they are noted on.

use super::Started;
use super::origin::Origin;
use super::receipts::COLLECT;
use super::serve::Backend;
use super::verbs::{AskedStart, FlushReceipts, ReadRefused};
use super::{Find, FindBy};
use crate::error::{Error, ErrorCode, Result};
use crate::id::{RunId, WorkspaceId};
use crate::rules::commit::{Commit, Saved};
use crate::rules::control::Control;
use crate::rules::entry::Entry;
use crate::rules::key::{CallId, Token};
use crate::rules::receipt::{Absorbed, EXCERPT, ReceiptKind, ReceiptVerdict, cut};
use crate::rules::start::StartVerdict;

/// Code of a hook that was not opened because another run owns its token.
const HOOK_CONFLICT: &str = "HOOK_CONFLICT";

/// Notes a call. It is written a moment later, with others, by the call that noted the first one.
fn note<B: Backend>(store: &B, num: i64, kind: ReceiptKind, receipt: Absorbed) {
    if store.buffer().note(num, kind, receipt) {
        let store = store.clone();
        tokio::spawn(async move {
            tokio::time::sleep(COLLECT).await;
            if let Err(error) = flush(&store).await {
                tracing::warn!(%error, "receipts of absorbed calls are not written yet");
            }
        });
    }
}

/// Writes the receipts that are collected.
pub(super) async fn flush<B: Backend>(store: &B) -> Result<()> {
    let _turn = store.buffer().writing().await;
    let receipts = store.buffer().take();
    if receipts.is_empty() {
        return Ok(());
    }
    let flushed = store.execute(FlushReceipts(receipts.clone())).await;
    if matches!(flushed, Err(Error::Unavailable(_))) {
        store.buffer().put_back(receipts);
    }
    flushed
}

/// A receipt of the caller of this task, made now.
fn receipt<B: Backend>(store: &B, detail: String, verdict: ReceiptVerdict) -> Absorbed {
    let Origin { by, request_id } = Origin::current().unwrap_or_default();
    let by = by.map(|by| cut(by, EXCERPT));
    Absorbed { verdict: Some(verdict), by, request_id, ..Absorbed::new(store.clock().now(), detail) }
}

fn id_text(id: Option<&CallId>) -> Option<String> {
    id.map(ToString::to_string)
}

/// A delivery in the words of its receipt.
pub(super) fn delivery_words(id: Option<&CallId>, token: &Token) -> String {
    match id {
        Some(id) => format!("delivery {id} to {token}"),
        None => format!("delivery to {token}"),
    }
}

/// Notes a start that was answered with a run that existed, and a delivery with it that had come before.
pub(super) async fn started<B: Backend>(
    store: &B,
    started: &Started,
    asked: Option<&AskedStart>,
) -> Result<()> {
    let new = &started.run.new;
    if let Some(delivered) = started.delivered.as_ref().filter(|delivered| delivered.absorbed)
        && let Some((token, id)) = asked.and_then(|asked| asked.deliver.as_ref())
    {
        self::delivered(store, new.workspace, delivered.run, (token, id.as_ref())).await?;
    }
    let verdict = match started.verdict {
        StartVerdict::Attached => ReceiptVerdict::Attached,
        StartVerdict::Replayed => ReceiptVerdict::Replayed,
        _ => return Ok(()),
    };
    let detail = format!("start {}", new.key);
    // A start whose payload was another run's is answered with that one, which has a key of its own.
    let asked = asked.filter(|asked| asked.key == new.key);
    let same = asked.map(|asked| asked.fingerprint == new.fingerprint);
    let receipt = Absorbed { same, ..receipt(store, detail, verdict) };
    note(store, started.run.num, ReceiptKind::Start, receipt);
    Ok(())
}

/// Notes a start that was refused because of a run that exists.
pub(super) async fn start_refused<B: Backend>(store: &B, asked: &AskedStart, error: &Error) {
    let detail = format!("start {}", asked.key);
    let id = asked.deliver.as_ref().and_then(|(_, id)| id.as_ref());
    let refused = Refusal { workspace: asked.workspace, error, detail, id, asked: Some(asked), by: None };
    refused.note(store).await;
}

/// Notes an absorbed delivery on the run that had got it.
pub(super) async fn delivered<B: Backend>(
    store: &B,
    workspace: WorkspaceId,
    run: RunId,
    (token, id): (&Token, Option<&CallId>),
) -> Result<()> {
    if let Some((run, _)) = store.execute(Find { workspace, by: FindBy::Id(run) }).await? {
        let made = receipt(store, delivery_words(id, token), ReceiptVerdict::Absorbed);
        let made = Absorbed { delivery_id: id_text(id), ..made };
        note(store, run.num, ReceiptKind::Delivery, made);
    }
    Ok(())
}

/// Notes a delivery that was refused because its id belongs to another one.
pub(super) async fn delivery_refused<B: Backend>(
    store: &B,
    workspace: WorkspaceId,
    (token, id): (&Token, Option<&CallId>),
    error: &Error,
) {
    let detail = delivery_words(id, token);
    Refusal { workspace, error, detail, id, asked: None, by: None }.note(store).await;
}

/// Notes an operator's action that had been done already.
pub(super) fn controlled<B: Backend>(store: &B, num: i64, control: &ControlWords) {
    let receipt = receipt(store, control.detail.clone(), ReceiptVerdict::Absorbed);
    let (by, delivery_id) = (Some(control.by.clone()), id_text(control.id.as_ref()));
    let receipt = Absorbed { by, delivery_id, expected: control.expected, ..receipt };
    note(store, num, ReceiptKind::Control, receipt);
}

/// Notes an operator's action that was refused because its id belongs to another one.
pub(super) async fn control_refused<B: Backend>(store: &B, control: &ControlWords, error: &Error) {
    let ControlWords { workspace, detail, by, id, .. } = control;
    let (workspace, detail, by, id) = (*workspace, detail.clone(), Some(by.clone()), id.as_ref());
    Refusal { workspace, error, detail, id, asked: None, by }.note(store).await;
}

/// What a receipt says of an operator's action.
pub(super) struct ControlWords {
    workspace: WorkspaceId,
    detail: String,
    by: String,
    id: Option<CallId>,
    expected: Option<u64>,
}

impl ControlWords {
    pub(super) fn workspace(&self) -> WorkspaceId {
        self.workspace
    }

    pub(super) fn of(control: &Control) -> Self {
        let Control { workspace, by, id, expected, .. } = control;
        let (by, id) = (cut(by.clone(), EXCERPT), id.clone());
        Self { workspace: *workspace, detail: control.words(), by, id, expected: *expected }
    }
}

/// What a receipt says of a commit, and whose it is: kept until the commit is answered.
pub(super) struct LateCommit {
    num: i64,
    fence: u64,
    expected: u64,
    node: Option<crate::id::NodeId>,
}

impl LateCommit {
    pub(super) fn of(commit: &Commit) -> Self {
        Self { num: commit.num, fence: commit.fence, expected: commit.expected, node: commit.node }
    }

    /// Notes a commit that was refused because its owner had lost the run.
    pub(super) fn note<B: Backend>(&self, store: &B) {
        let Self { num, fence, expected, node } = *self;
        let detail = format!("commit at version {expected}");
        let receipt = Absorbed {
            by: node.map(|node| node.to_string()),
            code: Some(ErrorCode::Concurrency.as_str().to_owned()),
            fence: Some(fence),
            expected: Some(expected),
            ..receipt(store, detail, ReceiptVerdict::Refused)
        };
        note(store, num, ReceiptKind::Result, receipt);
    }
}

/// Notes the hooks of a commit that were not opened on the runs that own their tokens.
pub(super) async fn conflicts<B: Backend>(store: &B, (run, workspace): (RunId, WorkspaceId), saved: &Saved) {
    for settled in &saved.settled {
        let Entry::HookConflicted { token, owner, .. } = settled else { continue };
        match store.execute(Find { workspace, by: FindBy::Id(*owner) }).await {
            Ok(found) => {
                let Some((owner, _)) = found else { continue };
                let receipt = Absorbed {
                    by: Some(run.to_string()),
                    code: Some(HOOK_CONFLICT.to_owned()),
                    ..receipt(store, format!("hook {token}"), ReceiptVerdict::Refused)
                };
                note(store, owner.num, ReceiptKind::Refused, receipt);
            }
            Err(error) => not_noted(&error),
        }
    }
}

/// A call that was refused because of a run.
struct Refusal<'a> {
    workspace: WorkspaceId,
    error: &'a Error,
    detail: String,
    id: Option<&'a CallId>,
    /// What was asked for, if that may be what differs.
    asked: Option<&'a AskedStart>,
    by: Option<String>,
}

impl Refusal<'_> {
    /// Notes it on the run that is in its way. The call is answered with its own error, whatever becomes of this.
    async fn note<B: Backend>(self, store: &B) {
        let (owner, differs) = match self.error {
            Error::KeyReused { owner, .. } => (*owner, true),
            Error::CallReused { owner, .. } | Error::DuplicateRun { owner, .. } => (*owner, false),
            _ => return,
        };
        let asked = self.asked.filter(|_| differs).cloned();
        match store.execute(ReadRefused { workspace: self.workspace, owner, asked }).await {
            Ok(Some((num, pointers))) => {
                let made = receipt(store, self.detail, ReceiptVerdict::Refused);
                let receipt = Absorbed {
                    by: self.by.or(made.by),
                    code: Some(self.error.code().to_owned()),
                    same: differs.then_some(false),
                    pointers,
                    delivery_id: id_text(self.id),
                    ..made
                };
                note(store, num, ReceiptKind::Refused, receipt);
            }
            Ok(None) => {}
            Err(error) => not_noted(&error),
        }
    }
}

fn not_noted(error: &Error) {
    tracing::warn!(%error, "a refused call leaves no receipt");
}
