//! Deliver a payload to the owner of a token.

use crate::error::{Error, Result};
use crate::rules::deliver::{Deliver, Delivered, PastCall};
use crate::rules::entry::Message;
use crate::rules::run::Run;
use crate::sabotage::{self, Bug};
use crate::store::tx::{Tx, Verb, race};

impl Verb for Deliver {
    type Answer = Delivered;

    #[cfg(feature = "sqlite")]
    fn weight(&self) -> usize {
        self.payload.text().len()
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Delivered> {
        // The id first: a repeated delivery is absorbed even if the hook is closed by now.
        if let Some(past) = past_call(tx, self).await? {
            return Ok(absorbed(&past));
        }
        match tx.hook(self.workspace, &self.token).await? {
            Some(owner) => accept(tx, self, owner).await,
            None => Err(Error::HookNotFound(self.token.clone())),
        }
    }
}

/// The same delivery from before, if it has an id and there was one.
pub(super) async fn past_call<T: Tx>(tx: &mut T, deliver: &Deliver) -> Result<Option<PastCall>> {
    let Some(id) = deliver.id.as_ref().filter(|_| !sabotage::commits(Bug::DeliveryIdForgotten)) else {
        return Ok(None);
    };
    let Some(past) = tx.call(deliver.workspace, &deliver.call_scope(), id).await? else { return Ok(None) };
    past.repeated(id, deliver.fingerprint()?).map(|past| Some(past.clone()))
}

/// The answer to a delivery that was accepted before.
pub(super) fn absorbed(past: &PastCall) -> Delivered {
    Delivered { run: past.run, arrival: past.result, node: None, absorbed: true }
}

/// Delivers to the owner of the token.
pub(super) async fn accept<T: Tx>(tx: &mut T, deliver: &Deliver, owner: Run) -> Result<Delivered> {
    let fingerprint = deliver.fingerprint()?;
    let message = Message::Delivery { token: deliver.token.clone(), payload: deliver.payload.clone() };
    // An owner that has ended owns nothing: its tokens went with it.
    let arrival = tx.arrive(owner.num, &message).await?.ok_or_else(race)?;
    if let Some(id) = deliver.id.as_ref().filter(|_| !sabotage::commits(Bug::DeliveryIdForgotten)) {
        let call = PastCall { run: owner.id(), fingerprint, result: arrival };
        if !tx.insert_call(deliver.workspace, &deliver.call_scope(), id, owner.num, &call).await? {
            return Err(race());
        }
    }
    Ok(Delivered { run: owner.id(), arrival, node: owner.state.node, absorbed: false })
}
