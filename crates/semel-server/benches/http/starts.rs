//! Keyed starts: one by one and in batches, new and duplicate.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::figures::Figures;
use crate::wire::Wire;
use crate::{Anything, Extent};

/// What is asked for, in starts a second.
const BATCHED: f64 = 15_000.0;
const SINGLE: f64 = 5_000.0;
/// Starts of one call.
pub(crate) const BATCH: u64 = 100;
/// Concurrent callers that start runs one by one, and callers that send batches.
const SINGLE_CALLERS: usize = 64;
const BATCH_CALLERS: usize = 8;

fn start(key: u64) -> String {
    format!(r#"{{"workflow":"order","idempotencyKey":"order-{key}","input":{{"cents":1999}}}}"#)
}

/// A batch of starts under the keys from this one on.
pub(crate) fn batch(from: u64) -> String {
    let mut body = String::from(r#"{"runs":["#);
    for key in from..from + BATCH {
        let comma = if key == from { "" } else { "," };
        write!(body, "{comma}{}", start(key)).expect("a text takes everything");
    }
    body + "]}"
}

/// How runs are started, and what is to come of it.
#[derive(Clone, Copy)]
struct Way {
    batched: bool,
    /// Keys below this are in use; all of them are asked for again.
    used: Option<u64>,
}

pub(crate) async fn measure(url: &str, extent: &Extent, figures: &mut Figures) -> Anything<()> {
    println!(
        "Starts at a server on SQLite, {SINGLE_CALLERS} callers one by one, {BATCH_CALLERS} in batches of {BATCH}"
    );
    let next = Arc::new(AtomicU64::new(0));
    let single = rate(url, extent, &next, Way { batched: false, used: None }).await?;
    let batched = rate(url, extent, &next, Way { batched: true, used: None }).await?;
    let used = Some(next.load(Ordering::Relaxed) - BATCH);
    let again = Arc::new(AtomicU64::new(0));
    let single_again = rate(url, extent, &again, Way { batched: false, used }).await?;
    let batched_again = rate(url, extent, &again, Way { batched: true, used }).await?;
    figures.goal("starts.batchedPerSecond", batched, BATCHED);
    figures.goal("starts.singlePerSecond", single, SINGLE);
    figures.goal("starts.batchedDuplicatesPerSecond", batched_again, batched);
    figures.goal("starts.singleDuplicatesPerSecond", single_again, single);
    Ok(())
}

/// Starts a second.
async fn rate(url: &str, extent: &Extent, next: &Arc<AtomicU64>, way: Way) -> Anything<f64> {
    let begun = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..if way.batched { BATCH_CALLERS } else { SINGLE_CALLERS } {
        let (mut wire, next, end) = (Wire::connect(url).await?, next.clone(), begun + extent.time);
        callers.spawn(async move {
            let mut started = 0u64;
            while Instant::now() < end {
                started += call(&mut wire, &next, way).await?;
            }
            Anything::Ok(started)
        });
    }
    let mut started = 0;
    while let Some(ended) = callers.join_next().await {
        started += ended??;
    }
    Ok(started as f64 / begun.elapsed().as_secs_f64())
}

/// One call; how many starts it was. What comes of it is looked at: an answer that is wrong is not fast.
async fn call(wire: &mut Wire, next: &AtomicU64, way: Way) -> Anything<u64> {
    let count = if way.batched { BATCH } else { 1 };
    let key = next.fetch_add(count, Ordering::Relaxed);
    let key = way.used.map_or(key, |used| key % used);
    let (wanted, verdict) = if way.used.is_some() { (200, "attached") } else { (201, "created") };
    let (status, answer) = match way.batched {
        true => wire.post("/workflow-runs/batch", &batch(key)).await?,
        false => wire.post("/workflow-runs", &start(key)).await?,
    };
    let came = answer.matches(&format!("\"verdict\":\"{verdict}\"")).count() as u64;
    if came != count || (!way.batched && status != wanted) {
        return Err(format!("{status}: {came} of {count} {verdict}: {answer:.300}").into());
    }
    Ok(count)
}
