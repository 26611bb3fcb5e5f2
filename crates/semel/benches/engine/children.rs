//! Children: a run that starts thousands of others at once and waits for all of them, and what another caller notices of it.

use std::time::{Duration, Instant};

use crate::place::Place;
use crate::report::{Latencies, Report};
use crate::workflows::{brood, one};
use crate::{Anything, Extent};

/// Between two runs of the caller beside them.
const GAP: Duration = Duration::from_millis(5);

pub(crate) async fn measure(report: &mut Report, name: &str, extent: &Extent, place: &Place) -> Anything<()> {
    let engine = place.engine().await?;
    engine.start(one, 0u64).await?.result().await?;
    let begun = Instant::now();
    let parent = engine.start(brood, extent.children).await?;
    let mut beside = Latencies::default();
    let ended = parent.result();
    tokio::pin!(ended);
    let sum = loop {
        tokio::select! {
            biased;
            sum = &mut ended => break sum?,
            () = tokio::time::sleep(GAP) => {}
        }
        let asked = Instant::now();
        engine.start(one, 1u64).await?.result().await?;
        beside.add(asked.elapsed());
    };
    let took = begun.elapsed();
    assert_eq!(sum, (0..extent.children).sum::<u64>(), "every child has told its result");
    let per_second = extent.children as f64 / took.as_secs_f64();
    let goal = if name == "sqlite" { 10_000.0 } else { 3_000.0 };
    report.goal(&format!("{name}: children of one run, per second"), per_second, goal);
    report.rate(&format!("{name}.runs beside them"), beside.rate(took));
    Ok(Place::close(&engine, Duration::from_secs(5)).await?)
}
