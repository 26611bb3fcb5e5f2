//! `semel run watch`: a run's entries as they are written, until it ends.

use std::time::Duration;

use semel::rules::status::Status;

use crate::api::{EntryView, RunView};
use crate::cli::client::{Call, Client, Server};
use crate::cli::exit::{Done, Exit, Failure};
use crate::cli::output::{Format, plain, print};
use crate::cli::start::not_completed;

/// How often in a row the server may be away, or a stream may end without a single entry.
const TRIES: u32 = 10;
/// Before the second try; longer by this much for each one after it.
const PAUSE: Duration = Duration::from_millis(100);

/// Follow a run until it ends.
///
/// Every entry of its ledger, as it is written; a connection that breaks off goes on where it was. The exit code is 0 if
/// the run has completed, and 7 if it has ended otherwise.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel run watch run_01j0000000e00800000000007z
  semel run watch run_01j0000000e00800000000007z -o ndjson | jq .kind")]
pub(in crate::cli) struct Watch {
    /// Its id.
    run: String,
    /// Only entries after this number.
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    after: u64,
}

impl Watch {
    pub(super) async fn execute(self, server: &Server) -> Done {
        let client = Client::new(server)?;
        // Whether the run is there at all is told at once.
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
                // A server that restarts is away for a while.
                Err(failure) if failure.exit == Exit::Unavailable && fruitless < TRIES => {}
                Err(failure) => return Err(failure),
            }
            fruitless = if last > before { 0 } else { fruitless + 1 };
            client.pause(PAUSE * fruitless.max(1)).await;
        }
    }

    /// The run, if it has ended and nothing of it comes after this entry.
    async fn ended(&self, client: &Client, last: u64) -> Done<Option<RunView>> {
        let run: RunView = client.call(&Call::get(["workflow-runs", &self.run])).await?.read()?;
        Ok(Some(run).filter(|run| run.status.is_terminal() && (last >= run.version || run.purged)))
    }

    /// Reads one stream to its end, which may be that of the connection.
    async fn follow(&self, client: &Client, last: &mut u64, output: Format) -> Done {
        let call = Call::get(["workflow-runs", &self.run, "events"])
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
    // What comes twice after a reconnection is shown once.
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
    format!(
        "{:>6}  {}  {:<14}  {}",
        entry.number,
        plain(&entry.at),
        plain(&entry.kind),
        plain(entry.entry.get())
    )
}

/// The data of server-sent events, from pieces that end anywhere.
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
        assert_eq!(line(&entry), "     3  2023-11-14T22:13:20.000Z  created         {\"created\":{}}");
        assert_eq!(show("{}", &mut last, Format::Table).unwrap_err().exit, Exit::Failed);
    }
}
