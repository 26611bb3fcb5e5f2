//! Connections of the kind `redis`: a Redis server, or one that speaks its language.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo as _, RedisResult};
use tokio::sync::Mutex;

use super::kind::{Checked, Checking, ConnectionKind, Environment, Settings, Target, TargetCheck};
use super::members::Members;
use super::secret::{Redactor, SecretPlace, fetch_all};
use super::window::Window;

pub(super) static KIND: ConnectionKind = ConnectionKind { name: "redis", read };

/// Maximum time to connect.
const CONNECT: Duration = Duration::from_secs(5);
/// Shortest life of a marker. Redis refuses a life of zero, and would do so after it has written the entry.
const SHORTEST: Duration = Duration::from_millis(100);

/// A Redis server, and how long it remembers messages.
pub struct RedisTarget {
    client: Client,
    /// How long the marker of a published message lives.
    pub window: Window,
    redactor: Redactor,
    /// The connection. None before the first use, and after a failure.
    line: Mutex<Option<MultiplexedConnection>>,
}

impl std::fmt::Debug for RedisTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisTarget").field("window", &self.window).finish_non_exhaustive()
    }
}

impl RedisTarget {
    /// A connection to the server. An error means that nothing was sent.
    pub async fn line(&self) -> Result<MultiplexedConnection, String> {
        let mut held = self.line.lock().await;
        if let Some(line) = held.as_ref() {
            return Ok(line.clone());
        }
        // The time limit of an answer is that of the step.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(None);
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        let line = connecting
            .await
            .map_err(|error| self.redactor.text(&format!("the Redis server cannot be reached: {error}")))?;
        *held = Some(line.clone());
        Ok(line)
    }

    /// Drops a failed connection: the next caller gets a new one.
    pub async fn drop_line(&self) {
        *self.line.lock().await = None;
    }

    async fn look(&self) -> Checked {
        let mut line = match self.line().await {
            Ok(line) => line,
            Err(why) => return Checked::wrong(why),
        };
        let asked: RedisResult<String> = redis::cmd("INFO").query_async(&mut line).await;
        match asked {
            Ok(info) => judge(&info),
            Err(error) => {
                Checked::wrong(self.redactor.text(&format!("reached, and INFO was refused: {error}")))
            }
        }
    }
}

/// What the server says about itself: a server that forgets markers, or messages that it has acknowledged, keeps no promise.
fn judge(info: &str) -> Checked {
    let value = |name: &str| {
        info.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':')).unwrap_or("unknown")
    };
    let version = value("redis_version");
    match (value("aof_enabled"), value("maxmemory_policy")) {
        (_, policy) if policy != "noeviction" && policy != "unknown" => Checked::wrong(format!(
            "Redis {version} evicts keys by `{policy}`, markers too: set `maxmemory-policy noeviction`"
        )),
        ("0", _) => Checked::wrong(format!(
            "Redis {version} has no append-only file, so a crash loses what it has acknowledged: set `appendonly yes`"
        )),
        _ => Checked::fine(format!("Redis {version} with an append-only file")),
    }
}

impl Target for RedisTarget {
    fn kind(&self) -> &'static str {
        KIND.name
    }

    fn class(&self) -> &'static str {
        self.window.class()
    }

    fn summary(&self) -> String {
        format!("marker, {}", self.window)
    }

    fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    fn check<'a>(&'a self, check: TargetCheck<'a>) -> Checking<'a> {
        Box::pin(async move {
            let timeout = check.timeout;
            match tokio::time::timeout(timeout, self.look()).await {
                Ok(checked) => checked,
                Err(_) => Checked::wrong(format!("there was no answer within {timeout:?}")),
            }
        })
    }
}

/// What the configuration says about a Redis server.
struct RedisSettings {
    url: String,
    user: Option<String>,
    password: Option<SecretPlace>,
    window: Window,
}

fn read(members: &mut Members<'_>) -> Option<Box<dyn Settings>> {
    let url = url(members);
    let user = members.text("user").map(str::to_owned);
    let password = members.secret("password");
    let window = Window::read(members, "how long is a published message remembered?");
    if window.and_then(Window::length).is_some_and(|length| length < SHORTEST) {
        members.refuse("window", format!("a marker has to live for {SHORTEST:?} at least"));
    }
    Some(Box::new(RedisSettings { url: url?, user, password, window: window? }))
}

/// The address of the server, without credentials.
fn url(members: &mut Members<'_>) -> Option<String> {
    const HOW: &str = "give an address such as `redis://127.0.0.1:6379/0` or `unix:///run/redis.sock`";
    let text = members.needed("url", HOW)?;
    let read = match text.into_connection_info() {
        Ok(info) if info.redis_settings().password().is_some() => {
            Err("it has a password, and a secret does not stand in the configuration file itself; \
                 write `password = { env = \"NAME\" }`"
                .to_owned())
        }
        Ok(info) if !matches!(info.addr(), ConnectionAddr::Tcp(..) | ConnectionAddr::Unix(_)) => {
            Err(format!("this server does not speak TLS with Redis; {HOW}, of a tunnel for instance"))
        }
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(format!("it is no address of a Redis server; {HOW}")),
    };
    match read {
        Ok(url) => Some(url),
        Err(why) => {
            members.refuse("url", why);
            None
        }
    }
}

impl Settings for RedisSettings {
    fn open(self: Box<Self>, environment: Environment<'_>) -> Result<Box<dyn Target>, Vec<(String, String)>> {
        let mut redactor = Redactor::default();
        let [password] = fetch_all([("password", &self.password)], environment, &mut redactor)?;
        let wrong = |error: redis::RedisError| vec![("url".to_owned(), error.to_string())];
        let info = self.url.into_connection_info().map_err(wrong)?;
        let mut settings = info.redis_settings().clone();
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &password {
            settings = settings.set_password(password);
        }
        let client = Client::open(info.set_redis_settings(settings)).map_err(wrong)?;
        Ok(Box::new(RedisTarget { client, window: self.window, redactor, line: Mutex::new(None) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_forgets_is_told_what_to_set() {
        for (info, said) in [
            ("redis_version:7.0.15\r\naof_enabled:1\r\nmaxmemory_policy:noeviction\r\n", None),
            (
                "redis_version:7.0.15\r\naof_enabled:0\r\nmaxmemory_policy:noeviction\r\n",
                Some("appendonly yes"),
            ),
            ("redis_version:7.0.15\r\naof_enabled:1\r\nmaxmemory_policy:allkeys-lru\r\n", Some("noeviction")),
            ("redis_version:7.0.15\r\naof_enabled:1\r\n", None),
        ] {
            let checked = judge(info);
            assert_eq!(checked.is_fine, said.is_none(), "{info}");
            assert!(said.is_none_or(|said| checked.found.contains(said)), "{}", checked.found);
        }
    }
}
