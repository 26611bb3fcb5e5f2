//! Yesterday's runs against today's code: what a CI asks before a new version goes out.
//!
//! `cargo run -p semel --example replay_ci; echo "exit code $?"`
//!
//! Exit code 0: all runs would do the same. 1: some would not. 2: a file could not be replayed.

use std::process::ExitCode;

use semel::error::Result;
use semel::{Ctx, Engine, Error, Replay};

/// The code that made the histories.
pub(crate) async fn order(ctx: Ctx, cents: u64) -> semel::Result<String> {
    let charge: u64 = ctx.step("charge").run(async |_| Ok(cents)).await?;
    ctx.step("letter").at_most_once().run(async |_| Ok(())).await?;
    Ok(format!("charged {charge}"))
}

/// The same workflow after a clean-up of its code: the step has a better name, which the open runs do not know.
async fn order_tidied(ctx: Ctx, cents: u64) -> semel::Result<String> {
    let charge: u64 = ctx.step("charge-card").run(async |_| Ok(cents)).await?;
    ctx.step("letter").at_most_once().run(async |_| Ok(())).await?;
    Ok(format!("charged {charge}"))
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let io = |error: std::io::Error| Error::Validation(error.to_string());
    let folder = tempfile::tempdir().map_err(io)?;

    // In production: runs end, and some of them are exported.
    let engine = Engine::builder().store("memory:").workflow("order", order).open().await?;
    for cents in [700, 1999] {
        let run = engine.start(order, cents).key(format!("order-{cents}")).await?;
        println!("production    {}", run.result().await?);
        let history = engine.export(run.id()).await?.to_json();
        std::fs::write(folder.path().join(format!("order-{cents}.json")), history).map_err(io)?;
    }

    // In CI, without that store: nothing is charged, no letter is written.
    for (name, builder) in [
        ("same code", Engine::builder().workflow("order", order)),
        ("tidied code", Engine::builder().workflow("order", order_tidied)),
    ] {
        let engine = builder.store("memory:").open().await?;
        let replays = engine.replay_folder(folder.path()).await?;
        println!("{name:<13} exit code {}", replays.exit_code());
        for (path, replay) in &replays.files {
            let file = path.file_name().unwrap_or_default().display();
            for row in replay.iter().flat_map(Replay::differences) {
                println!("  {file}: {} {} {}", row.verdict, row.kind, row.path);
            }
        }
        if name == "tidied code" {
            // What a person reads in the log of the CI: the tables of all that differ.
            eprintln!("{replays}");
            return Ok(ExitCode::from(replays.exit_code()));
        }
    }
    Ok(ExitCode::SUCCESS)
}
