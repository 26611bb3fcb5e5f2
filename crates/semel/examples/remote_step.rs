//! A step that is done elsewhere: the workflow hands it to a queue, and the worker that claims it gets the step's stable key.
//! Here the worker is a task of the same process; over HTTP it is a program in any language.
//!
//! `cargo run -p semel --example remote_step`

use std::sync::Arc;
use std::time::Duration;

use semel::clock::{Clock, SystemClock};
use semel::engine::queue::{AssignmentRef, Queues, Take};
use semel::id::{NodeId, WorkspaceId};
use semel::rules::entry::{Failure, FailureKind};
use semel::rules::json::Payload;
use semel::rules::path::Name;
use semel::store::sqlite::{SqliteOptions, SqliteStore};
use semel::store::{Lease, LeaseAct, Store};
use semel::{Ctx, Engine, Result, Retry};

async fn order(ctx: Ctx, cents: u64) -> Result<String> {
    let retry = Retry::fixed(Duration::from_millis(50));
    let receipt: String = ctx.remote("charge", "payments", cents).retry(retry).await?;
    Ok(format!("paid: {receipt}"))
}

/// Claims due steps, executes them and reports the results. One lease covers all that it holds: if it dies, other workers
/// get the same steps under the same keys.
async fn work(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<()> {
    let (workspace, node) = (WorkspaceId::DEFAULT, NodeId(clock.uuid()));
    store.lease(Lease { node, act: LeaseAct::Join(Duration::from_mins(1)) }).await?;
    let (queues, mut wakes) = (Queues::new(store.clone(), clock.clone()), store.wakes());
    loop {
        let take = Take { workspace, node, queues: vec![Name::new("payments")?], limit: 10 };
        let taken = queues.take(take).await?;
        for task in &taken.tasks {
            println!("{} try {} with a key of {}", task.step, task.attempt, task.key.as_str().len());
            let reference = AssignmentRef { workspace, run: task.run, fence: task.fence };
            if task.attempt == 1 {
                let message = "the line is busy".to_owned();
                queues.fail(reference, Failure::new(FailureKind::Retryable, message)).await?;
            } else {
                let receipt = format!("{} cents by card", task.input.read::<u64>()?);
                queues.complete(reference, Payload::of(&receipt)?).await?;
            }
        }
        if taken.tasks.is_empty() {
            // Something has happened, or becomes due: either way it is worth a look.
            let soon = clock.now().after(Duration::from_secs(1));
            let due = taken.next_due.map_or(soon, |due| due.min(soon));
            tokio::select! {
                _ = wakes.recv() => {}
                () = clock.until(due) => {}
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let options = SqliteOptions::new(folder.path().join("semel.db"));
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(options).await?);
    let engine = Engine::builder().store(store.clone()).workflow("order", order).open().await?;
    let worker = tokio::spawn(work(store, Arc::new(SystemClock::new())));
    println!("{}", engine.start(order, 1999).key("order-7").await?.result().await?);
    worker.abort();
    Ok(())
}
