//! The smallest workflow: two steps, asked for twice, done once.
//!
//! `cargo run -p semel --example hello`

use semel::{Ctx, Engine, Result};

pub(crate) async fn greet(ctx: Ctx, name: String) -> Result<String> {
    let greeting = ctx.step("compose").run(async |_| Ok(format!("Hello, {name}!"))).await?;
    ctx.step("say")
        .run(async |attempt| {
            println!("{greeting} (effect key {})", attempt.key());
            Ok(())
        })
        .await?;
    Ok(greeting)
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("semel.db");
    let engine = Engine::builder().store(file).workflow("greet", greet).open().await?;

    // The same request arrives twice: a double click, a redelivered webhook, a retry after a lost answer.
    let run = engine.start(greet, "world".to_owned()).key("greet-world").await?;
    let again = engine.start(greet, "world".to_owned()).key("greet-world").await?;
    println!("first start   {:?} {}", run.verdict(), run.id());
    println!("same run      {}", again.id() == run.id());
    println!("result        {}", again.result().await?);

    // The same key for something else is refused, and the answer says what differs.
    let refused = engine.start(greet, "moon".to_owned()).key("greet-world").await.expect_err("another input");
    println!("other input   {}: {refused}", refused.code());

    engine.shutdown(std::time::Duration::from_secs(5)).await?;
    Ok(())
}
