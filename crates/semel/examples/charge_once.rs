//! A charge that is asked for three times, fails once, loses an answer, and takes place once: the provider is given the
//! same effect key on every attempt.
//!
//! `cargo run -p semel --example charge_once`

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use semel::{Ctx, Engine, Fail, Result, Retry};

/// A payment provider that knows idempotency keys, and has a bad day.
#[derive(Default)]
pub(crate) struct Provider {
    calls: Mutex<u32>,
    charges: Mutex<HashMap<String, u64>>,
}

impl Provider {
    fn charge(&self, cents: u64, key: &str) -> Result<u64> {
        let call = {
            let mut calls = self.calls.lock().expect("no panics here");
            *calls += 1;
            *calls
        };
        if call == 1 {
            return Err(Fail::retryable("the provider is down"));
        }
        // It takes place, once per key …
        self.charges.lock().expect("no panics here").entry(key.to_owned()).or_insert(cents);
        if call == 2 {
            // … and the answer is lost on the way back.
            return Err(Fail::retryable("connection reset"));
        }
        Ok(cents)
    }
}

pub(crate) async fn charge(ctx: Ctx, cents: u64) -> Result<u64> {
    let provider = ctx.state::<Provider>();
    ctx.step("charge")
        .retry(Retry::exponential().max_attempts(5).initial(Duration::from_millis(10)))
        .timeout(Duration::from_secs(10))
        .run(async |attempt| {
            println!("attempt {} with key {}", attempt.number(), attempt.key());
            provider.charge(cents, attempt.key())
        })
        .await?;
    let provider = ctx.state::<Provider>();
    ctx.step("count").run(async |_| Ok(provider.charges.lock().expect("no panics here").len() as u64)).await
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let engine = Engine::builder()
        .store(folder.path().join("semel.db"))
        .state(Provider::default())
        .workflow("charge", charge)
        .open()
        .await?;

    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(engine.start(charge, 1999).key("order-7").await?);
    }
    println!("runs created  {}", runs.iter().filter(|run| run.created()).count());
    println!("charges made  {}", runs[2].result().await?);
    Ok(())
}
