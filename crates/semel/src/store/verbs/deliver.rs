//! Deliver a payload to the owner of a token.

use crate::error::{Error, Result};
use crate::id::RunId;
use crate::rules::deliver::{Deliver, Delivered, PastCall, Unconsumed};
use crate::rules::entry::Message;
use crate::rules::key::CallId;
use crate::rules::run::Run;
use crate::rules::status::Status;
use crate::store::tx::{CallAt, StoreTx, Verb, race};

impl Verb for Deliver {
    type Answer = Delivered;

    #[cfg(feature = "sqlite")]
    fn weight(&self) -> usize {
        self.payload.text().len()
    }

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Delivered> {
        // The id first: a repeated delivery is absorbed even if the hook is closed by now.
        let past = past(tx, self).await?;
        let owner = match &past {
            // Nothing to look up: the id is kept as long as its run is open, whichever run owns the token now.
            Some(past) if !past.has_ended => None,
            _ => tx.hook(self.workspace, &self.token).await?,
        };
        match (past, owner) {
            (Some(past), owner) if past.is_kept(owner.as_ref().map(Run::id)) => past.absorbed(self),
            (_, None) => Err(Error::HookNotFound(self.token.clone())),
            (past, Some(owner)) => {
                check_room(tx, &owner).await?;
                accept(tx, self, owner, &Remembered::of(self, past.as_ref())).await
            }
        }
    }
}

/// A delivery that was accepted before under the same id.
pub(super) struct Past {
    pub(super) call: PastCall,
    /// Whether the run that got the payload has ended.
    pub(super) has_ended: bool,
}

impl Past {
    pub(super) fn is_kept(&self, owner: Option<RunId>) -> bool {
        self.call.is_kept(self.has_ended, owner)
    }

    /// The answer to its repetition; refused if the id stood for another payload.
    pub(super) fn absorbed(&self, deliver: &Deliver) -> Result<Delivered> {
        if let Some(id) = &deliver.id {
            self.call.repeated(id, deliver.fingerprint()?)?;
        }
        Ok(absorbed(&self.call))
    }
}

/// The delivery from before under the same id, if it has an id and there was one.
pub(super) async fn past<T: StoreTx>(tx: &mut T, deliver: &Deliver) -> Result<Option<Past>> {
    let Some(id) = &deliver.id else { return Ok(None) };
    let Some(call) = accepted(tx, deliver, &deliver.call_scope(), id).await? else { return Ok(None) };
    let status = tx.status(call.run).await?;
    Ok(Some(Past { call, has_ended: status.is_none_or(Status::is_terminal) }))
}

/// The delivery that was accepted under an id, of the caller or derived from a start.
pub(super) async fn accepted<T: StoreTx>(
    tx: &mut T,
    deliver: &Deliver,
    scope: &str,
    id: &CallId,
) -> Result<Option<PastCall>> {
    tx.call(deliver.workspace, scope, id).await
}

/// The answer to a delivery that was accepted before.
pub(super) fn absorbed(past: &PastCall) -> Delivered {
    Delivered { run: past.run, arrival: past.result, node: None, absorbed: true }
}

/// Refuses a delivery to a run whose inbox is full. Asked before anything is written.
pub(super) async fn check_room<T: StoreTx>(tx: &mut T, owner: &Run) -> Result<()> {
    match Unconsumed::is_little(owner.arrivals) {
        true => Ok(()),
        false => tx.unconsumed(owner.num).await?.check(owner.id()),
    }
}

/// An id under which a delivery is remembered.
pub(super) struct Remembered {
    pub(super) scope: String,
    pub(super) id: CallId,
    /// The run for which the id was remembered before; it is free again.
    pub(super) replaces: Option<RunId>,
}

impl Remembered {
    /// The id that the caller gave, if any.
    pub(super) fn of(deliver: &Deliver, past: Option<&Past>) -> Vec<Self> {
        let replaces = past.map(|past| past.call.run);
        let id = |id: &CallId| Self { scope: deliver.call_scope(), id: id.clone(), replaces };
        deliver.id.as_ref().map(id).into_iter().collect()
    }
}

/// Delivers to the owner of the token.
pub(super) async fn accept<T: StoreTx>(
    tx: &mut T,
    deliver: &Deliver,
    owner: Run,
    remembered: &[Remembered],
) -> Result<Delivered> {
    let fingerprint = deliver.fingerprint()?;
    let message = Message::Delivery { token: deliver.token.clone(), payload: deliver.payload.clone() };
    // An owner that has ended owns nothing: its tokens went with it.
    let arrival = tx.arrive(owner.num, &message).await?.ok_or_else(race)?;
    let call = PastCall { run: owner.id(), fingerprint, result: arrival };
    for Remembered { scope, id, replaces } in remembered {
        let at = CallAt { workspace: deliver.workspace, scope, id };
        if !tx.insert_call(at, owner.num, &call, *replaces).await? {
            return Err(race());
        }
    }
    Ok(Delivered { run: owner.id(), arrival, node: owner.state.node, absorbed: false })
}
