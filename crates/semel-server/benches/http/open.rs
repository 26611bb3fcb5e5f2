//! A server that is killed with many open runs: how long until it answers again.

use std::time::{Duration, Instant};

use crate::figures::Figures;
use crate::server::Process;
use crate::starts::{BATCH, batch};
use crate::wire::Wire;
use crate::{Anything, setting};

/// What is asked for.
const GOAL: Duration = Duration::from_secs(2);

pub(crate) async fn measure(server: &mut Process, figures: &mut Figures) -> Anything<()> {
    let runs: u64 = setting("SEMEL_BENCH_OPEN", 100_000);
    println!("A server with {runs} open runs is killed and started again");
    let mut wire = Wire::connect(&server.url).await?;
    for from in (0..runs).step_by(usize::try_from(BATCH)?) {
        let (status, answer) = wire.post("/workflow-runs/batch", &batch(from)).await?;
        if status != 200 {
            return Err(answer.into());
        }
    }
    server.kill()?;
    let begun = Instant::now();
    server.start()?;
    let (status, answer) =
        Wire::connect(&server.url).await?.post("/workflow-runs/batch", &batch(runs - BATCH)).await?;
    let took = begun.elapsed();
    let known = answer.matches("\"verdict\":\"attached\"").count() as u64;
    if (status, known) != (200, BATCH) {
        return Err(format!("{status}: {known} of the last {BATCH} runs are known").into());
    }
    figures.limit("open.firstAnswerMs", took.as_secs_f64() * 1_000.0, GOAL.as_secs_f64() * 1_000.0);
    Ok(())
}
