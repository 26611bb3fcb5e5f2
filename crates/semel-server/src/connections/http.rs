//! Connections of the kind `http`: an HTTP API.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use toml::Value;

use super::client::{ClientOptions, client};
use super::kind::{Checking, ConnectionKind, Environment, Settings, Target, TargetCheck};
use super::mapping::Channel;
use super::members::Members;
use super::profile::Profile;
use super::route::Route;
use super::secret::{Redactor, SecretPlace};

pub(super) static KIND: ConnectionKind = ConnectionKind { name: "http", read };

/// An HTTP API at the other end of a connection.
#[derive(Debug)]
pub struct HttpTarget {
    /// Address below which the paths of steps are; none if the step has the address itself.
    pub base: Option<Url>,
    /// The way to it, with its credentials.
    pub route: Route,
    /// What it can do about a repeated request.
    pub profile: Profile,
    /// Sender of messages whose step says none: of mails, text messages and calls.
    pub from: Option<String>,
}

impl Target for HttpTarget {
    fn kind(&self) -> &'static str {
        KIND.name
    }

    fn class(&self) -> &'static str {
        self.profile.class()
    }

    fn summary(&self) -> String {
        self.profile.summary()
    }

    fn redactor(&self) -> &Redactor {
        &self.route.redactor
    }

    fn unfit(&self, task: &str, given: &[String]) -> Option<String> {
        let channel = Channel::of_task(task)?;
        let Some(mapping) = self.profile.mappings.get(&channel) else {
            return Some(format!(
                "its profile does not say how a `{task}` is sent; a profile says it in a table `[{task}]`"
            ));
        };
        let without = given.iter().find(|name| *name != "on" && !mapping.takes(name))?;
        Some(format!("its profile has no place for `{without}`"))
    }

    fn check<'a>(&'a self, check: TargetCheck<'a>) -> Checking<'a> {
        let base = self.base.clone().expect("a connection of the configuration has an address");
        Box::pin(self.route.reach(check, base))
    }
}

/// What the configuration says about an HTTP API.
#[derive(Debug)]
struct HttpSettings {
    base: Url,
    route: RouteSettings,
    profile: Profile,
    from: Option<String>,
}

/// How the other end is reached over HTTP: the headers of every request, and certificates.
#[derive(Debug)]
pub(super) struct RouteSettings {
    headers: Vec<(HeaderName, HeaderSource)>,
    ca_file: Option<PathBuf>,
}

/// Where the value of a header is from.
#[derive(Debug)]
pub(super) enum HeaderSource {
    Plain(HeaderValue),
    Secret(SecretPlace),
    Bearer(SecretPlace),
    Basic(Result<String, SecretPlace>, SecretPlace),
}

/// Words in the names of headers that hold credentials: their values are secrets.
const CREDENTIALS: [&str; 8] =
    ["authorization", "cookie", "token", "api-key", "apikey", "secret", "password", "access-key"];

fn read(members: &mut Members<'_>) -> Option<Box<dyn Settings>> {
    let base = base(members, "base");
    let route = RouteSettings::read(members);
    let profile = match members.get("profile") {
        None => Some(Profile::default()),
        Some(value) => match Profile::read(&members.path("profile"), value) {
            Ok(profile) => Some(profile),
            Err(problems) => {
                members.add(problems);
                None
            }
        },
    };
    let from = members.text("from").map(str::to_owned);
    Some(Box::new(HttpSettings { base: base?, route, profile: profile?, from }))
}

impl Settings for HttpSettings {
    fn open(self: Box<Self>, environment: Environment<'_>) -> Result<Box<dyn Target>, Vec<(String, String)>> {
        let route = self.route.open(environment)?;
        Ok(Box::new(HttpTarget { base: Some(self.base), route, profile: self.profile, from: self.from }))
    }
}

impl RouteSettings {
    /// Reads `headers` and `ca-file`.
    pub(super) fn read(members: &mut Members<'_>) -> Self {
        Self { headers: headers(members), ca_file: members.text("ca-file").map(PathBuf::from) }
    }

    /// Sends this header too, unless the configuration has one of the same name.
    pub(super) fn add(&mut self, name: HeaderName, source: HeaderSource) {
        if self.headers.iter().all(|(given, _)| *given != name) {
            self.headers.push((name, source));
        }
    }

    /// Fetches the secrets, and makes the way to the other end. An error names the members that are wrong.
    pub(super) fn open(self, environment: Environment<'_>) -> Result<Route, Vec<(String, String)>> {
        let (headers, redactor) = fetch_headers(self.headers, environment)?;
        let options = ClientOptions { ca_file: self.ca_file, names: None };
        let client = client(options).map_err(|why| vec![("ca-file".to_owned(), why)])?;
        Ok(Route { client, headers, policy: None, redactor })
    }
}

/// The address of the other side, without its credentials and its query.
pub(super) fn base(members: &mut Members<'_>, name: &'static str) -> Option<Url> {
    let text = members.needed(name, "an address such as `https://api.example.com`")?;
    let refuse = |why: &str| Err(format!("{why}; give an address such as `https://api.example.com/v1`"));
    let read = match Url::parse(text) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") || !url.has_host() => refuse("it is no address of HTTP"),
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            Err("it has a password, and a secret does not stand in the configuration file itself; \
                 write `headers = { authorization = { basic = { user = \"…\", password = { env = \"NAME\" } } } }`"
                .to_owned())
        }
        Ok(url) if url.query().is_some() || url.fragment().is_some() => refuse("it has a query"),
        Ok(url) => Ok(url),
        Err(_) => refuse("it is no address"),
    };
    match read {
        Ok(url) => Some(url),
        Err(why) => {
            members.refuse(name, why);
            None
        }
    }
}

fn headers(members: &mut Members<'_>) -> Vec<(HeaderName, HeaderSource)> {
    let Some(table) = members.table("headers") else { return Vec::new() };
    let mut headers = Vec::new();
    for (name, value) in table {
        let read = name
            .parse::<HeaderName>()
            .map_err(|_| "it is no name of a header".to_owned())
            .and_then(|header| HeaderSource::read(&header, value).map(|source| (header, source)));
        match read {
            Ok(header) => headers.push(header),
            Err(why) => members.refuse(&format!("headers.{name}"), why),
        }
    }
    headers
}

impl HeaderSource {
    fn read(name: &HeaderName, value: &Value) -> Result<Self, String> {
        match value {
            Value::String(text) => {
                if CREDENTIALS.iter().any(|word| name.as_str().contains(word)) {
                    return Err("a secret does not stand in the configuration file itself; write \
                                `{ bearer = { env = \"NAME\" } }`, `{ env = \"NAME\" }` or `{ file = \"/path\" }`"
                        .to_owned());
                }
                HeaderValue::from_str(text).map(Self::Plain).map_err(|_| "it cannot be sent in a header".to_owned())
            }
            Value::Table(table) => match (table.get("bearer"), table.get("basic"), table.len()) {
                (Some(bearer), None, 1) => SecretPlace::read(bearer).map(Self::Bearer),
                (None, Some(basic), 1) => Self::basic(basic),
                _ => SecretPlace::read(value).map(Self::Secret),
            },
            _ => Err("a text, `{ bearer = … }`, `{ basic = … }`, `{ env = \"NAME\" }` or `{ file = \"/path\" }` is expected"
                .to_owned()),
        }
    }

    fn basic(value: &Value) -> Result<Self, String> {
        const HOW: &str = "write `{ basic = { user = \"…\", password = { env = \"NAME\" } } }`";
        let table = value.as_table().filter(|table| table.len() == 2).ok_or_else(|| HOW.to_owned())?;
        let (Some(user), Some(password)) = (table.get("user"), table.get("password")) else {
            return Err(HOW.to_owned());
        };
        let user = match user {
            Value::String(user) => Ok(user.clone()),
            place => Err(SecretPlace::read(place)?),
        };
        Ok(Self::Basic(user, SecretPlace::read(password)?))
    }

    /// The value of the header, and every secret in it.
    fn fetch(
        self,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(HeaderValue, Vec<String>), String> {
        let fetch = |place: &SecretPlace| place.fetch(environment).map(|secret| secret.expose().to_owned());
        let (text, secrets) = match self {
            Self::Plain(value) => return Ok((value, Vec::new())),
            Self::Secret(place) => {
                let secret = fetch(&place)?;
                (secret.clone(), vec![secret])
            }
            Self::Bearer(place) => {
                let secret = fetch(&place)?;
                (format!("Bearer {secret}"), vec![secret])
            }
            Self::Basic(user, password) => {
                let (is_secret, user) = match user {
                    Ok(user) => (false, user),
                    Err(place) => (true, fetch(&place)?),
                };
                let password = fetch(&password)?;
                let pair = STANDARD.encode(format!("{user}:{password}"));
                // Others write it without its padding.
                let unpadded = pair.trim_end_matches('=').to_owned();
                let mut secrets = vec![password, pair.clone(), unpadded];
                secrets.extend(is_secret.then_some(user));
                (format!("Basic {pair}"), secrets)
            }
        };
        let mut value =
            HeaderValue::from_str(&text).map_err(|_| "the secret cannot be sent in a header".to_owned())?;
        value.set_sensitive(true);
        Ok((value, secrets))
    }
}

type Fetched = (HeaderMap, Redactor);

fn fetch_headers(
    headers: Vec<(HeaderName, HeaderSource)>,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Fetched, Vec<(String, String)>> {
    let (mut map, mut redactor, mut problems) = (HeaderMap::new(), Redactor::default(), Vec::new());
    for (name, source) in headers {
        match source.fetch(environment) {
            Ok((value, secrets)) => {
                for secret in &secrets {
                    redactor.hide(secret);
                }
                map.insert(name, value);
            }
            Err(why) => problems.push((format!("headers.{name}"), why)),
        }
    }
    if problems.is_empty() { Ok((map, redactor)) } else { Err(problems) }
}
