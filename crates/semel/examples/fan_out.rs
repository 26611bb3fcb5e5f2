//! Many steps at once: each has a name of its own, so that their order does not matter, and results that come together
//! are made durable by one write.
//!
//! `cargo run -p semel --example fan_out`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use semel::engine::open_store;
use semel::rules::entry::Entry;
use semel::sdk::Either;
use semel::store::Store;
use semel::store::faulty::Faulty;
use semel::{Ctx, Engine, Result};

pub(crate) async fn measure(ctx: Ctx, cities: Vec<String>) -> Result<String> {
    // All at once. `join_all` of any crate does; this is the one of the standard's own making.
    let steps = cities.iter().map(|city| {
        let ctx = ctx.scope(city);
        async move {
            let raw = ctx.step("read").run(async |_| Ok(city.len() as u64)).await?;
            ctx.step("scale").run(async |_| Ok(raw * 10)).await
        }
    });
    let mut sum = 0;
    for result in join_all(steps).await {
        sum += result?;
    }

    // The same work in two places, side by side.
    let (left, right) = tokio::join!(total(ctx.scope("left"), sum), total(ctx.scope("right"), sum));

    // The branch that ends first wins; the winner is recorded.
    let quick = ctx.scope("quick");
    let first = ctx.race("first", total(quick, 1), ctx.sleep("patience", Duration::from_mins(1))).await?;
    let first = matches!(first, Either::A(Ok(2)));
    Ok(format!("{} cities, {} and {}, quick {first}", cities.len(), left?, right?))
}

async fn total(ctx: Ctx, sum: u64) -> Result<u64> {
    ctx.step("double").run(async |_| Ok(sum * 2)).await
}

async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = futures.map(|f| (Box::pin(f), None)).collect();
    std::future::poll_fn(|cx| {
        for (future, output) in &mut all {
            if output.is_none()
                && let std::task::Poll::Ready(ready) = future.as_mut().poll(cx)
            {
                *output = Some(ready);
            }
        }
        match all.iter().all(|(_, output)| output.is_some()) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    all.into_iter().filter_map(|(_, output)| output).collect()
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("semel.db").to_string_lossy().into_owned();
    // A store of the testing kit, which is asked before each write whether it should fail: this one only counts.
    let (commits, counted) = (Arc::<AtomicUsize>::default(), open_store(&file, None).await?);
    let counts = commits.clone();
    let count = move |call| {
        counts.fetch_add(usize::from(call == "commit"), Ordering::SeqCst);
        None
    };
    let counted: Arc<dyn Store> = Arc::new(Faulty::new(counted, count));
    let engine = Engine::builder().store(counted).workflow("measure", measure).open().await?;
    let cities = ["Ulm", "Bern", "Roma"].map(str::to_owned).to_vec();
    let run = engine.start(measure, cities).await?;
    println!("{}", run.result().await?);
    let ledger = run.ledger().await?;
    let steps = ledger.iter().filter(|line| matches!(line.entry, Entry::StepCompleted { .. })).count();
    // Nine steps that wait for each other would be nine commits.
    println!("{steps} steps, {} commits", commits.load(Ordering::SeqCst));
    Ok(())
}
