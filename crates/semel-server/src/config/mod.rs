//! What a server is told: a file, then the environment, then flags; later beats earlier, and what is not known is refused.

mod environment;
mod hidden;
mod read;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::Table;

pub use environment::KEYS;
pub use hidden::{Secret, StoreAddress};

use crate::serve::Error;

/// Where servers listen if they are not told.
pub const LISTEN: &str = "127.0.0.1:7700";

/// A shorter root token could be guessed.
const SHORTEST_TOKEN: usize = 16;
/// Nobody's token is longer than this; a longer one that comes with a request is not even hashed.
pub(crate) const LONGEST_TOKEN: usize = 256;

/// All that a server is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Config {
    /// The address and port to listen on.
    pub listen: SocketAddr,
    /// Where runs are kept: `sqlite:path`, `postgres://…` or `memory:`.
    pub store: StoreAddress,
    /// How callers are known.
    pub auth: Auth,
    /// May create workspaces and API keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_token: Option<Secret>,
    /// The certificate; without one, plain HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// The log.
    pub log: Log,
    /// Where metrics are served, and to whom.
    pub metrics: Metrics,
    /// Which web pages elsewhere may call.
    pub cors: Cors,
    /// How much is let in.
    pub limits: Limits,
    /// Traces, if this build has them.
    pub otel: Otel,
    /// Whether the workflow `demo-order` is offered.
    #[serde(deserialize_with = "read::flag")]
    pub demo: bool,
}

/// How callers are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Auth {
    /// By API keys.
    #[default]
    Keys,
    /// Not at all: everybody is the administrator. On loopback only.
    None,
}

/// A certificate with its key, both PEM.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Tls {
    /// The file with the certificate, followed by those that vouch for it.
    pub cert: PathBuf,
    /// The file with its private key.
    pub key: PathBuf,
}

/// The log.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Log {
    /// Text on a terminal and JSON elsewhere, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<LogFormat>,
    /// What is logged: `info`, or `semel=debug,warn`.
    pub filter: String,
}

/// How a log line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// Where metrics are served, and to whom. They tell of all workspaces together. With neither setting, only a server without
/// auth, which is on loopback, serves them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Metrics {
    /// An address and port of their own, which serves `/metrics`, `/healthz` and `/readyz` and nothing else. Without it
    /// `/metrics` is on `listen`, if there is a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// The token that a call of `/metrics` must bring, as `Authorization: Bearer …`. Without it a call needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
}

/// Which web pages elsewhere may call.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Cors {
    /// Their origins, as `https://app.example.com`. None by default.
    #[serde(deserialize_with = "read::list")]
    pub origins: Vec<String>,
}

/// How much is let in.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Limits {
    /// Connections at once; more wait in the queue of the kernel.
    #[serde(deserialize_with = "read::number")]
    pub connections: u32,
    /// How long a client may take for the head of a request, and keep an idle connection.
    #[serde(with = "read::period")]
    pub header_timeout: Duration,
    /// How long a request may take, what it asked to wait for apart.
    #[serde(with = "read::period")]
    pub request_timeout: Duration,
    /// How long requests and steps have to end when the server stops.
    #[serde(with = "read::period")]
    pub drain: Duration,
    /// Calls per second of each workspace that has no limit of its own, on this server; 0 is no limit.
    #[serde(deserialize_with = "read::number")]
    pub rate: u32,
    /// Streams of events and wakes that one workspace may have open at once, on this server. All workspaces together
    /// have at most half of `connections`.
    #[serde(deserialize_with = "read::number")]
    pub streams: u32,
}

/// Traces.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Otel {
    /// Where they go, by OTLP over HTTP: `http://collector:4318`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: LISTEN.parse().expect("the default is an address"),
            store: StoreAddress::new("sqlite:semel.db"),
            auth: Auth::Keys,
            root_token: None,
            tls: None,
            log: Log::default(),
            metrics: Metrics::default(),
            cors: Cors::default(),
            limits: Limits::default(),
            otel: Otel::default(),
            demo: false,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { format: None, filter: "info".to_owned() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            header_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(30),
            drain: Duration::from_secs(20),
            rate: 0,
            streams: 200,
        }
    }
}

impl Config {
    /// Reads the file, lays the environment over it, and the flags (`key`, `value`) over that.
    pub fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
        flags: impl Iterator<Item = (&'static str, String)>,
    ) -> Result<Self, Error> {
        let mut all = match file {
            Some(path) => read_file(path)?,
            None => Table::new(),
        };
        for (key, value) in environment::settings(environment)? {
            set(&mut all, key, value);
        }
        for (key, value) in flags {
            set(&mut all, key, value);
        }
        let config: Self = all.try_into().map_err(|wrong| Error::Config(said(&wrong)))?;
        config.check()?;
        Ok(config)
    }

    /// Whether only this machine can reach it.
    pub fn is_local(&self) -> bool {
        self.listen.ip().is_loopback()
    }

    /// Refuses what would be unsafe or could not work.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Config(text));
        if self.auth == Auth::None && !self.is_local() {
            return refuse(format!(
                "`auth = \"none\"` lets everybody who can reach {} do everything: listen on 127.0.0.1, \
                 or set `auth = \"keys\"` and SEMEL_ROOT_TOKEN",
                self.listen
            ));
        }
        let lengths = SHORTEST_TOKEN..=LONGEST_TOKEN;
        for (key, variable, token) in [
            ("root-token", "SEMEL_ROOT_TOKEN", &self.root_token),
            ("metrics.token", "SEMEL_METRICS_TOKEN", &self.metrics.token),
        ] {
            if token.as_ref().is_some_and(|token| !lengths.contains(&token.expose().len())) {
                return refuse(format!(
                    "`{key}` ({variable}) has fewer than {SHORTEST_TOKEN} characters or more than {LONGEST_TOKEN}: \
                     make one with `openssl rand -hex 32`"
                ));
            }
        }
        if self.store.expose().starts_with("http") {
            return refuse("`store` is another server: give `sqlite:path` or `postgres://…`".to_owned());
        }
        if self.limits.connections == 0 {
            return refuse("`limits.connections` is 0, so nobody could connect: give at least 1".to_owned());
        }
        for (key, period) in [
            ("limits.header-timeout", self.limits.header_timeout),
            ("limits.request-timeout", self.limits.request_timeout),
        ] {
            if period.is_zero() {
                return refuse(format!("`{key}` is nothing, so every call would be too late: give `30s`"));
            }
        }
        Ok(())
    }

    /// The whole of it as a file, with secrets hidden.
    pub fn shown(&self) -> String {
        toml::to_string(self).expect("a configuration is plain data")
    }
}

fn read_file(path: &Path) -> Result<Table, Error> {
    let refuse = |why: String| Error::Config(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    // Not as the library would say it: that shows the line, which may hold a token or a password. Its key holds none.
    let told = |wrong: toml::de::Error| {
        let number = wrong.span().map_or(0, |span| text[..span.start].matches('\n').count());
        let key = text.lines().nth(number).and_then(|line| line.split_once('=')).map(|(key, _)| key.trim());
        let key = key.filter(|key| key.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
        let key = key.map(|key| format!(", `{key}`")).unwrap_or_default();
        refuse(format!("line {}{key}: {}", number + 1, wrong.message()))
    };
    // Read as a configuration first, because only then the refusal names the line.
    toml::from_str::<Config>(&text).map_err(told)?;
    toml::from_str(&text).map_err(told)
}

/// Sets `a.b` in a table of tables.
fn set(table: &mut Table, key: &str, value: String) {
    let Some((first, rest)) = key.split_once('.') else {
        table.insert(key.to_owned(), value.into());
        return;
    };
    let inner = table.entry(first).or_insert_with(|| Table::new().into());
    if let Some(inner) = inner.as_table_mut() {
        set(inner, rest, value);
    }
}

fn said(wrong: &toml::de::Error) -> String {
    wrong.to_string().trim().replace('\n', " ")
}

#[cfg(test)]
mod tests;
