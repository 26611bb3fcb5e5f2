//! Connections of the kind `nats`: a NATS server with JetStream.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::{self, Context};
use async_nats::{ConnectOptions, Event, ServerAddr};
use tokio::sync::{Mutex, watch};

use super::database::told;
use super::kind::{Checked, Checking, ConnectionKind, Environment, Settings, Target, TargetCheck};
use super::members::Members;
use super::secret::{Redactor, SecretPlace, fetch_all};

pub(super) static KIND: ConnectionKind = ConnectionKind { name: "nats", read };

/// Maximum time to connect.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest pause between two attempts to connect again. Steps that meet a line that is down do not wait for it.
const RECONNECT: Duration = Duration::from_secs(1);

/// A NATS server with JetStream.
pub struct NatsTarget {
    servers: Vec<ServerAddr>,
    domain: Option<String>,
    ca_file: Option<PathBuf>,
    login: Login,
    redactor: Redactor,
    /// The line, once it was needed. It connects again by itself.
    line: Mutex<Option<NatsLine>>,
}

/// A line to a NATS server.
#[derive(Clone)]
struct NatsLine {
    jetstream: Context,
    /// Whether it is connected, as far as its events have come through.
    is_up: watch::Receiver<bool>,
}

/// How the server knows who connects.
enum Login {
    Anonymous,
    Token(String),
    User(String, String),
}

impl std::fmt::Debug for NatsTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsTarget").field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl NatsTarget {
    /// JetStream over a line that is connected. `timeout` limits every request. An error means that nothing was sent.
    pub async fn jetstream(&self, timeout: Duration) -> Result<Context, String> {
        let mut jetstream = self.connected().await.map_err(|why| self.redactor.text(&why))?;
        jetstream.set_timeout(timeout);
        Ok(jetstream)
    }

    /// What is sent while the line is down would wait in the client, and leave it at any later time: so it has to be up.
    async fn connected(&self) -> Result<Context, String> {
        let mut line = self.line().await?;
        if line.jetstream.client().connection_state() != State::Connected {
            // It connects again by itself, soon if the server is there.
            drop(tokio::time::timeout(CONNECT, line.is_up.wait_for(|is_up| *is_up)).await);
        }
        match line.jetstream.client().connection_state() {
            State::Connected => Ok(line.jetstream),
            State::Pending | State::Disconnected => {
                Err("the line to the NATS server is down; it connects again by itself".to_owned())
            }
        }
    }

    async fn line(&self) -> Result<NatsLine, String> {
        let mut held = self.line.lock().await;
        if let Some(line) = held.as_ref() {
            return Ok(line.clone());
        }
        let (up, is_up) = watch::channel(true);
        let up = Arc::new(up);
        let connecting = self.options().event_callback(move |event| {
            let up = up.clone();
            async move {
                match event {
                    Event::Connected => {
                        up.send_replace(true);
                    }
                    Event::Disconnected | Event::Closed => {
                        up.send_replace(false);
                    }
                    _ => {}
                }
            }
        });
        let client = connecting.connect(self.servers.clone()).await;
        let client =
            client.map_err(|error| format!("the NATS server cannot be reached: {}", told(&error)))?;
        let jetstream = match &self.domain {
            Some(domain) => jetstream::with_domain(client, domain),
            None => jetstream::new(client),
        };
        Ok(held.insert(NatsLine { jetstream, is_up }).clone())
    }

    fn options(&self) -> ConnectOptions {
        // Ring needs no C library. An error means that a provider is already installed, which is fine.
        drop(tokio_rustls::rustls::crypto::ring::default_provider().install_default());
        let pause =
            |tried: usize| RECONNECT.min(Duration::from_millis(50) * u32::try_from(tried).unwrap_or(100));
        let mut options = ConnectOptions::new()
            .name(concat!("semel/", env!("CARGO_PKG_VERSION")))
            .connection_timeout(CONNECT)
            .reconnect_delay_callback(pause);
        if let Some(file) = &self.ca_file {
            options = options.add_root_certificates(file.clone());
        }
        match &self.login {
            Login::Anonymous => options,
            Login::Token(token) => options.token(token.clone()),
            Login::User(user, password) => options.user_and_password(user.clone(), password.clone()),
        }
    }

    async fn look(&self, timeout: Duration) -> Checked {
        let jetstream = match self.jetstream(timeout).await {
            Ok(jetstream) => jetstream,
            Err(why) => return Checked::wrong(why),
        };
        let version = jetstream.client().server_info().version;
        // Read as JSON: servers of several years have other members in their account.
        let asked = jetstream.request::<_, _, serde_json::Value>("INFO", &()).await;
        let refused = match asked {
            Ok(account) => match (account.get("error"), account["streams"].as_u64()) {
                (None, Some(streams)) => {
                    return Checked::fine(format!("NATS {version} with JetStream, {streams} streams"));
                }
                (error, _) => error.unwrap_or(&account).to_string(),
            },
            Err(error) => told(&error),
        };
        Checked::wrong(self.redactor.text(&format!(
            "NATS {version} does not offer JetStream to this user: {refused}; start it with `--jetstream`"
        )))
    }
}

impl Target for NatsTarget {
    fn kind(&self) -> &'static str {
        KIND.name
    }

    fn class(&self) -> &'static str {
        "reconcile"
    }

    fn summary(&self) -> String {
        "Nats-Msg-Id within the stream's duplicate window, then a search of the stream".to_owned()
    }

    fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    fn check<'a>(&'a self, check: TargetCheck<'a>) -> Checking<'a> {
        Box::pin(self.look(check.timeout))
    }
}

/// What the configuration says about a NATS server.
struct NatsSettings {
    servers: Vec<ServerAddr>,
    domain: Option<String>,
    ca_file: Option<PathBuf>,
    token: Option<SecretPlace>,
    user: Option<String>,
    password: Option<SecretPlace>,
}

fn read(members: &mut Members<'_>) -> Option<Box<dyn Settings>> {
    let servers = servers(members);
    let domain = members.text("domain").map(str::to_owned);
    let ca_file = members.text("ca-file").map(PathBuf::from);
    let (token, password) = (members.secret("token"), members.secret("password"));
    let user = members.text("user").map(str::to_owned);
    if user.is_some() != password.is_some() {
        members.refuse("user", "`user` and `password` belong together");
    }
    if token.is_some() && user.is_some() {
        members.refuse("token", "`token` excludes `user` and `password`");
    }
    Some(Box::new(NatsSettings { servers: servers?, domain, ca_file, token, user, password }))
}

/// One address, or those of several servers of a cluster.
fn servers(members: &mut Members<'_>) -> Option<Vec<ServerAddr>> {
    const HOW: &str =
        "give an address such as `nats://127.0.0.1:4222` or `tls://nats.example.com`, or a list of them";
    let given = match members.get("url") {
        None => {
            members.refuse("url", format!("it is missing; {HOW}"));
            return None;
        }
        Some(toml::Value::String(one)) => vec![one.clone()],
        Some(_) => members.texts("url")?,
    };
    let read = |text: &String| match text.parse::<ServerAddr>() {
        Ok(server) if server.has_user_pass() => Err(format!(
            "an address has a password, and a secret does not stand in the configuration file itself; write {}",
            "`user = \"…\"` and `password = { env = \"NAME\" }`"
        )),
        Ok(server) if matches!(server.scheme(), "nats" | "tls") => Ok(server),
        _ => Err(format!("`{text}` is no address of a NATS server; {HOW}")),
    };
    match given.iter().map(read).collect::<Result<Vec<_>, _>>() {
        Ok(servers) if !servers.is_empty() => Some(servers),
        Ok(_) => {
            members.refuse("url", HOW);
            None
        }
        Err(why) => {
            members.refuse("url", why);
            None
        }
    }
}

impl Settings for NatsSettings {
    fn open(self: Box<Self>, environment: Environment<'_>) -> Result<Box<dyn Target>, Vec<(String, String)>> {
        let mut redactor = Redactor::default();
        let places = [("token", &self.token), ("password", &self.password)];
        let [token, password] = fetch_all(places, environment, &mut redactor)?;
        let login = match (token, self.user, password) {
            (Some(token), ..) => Login::Token(token),
            (None, Some(user), Some(password)) => Login::User(user, password),
            _ => Login::Anonymous,
        };
        let Self { servers, domain, ca_file, .. } = *self;
        Ok(Box::new(NatsTarget { servers, domain, ca_file, login, redactor, line: Mutex::new(None) }))
    }
}
