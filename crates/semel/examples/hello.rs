//! One order, asked for twice, charged once: the ledger by hand, on the embedded store.
//!
//! `cargo run --release -p semel --example hello`

use std::time::Duration;

use semel::Error;
use semel::clock::{Clock, SystemClock};
use semel::error::Result;
use semel::id::{NodeId, RunId, WorkspaceId};
use semel::rules::claim::Claim;
use semel::rules::entry::{Class, Entry};
use semel::rules::json::Payload;
use semel::rules::key::Key;
use semel::rules::ledger::Ledger;
use semel::rules::path::{Name, Visit};
use semel::rules::start::Start;
use semel::store::sqlite::{SqliteOptions, SqliteStore};
use semel::store::{Lease, LeaseAct, Store};

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir().map_err(|e| Error::Validation(e.to_string()))?;
    let store = SqliteStore::open(SqliteOptions::new(folder.path().join("semel.db"))).await?;
    let (clock, ws) = (SystemClock::new(), WorkspaceId::DEFAULT);

    // The same order arrives twice: a double click, a redelivered webhook, a retry after a lost answer.
    let order = |cents: u32| -> Result<Start> {
        let input = Payload::parse(&format!(r#"{{"order":7,"cents":{cents}}}"#))?;
        let key = Some(Key::new("order-7")?);
        Ok(Start::new(ws, RunId(clock.uuid()), Name::new("process-order")?, input, key))
    };
    let first = store.start(order(1999)?).await?;
    let again = store.start(order(1999)?).await?;
    println!("first start   {:?}  {}", first.verdict, first.run.id());
    println!("second start  {:?} {}", again.verdict, again.run.id());
    assert_eq!((first.run.id(), again.created()), (again.run.id(), false));

    // The same key for something else is refused, and the answer says what differs.
    let reused = store.start(order(5000)?).await.expect_err("another amount under the same key");
    println!("other amount  {}: {reused}", reused.code());

    // Two nodes take the run one after the other; the first has lost it and cannot record its result any more.
    let zombie = drive(&store, &clock).await?;
    store
        .lease(Lease { node: zombie.run().state.node.expect("it was claimed"), act: LeaseAct::Leave })
        .await?;
    store.sweep(semel::store::Sweep { limit: 100 }).await?;
    let owner = drive(&store, &clock).await?;
    let charge = Visit::parse("charge").expect("a path");
    println!("effect key    {} on every attempt", owner.effect_key(&charge, ""));
    assert_eq!(owner.effect_key(&charge, ""), zombie.effect_key(&charge, ""));

    for (name, mut run) in [("owner", owner), ("zombie", zombie)] {
        let value = Payload::parse(r#"{"charge":"ch_1"}"#)?;
        for entry in [
            Entry::StepStarted { step: charge.clone(), attempt: 1, class: Class::Keyed },
            Entry::StepCompleted { step: charge.clone(), value: value.clone() },
            Entry::Completed { value },
        ] {
            run.record(entry).map_err(|source| Error::Refused { run: run.run().id(), source })?;
        }
        match store.commit(run.commit().expect("three entries")).await {
            Ok(saved) => println!("{name:<6} commit version {}", saved.version),
            Err(error) => println!("{name:<6} commit {}: {error}", error.code()),
        }
    }

    // What was absorbed is kept on its owner.
    for (kind, receipts) in store.receipts(ws, first.run.id()).await? {
        println!("absorbed      {} {kind:?}", receipts.count);
    }
    store.close().await
}

/// Joins as a new node and claims the one due run.
async fn drive(store: &SqliteStore, clock: &SystemClock) -> Result<Ledger> {
    let node = NodeId(clock.uuid());
    store.lease(Lease { node, act: LeaseAct::Join(Duration::from_secs(30)) }).await?;
    let workflows = vec![(WorkspaceId::DEFAULT, Name::new("process-order")?)];
    let claimed = store.claim(Claim::new(node, workflows, 1)).await?.runs.remove(0);
    let id = claimed.run.id();
    Ledger::read(claimed.run, claimed.entries.unwrap_or_default())
        .map_err(|source| Error::Refused { run: id, source })
}
