//! Settings of a server: from a file, then the environment, then flags. Later ones win; unknown ones are refused.

mod environment;
mod hidden;
mod read;
mod store;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

pub use environment::KEYS;
pub use hidden::Secret;
pub use store::StoreAddress;

use crate::serve::Error;

/// Default address and port of servers.
pub const LISTEN: &str = "127.0.0.1:7700";

/// Minimum length of a token that is set by the operator: a shorter one could be guessed.
const SHORTEST_TOKEN: usize = 16;
/// Maximum length of a token. A longer one in a request is refused without being hashed.
pub(crate) const LONGEST_TOKEN: usize = 256;

/// Settings of a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Config {
    /// The address and port to listen on.
    pub listen: SocketAddr,
    /// Where runs are kept: `sqlite:path`, `postgres://…` or `memory:`; or a table with this `address`, and for PostgreSQL the
    /// `schema` of the tables and the maximum number of `connections`.
    pub store: StoreAddress,
    /// How callers are authenticated.
    pub auth: Auth,
    /// Token that may create workspaces and API keys, and nothing else. Absent: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_token: Option<Secret>,
    /// Certificate for TLS. Absent: plain HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Format and level of the log.
    pub log: Log,
    /// Address and token of the metrics.
    pub metrics: Metrics,
    /// Web pages of other origins that may call the API.
    pub cors: Cors,
    /// Limits on connections, requests and workspaces.
    pub limits: Limits,
    /// Export of traces, in builds with the feature `otel`.
    pub otel: Otel,
    /// Other systems that definitions call, by name; in the file only. [`crate::connections`] reads it.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub connections: Table,
    /// What `http` without a connection may call.
    pub http: Outbound,
    /// Whether the server drives the workflow `demo-order`.
    #[serde(deserialize_with = "read::flag")]
    pub demo: bool,
    /// The clock of the server. Only `semel dev` chooses another than the machine's.
    #[serde(skip)]
    pub clock: ClockMode,
}

/// The clock that a server uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ClockMode {
    /// The clock of this machine.
    #[default]
    Machine,
    /// That clock too, until a call of `POST /api/v1/dev/clock` moves it forward.
    Manual,
}

/// How callers are authenticated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Auth {
    /// Callers authenticate with API keys.
    #[default]
    Keys,
    /// No authentication: every caller is an administrator. On loopback only.
    None,
}

/// A certificate and its private key, as PEM files.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Tls {
    /// File with the certificate, followed by the certificates of its issuers.
    pub cert: PathBuf,
    /// File with the private key of the certificate.
    pub key: PathBuf,
}

/// Format and level of the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Log {
    /// Format of the log. Default: text on a terminal, JSON elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<LogFormat>,
    /// Levels by module, such as `info` or `semel=debug,warn`.
    pub filter: String,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// One line of text per event.
    Text,
    /// One short line of text per event: time of day, level, message and fields.
    Compact,
    /// One JSON document per event.
    Json,
}

/// The address of the metrics and the token that they require. They cover all workspaces together. With neither setting, only a server without
/// authentication, which is on loopback, serves them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Metrics {
    /// Separate address and port, which serves `/metrics`, `/healthz` and `/readyz` and nothing else. If absent, `/metrics`
    /// is served on `listen`, provided that there is a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Token that a request of `/metrics` must have, as `Authorization: Bearer …`. If absent, none is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
}

/// Web pages of other origins that may call the API.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Cors {
    /// Allowed origins, such as `https://app.example.com`. None by default.
    #[serde(deserialize_with = "read::list")]
    pub origins: Vec<String>,
}

/// Limits of a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Limits {
    /// Maximum number of open connections; further ones wait in the queue of the kernel. A quarter of it may be calls that
    /// wait, a sixteenth those of one workspace.
    #[serde(deserialize_with = "read::number")]
    pub connections: u32,
    /// Maximum time for the head of a request, and for an idle connection.
    #[serde(with = "read::period")]
    pub header_timeout: Duration,
    /// Maximum time for a request, not counting the time for which it asked to wait.
    #[serde(with = "read::period")]
    pub request_timeout: Duration,
    /// Time that requests and steps have to end when the server stops.
    #[serde(with = "read::period")]
    pub drain: Duration,
    /// Requests per second of each workspace without a limit of its own, on this server. 0: no limit.
    #[serde(deserialize_with = "read::number")]
    pub rate: u32,
    /// Maximum number of open streams of one workspace, on this server. The streams of all workspaces together are limited
    /// to half of `connections`.
    #[serde(deserialize_with = "read::number")]
    pub streams: u32,
    /// Maximum number of open runs of one workspace. A start, fork, retry or restart beyond it, also one of a worker, is
    /// answered with 429, unless it opens no run. Children may be twice as many. 0, the default, is no limit.
    #[serde(deserialize_with = "read::number")]
    pub max_open_runs: u32,
}

/// Where traces are sent (builds with the feature `otel`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Otel {
    /// Address of the collector for OTLP over HTTP, such as `http://collector:4318`. Absent: no export.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
}

/// What `http` without a connection may call: public addresses, of which these lists take some away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Outbound {
    /// Hosts (`api.example.com`, `*.example.com`) and networks that may be called. All public ones if empty.
    #[serde(deserialize_with = "read::list")]
    pub allow: Vec<String>,
    /// Hosts and networks that may not be called.
    #[serde(deserialize_with = "read::list")]
    pub deny: Vec<String>,
    /// Whether addresses of this machine may be called: on development servers only, so there is no setting.
    #[serde(skip)]
    pub loopback: bool,
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
            connections: Table::new(),
            http: Outbound::default(),
            demo: false,
            clock: ClockMode::Machine,
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
            max_open_runs: 0,
        }
    }
}

impl Config {
    /// Reads the settings from the file, the environment and the flags (`key`, `value`); later ones win.
    pub fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
        flags: impl Iterator<Item = (&'static str, String)>,
    ) -> Result<Self, Error> {
        let mut all = match file {
            Some(path) => read_file(path)?,
            None => Table::new(),
        };
        // An address alone is a table with one key, so that the environment and flags can set the other keys.
        if let Some(address @ Value::String(_)) = all.get_mut("store") {
            let table = Table::from_iter([("address".to_owned(), address.clone())]);
            *address = Value::Table(table);
        }
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

    /// Whether only this machine can reach the server.
    pub fn is_local(&self) -> bool {
        self.listen.ip().is_loopback()
    }

    /// Refuses settings that would be unsafe or could not work.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Config(text));
        if self.auth == Auth::None && !self.is_local() {
            return refuse(format!(
                "`auth = \"none\"` gives every caller who can reach {} all permissions: listen on 127.0.0.1, \
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
        self.store.check().map_err(Error::Config)?;
        if self.limits.connections == 0 {
            return refuse("`limits.connections` must be at least 1".to_owned());
        }
        for (key, period) in [
            ("limits.header-timeout", self.limits.header_timeout),
            ("limits.request-timeout", self.limits.request_timeout),
        ] {
            if period.is_zero() {
                return refuse(format!("`{key}` must be longer than zero: give `30s`"));
            }
        }
        Ok(())
    }

    /// All settings as a file, with secrets hidden.
    pub fn shown(&self) -> String {
        toml::to_string(self).expect("a configuration is plain data")
    }
}

fn read_file(path: &Path) -> Result<Table, Error> {
    let refuse = |why: String| Error::Config(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    // The message of the library shows the line, which may contain a token or a password; the key contains none.
    let told = |wrong: toml::de::Error| {
        let number = wrong.span().map_or(0, |span| text[..span.start].matches('\n').count());
        let key = text.lines().nth(number).and_then(|line| line.split_once('=')).map(|(key, _)| key.trim());
        let key = key.filter(|key| key.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
        let key = key.map(|key| format!(", `{key}`")).unwrap_or_default();
        refuse(format!("line {}{key}: {}", number + 1, wrong.message()))
    };
    // Read as a configuration first: only then does an error have the number of the line.
    let config = toml::from_str::<Config>(&text).map_err(told)?;
    crate::connections::check(&config.connections, &text).map_err(refuse)?;
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
