//! Logs: text for people, JSON for machines; traces for collectors.

use std::io::IsTerminal;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use super::Error;
use crate::config::{Config, LogFormat};

/// While it lives, logs are written; what is still on its way is written when it goes.
#[derive(Debug)]
#[must_use = "logs end when this is dropped"]
pub struct Logs(());

/// Starts to log, once in a process.
pub fn start(config: &Config) -> Result<Logs, Error> {
    let filter = EnvFilter::try_new(&config.log.filter).map_err(|error| {
        Error::Config(format!("`log.filter` (SEMEL_LOG): {error}; write `info`, or `semel=debug,warn`"))
    })?;
    let terminal = std::io::stderr().is_terminal();
    let format = config.log.format.unwrap_or(if terminal { LogFormat::Text } else { LogFormat::Json });
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match format {
        LogFormat::Text => lines.with_ansi(terminal).with_filter(filter).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
    };
    tracing_subscriber::registry().with(lines).try_init().map_err(|error| Error::Logs(error.into()))?;
    Ok(Logs(()))
}
