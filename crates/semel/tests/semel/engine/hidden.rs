//! Steps whose end a crash has hidden.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::{Ctx, Result};
use tokio::sync::Notify;

use super::basics::Count;
use super::{Lab, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("a_reconciled_step_outlives_more_crashes_than_it_has_tries", more_crashes_than_tries)]
}

#[derive(Clone, Default)]
struct Gate(Arc<Notify>);

async fn ship(ctx: Ctx, (): ()) -> Result<u32> {
    let (count, gate) = (ctx.state::<Count>(), ctx.state::<Gate>());
    ctx.step("ship")
        .reconcile(async |_| Ok(None))
        .run(async |attempt| {
            count.up();
            gate.0.notified().await;
            Ok(attempt.number())
        })
        .await
}

/// Three tries are allowed; a crash before the effect is none of them.
async fn more_crashes_than_tries() -> Result<(), Failed> {
    let (lab, count, gate) = (Lab::new(), Count::default(), Gate::default());
    let builder = || lab.engine().state(count.clone()).state(gate.clone()).workflow("ship", ship);
    let mut engine = builder().open().await?;
    let run = engine.start(ship, ()).await?.id();
    for crash in 1..=4 {
        lab.until(async || count.get() == crash).await;
        engine.crash().await;
        lab.clock.advance(Duration::from_hours(24 * 366));
        engine = builder().open().await?;
    }
    lab.until(async || count.get() == 5).await;
    gate.0.notify_one();
    assert_eq!(engine.run(run).result().await?, 5);
    Ok(())
}
