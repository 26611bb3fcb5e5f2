//! What an engine says of itself: there as long as it is, and written seldom.

use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::{Clock as _, Time};
use semel::rules::node::EngineRecord;
use semel::rules::record::{Look, LookBy, Record};
use semel::store::Sweep;
use semel::{Ctx, Limits, Result};

use super::{Lab, by_turns, limits};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        by_turns("an_engine_is_listed_with_what_it_serves_until_it_leaves", listed),
        by_turns("an_engine_that_dies_is_listed_until_its_lease_has_ended", dies),
        by_turns("a_record_of_an_engine_is_renewed_seldom", seldom),
        by_turns("an_engine_that_has_lost_its_lease_is_listed_as_its_new_node", renamed),
    ]
}

const LEASE: Duration = Duration::from_secs(10);

async fn order(_: Ctx, cents: u64) -> Result<u64> {
    Ok(cents)
}

async fn hosted(ctx: Ctx, _: serde_json::Value) -> Result<String> {
    Ok(ctx.workflow())
}

async fn records(lab: &Lab) -> Vec<Record> {
    let by = LookBy::Page { after: None, limit: 10, newest_first: false };
    lab.store.records(Look { kind: EngineRecord::kind(), by }).await.expect("a look is always possible")
}

/// Waits until the records are as expected.
async fn until(lab: &Lab, so: impl Fn(&[Record]) -> bool) -> Vec<Record> {
    lab.until(async || so(&records(lab).await)).await;
    records(lab).await
}

async fn listed() -> std::result::Result<(), Failed> {
    let lab = Lab::new();
    let builder = lab.engine().workflow("order", order).workflow_version("order", "2", order);
    let engine = builder.family("doc1_", hosted).name("shop").open().await?;
    let found = until(&lab, |records| !records.is_empty()).await;
    let said: EngineRecord = found[0].body.read()?;
    assert_eq!((said.name.as_str(), said.pid), ("shop", std::process::id()));
    assert_eq!(
        (said.serves, said.families),
        (vec!["order@1".into(), "order@2".into()], vec!["doc1_".into()])
    );
    assert_eq!((said.workspace, said.since), (engine.workspace(), Time(1_000_000)));
    engine.shutdown(Duration::ZERO).await?;
    assert_eq!(records(&lab).await, []);
    Ok(())
}

async fn dies() -> std::result::Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().limits(Limits { lease: LEASE, ..limits() }).open().await?;
    until(&lab, |records| !records.is_empty()).await;
    drop(engine);
    lab.store.sweep(Sweep { limit: 10 }).await?;
    assert_eq!(records(&lab).await.len(), 1, "its lease lasts");
    lab.clock.advance(LEASE);
    lab.store.sweep(Sweep { limit: 10 }).await?;
    assert_eq!(records(&lab).await, []);
    Ok(())
}

async fn seldom() -> std::result::Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().open().await?;
    until(&lab, |records| !records.is_empty()).await;
    let begun = lab.clock.now();
    for minute in 1..20 {
        lab.clock.advance_to(begun.after(Duration::from_mins(minute)));
        super::rest::yield_often().await;
        assert_eq!(records(&lab).await[0].version, 1, "after {minute} minutes");
    }
    lab.clock.advance_to(begun.after(Duration::from_mins(20)));
    until(&lab, |records| records[0].version == 2).await;
    drop(engine);
    Ok(())
}

async fn renamed() -> std::result::Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().limits(Limits { lease: LEASE, ..limits() }).open().await?;
    let first = until(&lab, |records| !records.is_empty()).await;
    // Asleep past its lease: another process sweeps.
    lab.clock.advance(LEASE);
    lab.store.sweep(Sweep { limit: 10 }).await?;
    let other = until(&lab, |records| records.iter().any(|record| record.id != first[0].id)).await;
    assert_eq!(other.len(), 1, "{other:?}");
    drop(engine);
    Ok(())
}
