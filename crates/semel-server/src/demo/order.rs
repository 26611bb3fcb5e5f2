//! The workflow `demo-order`: approval by a hook, a charge by key, a debit in a transaction, a letter that is never sent
//! twice, a receipt once.

use std::time::Duration;

use semel::{Attempt, Ctx, Once, Result, Retry, fatal};
use serde::{Deserialize, Serialize};

use super::provider::{Ask, Kind};
use super::shop::{Shop, Till};

/// The name of the workflow.
pub const NAME: &str = "demo-order";

/// From this amount on somebody has to approve, in cents.
pub const NEEDS_APPROVAL: u64 = 10_000;
/// No order is larger, in cents.
pub const LARGEST: u64 = 100_000_000;
/// Longer names of orders do not fit into tokens.
const LONGEST_NAME: usize = 100;

/// How long one try may take: the provider is slow, but not that slow.
const TRY: Duration = Duration::from_secs(1);
/// How often the receipt is asked for before the run fails, and the pause between.
const RECEIPT_TRIES: u32 = 10;
const RECEIPT_PAUSE: Duration = Duration::from_millis(50);

/// What is ordered: the input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Its name.
    pub order: String,
    /// What it costs, in cents.
    pub amount: u64,
    /// Whether somebody has to approve; if nothing is said, from 10,000 cents on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<bool>,
}

/// Somebody's word about an order: what is delivered to its hook.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Approval {
    /// Yes or no.
    pub approved: bool,
    /// Whose word it is.
    #[serde(default = "nobody")]
    pub by: String,
}

fn nobody() -> String {
    "somebody".to_owned()
}

/// What came of it: the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// The order.
    pub order: String,
    /// What it cost, in cents.
    pub amount: u64,
    /// Who approved, if somebody had to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
    /// The provider's number of the charge.
    pub charge: u64,
    /// What the shop's account has left, in cents.
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

    fn ask(&self, kind: Kind, attempt: &Attempt) -> Ask {
        Ask {
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

    // Keyed: tried until it is known to have taken place, always under the same key. The provider charges once per key.
    let charge = ctx
        .step("charge")
        .retry(patience())
        .timeout(TRY)
        .run(async |attempt| shop.provider.effect(order.ask(Kind::Charge, &attempt)).await)
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

    // The provider prints as many letters as it is asked for. So it is asked what became of a try, before there is another.
    let letter = ctx
        .step("letter")
        .retry(patience())
        .reconcile(async |attempt| shop.provider.find(order.ask(Kind::Letter, &attempt)).await)
        .run(async |attempt| shop.provider.effect(order.ask(Kind::Letter, &attempt)).await)
        .await?;

    // Once: whichever run asks for the receipt of this order, there is one.
    let label = format!("receipt-{}", order.order);
    let receipt = ctx.run_once(&*label, async || receipt(&shop, &order, &label).await);
    let receipt = receipt.scope(Once::Workspace).await?;

    Ok(Receipt { order: order.order, amount: order.amount, approved_by, charge, balance, letter, receipt })
}

/// Waits for somebody's word, for as long as it takes, if there has to be one.
async fn approval(ctx: &Ctx, order: &Order) -> Result<Option<String>> {
    if !order.needs_approval() {
        return Ok(None);
    }
    let mut hook = ctx.hook::<Approval>(token(&order.order));
    if let Some(owner) = hook.conflict().await? {
        return Err(fatal(format!("{} waits for the approval of {} already", owner.run_id, order.order)));
    }
    let Approval { approved, by } = hook.recv().await?;
    if approved { Ok(Some(by)) } else { Err(fatal(format!("{} was refused by {by}", order.order))) }
}

/// Asks for the receipt until it is known. A once has no tries of its own: it is over when its body is.
async fn receipt<T: Till>(shop: &Shop<T>, order: &Order, key: &str) -> Result<u64> {
    let (name, cents) = (order.order.clone(), order.amount);
    let mut ask = Ask { kind: Kind::Receipt, order: name, cents, key: key.to_owned(), fence: 0, attempt: 1 };
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

/// A provider that loses answers is asked again soon, and often.
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
