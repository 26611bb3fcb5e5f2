//! What an engine and its store report through the `metrics` facade. A process that wants the numbers installs a recorder,
//! before it opens a store; without one they cost next to nothing.
//!
//! Counters tell what this process has done. Gauges tell what is in the store now, whichever process did it: each engine
//! on a store reports the same, so take the maximum over processes, not the sum.

use ::metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Starts that were answered (counter, label `verdict`).
pub const STARTS: &str = "semel_starts_total";
/// Runs that have ended (counter, label `status`).
pub const ENDED: &str = "semel_runs_ended_total";
/// Steps that got an outcome (counter).
pub const STEPS: &str = "semel_steps_total";
/// Attempts at steps that failed and will be repeated (counter).
pub const RETRIES: &str = "semel_step_retries_total";
/// Steps that came into doubt (counter).
pub const IN_DOUBT: &str = "semel_steps_in_doubt_total";
/// Commits that were saved (counter).
pub const COMMITS: &str = "semel_commits_total";
/// Ledger entries that were appended (counter).
pub const ENTRIES: &str = "semel_entries_total";
/// Duplicates that were absorbed (counter, label `kind`).
pub const DUPLICATES: &str = "semel_duplicates_absorbed_total";
/// Writes that were refused because their writer had lost its run (counter).
pub const STALE: &str = "semel_stale_writes_refused_total";
/// Keys and call ids that were used for another request, and refused (counter).
pub const REUSED: &str = "semel_keys_reused_total";
/// Calls that the store could not answer (counter, label `kind`).
pub const FAILURES: &str = "semel_store_failures_total";
/// Deliveries that were accepted (counter).
pub const DELIVERIES: &str = "semel_deliveries_total";
/// Runs that were taken by a node (counter).
pub const CLAIMS: &str = "semel_claims_total";
/// Runs of dead nodes that were made due for takeover (counter).
pub const ORPHANED: &str = "semel_runs_orphaned_total";
/// Calls that one durable write has served (histogram, label `store`).
pub const BATCH_CALLS: &str = "semel_store_batch_calls";
/// Seconds from the due time of a run to its claim (histogram).
pub const CLAIM_LATENESS: &str = "semel_claim_lateness_seconds";
/// Runs that have not ended (gauge, label `workflow`). The first 20 workflows that a process sees with open runs have a label
/// each, for as long as it lives; all others share the label `other`.
pub const OPEN: &str = "semel_runs_open";
/// Runs that are paused (gauge, with the labels of [`OPEN`]).
pub const PAUSED: &str = "semel_runs_paused";
/// Runs that are paused because of a step in doubt (gauge).
pub const DOUBTS: &str = "semel_runs_in_doubt";
/// Runs that are due and not claimed (gauge).
pub const BACKLOG: &str = "semel_runs_due";
/// Nodes whose lease lasts (gauge).
pub const NODES: &str = "semel_nodes_alive";

/// Every metric of the library.
pub const NAMES: [&str; 21] = [
    STARTS,
    ENDED,
    STEPS,
    RETRIES,
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
    BATCH_CALLS,
    CLAIM_LATENESS,
    OPEN,
    PAUSED,
    DOUBTS,
    BACKLOG,
    NODES,
];

/// Tells the recorder what each metric means.
pub fn describe() {
    describe_counter!(
        STARTS,
        "Starts answered, by verdict: created, attached, replayed, restarted, superseded"
    );
    describe_counter!(ENDED, "Runs that have ended, by status: completed, failed, cancelled, timed-out");
    describe_counter!(STEPS, "Steps that have an outcome");
    describe_counter!(RETRIES, "Attempts at steps that failed and will be repeated");
    describe_counter!(
        IN_DOUBT,
        "Steps whose effect may or may not have taken place: each waits for a person"
    );
    describe_counter!(COMMITS, "Commits saved; a step costs one");
    describe_counter!(ENTRIES, "Entries appended to ledgers");
    describe_counter!(DUPLICATES, "Duplicates absorbed, by kind: start, delivery, result, control");
    describe_counter!(STALE, "Writes refused because their writer had lost its run");
    describe_counter!(REUSED, "Starts and calls refused because their key belongs to another request");
    describe_counter!(
        FAILURES,
        "Calls that the store could not answer, by kind: unavailable, unknown, damaged"
    );
    describe_counter!(DELIVERIES, "Payloads accepted for hooks");
    describe_counter!(CLAIMS, "Runs taken by nodes");
    describe_counter!(ORPHANED, "Runs of dead nodes that were made due for others");
    describe_histogram!(BATCH_CALLS, "Calls that share one durable write, by store");
    describe_histogram!(CLAIM_LATENESS, Unit::Seconds, "How long after its due time a run was claimed");
    describe_gauge!(OPEN, "Runs that have not ended, by workflow; counted up to 10,000 of each status");
    describe_gauge!(PAUSED, "Runs that are paused, by workflow");
    describe_gauge!(DOUBTS, "Runs that are paused until a person decides about a step in doubt");
    describe_gauge!(BACKLOG, "Runs that are due and not claimed by any node");
    describe_gauge!(NODES, "Engines and remote workers whose lease lasts");
}
