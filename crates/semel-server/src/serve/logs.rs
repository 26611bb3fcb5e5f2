//! Logs: text for people, JSON for machines; traces for collectors.

use std::fmt;
use std::io::IsTerminal;

use jiff::Timestamp;
use semel::clock::{Clock as _, SystemClock};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use super::Error;
use crate::config::{Config, LogFormat};

type LogLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Guard of the log. Traces that are not sent yet are sent when it is dropped.
#[derive(Debug, Default)]
#[must_use = "traces end when this is dropped"]
pub struct Logs {
    #[cfg(feature = "otel")]
    traces: Option<opentelemetry_sdk::trace::SdkTracerProvider>,
}

/// Starts logging; at most once per process.
pub fn start(config: &Config) -> Result<Logs, Error> {
    let mut logs = Logs::default();
    let mut layers = vec![lines(config)?];
    if let Some(endpoint) = &config.otel.endpoint {
        layers.push(traces(endpoint, &mut logs)?);
    }
    tracing_subscriber::registry().with(layers).try_init().map_err(|error| Error::Logs(error.into()))?;
    Ok(logs)
}

fn lines(config: &Config) -> Result<LogLayer, Error> {
    let filter: Targets = config.log.filter.parse().map_err(|error| {
        Error::Config(format!("`log.filter` (SEMEL_LOG): {error}; write `info`, or `semel=debug,warn`"))
    })?;
    let terminal = std::io::stderr().is_terminal();
    let format = config.log.format.unwrap_or(if terminal { LogFormat::Text } else { LogFormat::Json });
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    Ok(match format {
        LogFormat::Text => lines.with_ansi(terminal).with_filter(filter).boxed(),
        LogFormat::Compact => lines
            .compact()
            .with_target(false)
            .with_timer(TimeOfDay(SystemClock::new()))
            .with_ansi(terminal)
            .with_filter(filter)
            .boxed(),
        // The event of a request repeats the fields of its span.
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_filter(filter)
            .boxed(),
    })
}

/// The time of day in UTC, for people who look at the log while it is written.
struct TimeOfDay(SystemClock);

impl FormatTime for TimeOfDay {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        let now = Timestamp::from_millisecond(self.0.now().0).unwrap_or_default();
        write!(w, "{}", now.strftime("%H:%M:%S"))
    }
}

#[cfg(feature = "otel")]
fn traces(endpoint: &str, logs: &mut Logs) -> Result<LogLayer, Error> {
    let (layer, provider) = super::otel::layer(endpoint)?;
    logs.traces = Some(provider);
    Ok(layer)
}

#[cfg(not(feature = "otel"))]
fn traces(_: &str, _: &mut Logs) -> Result<LogLayer, Error> {
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
