//! `semel run watch`: shows a run's entries as they are written, until it ends.

use std::time::Duration;

use semel::rules::status::Status;

use crate::api::{EntryView, RunView};
use crate::cli::client::{ApiCall, Client, ServerArgs};
use crate::cli::exit::{Done, Exit, Failure};
use crate::cli::output::{Format, plain, print, second};
use crate::cli::start::not_completed;

use super::story::sentence;

/// Number of consecutive attempts without a new entry after which an unreachable server is an error.
const TRIES: u32 = 10;
/// Pause before the second attempt; it grows by this much for each further one.
const PAUSE: Duration = Duration::from_millis(100);

/// Follow a run until it ends.
///
/// Shows what happens as it is recorded, and reconnects if the connection breaks. With `-o json` or `-o ndjson`, prints
/// the ledger entries as the server sends them, one per line. The exit code is 0 if the run completes, and 7 if it ends
/// otherwise.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel run watch run_01j0000000e00800000000007z
  semel run watch run_01j0000000e00800000000007z -o ndjson | jq .kind")]
pub(in crate::cli) struct Watch {
    /// Id of the run.
    run: String,
    /// Show only entries after this number.
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    after: u64,
}

impl Watch {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let client = Client::new(server)?;
        // A run that does not exist is reported at once.
        let (mut last, mut fruitless) = (self.after, 0);
        self.ended(&client, u64::MAX).await?;
        loop {
            let before = last;
            let followed = self.follow(&client, &mut last, server.output).await;
            let ended = match followed {
                Ok(()) => self.ended(&client, last).await,
                Err(failure) => Err(failure),
            };
            match ended {
                Ok(Some(run)) if run.status == Status::Completed => return Ok(()),
                Ok(Some(run)) => return Err(not_completed(&run)),
                Ok(None) => {}
                // A server that restarts is unreachable for a while.
                Err(failure) if failure.exit == Exit::Unavailable && fruitless < TRIES => {}
                Err(failure) => return Err(failure),
            }
            fruitless = if last > before { 0 } else { fruitless + 1 };
            client.pause(PAUSE * fruitless.max(1)).await;
        }
    }

    /// The run, if it has ended and has no entry after `last`.
    async fn ended(&self, client: &Client, last: u64) -> Done<Option<RunView>> {
        let run: RunView = client.call(&ApiCall::get(["workflow-runs", &self.run])).await?.read()?;
        Ok(Some(run).filter(|run| run.status.is_terminal() && (last >= run.version || run.purged)))
    }

    /// Reads one stream until it ends or the connection breaks.
    async fn follow(&self, client: &Client, last: &mut u64, output: Format) -> Done {
        let call = ApiCall::get(["workflow-runs", &self.run, "events"])
            .header("accept", "text/event-stream".to_owned())
            .header("last-event-id", last.to_string());
        let mut response = client.stream(&call).await?;
        let mut events = Events::default();
        loop {
            match response.chunk().await {
                Ok(Some(bytes)) => {
                    for data in events.feed(&bytes) {
                        show(&data, last, output)?;
                    }
                }
                Ok(None) | Err(_) => return Ok(()),
            }
        }
    }
}

fn show(data: &str, last: &mut u64, output: Format) -> Done {
    let entry: EntryView = serde_json::from_str(data)
        .map_err(|error| Failure::new(Exit::Failed, format!("an event is not understood: {error}")))?;
    // An entry that is repeated after a reconnection is shown once.
    if entry.number <= *last {
        return Ok(());
    }
    *last = entry.number;
    match output {
        Format::Json | Format::Ndjson => print(data),
        Format::Table => print(&line(&entry)),
    }
}

fn line(entry: &EntryView) -> String {
    // A newer server may have kinds of entries that are unknown here.
    let what =
        serde_json::from_str(entry.entry.get()).map_or_else(|_| plain(&entry.kind), |known| sentence(&known));
    format!("{:>5}  {}  {what}", entry.number, second(&entry.at))
}

/// Parser of server-sent events, for chunks that end anywhere.
#[derive(Default)]
struct Events {
    pending: Vec<u8>,
    data: Vec<String>,
}

impl Events {
    fn feed(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut complete = Vec::new();
        self.pending.extend_from_slice(bytes);
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if let Some(data) = line.strip_prefix("data:") {
                self.data.push(data.strip_prefix(' ').unwrap_or(data).to_owned());
            } else if line.is_empty() && !self.data.is_empty() {
                complete.push(std::mem::take(&mut self.data).join("\n"));
            }
        }
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_whatever_their_pieces() {
        let stream =
            "id: 1\ndata: {\"a\":\"é\"}\n\n: still there\n\nid: 2\r\ndata: one\r\ndata: two\r\n\r\ndata: cut";
        for size in 1..stream.len() {
            let mut events = Events::default();
            let found: Vec<_> = stream.as_bytes().chunks(size).flat_map(|piece| events.feed(piece)).collect();
            assert_eq!(found, ["{\"a\":\"é\"}", "one\ntwo"], "pieces of {size}");
        }
    }

    #[test]
    fn an_entry_is_shown_once() {
        let data = r#"{"number":3,"at":"2023-11-14T22:13:20.000Z","kind":"created","entry":{"created":{}}}"#;
        let mut last = 3;
        show(data, &mut last, Format::Table).unwrap();
        assert_eq!(last, 3);
        let entry: EntryView = serde_json::from_str(data).unwrap();
        assert_eq!(line(&entry), "    3  2023-11-14 22:13:20Z  created", "an unknown form");
        assert_eq!(show("{}", &mut last, Format::Table).unwrap_err().exit, Exit::Failed);
    }
}
