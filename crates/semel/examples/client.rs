//! Two programs: one with the code of a workflow, and one that only knows its name. The second is a client, which starts
//! runs, follows and controls them, and drives none.
//!
//! `cargo run -p semel --example client`. With `DATABASE_URL=postgres://…` and `--features postgres` both use that
//! database, as they would on two machines.

use semel::rules::status::Status;
use semel::{Client, Ctx, Engine, Result, WorkflowRef};
use serde::{Deserialize, Serialize};

/// What both programs know: the name, and the types of input and result.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) id: u32,
    pub(crate) cents: u64,
}
const PROCESS_ORDER: WorkflowRef<Order, String> = WorkflowRef::new("process-order");

/// What only the first program has.
pub(crate) async fn process_order(ctx: Ctx, order: Order) -> Result<String> {
    let charge = ctx.step("charge").run(async |_| Ok(format!("{} cents", order.cents))).await?;
    let by: String = ctx.hook(format!("order:{}", order.id)).recv().await?;
    Ok(format!("{charge}, approved by {by}"))
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("DATABASE_URL").ok();
    let address = url.clone().unwrap_or_else(|| "memory:".to_owned());
    let engine = Engine::builder().store(address).workflow("process-order", process_order).open().await?;

    // A database is opened twice. A store in memory exists in one process only, so here the two share it.
    let client = match url {
        Some(url) => Client::builder().store(url).open().await?,
        None => Client::builder().store(engine.store().clone()).open().await?,
    };
    let order = || Order { id: 7, cents: 1999 };
    let run = client.start(PROCESS_ORDER, order()).key("order-7").await?;
    let again = client.start(PROCESS_ORDER, order()).key("order-7").await?;
    println!("created       {}, again {}", run.created(), again.created());

    run.reached(Status::Waiting).await?;
    for run in client.list().workflow("process-order").status(Status::Waiting).await? {
        println!("waits         {}", run.new.key);
    }
    client.deliver("order:7", "Ada").id("click-1").await?;
    println!("result        {}", again.result().await?);
    client.close().await?;
    engine.shutdown(std::time::Duration::from_secs(5)).await?;
    Ok(())
}
