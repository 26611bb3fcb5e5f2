//! Wake-ups of the server, received line by line.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Response;
use tokio::sync::broadcast;
use tokio::task::AbortHandle;

use super::client::HttpClient;
use super::wire;
use crate::error::Result;
use crate::store::Wake;

/// How many wake-ups may be queued for a listener; one that has missed some looks at everything.
pub(super) const ON_THEIR_WAY: usize = 4096;
/// The server sends something at least every fifteen seconds; a longer silence means that it is gone.
const SILENCE: Duration = Duration::from_secs(45);
/// Pauses between attempts to reconnect: short at first, longer later.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(2)];
/// The longest line of the protocol, in bytes.
const LONGEST: usize = 1024 * 1024;

/// Receives the server's wake-ups for as long as it exists.
#[derive(Debug)]
pub(super) struct WakeListener(AbortHandle);

impl Drop for WakeListener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl WakeListener {
    /// Begins to listen: from here on nothing is missed.
    pub(super) async fn begin(
        client: Arc<HttpClient>,
        wakes: broadcast::Sender<Wake>,
        drives: bool,
    ) -> Result<Self> {
        let path = if drives { wire::WAKES } else { wire::WAKES_NOT_DUE };
        let first = client.stream(path).await?;
        Ok(Self(tokio::spawn(listen(client, path, wakes, first)).abort_handle()))
    }

    /// Listens no more.
    pub(super) fn end(&self) {
        self.0.abort();
    }
}

async fn listen(
    client: Arc<HttpClient>,
    path: &'static str,
    wakes: broadcast::Sender<Wake>,
    first: Response,
) {
    hear(first, &wakes).await;
    let mut tries = 0;
    loop {
        tokio::time::sleep(PAUSES[tries]).await;
        match client.stream(path).await {
            Ok(response) => {
                // Everything that happened while there was no connection.
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

/// Passes wake-ups on until the stream ends for any reason; tells whether there were any.
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
            // An unknown wake-up of a newer server may mean anything.
            let told: Vec<Wake> = serde_json::from_slice(line).unwrap_or_else(|_| vec![Wake::All]);
            for wake in told {
                drop(wakes.send(wake));
            }
        }
        text.drain(..=end);
    }
    told_any
}
