//! The orders and their callers, drawn from a seed.

use std::time::Duration;

use crate::demo::Order;
use crate::demo::dice::Dice;

/// Orders begin this far apart.
const APART: Duration = Duration::from_millis(100);
/// An order is sent by at least two callers, and by at most this many.
const COPIES: u64 = 5;

/// What the show consists of.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of orders that are sent.
    pub orders: u32,
    /// How often the engine is killed.
    pub kills: u32,
    /// Seed of the random choices: the same seed, the same orders and the same failures.
    pub seed: u64,
    /// Whether the folder is kept.
    pub keep: bool,
}

/// One caller with an order.
#[derive(Clone, Debug)]
pub(super) struct Customer {
    pub(super) order: Order,
    /// The key under which it is started.
    pub(super) key: String,
    /// How many callers send it at once.
    pub(super) copies: u64,
    /// A conflicting amount, sent under the same key by another caller.
    pub(super) impostor: Option<u64>,
    /// When it begins.
    pub(super) after: Duration,
}

impl Customer {
    pub(super) fn needs_approval(&self) -> bool {
        self.order.approval == Some(true)
    }
}

/// Time for everything but kills, on the slowest machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// The most time that a kill costs: the next engine, and orders that were paused and are resumed.
const KILL: Duration = Duration::from_secs(5);

impl Plan {
    /// Time limit of the show: an order that has not ended by then has broken its promise.
    pub(super) fn patience(&self) -> Duration {
        PATIENCE + APART * self.orders + KILL * self.kills
    }

    /// All callers of all orders.
    pub(super) fn customers(&self) -> Vec<Customer> {
        (1..=self.orders).map(|number| self.customer(number)).collect()
    }

    fn customer(&self, number: u32) -> Customer {
        let name = format!("order-{number:02}");
        let mut dice = Dice::new(self.seed, &name);
        let amount = 100 + dice.below(20_000);
        // The first two are of both kinds, so that the smallest show has them.
        let approval = number != 2 && (number == 1 || dice.below(3) == 0);
        let impostor = (number == 1 || dice.below(4) == 0).then(|| amount + 1 + dice.below(100));
        Customer {
            key: name.clone(),
            order: Order { order: name, amount, approval: Some(approval) },
            copies: 2 + dice.below(COPIES - 1),
            impostor,
            after: APART * (number - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_show_has_everything() {
        let plan = Plan { orders: 2, kills: 1, seed: 7, keep: false };
        let [first, second] = <[_; 2]>::try_from(plan.customers()).unwrap();
        assert!(first.needs_approval() && !second.needs_approval());
        assert!(first.impostor.is_some_and(|other| other != first.order.amount));
        assert!(first.copies >= 2 && second.copies >= 2);
    }
}
