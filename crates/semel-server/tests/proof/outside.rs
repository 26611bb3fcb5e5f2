//! The way to the recorder: what workers, driver and checker say to it.

use std::time::Duration;

use semel::{Attempt, Fail, Result, fatal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::program::Kind;

/// Who asks for an effect gives up after this long; some answers of the recorder take longer.
pub(crate) const PATIENCE: Duration = Duration::from_millis(400);
/// Who looks something up does not: without an answer the step would be in doubt.
const LOOK_UP: Duration = Duration::from_secs(20);

/// A question to the recorder: about an effect, or for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ask {
    /// Place and path.
    pub(crate) at: String,
    pub(crate) run: String,
    pub(crate) key: String,
    pub(crate) fence: u64,
    pub(crate) attempt: u32,
    pub(crate) kind: Kind,
}

impl Ask {
    pub(crate) fn of(kind: Kind, place: &str, attempt: &Attempt) -> Self {
        Self {
            at: format!("{place} {}", attempt.path()),
            run: attempt.run_id().to_string(),
            key: attempt.key().to_owned(),
            fence: attempt.fence(),
            attempt: attempt.number(),
            kind,
        }
    }
}

/// The way to the recorder.
#[derive(Clone)]
pub(crate) struct Outside {
    http: reqwest::Client,
    url: String,
}

/// For HTTP on the loopback, where nothing is encrypted; the library wants a provider for that all the same.
pub(crate) fn client() -> reqwest::Client {
    // Another one may have been installed before: then that one will do.
    drop(tokio_rustls::rustls::crypto::ring::default_provider().install_default());
    reqwest::Client::builder().no_proxy().build().expect("a client without TLS can be made")
}

impl Outside {
    pub(crate) fn new(url: String) -> Self {
        Self { http: client(), url }
    }

    /// Asks for an effect; gives its number.
    pub(crate) async fn effect(&self, ask: &Ask) -> Result<u64> {
        self.post("effects", ask, PATIENCE).await
    }

    /// Asks what became of a try. If nothing did, no earlier try is let in any more.
    pub(crate) async fn look(&self, ask: &Ask) -> Result<Option<u64>> {
        self.post("look-ups", ask, LOOK_UP).await
    }

    /// Another number each time: only an engine that keeps the first has the same everywhere.
    pub(crate) async fn rate(&self, label: u32) -> Result<u64> {
        self.post("rates", &label, LOOK_UP).await
    }

    /// Where an effect took place twice that only the fence table can absorb.
    #[cfg(feature = "sabotage")]
    pub(crate) async fn doubled(&self) -> Result<Vec<String>> {
        self.post("doubled", &(), LOOK_UP).await
    }

    /// All that it knows.
    pub(crate) async fn books<T: DeserializeOwned>(&self) -> Result<T> {
        self.post("books", &(), Duration::from_mins(2)).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
        patience: Duration,
    ) -> Result<T> {
        let url = format!("{}/{path}", self.url);
        let request = self.http.post(url).timeout(patience).body(serde_json::to_vec(body)?);
        let response = request.send().await?;
        let status = response.status().as_u16();
        let text = response.text().await?;
        match status {
            200 => Ok(serde_json::from_str(&text)?),
            409 => Err(fatal(format_args!("refused: {text}"))),
            _ => Err(Fail::retryable(format_args!("{status}: {text}"))),
        }
    }
}
