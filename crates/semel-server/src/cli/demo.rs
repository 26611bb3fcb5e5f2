//! `semel demo`, and the two hidden commands that are its other processes.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::output::Format;
use crate::demo::show::{Plan, View, play};
use crate::demo::{DemoError, process};

/// What to try after the demo.
const NEXT: &str = "\
Try next:
  semel demo --seed 2 --kills 30   another show; `--keep` keeps its files
  semel dev                        a server on your machine, with this workflow
and then, twice, in another terminal:
  curl -s http://127.0.0.1:7700/api/v1/workflow-runs -H 'prefer: wait=10' \\
    -H 'content-type: application/json' -H 'idempotency-key: order-7' \\
    -d '{\"workflow\": \"demo-order\", \"input\": {\"order\": \"7\", \"amount\": 1999}}'";

/// Demonstrate the guarantees: duplicate orders, a provider that loses answers, an engine that is killed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  semel demo\n  semel demo --seed 2 --kills 30 --keep")]
pub(super) struct Demo {
    /// Number of orders to place.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=1000))]
    orders: u32,
    /// Number of times the engine is killed.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(0..=1000))]
    kills: u32,
    /// Seed of the random choices: the same seed gives the same orders and the same faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep the folder with the store, the shop's database, the provider's file and the logs.
    #[arg(long)]
    keep: bool,
}

impl Demo {
    /// Exit code 0 if every guarantee held; 1 if one did not, or the demo could not be run.
    pub(super) async fn run(self, output: Format) -> u8 {
        let Self { orders, kills, seed, keep } = self;
        let view = match output {
            Format::Json | Format::Ndjson => View::silent(),
            Format::Table if std::io::stderr().is_terminal() && std::io::stdout().is_terminal() => {
                View::terminal(std::env::var_os("NO_COLOR").is_none())
            }
            Format::Table => View::plain(),
        };
        let report = match play(&Plan { orders, kills, seed, keep }, view).await {
            Ok(report) => report,
            Err(error) => return failed(&error),
        };
        match (output, serde_json::to_string(&report)) {
            (Format::Json | Format::Ndjson, Ok(json)) => println!("{json}"),
            _ => println!("{report}\n{NEXT}"),
        }
        u8::from(!report.held)
    }
}

fn failed(error: &DemoError) -> u8 {
    eprintln!("semel demo: {error}");
    if matches!(error, DemoError::Stopped) { 130 } else { 1 }
}

/// The payment provider process of a demo.
#[derive(Debug, clap::Args)]
pub(super) struct DemoProvider {
    #[arg(long)]
    folder: PathBuf,
    #[arg(long)]
    seed: u64,
}

impl DemoProvider {
    pub(super) async fn run(self) -> u8 {
        log();
        process::provider(&self.folder, self.seed).await.map_or_else(|error| failed(&error), |()| 0)
    }
}

/// The engine process of a demo.
#[derive(Debug, clap::Args)]
pub(super) struct DemoEngine {
    #[arg(long)]
    folder: PathBuf,
    #[arg(long)]
    provider: String,
    #[arg(long)]
    listen: Option<SocketAddr>,
}

impl DemoEngine {
    pub(super) async fn run(self) -> u8 {
        log();
        let ended = process::engine(&self.folder, self.provider, self.listen).await;
        ended.map_or_else(|error| failed(&error), |()| 0)
    }
}

/// The child processes write their logs to files in the demo's folder.
fn log() {
    let lines = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false);
    if let Err(error) = lines.try_init() {
        eprintln!("semel demo: no log: {error}");
    }
}
