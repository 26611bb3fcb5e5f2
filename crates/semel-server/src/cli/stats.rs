//! `semel stats`: figures of a workspace, minute by minute.

use semel::rules::stats::{Histogram, Stats};

use super::client::{ApiCall, Client, ServerArgs};
use super::exit::Done;
use super::output::{Rows, plain, second};
use crate::api::StatsAnswer;

/// Show figures over time: starts, ends, steps, duplicates, doubts, lateness.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel stats
  semel stats --step 1h --from 2026-01-24T00:00:00Z
  semel stats --workflows -o json")]
pub(super) struct StatsCommand {
    /// Time from which on figures are counted; an hour before `--to` if absent.
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Time until which figures are counted; now if absent.
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Length of a row in whole minutes, such as 1m, 15m or 1h.
    #[arg(long, value_name = "PERIOD")]
    step: Option<String>,
    /// Also the sums of each workflow.
    #[arg(long)]
    workflows: bool,
}

impl StatsCommand {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let call = ApiCall::get(["stats"])
            .query("from", self.from.as_ref())
            .query("to", self.to.as_ref())
            .query("step", self.step.as_ref())
            .query("workflows", self.workflows.then_some(true));
        Client::new(server)?.call(&call).await?.print(server.output, shown)
    }
}

fn shown(answer: &StatsAnswer) -> String {
    let mut times = table("FROM", "nothing happened in this time");
    for bucket in &answer.buckets {
        times.add(row(second(&bucket.at), &bucket.stats));
    }
    if answer.workflows.is_empty() {
        return times.text();
    }
    let mut workflows = table("WORKFLOW", "no workflows");
    for one in &answer.workflows {
        workflows.add(row(plain(&one.workflow), &one.stats));
    }
    if let Some(other) = &answer.other {
        workflows.add(row("(others)".to_owned(), other));
    }
    format!("{}\n\n{}", times.text(), workflows.text())
}

fn table(first: &'static str, empty: &'static str) -> Rows {
    let heads = [
        first,
        "NEW",
        "DUPLICATE",
        "REFUSED",
        "COMPLETED",
        "FAILED",
        "STEPS",
        "DOUBTS",
        "STALE",
        "LATE P99",
        "TOOK P50",
    ];
    Rows::new(heads, empty).whole([0])
}

fn row(first: String, stats: &Stats) -> [String; 11] {
    let duplicates = stats.attached + stats.replayed + stats.duplicate_deliveries + stats.duplicate_controls;
    [
        first,
        (stats.created + stats.superseded + stats.restarted).to_string(),
        duplicates.to_string(),
        stats.refused.to_string(),
        stats.completed.to_string(),
        (stats.failed + stats.timed_out).to_string(),
        stats.steps.to_string(),
        stats.doubts_opened.to_string(),
        stats.stale.to_string(),
        at_most(&stats.lateness, 990),
        at_most(&stats.duration, 500),
    ]
}

/// A quantile as the bound that it does not exceed.
fn at_most(durations: &Histogram, thousandths: u64) -> String {
    match durations.quantile(thousandths) {
        Some(ms) if ms < 1_000 => format!("≤ {ms} ms"),
        Some(ms) => format!("≤ {} s", ms / 1_000),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_by_time_and_by_workflow() {
        let answer: StatsAnswer = serde_json::from_str(
            r#"{"from":"2026-01-31T12:00:00.000Z","to":"2026-01-31T13:00:00.000Z","step":1,"bounds":[1],
            "buckets":[{"at":"2026-01-31T12:05:00.000Z","created":3,"attached":41,"lateness":[0,0,5],"duration":[0,0,0,0,0,0,0,0,0,0,2]}],
            "workflows":[{"workflow":"order","steps":7}],"other":{"steps":9}}"#,
        )
        .unwrap();
        let text = shown(&answer);
        for part in ["12:05", "41", "≤ 5 ms", "≤ 2 s", "order", "(others)", "9"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
