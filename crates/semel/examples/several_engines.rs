//! Two engines on one PostgreSQL share the work; one of them dies, and the other finishes what it had begun.
//!
//! `DATABASE_URL=postgres://… cargo run -p semel --features postgres --example several_engines`

use std::collections::BTreeSet;
use std::time::Duration;

use semel::rules::entry::Entry;
use semel::{Ctx, Engine, Limits, Result};

pub(crate) async fn work(ctx: Ctx, n: u32) -> Result<u32> {
    let mut sum = 0;
    for round in 1..=5u32 {
        sum += ctx.step("round").key(round).run(async |_| Ok(n * round)).await?;
        ctx.sleep(format!("rest-{round}"), Duration::from_millis(100)).await?;
    }
    Ok(sum)
}

#[tokio::main]
async fn main() -> Result<()> {
    let Ok(url) = std::env::var("DATABASE_URL") else {
        println!("set DATABASE_URL to a PostgreSQL database");
        return Ok(());
    };
    // A short lease, so that the example is over soon.
    let limits = Limits { lease: Duration::from_secs(1), ..Limits::default() };
    let open = || Engine::builder().store(url.clone()).workflow("work", work).limits(limits).open();
    let (one, two) = (open().await?, open().await?);

    let mut runs = Vec::new();
    for n in 0..20 {
        let engine = if n % 2 == 0 { &one } else { &two };
        runs.push(engine.start(work, n).key(format!("work-{n}")).await?.id());
    }
    // Dropped without a word, as if its process had been killed.
    drop(one);
    let (mut sum, mut nodes) = (0, BTreeSet::new());
    for id in runs {
        let run = two.run(id).typed::<u32>();
        sum += run.result().await?;
        for numbered in run.ledger().await? {
            if let Entry::Claimed { node } = numbered.entry {
                nodes.insert(node.to_string());
            }
        }
    }
    println!("sum of all    {sum}");
    println!("engines       {}", nodes.len());
    two.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}
