//! The audit at the end: from the provider's file, the shop's database and the store, and from the answers to callers.

use std::collections::BTreeMap;
use std::time::Duration;

use semel::clock::Time;
use semel::id::WorkspaceId;
use semel::rules::entry::{Entry, Outcome};
use semel::rules::receipt::ReceiptKind;
use semel::store::sqlite::{SqliteOptions, SqliteStore};
use semel::store::{Find, FindBy, Query, Store};
use semel::tx::SqliteDb;

use super::folder::Folder;
use super::plan::{Customer, Plan};
use super::report::{Counts, Promise, Report};
use super::tally::Tally;
use crate::demo::process::{PROVIDER, SHOP, STORE};
use crate::demo::provider::{EffectKind, Event, Note, notes};
use crate::demo::shop::OPENING;
use crate::demo::{DemoError, Receipt};

/// Everything that is left when all processes are gone.
struct Evidence {
    customers: Vec<Customer>,
    runs: Vec<RunEvidence>,
    notes: Vec<Note>,
    debits: Vec<(String, i64)>,
    balance: i64,
}

/// A run as the store has it.
struct RunEvidence {
    id: String,
    key: String,
    outcome: Option<Outcome>,
    /// How many deliveries it has consumed.
    received: usize,
    starts_absorbed: u64,
    stale: u64,
}

/// Reads all files and stores.
pub(super) async fn audit(
    plan: &Plan,
    folder: &Folder,
    tally: &Tally,
    time: Duration,
) -> Result<Report, DemoError> {
    let notes = notes(&folder.path().join(PROVIDER)).map_err(DemoError::io("the provider's file"))?;
    let (debits, balance) = read_shop(folder).await?;
    let evidence =
        Evidence { customers: plan.customers(), runs: read_store(folder).await?, notes, debits, balance };
    let promises = evidence.promises(tally);
    Ok(Report {
        seed: plan.seed,
        counts: evidence.counts(tally, time),
        held: promises.iter().all(|promise| promise.held),
        promises,
        folder: folder.kept().map(|path| path.display().to_string()),
    })
}

async fn read_shop(folder: &Folder) -> Result<(Vec<(String, i64)>, i64), DemoError> {
    let shop = SqliteDb::open(folder.path().join(SHOP)).await?;
    let read = shop.call(|conn| {
        let mut debits = conn.prepare("SELECT order_name, cents FROM debits")?;
        let debits = debits.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let debits = debits.collect::<Result<Vec<_>, _>>()?;
        Ok((debits, conn.query_row("SELECT cents FROM account", [], |row| row.get(0))?))
    });
    Ok(read.await?)
}

async fn read_store(folder: &Folder) -> Result<Vec<RunEvidence>, DemoError> {
    let store = SqliteStore::open(SqliteOptions::new(folder.path().join(STORE))).await?;
    let workspace = WorkspaceId::DEFAULT;
    let since = Some(Time(0));
    let query = Query { since, ..Query::all(workspace, 100_000) };
    let mut runs = Vec::new();
    for run in store.list(query).await? {
        let id = run.id();
        let found = store.find(Find { workspace, by: FindBy::Id(id) }).await?;
        let ledger = store.ledger(workspace, id, 1).await?;
        let received = ledger.iter().filter(|line| matches!(line.entry, Entry::HookReceived { .. })).count();
        let receipts: BTreeMap<_, _> = store.receipts(workspace, id).await?.into_iter().collect();
        let count = |kind| receipts.get(&kind).map_or(0, |receipts| receipts.count);
        runs.push(RunEvidence {
            id: id.to_string(),
            key: run.new.key.to_string(),
            outcome: found.and_then(|(_, outcome)| outcome),
            received,
            starts_absorbed: count(ReceiptKind::Start),
            stale: count(ReceiptKind::Result),
        });
    }
    store.close().await?;
    Ok(runs)
}

impl RunEvidence {
    fn result(&self) -> Option<Receipt> {
        match &self.outcome {
            Some(Outcome::Completed(value)) => serde_json::from_str(value.text()).ok(),
            _ => None,
        }
    }
}

impl Evidence {
    fn count(&self, is: impl Fn(&Event) -> bool) -> u64 {
        self.notes.iter().filter(|note| is(&note.event)).count() as u64
    }

    /// The effects of a kind: for which order, of which amount, and their number.
    fn effects(&self, kind: EffectKind) -> Vec<(&str, u64, u64)> {
        let effect = |note: &'_ Note| match note.event {
            Event::Applied(number) if note.ask.kind == kind => Some(number),
            _ => None,
        };
        let all = self.notes.iter();
        all.filter_map(|note| Some((&*note.ask.order, note.ask.cents, effect(note)?))).collect()
    }

    /// The only effect of a kind for an order; none if there is none, or more than one, or one of another amount.
    fn only(&self, kind: EffectKind, customer: &Customer) -> Option<u64> {
        let effects = self.effects(kind);
        let mut of_order = effects.iter().filter(|(order, ..)| *order == customer.order.order);
        match (of_order.next(), of_order.next()) {
            (Some((_, cents, number)), None) if *cents == customer.order.amount => Some(*number),
            _ => None,
        }
    }

    fn run(&self, customer: &Customer) -> Option<&RunEvidence> {
        let mut runs = self.runs.iter().filter(|run| run.key == customer.key);
        runs.next().filter(|_| runs.next().is_none())
    }

    /// The number of orders for which the condition holds.
    fn orders(&self, so: impl Fn(&Customer) -> bool) -> usize {
        self.customers.iter().filter(|customer| so(customer)).count()
    }

    fn promises(&self, tally: &Tally) -> Vec<Promise> {
        let orders = self.customers.len();
        let single = self.orders(|customer| self.run(customer).is_some());
        let ended = self.orders(|c| self.run(c).is_some_and(|run| run.result().is_some()));
        vec![
            Promise::new(
                "one run for each key, however many callers",
                single == orders && self.runs.len() == orders,
                format!("{orders} keys, {} runs", self.runs.len()),
            ),
            self.survived(tally),
            Promise::new(
                "a key belongs to one request",
                tally.refused == tally.impostors,
                format!("{} of {} others refused", tally.refused, tally.impostors),
            ),
            self.once(EffectKind::Charge),
            self.debited(),
            self.once(EffectKind::Letter),
            self.once(EffectKind::Receipt),
            self.approved(),
            Promise::new("every order has ended", ended == orders, format!("{ended} of {orders} completed")),
            self.agreed(),
        ]
    }

    /// Every run that a caller was told of is the run of its key in the store.
    fn survived(&self, tally: &Tally) -> Promise {
        let told: usize = tally.runs.values().map(std::collections::BTreeSet::len).sum();
        let known = self.orders(|customer| {
            let told = tally.runs.get(&customer.order.order).into_iter().flatten();
            self.run(customer).is_some_and(|run| told.clone().all(|id| *id == run.id))
        });
        let held = known == self.customers.len();
        Promise::new("a start that was answered survives every kill", held, format!("{told} runs told of"))
    }

    fn once(&self, kind: EffectKind) -> Promise {
        let (orders, all) = (self.customers.len(), self.effects(kind).len());
        let held = all == orders && self.orders(|customer| self.only(kind, customer).is_some()) == orders;
        let name = match kind {
            EffectKind::Charge => "one charge for each order (keyed step)",
            EffectKind::Letter => "one letter for each order (reconciled step)",
            EffectKind::Receipt => "one receipt for each order (once)",
        };
        Promise::new(name, held, format!("{all} at the provider"))
    }

    fn debited(&self) -> Promise {
        let single = self.orders(|customer| {
            let mut debits = self.debits.iter().filter(|(order, _)| *order == customer.order.order);
            let amount = debits.next().map(|(_, cents)| *cents);
            amount == i64::try_from(customer.order.amount).ok() && debits.next().is_none()
        });
        let (orders, all) = (self.customers.len(), self.debits.len());
        let spent: u64 = self.customers.iter().map(|customer| customer.order.amount).sum();
        let balanced = self.balance == OPENING - spent as i64;
        let held = single == orders && all == orders && balanced;
        let account = if balanced { "agrees" } else { "DIFFERS" };
        let said = format!("{all}, and the balance {account}");
        Promise::new("one debit for each order (transaction)", held, said)
    }

    fn approved(&self) -> Promise {
        let wanted = |customer: &Customer| usize::from(customer.needs_approval());
        let right = self.orders(|c| self.run(c).is_some_and(|run| run.received == wanted(c)));
        let consumed: usize = self.runs.iter().map(|run| run.received).sum();
        let held = right == self.customers.len();
        Promise::new("each approval consumed once", held, format!("{consumed} in the ledgers"))
    }

    /// The results of the runs agree with the provider's file.
    fn agreed(&self) -> Promise {
        let right = self.orders(|customer| {
            let Some(result) = self.run(customer).and_then(RunEvidence::result) else { return false };
            result.amount == customer.order.amount
                && Some(result.charge) == self.only(EffectKind::Charge, customer)
                && Some(result.letter) == self.only(EffectKind::Letter, customer)
                && Some(result.receipt) == self.only(EffectKind::Receipt, customer)
        });
        let orders = self.customers.len();
        Promise::new(
            "every result names the effects that are there",
            right == orders,
            format!("{right} of {orders}"),
        )
    }

    fn counts(&self, tally: &Tally, time: Duration) -> Counts {
        let stale: u64 = self.runs.iter().map(|run| run.stale).sum();
        Counts {
            orders: self.customers.len() as u64,
            runs: self.runs.len() as u64,
            starts_answered: tally.created + tally.absorbed + tally.impostors,
            duplicates_absorbed: tally.absorbed,
            duplicates_recorded: self.runs.iter().map(|run| run.starts_absorbed).sum(),
            keys_reused_refused: tally.refused,
            calls_cut_off: tally.cut_off,
            deliveries: tally.deliveries,
            deliveries_absorbed: tally.deliveries_absorbed,
            attempts: self.count(|event| *event == Event::Asked),
            answers_lost: self.count(|event| matches!(event, Event::Dropped | Event::FailedAfter)),
            failed_before: self.count(|event| *event == Event::FailedBefore),
            repeated: self.count(|event| matches!(event, Event::Repeated(_))),
            look_ups: self.count(|event| matches!(event, Event::LookedUp(_))),
            charges: self.effects(EffectKind::Charge).len() as u64,
            debits: self.debits.len() as u64,
            letters: self.effects(EffectKind::Letter).len() as u64,
            receipts: self.effects(EffectKind::Receipt).len() as u64,
            stale_refused_by_provider: self.count(|event| *event == Event::Stale),
            stale_refused_by_store: stale,
            kills: tally.kills,
            open_at_kills: tally.killed_in_flight,
            longest_gap_ms: tally.longest_gap.as_millis() as u64,
            resumed: tally.resumed,
            time_ms: time.as_millis() as u64,
        }
    }
}

#[cfg(test)]
mod tests;
