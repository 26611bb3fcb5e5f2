//! An audit that finds nothing wrong is worth something only if it would have.

use super::*;
use crate::demo::provider::EffectRequest;
use semel::rules::json::Payload;

const PLAN: Plan = Plan { orders: 2, kills: 0, seed: 1, keep: false };

fn note(event: Event, kind: EffectKind, customer: &Customer) -> Note {
    let (order, cents) = (customer.order.order.clone(), customer.order.amount);
    Note { event, ask: EffectRequest { kind, order, cents, key: "k".to_owned(), fence: 1, attempt: 1 } }
}

/// Two orders as they should be, and what their callers were told.
fn sound() -> (Evidence, Tally) {
    let customers = PLAN.customers();
    let (mut runs, mut notes, mut debits, mut tally) = (Vec::new(), Vec::new(), Vec::new(), Tally::default());
    for (number, customer) in (1..).zip(&customers) {
        let Customer { order, key, .. } = customer;
        for (place, kind) in (0..).zip([EffectKind::Charge, EffectKind::Letter, EffectKind::Receipt]) {
            notes.push(note(Event::Applied(number * 3 + place), kind, customer));
        }
        debits.push((order.order.clone(), order.amount as i64));
        let result = Receipt {
            order: order.order.clone(),
            amount: order.amount,
            approved_by: None,
            charge: number * 3,
            balance: 0,
            letter: number * 3 + 1,
            receipt: number * 3 + 2,
        };
        runs.push(RunEvidence {
            id: format!("run_{number}"),
            key: key.clone(),
            outcome: Some(Outcome::Completed(Payload::of(&result).unwrap())),
            received: usize::from(customer.needs_approval()),
            starts_absorbed: 0,
            stale: 0,
        });
        tally.runs.entry(order.order.clone()).or_default().insert(format!("run_{number}"));
    }
    (tally.impostors, tally.refused) = (1, 1);
    let balance = OPENING - debits.iter().map(|(_, cents)| cents).sum::<i64>();
    (Evidence { customers, runs, notes, debits, balance }, tally)
}

/// The promises that are broken after something was changed.
fn broken(change: impl FnOnce(&mut Evidence, &mut Tally)) -> Vec<&'static str> {
    let (mut evidence, mut tally) = sound();
    change(&mut evidence, &mut tally);
    let promises = evidence.promises(&tally);
    promises.into_iter().filter(|promise| !promise.held).map(|promise| promise.promise).collect()
}

#[test]
fn what_is_sound_is_found_so() {
    assert_eq!(broken(|_, _| {}), [""; 0]);
}

#[test]
fn a_second_effect_is_found() {
    for (kind, which) in
        [(EffectKind::Charge, "charge"), (EffectKind::Letter, "letter"), (EffectKind::Receipt, "receipt")]
    {
        let twice = broken(|evidence, _| {
            evidence.notes.push(note(Event::Applied(99), kind, &PLAN.customers()[0]));
        });
        assert!(twice.iter().any(|promise| promise.contains(which)), "{which}: {twice:?}");
    }
    let twice = broken(|evidence, _| evidence.debits.push(evidence.debits[0].clone()));
    assert_eq!(twice, ["one debit for each order (transaction)"]);
}

#[test]
fn a_missing_effect_is_found() {
    let missing = broken(|evidence, _| {
        evidence.notes.remove(0);
    });
    assert!(missing.contains(&"one charge for each order (keyed step)"), "{missing:?}");
    let missing = broken(|evidence, _| {
        evidence.debits.pop();
    });
    assert_eq!(missing, ["one debit for each order (transaction)"]);
}

#[test]
fn money_that_is_gone_without_a_row_is_found() {
    assert_eq!(broken(|evidence, _| evidence.balance -= 1), ["one debit for each order (transaction)"]);
}

#[test]
fn a_second_run_a_lost_run_and_an_open_run_are_found() {
    let second = broken(|evidence, _| evidence.runs[1].key = evidence.runs[0].key.clone());
    assert!(second.contains(&"one run for each key, however many callers"), "{second:?}");
    let lost = broken(|_, tally| {
        tally.runs.entry("order-01".to_owned()).or_default().insert("run_9".to_owned());
    });
    assert_eq!(lost, ["a start that was answered survives every kill"]);
    let open = broken(|evidence, _| evidence.runs[0].outcome = None);
    assert!(open.contains(&"every order has ended"), "{open:?}");
}

#[test]
fn an_impostor_that_was_let_in_and_a_second_approval_are_found() {
    assert_eq!(broken(|_, tally| tally.refused = 0), ["a key belongs to one request"]);
    assert_eq!(broken(|evidence, _| evidence.runs[0].received = 2), ["each approval consumed once"]);
}
