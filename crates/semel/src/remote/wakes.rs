//! What happens at the server, heard line by line.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Response;
use tokio::sync::broadcast;
use tokio::task::AbortHandle;

use super::client::Client;
use super::wire;
use crate::error::Result;
use crate::store::Wake;

/// So many may be on their way to a listener; one that has missed some looks at everything.
pub(super) const ON_THEIR_WAY: usize = 4096;
/// The server says something at least every fifteen seconds; who is silent for longer is gone.
const SILENCE: Duration = Duration::from_secs(45);
/// Between two tries to listen again: first soon, later seldom.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(2)];
/// A longer line is none of ours.
const LONGEST: usize = 1024 * 1024;

/// Hears the server's wakes for as long as it exists.
#[derive(Debug)]
pub(super) struct Listener(AbortHandle);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Listener {
    /// Begins to listen: from here on nothing is missed.
    pub(super) async fn begin(client: Arc<Client>, wakes: broadcast::Sender<Wake>) -> Result<Self> {
        let first = client.stream(wire::WAKES).await?;
        Ok(Self(tokio::spawn(listen(client, wakes, first)).abort_handle()))
    }

    /// Listens no more.
    pub(super) fn end(&self) {
        self.0.abort();
    }
}

async fn listen(client: Arc<Client>, wakes: broadcast::Sender<Wake>, first: Response) {
    hear(first, &wakes).await;
    let mut tries = 0;
    loop {
        tokio::time::sleep(PAUSES[tries]).await;
        match client.stream(wire::WAKES).await {
            Ok(response) => {
                // Whatever happened while nobody listened.
                drop(wakes.send(Wake::All));
                // A server that answers and says nothing is not asked again at once.
                tries = if hear(response, &wakes).await { 0 } else { (tries + 1).min(PAUSES.len() - 1) };
            }
            Err(error) => {
                tracing::warn!(%error, "the server's wakes are not heard; trying again");
                tries = (tries + 1).min(PAUSES.len() - 1);
            }
        }
    }
}

/// Passes on what is told until the stream ends, for whatever reason; whether anything was told.
async fn hear(mut response: Response, wakes: &broadcast::Sender<Wake>) -> bool {
    let (mut text, mut told_any) = (Vec::new(), false);
    while let Ok(Ok(Some(chunk))) = tokio::time::timeout(SILENCE, response.chunk()).await {
        text.extend_from_slice(&chunk);
        let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else {
            if text.len() > LONGEST {
                return told_any;
            }
            continue;
        };
        told_any = true;
        for line in text[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            // A word that a newer server says may mean anything.
            let told: Vec<Wake> = serde_json::from_slice(line).unwrap_or_else(|_| vec![Wake::All]);
            for wake in told {
                drop(wakes.send(wake));
            }
        }
        text.drain(..=end);
    }
    told_any
}
