//! The way to the provider: a call in this process, or HTTP to another one. Both lose answers alike.

use std::sync::Arc;
use std::time::Duration;

use semel::{Fail, Result};

use super::books::EffectRequest;
use super::desk::{Desk, ProviderAnswer};

/// The way to the provider.
#[derive(Clone)]
pub(crate) enum Wire {
    /// The provider runs in this process.
    Here(Arc<Desk>),
    /// It listens at this address.
    There {
        /// Client for calls of the provider.
        http: reqwest::Client,
        /// URL of the provider, as in `http://127.0.0.1:4000`.
        url: String,
    },
}

/// How long a call for an effect waits: longer than the provider takes, unless the call is stuck.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a look-up waits: without an answer the step would be in doubt.
const LOOK_UP: Duration = Duration::from_secs(20);

impl Wire {
    /// The way to a provider in another process.
    pub(crate) fn to(url: String) -> Result<Self> {
        Ok(Self::There { http: crate::demo::http_client()?, url })
    }

    /// Asks for an effect; gives its number.
    pub(crate) async fn effect(&self, ask: EffectRequest) -> Result<u64> {
        match self {
            Self::Here(desk) => match desk.effect(&ask).await? {
                ProviderAnswer::Done(number) => Ok(number),
                ProviderAnswer::Stale => Err(Fail::retryable("409: a later try has been here")),
                ProviderAnswer::Error => Err(Fail::retryable("500: something is wrong")),
                ProviderAnswer::Silence => Err(Fail::retryable("the connection was dropped")),
            },
            Self::There { http, url } => post(http, &format!("{url}/effects"), &ask, PATIENCE).await,
        }
    }

    /// Looks up the outcome of an attempt.
    pub(crate) async fn find(&self, ask: EffectRequest) -> Result<Option<u64>> {
        match self {
            Self::Here(desk) => Ok(desk.find(&ask)?),
            Self::There { http, url } => post(http, &format!("{url}/look-ups"), &ask, LOOK_UP).await,
        }
    }
}

async fn post<T>(http: &reqwest::Client, url: &str, ask: &EffectRequest, patience: Duration) -> Result<T>
where
    T: serde::de::DeserializeOwned,
{
    let response = http.post(url).timeout(patience).body(serde_json::to_vec(ask)?).send().await?;
    let status = response.status();
    let text = response.text().await?;
    if !status.is_success() {
        return Err(Fail::retryable(format_args!("{}: {text}", status.as_u16())));
    }
    Ok(serde_json::from_str(&text)?)
}
