//! The workflow `demo-order`: approval by a hook, a charge by key, a debit in a transaction, a letter that is never sent
//! twice, a receipt once.

use std::time::Duration;

use semel::{Attempt, Ctx, Once, Result, Retry, fatal};
use serde::{Deserialize, Serialize};

use super::provider::{EffectKind, EffectRequest};
use super::shop::{Shop, Till};

/// The name of the workflow.
pub const NAME: &str = "demo-order";

/// Orders of at least this amount, in cents, need an approval.
pub const NEEDS_APPROVAL: u64 = 10_000;
/// The largest amount of an order, in cents.
pub const LARGEST: u64 = 100_000_000;
/// The longest name of an order: a token contains it.
const LONGEST_NAME: usize = 100;

/// Time limit of one attempt: longer than the provider takes, unless a call is stuck.
const TRY: Duration = Duration::from_secs(1);
/// How often the receipt is asked for before the run fails, and the pause between.
const RECEIPT_TRIES: u32 = 10;
const RECEIPT_PAUSE: Duration = Duration::from_millis(50);

/// An order: the input of the workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Name of the order, unique in the shop.
    pub order: String,
    /// Amount of the order, in cents.
    pub amount: u64,
    /// Whether the order needs an approval; by default from 10,000 cents on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<bool>,
}

/// An approval or refusal of an order: the payload of its hook.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OrderApproval {
    /// Whether the order may go on.
    pub approved: bool,
    /// Name of the person who has decided.
    #[serde(default = "unnamed")]
    pub by: String,
}

fn unnamed() -> String {
    "an unnamed person".to_owned()
}

/// The result of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// Name of the order, from its input.
    pub order: String,
    /// Amount of the order, in cents.
    pub amount: u64,
    /// Who approved the order; absent if it needed no approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
    /// The provider's number of the charge.
    pub charge: u64,
    /// Balance of the shop's account after the debit, in cents.
    pub balance: i64,
    /// The provider's number of the letter.
    pub letter: u64,
    /// The provider's number of the receipt.
    pub receipt: u64,
}

/// The token of an order's approval.
pub fn token(order: &str) -> String {
    format!("approve-{order}")
}

impl Order {
    fn check(&self) -> Result<()> {
        let length = self.order.chars().count();
        if length == 0 || length > LONGEST_NAME {
            return Err(fatal(format!(
                "an order has a name of 1 to {LONGEST_NAME} characters, not {length}"
            )));
        }
        if self.amount == 0 || self.amount > LARGEST {
            return Err(fatal(format!("an order costs 1 to {LARGEST} cents, not {}", self.amount)));
        }
        Ok(())
    }

    fn needs_approval(&self) -> bool {
        self.approval.unwrap_or(self.amount >= NEEDS_APPROVAL)
    }

    fn ask(&self, kind: EffectKind, attempt: &Attempt) -> EffectRequest {
        EffectRequest {
            kind,
            order: self.order.clone(),
            cents: self.amount,
            key: attempt.key().to_owned(),
            fence: attempt.fence(),
            attempt: attempt.number(),
        }
    }
}

/// The workflow.
pub(super) async fn order<T: Till>(ctx: Ctx, order: Order) -> Result<Receipt> {
    order.check()?;
    let shop = ctx.state::<Shop<T>>();
    let approved_by = approval(&ctx, &order).await?;

    // Keyed: retried until it is known to have taken place, always under the same key. The provider charges once per key.
    let charge = ctx
        .step("charge")
        .retry(patience())
        .timeout(TRY)
        .run(async |attempt| shop.provider.effect(order.ask(EffectKind::Charge, &attempt)).await)
        .await?;

    // Transactional: the shop's rows and the outcome are one commit of the shop's database.
    let balance = ctx
        .tx("debit", &shop.till)
        .retry(patience())
        .run(async |mut tx| {
            let left = T::debit(&mut tx, &order.order, order.amount).await?;
            tx.commit(left).await
        })
        .await?;

    // The provider prints a letter for each call. So the outcome of an attempt is looked up before there is another.
    let letter = ctx
        .step("letter")
        .retry(patience())
        .reconcile(async |attempt| shop.provider.find(order.ask(EffectKind::Letter, &attempt)).await)
        .run(async |attempt| shop.provider.effect(order.ask(EffectKind::Letter, &attempt)).await)
        .await?;

    // Once: whichever run asks for the receipt of this order, there is only one.
    let label = format!("receipt-{}", order.order);
    let receipt = ctx.run_once(&*label, async || receipt(&shop, &order, &label).await);
    let receipt = receipt.scope(Once::Workspace).await?;

    Ok(Receipt { order: order.order, amount: order.amount, approved_by, charge, balance, letter, receipt })
}

/// Waits without limit for an approval, if the order needs one.
async fn approval(ctx: &Ctx, order: &Order) -> Result<Option<String>> {
    if !order.needs_approval() {
        return Ok(None);
    }
    let mut hook = ctx.hook::<OrderApproval>(token(&order.order));
    if let Some(owner) = hook.conflict().await? {
        return Err(fatal(format!("{} waits for the approval of {} already", owner.run_id, order.order)));
    }
    let OrderApproval { approved, by } = hook.recv().await?;
    if approved { Ok(Some(by)) } else { Err(fatal(format!("{} was refused by {by}", order.order))) }
}

/// Asks for the receipt until it is known. `run_once` does not retry its body, so the loop is here.
async fn receipt<T: Till>(shop: &Shop<T>, order: &Order, key: &str) -> Result<u64> {
    let (name, cents) = (order.order.clone(), order.amount);
    let mut ask = EffectRequest {
        kind: EffectKind::Receipt,
        order: name,
        cents,
        key: key.to_owned(),
        fence: 0,
        attempt: 1,
    };
    loop {
        match shop.provider.effect(ask.clone()).await {
            Err(fail) if ask.attempt < RECEIPT_TRIES && !fail.is_fatal() => {
                shop.clock.until(shop.clock.now().after(RECEIPT_PAUSE)).await;
                ask.attempt += 1;
            }
            answered => return answered,
        }
    }
}

/// Retries for a provider that loses answers: soon, and many.
fn patience() -> Retry {
    Retry {
        max_attempts: 10,
        initial: Duration::from_millis(50),
        max_delay: Duration::from_millis(500),
        ..Retry::default()
    }
}

#[cfg(test)]
mod tests;
