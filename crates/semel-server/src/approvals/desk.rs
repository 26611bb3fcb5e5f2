//! Opening, deciding, closing and listing approvals.

use std::sync::Arc;
use std::time::Duration;

use semel::Error;
use semel::clock::Time;
use semel::id::{ApprovalId, WorkspaceId};
use semel::rules::deliver::Deliver;
use semel::rules::json::Payload;
use semel::rules::key::{CallId, RecordId};
use semel::rules::path::Name;
use semel::rules::status::Status;
use semel::store::{Find, FindBy, Store};

use super::record::{Approval, ApprovalEnd, Decided};
use crate::records::{self, Index, RecordKind as _, Versioned};

/// How long an approval is remembered beyond its timeout: a second decision can be told about the first.
const REMEMBERED: Duration = Duration::from_hours(30 * 24);
/// Id of the delivery of a decision. There is one for each approval, so a second delivery is absorbed.
const DELIVERY: &str = "decision";
/// How often a write is repeated when it conflicts with another one. An approval is written three times in its life.
const TRIES: usize = 5;

/// The approvals of a store: what tasks and routes do with them.
#[derive(Clone)]
pub struct Approvals {
    store: Arc<dyn Store>,
}

/// The result of a decision.
#[derive(Clone, Debug)]
pub enum DecisionVerdict {
    /// It is the first one and counts.
    First(Approval),
    /// The first one said the same.
    Repeated(Approval),
    /// The first one said something else.
    Different(Approval),
    /// The run had stopped waiting before.
    Closed(Approval),
    /// The run does not wait: it has ended, or has not begun to.
    NotWaiting(Approval),
    /// There is no such approval.
    Missing,
}

impl std::fmt::Debug for Approvals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Approvals")
    }
}

impl Approvals {
    /// The approvals of this store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Writes the record of a question. Repeating it changes nothing, so that it can be the body of a step.
    pub async fn open(&self, id: ApprovalId, approval: &Approval) -> Result<(), Error> {
        let id = id.to_string();
        let ttl = kept_for(approval, approval.opened_at);
        match records::keep(&*self.store, &id, approval, 0, Some(ttl)).await {
            // An earlier attempt has written it, and it may be decided by now.
            Ok(_) | Err(Error::RecordChanged { .. }) => {}
            Err(error) => return Err(error),
        }
        index(approval.workspace).add(&*self.store, &id, ttl).await
    }

    /// The approval with this id.
    pub async fn find(&self, id: ApprovalId) -> Result<Option<Approval>, Error> {
        Ok(self.versioned(id).await?.map(|kept| kept.body))
    }

    /// Decides, unless there is a decision already. The record is written before the delivery: a crash in between loses
    /// nothing, because the next call about this approval delivers, and at the latest the timeout finds the decision.
    pub async fn decide(&self, id: ApprovalId, decided: &Decided) -> Result<DecisionVerdict, Error> {
        for _ in 0..TRIES {
            let Some(Versioned { version, body, .. }) = self.versioned(id).await? else {
                return Ok(DecisionVerdict::Missing);
            };
            if let Some(first) = &body.decided {
                self.tell(id, &body).await?;
                let same = first.says_as(decided);
                return Ok(if same {
                    DecisionVerdict::Repeated(body)
                } else {
                    DecisionVerdict::Different(body)
                });
            }
            if body.ended.is_some() {
                return Ok(DecisionVerdict::Closed(body));
            }
            if !self.is_waiting(&body).await? {
                return Ok(DecisionVerdict::NotWaiting(body));
            }
            let (ttl, body) =
                (kept_for(&body, decided.at), Approval { decided: Some(decided.clone()), ..body });
            match records::keep(&*self.store, &id.to_string(), &body, version, Some(ttl)).await {
                Ok(_) if self.tell(id, &body).await? => return Ok(DecisionVerdict::First(body)),
                Ok(_) => return self.untold(id, body).await,
                Err(Error::RecordChanged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(changed(id)?)
    }

    /// The run took the decision from the record, or has ended between the look and the delivery.
    async fn untold(&self, id: ApprovalId, decided: Approval) -> Result<DecisionVerdict, Error> {
        let closed = self.find(id).await?.is_some_and(|approval| approval.ended.is_some());
        Ok(if closed { DecisionVerdict::First(decided) } else { DecisionVerdict::NotWaiting(decided) })
    }

    /// Delivers the decision to the run. False if the run does not wait for it.
    async fn tell(&self, id: ApprovalId, approval: &Approval) -> Result<bool, Error> {
        let Some(decided) = approval.decided.as_ref().filter(|_| approval.ended.is_none()) else {
            return Ok(true);
        };
        let deliver = Deliver {
            workspace: approval.workspace,
            token: approval.token.clone(),
            payload: Payload::of(decided)?,
            id: Some(CallId::new(DELIVERY)?),
        };
        match self.store.deliver(deliver).await {
            Ok(_) => {}
            Err(Error::HookNotFound(_)) => return Ok(false),
            Err(error) => return Err(error),
        }
        index(approval.workspace).remove(&*self.store, &id.to_string()).await?;
        Ok(true)
    }

    /// Closes an approval for its run. Gives the decision: that of the record, else what the run has received. Closing it
    /// again gives the same.
    pub async fn close(
        &self,
        id: ApprovalId,
        received: Option<Decided>,
        otherwise: ApprovalEnd,
        now: Time,
    ) -> Result<Option<Decided>, Error> {
        for _ in 0..TRIES {
            // Forgotten: the run was paused for longer than a record lives.
            let Some(Versioned { version, body, .. }) = self.versioned(id).await? else {
                return Ok(received);
            };
            let decided = body.decided.clone().or_else(|| received.clone());
            let closed = match body.ended {
                Some(_) => return self.unlist(id, body.workspace).await.map(|()| body.decided),
                None if decided.is_some() => ApprovalEnd::Decided,
                None => otherwise,
            };
            let ttl = kept_for(&body, now);
            let body = Approval { decided: decided.clone(), ended: Some(closed), ..body };
            match records::keep(&*self.store, &id.to_string(), &body, version, Some(ttl)).await {
                Ok(_) => return self.unlist(id, body.workspace).await.map(|()| decided),
                Err(Error::RecordChanged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(changed(id)?)
    }

    async fn unlist(&self, id: ApprovalId, workspace: WorkspaceId) -> Result<(), Error> {
        index(workspace).remove(&*self.store, &id.to_string()).await
    }

    /// A page of the open approvals of a workspace, the oldest first, and the cursor of the next page if there may be one. It
    /// reads as many records as the limit says, so it may have fewer approvals.
    pub async fn page(
        &self,
        workspace: WorkspaceId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<(ApprovalId, Approval)>, Option<String>), Error> {
        let (ids, next) = index(workspace).page(&*self.store, after, limit).await?;
        let mut open = Vec::new();
        for id in ids.iter().filter_map(|id| id.parse().ok()) {
            match self.find(id).await? {
                Some(approval) if self.is_open(id, &approval).await? => open.push((id, approval)),
                Some(_) => {}
                None => self.unlist(id, workspace).await?,
            }
        }
        Ok((open, next))
    }

    /// Whether a listed approval still waits for a decision. Completes what a crash has interrupted, and removes from the list
    /// what can never be open again: a list must not show the approvals of dead runs.
    async fn is_open(&self, id: ApprovalId, approval: &Approval) -> Result<bool, Error> {
        if approval.decided.is_some() || approval.ended.is_some() {
            if self.tell(id, approval).await? {
                self.unlist(id, approval.workspace).await?;
            }
            return Ok(false);
        }
        if self.is_waiting(approval).await? {
            return Ok(true);
        }
        let find = Find { workspace: approval.workspace, by: FindBy::Id(approval.run) };
        let status = self.store.find(find).await?.map(|(run, _)| run.status());
        // A run that has failed or timed out may be retried, and then waits again.
        if matches!(status, None | Some(Status::Completed | Status::Cancelled)) {
            self.unlist(id, approval.workspace).await?;
        }
        Ok(false)
    }

    /// Whether the run waits at its hook. A token is free from the moment on at which its run ends.
    async fn is_waiting(&self, approval: &Approval) -> Result<bool, Error> {
        let find = Find { workspace: approval.workspace, by: FindBy::Token(approval.token.clone()) };
        Ok(self.store.find(find).await?.is_some())
    }

    async fn versioned(&self, id: ApprovalId) -> Result<Option<Versioned<Approval>>, Error> {
        records::find(&*self.store, &id.to_string()).await
    }
}

/// The open approvals of a workspace.
fn index(workspace: WorkspaceId) -> Index {
    Index { name: "approval-open", workspace }
}

/// How long the record is kept from now on.
fn kept_for(approval: &Approval, now: Time) -> Duration {
    let left = approval.expires_at.0.saturating_sub(now.0).max(0);
    Duration::from_millis(left.unsigned_abs()).saturating_add(REMEMBERED)
}

/// The record was changed by others as often as it was tried.
fn changed(id: ApprovalId) -> Result<Error, Error> {
    Ok(Error::RecordChanged { kind: Name::new(Approval::KIND)?, id: RecordId::new(id.to_string())? })
}
