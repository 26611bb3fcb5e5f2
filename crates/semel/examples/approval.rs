//! An order waits up to a day for a person. The wait survives restarts and uses no memory. A caller that knows the
//! token can answer, once.
//!
//! `cargo run -p semel --example approval`

use std::time::Duration;

use semel::rules::status::Status;
use semel::{Ctx, Engine, Result, fatal};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Approval {
    pub(crate) by: String,
    pub(crate) yes: bool,
}

pub(crate) async fn order(ctx: Ctx, id: u32) -> Result<String> {
    let mut approval = ctx.hook::<Approval>(format!("order:{id}"));
    if let Some(owner) = approval.conflict().await? {
        return Err(fatal(format!("{} asks for this order already", owner.run_id)));
    }
    ctx.step("ask")
        .run(async |_| {
            println!("please answer order:{id}");
            Ok(())
        })
        .await?;
    match approval.recv_for(Duration::from_hours(24)).await? {
        Some(Approval { by, yes: true }) => Ok(format!("approved by {by}")),
        Some(Approval { by, .. }) => Err(fatal(format!("refused by {by}"))),
        None => Err(fatal("no answer within a day")),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("semel.db");
    let open = || Engine::builder().store(file.clone()).workflow("order", order).open();

    let engine = open().await?;
    let run = engine.start(order, 7).key("order-7").await?;
    run.reached(Status::Waiting).await?;
    let id = run.id();

    // Deployed in between: the run waits in the file.
    engine.shutdown(Duration::from_secs(5)).await?;
    let engine = open().await?;

    let yes = || Approval { by: "Ada".to_owned(), yes: true };
    let first = engine.deliver("order:7", yes()).id("click-1").await?;
    // The second click has the id of the first: it is absorbed, also if the hook is closed by now.
    let again = engine.deliver("order:7", yes()).id("click-1").await?;
    assert!(!first.absorbed && again.absorbed);
    assert_eq!((again.run, again.arrival), (first.run, first.arrival));
    println!("delivered to  {}", first.run == id);
    println!("second click  absorbed {}", again.absorbed);
    println!("result        {}", engine.run(id).result().await?);
    println!("token free    {}", engine.hook("order:7").await?.is_none());
    Ok(())
}
