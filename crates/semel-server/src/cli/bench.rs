//! `semel bench`: a short load test of a server or a store.

mod load;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::client::{Client, ServerArgs};
use super::exit::Done;
use super::output::{Format, Rows, json as text, note, print};
use super::store::MaybePlace;
use load::{OnServer, OnStore};

/// Measure starts, duplicates and cancels for a few seconds.
///
/// Every run is started, started again under the same key, and cancelled, so that no work is left; the runs are
/// deleted a minute later. With `--store`, a store is measured without a server.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel bench
  semel bench --runs 20000 --callers 128
  semel bench --store sqlite:/tmp/bench.db -o json")]
pub(super) struct Bench {
    /// Number of runs to start.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    runs: u64,
    /// Number of concurrent callers.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=4_096))]
    callers: u64,
    /// Workflow of the runs; no worker should serve it.
    #[arg(long, default_value = "semel-bench")]
    workflow: String,
    #[command(flatten)]
    place: MaybePlace,
}

/// Measurements of one phase.
struct Phase {
    name: &'static str,
    calls: u32,
    /// Calls with an unexpected answer.
    odd: u64,
    took: Duration,
    /// Duration of each call, sorted ascending.
    each: Vec<Duration>,
}

impl Phase {
    fn per_second(&self) -> f64 {
        f64::from(self.calls) / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Duration within which the given percentage of calls ended, in milliseconds.
    fn percentile(&self, percent: usize) -> f64 {
        let at = (self.each.len() * percent / 100).min(self.each.len().saturating_sub(1));
        self.each.get(at).map_or(0.0, |each| each.as_secs_f64() * 1_000.0)
    }
}

impl Bench {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let phases = match self.place.given() {
            Some(place) => {
                let open = place.open().await?;
                let load = OnStore::new(open.store().clone(), &self.workflow)?;
                let phases = load::play(Arc::new(load), self.runs, self.callers).await?;
                open.close().await?;
                phases
            }
            None => {
                let load = OnServer::new(Client::new(server)?, &self.workflow);
                load::play(Arc::new(load), self.runs, self.callers).await?
            }
        };
        report(&phases, server.output)
    }
}

fn report(phases: &[Phase], output: Format) -> Done {
    if output == Format::Table {
        let mut rows =
            Rows::new(["CALLS", "NUMBER", "PER SECOND", "P50 MS", "P99 MS"], "nothing was measured");
        for phase in phases {
            rows.add([
                phase.name.to_owned(),
                phase.calls.to_string(),
                format!("{:.0}", phase.per_second()),
                format!("{:.2}", phase.percentile(50)),
                format!("{:.2}", phase.percentile(99)),
            ]);
        }
        rows.print()?;
        for phase in phases.iter().filter(|phase| phase.odd > 0) {
            note(&format!(
                "{} {} were not answered as such: does a worker serve the workflow?",
                phase.odd, phase.name
            ));
        }
        return Ok(());
    }
    let shown = |phase: &Phase| {
        json!({
            "calls": phase.name, "number": phase.calls, "odd": phase.odd, "perSecond": phase.per_second().round(),
            "p50Ms": phase.percentile(50), "p99Ms": phase.percentile(99),
        })
    };
    match output {
        Format::Ndjson => phases.iter().try_for_each(|phase| print(&text(&shown(phase)))),
        _ => print(&text(&json!({"phases": phases.iter().map(shown).collect::<Vec<_>>()}))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_percentiles_are_those_of_the_calls() {
        let each = (1..=100).map(Duration::from_millis).collect();
        let phase = Phase { name: "starts", calls: 100, odd: 0, took: Duration::from_secs(2), each };
        assert!((phase.per_second() - 50.0).abs() < f64::EPSILON);
        assert!((phase.percentile(50) - 51.0).abs() < 1e-9);
        assert!((phase.percentile(99) - 100.0).abs() < 1e-9);
        assert!(Phase { each: Vec::new(), ..phase }.percentile(50).abs() < f64::EPSILON);
    }
}
