//! Large values at the same moment: hundreds of runs end a step with two megabytes each, and what another caller notices of it.

use std::time::{Duration, Instant};

use crate::place::Place;
use crate::report::{Latencies, Report};
use crate::workflows::{LARGE_GO, large, large_waiting, one};
use crate::{Anything, Extent};

/// Length of each value: the longest is two mebibytes with its quotes.
const BYTES: usize = 2 * 1024 * 1024 - 2;
/// What is asked for: the time until all of them have ended.
const ALL: Duration = Duration::from_mins(1);
/// What is asked for: the longest time that a small run takes meanwhile.
const BESIDE: Duration = Duration::from_secs(1);
/// Between two runs of the caller beside them.
const GAP: Duration = Duration::from_millis(5);

pub(crate) async fn measure(report: &mut Report, name: &str, extent: &Extent, place: &Place) -> Anything<()> {
    let engine = place.engine().await?;
    engine.start(one, 0u64).await?.result().await?;
    let mut runs = Vec::new();
    for _ in 0..extent.large {
        runs.push(engine.start(large, BYTES).await?);
    }
    while large_waiting() < extent.large {
        tokio::time::sleep(GAP).await;
    }
    let begun = Instant::now();
    LARGE_GO.add_permits(extent.large);
    let (mut beside, mut slowest) = (Latencies::default(), Duration::ZERO);
    let ended = async {
        for run in &runs {
            assert_eq!(run.result().await?, BYTES);
        }
        Ok::<_, semel::Error>(())
    };
    tokio::pin!(ended);
    loop {
        tokio::select! {
            biased;
            ended = &mut ended => break ended?,
            () = tokio::time::sleep(GAP) => {}
        }
        let asked = Instant::now();
        engine.start(one, 1u64).await?.result().await?;
        slowest = slowest.max(asked.elapsed());
        beside.add(asked.elapsed());
    }
    let took = begun.elapsed();
    let steps = format!("{name}: {} steps of 2 MiB at once, in s", extent.large);
    report.limit(&steps, took.as_secs_f64(), ALL.as_secs_f64());
    report.rate(&format!("{name}.runs beside large"), beside.rate(took));
    report.limit(
        &format!("{name}: slowest run beside large steps, in s"),
        slowest.as_secs_f64(),
        BESIDE.as_secs_f64(),
    );
    Ok(Place::close(&engine, Duration::from_secs(5)).await?)
}
