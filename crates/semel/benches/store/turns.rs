//! Many callers for a while: each awaits its answer before it asks again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::report::{Latencies, Rate};

/// One caller's turns: whether there is another, and how long each took.
pub(crate) struct Turns {
    stop: Arc<AtomicBool>,
    latencies: Latencies,
    asked: Instant,
}

impl Turns {
    /// Begins another turn, if the time is not over.
    pub(crate) fn begin(&mut self) -> bool {
        self.asked = Instant::now();
        !self.stop.load(Ordering::Relaxed)
    }

    /// Ends the turn.
    pub(crate) fn end(&mut self) {
        self.latencies.add(self.asked.elapsed());
    }
}

/// Lets `callers` tasks take turns for a while; each is given its turns and gives them back.
pub(crate) async fn under_load<F, E>(
    callers: usize,
    time: Duration,
    mut caller: impl FnMut(usize, Turns) -> F,
) -> Result<Rate, E>
where
    F: Future<Output = Result<Turns, E>> + Send + 'static,
    E: Send + 'static,
{
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    let begun = Instant::now();
    for n in 0..callers {
        let turns = Turns { stop: stop.clone(), latencies: Latencies::default(), asked: begun };
        tasks.spawn(caller(n, turns));
    }
    tokio::time::sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    let elapsed = begun.elapsed();
    let mut all = Latencies::default();
    while let Some(turns) = tasks.join_next().await {
        all.merge(&turns.expect("a caller does not panic")?.latencies);
    }
    Ok(all.rate(elapsed))
}
