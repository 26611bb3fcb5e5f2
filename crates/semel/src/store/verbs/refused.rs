//! What a refused start asked for, beside what the run was started with that is in its way.

use super::read::entries_of;
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::entry::{Created, Entry};
use crate::rules::json::Payload;
use crate::rules::key::{self, CallId, Fingerprint, Key, Token};
use crate::rules::path::Name;
use crate::rules::receipt::{DifferingValue, differing};
use crate::store::tx::{StoreTx, Verb};
use crate::store::verbs::StartRun;

/// What a start asks for, as far as its receipt may have to say it.
#[derive(Clone, Debug)]
pub(crate) struct AskedStart {
    pub(crate) workspace: WorkspaceId,
    pub(crate) key: Key,
    pub(crate) fingerprint: Fingerprint,
    /// Token and id of the delivery with it.
    pub(crate) deliver: Option<(Token, Option<CallId>)>,
    pub(crate) workflow: Name,
    input: Payload,
    excluded: Vec<String>,
}

impl AskedStart {
    /// None if no run can be in its way: its key was drawn for it, and no delivery comes with it.
    pub(crate) fn of(asked: &StartRun) -> Option<Box<Self>> {
        let StartRun { start, fingerprint } = asked;
        if start.is_keyless() && start.deliver.is_none() {
            return None;
        }
        Some(Box::new(Self {
            workspace: start.workspace,
            key: start.key.clone(),
            fingerprint: *fingerprint,
            deliver: start.deliver.as_ref().map(|with| (with.token.clone(), with.id.clone())),
            workflow: start.workflow.clone(),
            input: start.input.clone(),
            excluded: start.excluded.clone(),
        }))
    }

    fn differing(&self, created: &Created) -> Result<Vec<DifferingValue>> {
        let held = key::asked(&created.workflow, &created.input, &self.excluded)?;
        Ok(differing(&held, &key::asked(&self.workflow, &self.input, &self.excluded)?))
    }
}

/// Number of the run that is in the way of a call, and where it differs.
pub(crate) struct ReadRefused {
    pub(crate) workspace: WorkspaceId,
    pub(crate) owner: RunId,
    /// The start that asked for something else; none if that is not why it was refused.
    pub(crate) asked: Option<AskedStart>,
}

impl Verb for ReadRefused {
    type Answer = Option<(i64, Vec<DifferingValue>)>;
    const READS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Answer> {
        let found = tx.run(self.owner).await?.filter(|run| run.new.workspace == self.workspace);
        let Some(owner) = found else { return Ok(None) };
        let Some(asked) = &self.asked else { return Ok(Some((owner.num, Vec::new()))) };
        let first = tx.ledger_first(owner.num).await?.as_ref().map(entries_of).transpose()?;
        let pointers = match first.as_deref().and_then(<[Entry]>::first) {
            Some(Entry::Created(created)) => asked.differing(created)?,
            // The history is forgotten.
            _ => Vec::new(),
        };
        Ok(Some((owner.num, pointers)))
    }
}
