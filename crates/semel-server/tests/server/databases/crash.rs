//! An engine that dies before and after each of its durable writes, whose COMMIT is broken off, and that wakes up too late.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use libtest_mimic::{Failed, Trial};
use semel::Engine;
use semel::clock::SystemClock;
use semel::rules::entry::Outcome;
use semel::store::faulty::{Fault, Faulty};
use semel::store::memory::MemoryStore;
use semel::store::{Lease, LeaseAct, Store, Sweep};
use semel::testing::{Crasher, Ended, Scene};
use serde_json::{Value, json};

use super::DEBIT;
use super::gate::Gate;
use super::site::{Site, SiteKind, TESTED};

pub(super) fn trials() -> Vec<Vec<Trial>> {
    let crash = |kind: SiteKind| {
        Trial::test(
            format!("databases::{}::a_crash_at_every_boundary_leaves_each_effect_once", kind.name()),
            move || {
                every_boundary(kind);
                Ok(())
            },
        )
    };
    vec![
        SiteKind::ALL.into_iter().map(crash).collect(),
        on_servers("a_session_that_is_killed_in_its_statement_is_tried_again", killed),
        on_servers("a_zombie_in_its_statement_cannot_commit", zombie),
    ]
}

/// One trial for each database that is a server: SQLite has no sessions that could be killed or left behind, and a transaction that waits
/// there holds the only lock.
fn on_servers<F>(name: &'static str, test: impl Fn(Gate) -> F + Copy + Send + 'static) -> Vec<Trial>
where
    F: Future<Output = Result<(), Failed>>,
{
    let trial = |kind: SiteKind| {
        Trial::test(format!("databases::{}::{name}", kind.name()), move || {
            crate::world::runtime().block_on(async { test(Gate::closed(kind).await).await })
        })
    };
    [SiteKind::Postgres, SiteKind::Mariadb].into_iter().map(trial).collect()
}

/// Creates the site on a thread of its own: a play has a runtime already.
pub(crate) fn fresh(kind: SiteKind) -> Site {
    let made = std::thread::spawn(move || crate::world::runtime().block_on(Site::new(kind)));
    made.join().expect("a database can be made")
}

pub(crate) fn number(site: &Site, sql: &'static str) -> i64 {
    let site = site.clone();
    let asked = std::thread::spawn(move || crate::world::runtime().block_on(site.number(sql)));
    asked.join().expect("the database answers")
}

fn every_boundary(kind: SiteKind) {
    let steps = format!(
        "steps:
  - {{name: first, sql: {{on: bank, run: '{DEBIT}', args: {{cents: 1, who: ann}}, expect: 1}}}}
  - {{name: nap, wait: 5m}}
  - name: book
    transaction:
      - {{name: debit, sql: {{on: bank, run: '{DEBIT}', args: {{cents: 10, who: ann}}, expect: 1}}}}
      - {{name: told, publish: {{on: bank, subject: booked, data: {{cents: 10}}}}}}
  - {{name: announce, publish: {{on: bank, subject: done, data: [1]}}}}
  - name: guarded
    try:
      - {{name: taken, sql: {{on: bank, run: '{DEBIT}', args: {{cents: 100, who: ann}}}}, undo: [{{name: back, sql: {{on: bank, run: '{DEBIT}', args: {{cents: -100, who: ann}}}}}}]}}
      - {{name: fails, sql: {{on: bank, run: '{DEBIT}', args: {{cents: 1000000, who: ann}}, expect: 1}}}}
    catch: [{{steps: [{{name: left, sql: {{on: bank, read: 'SELECT cents FROM account WHERE owner = :who', args: {{who: ann}}}}}}]}}]
return: '{{{{ steps.guarded.rows[0].cents }}}}'"
    );
    let crasher = Crasher::new(
        move || fresh(kind),
        move |site: &Site, builder| site.build(builder, &steps),
        async |scene: Scene<Site>| {
            let run = scene.engine().start(TESTED, json!({})).key("k").await?;
            Ok(match run.outcome().await? {
                Outcome::Completed(value) => value.read().unwrap(),
                other => Value::String(format!("{other:?}")),
            })
        },
    );
    let check = |ended: &Ended<Site, Value>| {
        assert_eq!(ended.value, json!(989));
        assert_eq!(number(&ended.world, "SELECT cents FROM account WHERE owner = 'ann'"), 989);
        assert_eq!(number(&ended.world, "SELECT count(*) FROM semel_queue"), 2);
        let outcomes = "SELECT count(*) FROM fenced_task_idempotency_lock WHERE outcome IS NOT NULL";
        assert_eq!(number(&ended.world, outcomes), 5);
    };
    let plays = crasher.every_boundary(check) + crasher.every_fault(check);
    assert!(plays > 20, "{plays}");
}

/// The server of the database ends the session in the middle of a statement: nothing of it is there, and it is tried again.
async fn killed(gate: Gate) -> Result<(), Failed> {
    let site = &gate.site;
    let steps = format!(
        "steps:
  - name: book
    retry: {{first: 1ms}}
    transaction:
      - {{name: debit, sql: {{on: bank, run: '{DEBIT}', args: {{cents: 7, who: ann}}, expect: 1}}}}
      - {{name: waits, sql: {{on: bank, read: \"{}\"}}}}",
        gate.waiting()
    );
    let engine = site.build(Engine::builder().store("memory:"), &steps).open().await?;
    let run = engine.start(TESTED, json!({})).await?;
    gate.kill(&gate.until_waiting().await).await;
    gate.open().await;
    let outcome = run.outcome().await?;
    assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
    assert_eq!(site.number("SELECT cents FROM account WHERE owner = 'ann'").await, 993);
    assert!(gate.tries().await >= 2, "there was a second try");
    Ok(())
}

/// An engine that has lost its run without noticing wakes up in its transaction, when the new owner has committed.
async fn zombie(gate: Gate) -> Result<(), Failed> {
    let site = &gate.site;
    // It waits before it locks the row that the new owner changes.
    let steps = format!(
        "steps:
  - name: book
    transaction:
      - {{name: waits, sql: {{on: bank, read: \"{}\"}}}}
      - {{name: debit, sql: {{on: bank, run: '{DEBIT}', args: {{cents: 30, who: ann}}, expect: 1}}}}",
        gate.waiting()
    );
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
    let leases = AtomicU32::new(0);
    // It neither hears of its loss nor learns of it from its lease.
    let faults = move |call| {
        let is_renewal = call == "lease" && leases.fetch_add(1, Ordering::SeqCst) > 0;
        is_renewal.then_some(Fault::Before)
    };
    let deaf: Arc<dyn Store> = Arc::new(Faulty::new(store.clone(), faults).deaf());
    let first = site.build(Engine::builder().store(deaf), &steps).open().await?;
    let run = first.start(TESTED, json!({})).await?;
    let session = gate.until_waiting().await;
    let node = run.header().await?.state.node.expect("it is driven");
    store.lease(Lease { node, act: LeaseAct::Leave }).await?;
    store.sweep(Sweep { limit: 100 }).await?;
    let second = site.build(Engine::builder().store(store), &steps).open().await?;
    assert!(matches!(second.run(run.id()).outcome().await?, Outcome::Completed(_)));
    assert_eq!(site.number("SELECT cents FROM account WHERE owner = 'ann'").await, 970);
    gate.open().await;
    // The zombie's view of the run is over when the store has refused what it wanted to record.
    drop(run.outcome().await?);
    gate.until_idle(&session).await;
    assert_eq!(site.number("SELECT cents FROM account WHERE owner = 'ann'").await, 970);
    let outcomes = "SELECT count(*) FROM fenced_task_idempotency_lock WHERE outcome IS NOT NULL";
    assert_eq!(site.number(outcomes).await, 1);
    Ok(())
}
