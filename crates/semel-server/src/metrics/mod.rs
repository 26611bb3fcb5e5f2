//! What is counted, and its text for Prometheus.

mod metered;
mod requests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::{Unit, describe_counter, describe_histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use semel::clock::Clock;
use semel::store::{BATCH_CALLS, CLAIM_LATENESS};

pub use metered::Metered;
pub use requests::Requests;

/// Starts that were answered, by verdict.
const STARTS: &str = "semel_starts_total";
/// Runs that have ended, by status.
const ENDED: &str = "semel_runs_ended_total";
/// Steps with an outcome.
const STEPS: &str = "semel_steps_total";
/// Steps that came into doubt.
const IN_DOUBT: &str = "semel_steps_in_doubt_total";
/// Commits that were saved.
const COMMITS: &str = "semel_commits_total";
/// Entries that were appended.
const ENTRIES: &str = "semel_entries_total";
/// Duplicates, by kind.
const DUPLICATES: &str = "semel_duplicates_absorbed_total";
/// Writes of those who had lost their run.
const STALE: &str = "semel_stale_writes_refused_total";
/// Keys used for another request.
const REUSED: &str = "semel_keys_reused_total";
/// Calls of the store that failed.
const FAILURES: &str = "semel_store_failures_total";
/// Deliveries that were accepted.
const DELIVERIES: &str = "semel_deliveries_total";
/// Runs that were taken by a node.
const CLAIMS: &str = "semel_claims_total";
/// Runs of dead nodes that were given to others.
const ORPHANED: &str = "semel_runs_orphaned_total";
/// Requests over HTTP.
const REQUESTS: &str = "semel_http_requests_total";
/// How long they took.
const REQUEST_SECONDS: &str = "semel_http_request_seconds";

/// Every metric there is; the book and the files in deploy/ know no others.
pub const NAMES: [&str; 17] = [
    STARTS,
    ENDED,
    STEPS,
    IN_DOUBT,
    COMMITS,
    ENTRIES,
    DUPLICATES,
    STALE,
    REUSED,
    FAILURES,
    DELIVERIES,
    CLAIMS,
    ORPHANED,
    REQUESTS,
    REQUEST_SECONDS,
    BATCH_CALLS,
    CLAIM_LATENESS,
];

/// From a millisecond to a long poll.
const SECONDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];
/// From a lone call to the largest batch.
const CALLS: [f64; 14] =
    [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0];

/// Histograms are kept as lists until somebody sums them up; this often, if nobody asks.
const UPKEEP: Duration = Duration::from_secs(5);

/// The process's numbers. There is one recorder in a process, however many servers a test opens in it.
pub fn recorder() -> Option<&'static PrometheusHandle> {
    static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    let install = || match install() {
        Ok(handle) => Some(handle),
        Err(error) => {
            tracing::warn!(%error, "somebody else counts in this process; /metrics is empty");
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
    describe_counter!(
        STARTS,
        "Starts answered, by verdict: created, attached, replayed, restarted, superseded"
    );
    describe_counter!(ENDED, "Runs that have ended, by status: completed, failed, cancelled, timed-out");
    describe_counter!(STEPS, "Steps that have an outcome");
    describe_counter!(
        IN_DOUBT,
        "Steps of which nobody knows whether their effect took place: each waits for a person"
    );
    describe_counter!(COMMITS, "Commits saved; a step costs one");
    describe_counter!(ENTRIES, "Entries appended to ledgers");
    describe_counter!(DUPLICATES, "Duplicates absorbed, by kind: start, delivery, result, control");
    describe_counter!(STALE, "Writes refused because their writer had lost its run");
    describe_counter!(REUSED, "Starts and calls refused because their key stands for another request");
    describe_counter!(
        FAILURES,
        "Calls that the store could not answer, by kind: unavailable, unknown, damaged"
    );
    describe_counter!(DELIVERIES, "Payloads accepted for hooks");
    describe_counter!(CLAIMS, "Runs taken by nodes");
    describe_counter!(ORPHANED, "Runs of dead nodes that were made due for others");
    describe_counter!(REQUESTS, "Requests over HTTP, by method, route and status");
    describe_histogram!(
        REQUEST_SECONDS,
        Unit::Seconds,
        "Time to the head of the answer, by route; long polls included"
    );
    describe_histogram!(BATCH_CALLS, "Calls that share one durable write, by store");
    describe_histogram!(CLAIM_LATENESS, Unit::Seconds, "How long after its due time a run was claimed");
}
