//! The way to the provider: a call in this process, or HTTP to another one. Both lose answers alike.

use std::sync::Arc;
use std::time::Duration;

use semel::{Fail, Result};

use super::books::Ask;
use super::desk::{Answer, Desk};

/// The way to the provider.
#[derive(Clone)]
pub(crate) enum Wire {
    /// It is here.
    Here(Arc<Desk>),
    /// It listens at this address.
    There {
        /// Who calls it.
        http: reqwest::Client,
        /// As in `http://127.0.0.1:4000`.
        url: String,
    },
}

/// Who asks for an effect gives up after this long: the provider is slow, but not that slow.
const PATIENCE: Duration = Duration::from_secs(1);
/// Who looks something up does not: without an answer the step would be in doubt.
const LOOK_UP: Duration = Duration::from_secs(20);

impl Wire {
    /// The way to a provider in another process.
    pub(crate) fn to(url: String) -> Result<Self> {
        Ok(Self::There { http: crate::demo::http_client()?, url })
    }

    /// Asks for an effect; gives its number.
    pub(crate) async fn effect(&self, ask: Ask) -> Result<u64> {
        match self {
            Self::Here(desk) => match desk.effect(&ask).await? {
                Answer::Done(number) => Ok(number),
                Answer::Stale => Err(Fail::retryable("409: a later try has been here")),
                Answer::Error => Err(Fail::retryable("500: something is wrong")),
                Answer::Silence => Err(Fail::retryable("the connection was dropped")),
            },
            Self::There { http, url } => post(http, &format!("{url}/effects"), &ask, PATIENCE).await,
        }
    }

    /// Asks what became of a try.
    pub(crate) async fn find(&self, ask: Ask) -> Result<Option<u64>> {
        match self {
            Self::Here(desk) => Ok(desk.find(&ask)?),
            Self::There { http, url } => post(http, &format!("{url}/look-ups"), &ask, LOOK_UP).await,
        }
    }
}

async fn post<T>(http: &reqwest::Client, url: &str, ask: &Ask, patience: Duration) -> Result<T>
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
