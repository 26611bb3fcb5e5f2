//! Workflow code in another process than the server. In one terminal `cargo run -- dev`, in another
//! `cargo run -p semel-server --example remote_worker`; in a third one the same again, to share the work. Kill one of them:
//! the other one goes on with its parcels.
//!
//! `SEMEL_URL` is the server, `SEMEL_TOKEN` the API key, `PARCELS` how many to send, `OUTBOX` the folder where labels and
//! letters are put, under their effect keys: what has taken place there does not take place again.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use semel::{Attempt, Ctx, Engine, FailExt as _, Limits, Result};

/// The world outside: one file for each effect. It knows keys, as a good provider does.
struct Outbox(PathBuf);

impl Outbox {
    async fn put(&self, attempt: &Attempt, what: &str) -> Result<()> {
        // Something real takes its time.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let made = OpenOptions::new().write(true).create_new(true).open(self.0.join(attempt.key()));
        match made {
            Ok(mut file) => file.write_all(what.as_bytes()).fatal()?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => println!("absorbed {what}"),
            Err(error) => return Err(error.into()),
        }
        println!("done {what}");
        Ok(())
    }
}

async fn parcel(ctx: Ctx, order: u64) -> Result<String> {
    let outbox = ctx.state::<Outbox>();
    ctx.step("label").run(async |attempt| outbox.put(&attempt, &format!("label {order}")).await).await?;
    for item in ["ink", "pens", "paper"] {
        let pack = async |attempt: Attempt| outbox.put(&attempt, &format!("{item} {order}")).await;
        ctx.step("pack").key(item).run(pack).await?;
    }
    ctx.sleep("cool-off", Duration::from_millis(100)).await?;
    ctx.step("letter").run(async |attempt| outbox.put(&attempt, &format!("letter {order}")).await).await?;
    Ok(format!("parcel {order} is sent"))
}

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

#[tokio::main]
async fn main() -> Result<()> {
    let outbox = PathBuf::from(setting("OUTBOX", "outbox"));
    std::fs::create_dir_all(&outbox).fatal()?;
    let engine = Engine::builder()
        .store(setting("SEMEL_URL", "http://127.0.0.1:7700"))
        .state(Outbox(outbox))
        .workflow("parcel", parcel)
        // Soon after this process is gone, others may go on with its runs.
        .limits(Limits { lease: Duration::from_secs(2), ..Limits::default() })
        .open()
        .await?;
    let mut runs = Vec::new();
    for order in 1..=setting("PARCELS", "10").parse::<u64>().fatal()? {
        // The same parcel is sent once, from any worker and attempt.
        runs.push(engine.start(parcel, order).key(format!("parcel-{order}")).await?);
    }
    for run in &runs {
        println!("{}", run.result().await?);
    }
    println!("all {} parcels are sent", runs.len());
    engine.shutdown(Duration::from_secs(1)).await?;
    Ok(())
}
