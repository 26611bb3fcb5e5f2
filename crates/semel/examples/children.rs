//! Runs that start runs: each child is a run of its own, with its own ledger, and is started once however often its parent
//! is rebuilt.
//!
//! `cargo run -p semel --example children`

use semel::{Ctx, Engine, Result, WorkflowRef, fatal};

/// The name of a workflow whose code may be in another crate.
const PRICE: WorkflowRef<String, u64> = WorkflowRef::new("price-of");

pub(crate) async fn price_of(ctx: Ctx, item: String) -> Result<u64> {
    if item.is_empty() {
        return Err(fatal("an item needs a name"));
    }
    ctx.step("look-up").run(async |_| Ok(100 * item.len() as u64)).await
}

pub(crate) async fn total_of(ctx: Ctx, items: Vec<String>) -> Result<u64> {
    let mut children = Vec::new();
    for item in &items {
        children.push(ctx.child(PRICE, item.clone()).key(item).await?);
    }
    let mut total = 0;
    for child in &children {
        total += child.result().await?;
    }
    // A child that fails is an error like any other: here it costs nothing.
    let broken = ctx.child(price_of, String::new()).key("broken").await?;
    total += broken.result().await.unwrap_or(0);
    Ok(total)
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let engine = Engine::builder()
        .store(folder.path().join("semel.db"))
        .workflow("price-of", price_of)
        .workflow("total-of", total_of)
        .open()
        .await?;
    let run = engine.start(total_of, ["ink", "pens", "paper"].map(str::to_owned).to_vec()).await?;
    println!("total {}", run.result().await?);
    for numbered in run.ledger().await? {
        if let semel::rules::entry::Entry::ChildStarted { child, .. } = &numbered.entry {
            println!("child {child}");
        }
    }
    Ok(())
}
