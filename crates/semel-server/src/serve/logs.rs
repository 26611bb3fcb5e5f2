//! Logs: text for people, JSON for machines; traces for collectors.

use std::io::IsTerminal;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use super::Error;
use crate::config::{Config, LogFormat};

type Lines = Box<dyn Layer<Registry> + Send + Sync>;

/// While it lives, logs are written; traces that are still on their way are sent when it goes.
#[derive(Debug, Default)]
#[must_use = "traces end when this is dropped"]
pub struct Logs {
    #[cfg(feature = "otel")]
    traces: Option<opentelemetry_sdk::trace::SdkTracerProvider>,
}

/// Starts to log, once in a process.
pub fn start(config: &Config) -> Result<Logs, Error> {
    let mut logs = Logs::default();
    let mut layers = vec![lines(config)?];
    if let Some(endpoint) = &config.otel.endpoint {
        layers.push(traces(endpoint, &mut logs)?);
    }
    tracing_subscriber::registry().with(layers).try_init().map_err(|error| Error::Logs(error.into()))?;
    Ok(logs)
}

fn lines(config: &Config) -> Result<Lines, Error> {
    let filter = EnvFilter::try_new(&config.log.filter).map_err(|error| {
        Error::Config(format!("`log.filter` (SEMEL_LOG): {error}; write `info`, or `semel=debug,warn`"))
    })?;
    let terminal = std::io::stderr().is_terminal();
    let format = config.log.format.unwrap_or(if terminal { LogFormat::Text } else { LogFormat::Json });
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    Ok(match format {
        LogFormat::Text => lines.with_ansi(terminal).with_filter(filter).boxed(),
        // What the span knows, the event of a request says too.
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_filter(filter)
            .boxed(),
    })
}

#[cfg(feature = "otel")]
fn traces(endpoint: &str, logs: &mut Logs) -> Result<Lines, Error> {
    let (layer, provider) = super::otel::layer(endpoint)?;
    logs.traces = Some(provider);
    Ok(layer)
}

#[cfg(not(feature = "otel"))]
fn traces(_: &str, _: &mut Logs) -> Result<Lines, Error> {
    Err(Error::Config(
        "`otel.endpoint`: this build has no traces: build it with `--features otel`".to_owned(),
    ))
}

#[cfg(feature = "otel")]
impl Drop for Logs {
    fn drop(&mut self) {
        if let Some(traces) = self.traces.take()
            && let Err(error) = traces.shutdown()
        {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}
