//! Answer of `GET /stats`: figures of a workspace over time.

use semel::rules::stats::Stats;
use serde::{Deserialize, Serialize};

/// Figures of a workspace over time. A member of a set of figures that is 0 is left out.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatsAnswer {
    /// Time from which on figures are counted, a whole number of steps.
    #[schema(format = DateTime)]
    pub from: String,
    /// Time until which figures are counted.
    #[schema(format = DateTime)]
    pub to: String,
    /// Length of a bucket in minutes.
    pub step: u32,
    /// Upper bounds in milliseconds of the classes of `lateness` and `duration`; one more class, beyond them, has none.
    pub bounds: Vec<u64>,
    /// Figures by time, in order. Buckets in which nothing happened are left out.
    pub buckets: Vec<StatsBucketView>,
    /// Figures by workflow over the whole time, the most active first, if `workflows=true` was asked for. At most 200; a long
    /// time is counted in whole hours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workflows: Vec<WorkflowStatsView>,
    /// Figures of all other workflows together. Absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<semel::rules::stats::Stats>)]
    pub other: Option<Stats>,
    /// True if the server reached its limit of rows to read: the latest figures are missing. Absent if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// Figures of one stretch of time.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StatsBucketView {
    /// Time at which the bucket begins.
    #[schema(format = DateTime)]
    pub at: String,
    /// What happened in it.
    #[serde(flatten)]
    pub stats: Stats,
}

/// Figures of one workflow.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WorkflowStatsView {
    /// Name of the workflow.
    pub workflow: String,
    /// What happened to its runs.
    #[serde(flatten)]
    pub stats: Stats,
}
