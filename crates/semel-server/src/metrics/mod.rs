//! Metrics, and their text for Prometheus.

mod requests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::{Unit, describe_counter, describe_histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use semel::clock::Clock;
use semel::metrics::BATCH_CALLS;

pub use requests::Requests;

/// Requests over HTTP.
const REQUESTS: &str = "semel_http_requests_total";
/// Duration of the requests.
const REQUEST_SECONDS: &str = "semel_http_request_seconds";

/// Metrics of the server, beside those of the [library](semel::metrics).
pub const NAMES: [&str; 2] = [REQUESTS, REQUEST_SECONDS];

/// From a millisecond to a long poll.
const SECONDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];
/// From a lone call to the largest batch.
const CALLS: [f64; 14] =
    [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0];

/// Interval at which histograms are summed up; until then their values are kept as lists.
const UPKEEP: Duration = Duration::from_secs(5);

/// The metrics recorder: one per process, also if a test opens several servers.
pub fn recorder() -> Option<&'static PrometheusHandle> {
    static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    let install = || match install() {
        Ok(handle) => Some(handle),
        Err(error) => {
            tracing::warn!(%error, "another metrics recorder is installed in this process; /metrics is empty");
            None
        }
    };
    RECORDER.get_or_init(install).as_ref()
}

fn install() -> Result<PrometheusHandle, BuildError> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(BATCH_CALLS.to_owned()), &CALLS)?
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?
        .install_recorder()?;
    describe();
    Ok(handle)
}

/// Sums histograms up from time to time.
pub async fn upkeep(clock: Arc<dyn Clock>) {
    let Some(recorder) = recorder() else { return };
    loop {
        clock.until(clock.now().after(UPKEEP)).await;
        recorder.run_upkeep();
    }
}

fn describe() {
    semel::metrics::describe();
    describe_counter!(REQUESTS, "Requests over HTTP, by method, route and status");
    describe_histogram!(
        REQUEST_SECONDS,
        Unit::Seconds,
        "Time to the head of the answer, by route; long polls included"
    );
}
