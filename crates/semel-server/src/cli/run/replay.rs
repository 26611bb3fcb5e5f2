//! `semel run replay`: compares a recorded run with code.

use semel::engine::replay::ReplayVerdict;

use crate::api::{ReplayDiff, ReplayRowView};
use crate::cli::client::{ApiCall, Client, ServerArgs};
use crate::cli::exit::{Done, Exit, Failure};
use crate::cli::output::{Format, Rows, json, note, plain, print};

/// Replay a run: compare what its code does now with what is recorded.
///
/// The server has the code of definitions and of what is built in, and replays those; nothing is called and nothing is written. With
/// differences the exit code is 1. For other runs the history is printed, as one JSON document, to be replayed where the code is:
/// `Engine::replay_history`, or a test in CI over a folder of such files.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel run replay run_01j0000000e00800000000007z
  semel run replay run_01j0000000e00800000000007z --history > histories/order.json")]
pub(in crate::cli) struct Replay {
    /// Id of the run.
    run: String,
    /// Print the history, also if the server has the code.
    #[arg(long)]
    history: bool,
}

impl Replay {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let path = ["workflow-runs", &self.run, "replay"];
        let history = self.history.then_some(true);
        let call = ApiCall::post(path, None, &serde_json::json!({})).query("history", history);
        let answer = Client::new(server)?.call(&call).await?;
        // A history has no rows.
        let Ok(diff) = answer.read::<ReplayDiff>() else { return print(&answer.text) };
        match server.output {
            Format::Table => table(&diff)?,
            Format::Json | Format::Ndjson => print(&answer.text.replace(['\n', '\r'], " "))?,
        }
        match diff.identical {
            true => Ok(()),
            false => Err(Failure::new(
                Exit::Failed,
                format!("the code of {} no longer does what is recorded", diff.run),
            )),
        }
    }
}

fn table(diff: &ReplayDiff) -> Done {
    let columns = ["VERDICT", "KIND", "PATH", "ORIGINAL", "REPLAYED"];
    let mut rows = Rows::new(columns, "the code does what is recorded").whole([0, 1]);
    let value = |value: &Option<serde_json::Value>| {
        value.as_ref().map(|value| plain(&json(value))).unwrap_or_default()
    };
    for row in diff.rows.iter().filter(|row| row.verdict != ReplayVerdict::Identical) {
        let ReplayRowView { path, kind, original, replayed, verdict } = row;
        rows.add([verdict.to_string(), kind.to_string(), plain(path), value(original), value(replayed)]);
    }
    rows.print()?;
    let counts = &diff.summary;
    note(&format!(
        "{} identical, {} changed, {} missing, {} added",
        counts.identical, counts.changed, counts.missing, counts.added
    ));
    Ok(())
}
