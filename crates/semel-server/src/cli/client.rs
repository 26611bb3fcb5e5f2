//! HTTP client of the commands. A call that changes something keeps its id over all attempts, so that it takes place
//! once.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode, Url};
use semel::clock::{Clock as _, SystemClock, Time};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::exit::{Done, Exit, Failure};
use super::output::{Format, print};
use crate::api::ProblemView;
use crate::http::PREFIX;

/// Maximum number of attempts if an answer is lost or the server is overloaded.
const TRIES: u32 = 6;
/// Header with the id under which a call may be repeated.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Pause before the second attempt; doubled for each further one. All attempts take about six seconds, enough for a
/// restart.
const PAUSE: Duration = Duration::from_millis(200);
/// Maximum time for an answer; long polls are shorter.
const PATIENCE: Duration = Duration::from_secs(90);
/// Maximum time to connect.
const CONNECT: Duration = Duration::from_secs(10);

/// Section of a command's help with the options that say which server is asked, and how.
pub(super) const CONNECTION: &str = "Connection";

/// Options of all commands that talk to a server.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ServerArgs {
    /// URL of the server.
    #[arg(
        long,
        global = true,
        env = "SEMEL_URL",
        default_value = "http://127.0.0.1:7700",
        value_name = "URL",
        help_heading = CONNECTION
    )]
    url: String,
    #[command(flatten)]
    trust: TrustArgs,
    /// Format of the results.
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(super) output: Format,
}

/// How a command and a server know each other.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct TrustArgs {
    /// API token for the server.
    // The inner id differs because `hook` has an argument named token as well.
    #[arg(
        id = "credential",
        long = "token",
        global = true,
        env = "SEMEL_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        help_heading = CONNECTION
    )]
    token: Option<SecretToken>,
    /// Trust the certificates in this PEM file, instead of those of this machine.
    #[arg(long, global = true, env = "SEMEL_CA_FILE", value_name = "FILE", help_heading = CONNECTION)]
    ca_file: Option<PathBuf>,
}

impl ServerArgs {
    /// The server at this URL.
    pub(super) fn at(url: String, trust: TrustArgs, output: Format) -> Self {
        Self { url, trust, output }
    }
}

/// A token that `Debug` does not show.
#[derive(Clone)]
struct SecretToken(String);

impl std::str::FromStr for SecretToken {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl std::fmt::Debug for SecretToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Answer of the server.
#[derive(Debug)]
pub(super) struct ServerAnswer {
    /// The JSON text as received.
    pub(super) text: String,
    /// Whether it is the answer to an earlier call under the same id.
    pub(super) replayed: bool,
    /// The server's `Date` header, if present.
    pub(super) date: Option<String>,
}

impl ServerAnswer {
    pub(super) fn read<T: DeserializeOwned>(&self) -> Done<T> {
        serde_json::from_str(&self.text).map_err(|error| {
            let failure =
                Failure::new(Exit::Failed, format!("the server's answer is not understood: {error}"));
            failure.help("is it a Semel server, of this version? see `semel doctor`")
        })
    }

    /// Prints the answer as received, or as a table.
    pub(super) fn print<T: DeserializeOwned>(
        &self,
        output: Format,
        table: impl FnOnce(&T) -> String,
    ) -> Done {
        match output {
            Format::Table => print(&table(&self.read()?)),
            Format::Json | Format::Ndjson => print(&self.text.replace(['\n', '\r'], " ")),
        }
    }
}

/// A call of the HTTP API.
pub(super) struct ApiCall<'a> {
    method: Method,
    path: Vec<&'a str>,
    query: Vec<(&'a str, String)>,
    headers: Vec<(&'static str, String)>,
    body: Option<String>,
    /// Media type of the body.
    media: &'static str,
}

impl<'a> ApiCall<'a> {
    /// A read, without an id.
    pub(super) fn get(path: impl IntoIterator<Item = &'a str>) -> Self {
        let path = path.into_iter().collect();
        let (query, headers, body) = (Vec::new(), Vec::new(), None);
        Self { method: Method::GET, path, query, headers, body, media: "application/json" }
    }

    /// A change, under an id.
    pub(super) fn post<B: Serialize>(
        path: impl IntoIterator<Item = &'a str>,
        id: Option<&str>,
        body: &B,
    ) -> Self {
        let body = Some(super::output::json(body));
        let call = Self { method: Method::POST, body, ..Self::get(path) };
        call.header(IDEMPOTENCY_KEY, quoted(&id.map_or_else(drawn, str::to_owned)))
    }

    /// A change whose body is a text in YAML or JSON, under an id.
    pub(super) fn post_yaml(path: impl IntoIterator<Item = &'a str>, text: &str) -> Self {
        let (body, media) = (Some(text.to_owned()), "application/yaml");
        let call = Self { method: Method::POST, body, media, ..Self::get(path) };
        call.header(IDEMPOTENCY_KEY, quoted(&drawn()))
    }

    /// A deletion, under an id.
    pub(super) fn delete(path: impl IntoIterator<Item = &'a str>) -> Self {
        let call = Self { method: Method::DELETE, ..Self::get(path) };
        call.header(IDEMPOTENCY_KEY, quoted(&drawn()))
    }

    pub(super) fn query(mut self, name: &'a str, value: Option<impl ToString>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    pub(super) fn header(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }
}

/// Generates a call id, which stays the same over all attempts of one command.
pub(super) fn drawn() -> String {
    format!("cli-{}", SystemClock::new().uuid())
}

/// Quotes the id as the IETF draft requires: a string that may contain any character.
fn quoted(id: &str) -> String {
    format!("\"{}\"", id.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Client for one server.
pub(super) struct Client {
    http: reqwest::Client,
    base: Url,
    clock: SystemClock,
}

impl Client {
    pub(super) fn new(server: &ServerArgs) -> Done<Self> {
        let base = address(&server.url)?;
        let mut headers = HeaderMap::new();
        if let Some(SecretToken(token)) = &server.trust.token {
            let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
            let mut bearer = bearer.map_err(|_| {
                let failure = Failure::new(Exit::Usage, "the token contains invalid characters");
                failure.help("copy it again, without line ends")
            })?;
            bearer.set_sensitive(true);
            headers.insert("authorization", bearer);
        }
        // Ring needs no C library. An error means that a provider is already installed, which is fine.
        drop(tokio_rustls::rustls::crypto::ring::default_provider().install_default());
        let mut builder = reqwest::Client::builder()
            .default_headers(headers)
            .user_agent(concat!("semel/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT);
        if let Some(path) = &server.trust.ca_file {
            builder = builder.tls_certs_only(certificates(path)?);
        }
        let http = builder
            .build()
            .map_err(|error| Failure::new(Exit::Failed, format!("HTTP cannot be set up: {error}")))?;
        Ok(Self { http, base, clock: SystemClock::new() })
    }

    /// Base URL of the server.
    pub(super) fn base(&self) -> &Url {
        &self.base
    }

    /// Makes a call under the API's prefix, and repeats it if its answer is lost.
    pub(super) async fn call(&self, call: &ApiCall<'_>) -> Done<ServerAnswer> {
        for attempt in 1.. {
            let response = self.send(call, Some(PATIENCE)).await?;
            let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
            let (replayed, date) =
                (header("idempotent-replayed") == Some("true"), header("date").map(str::to_owned));
            match response.text().await {
                Ok(text) => return Ok(ServerAnswer { text, replayed, date }),
                Err(error) if attempt == TRIES => return Err(self.lost(&error, call)),
                // The connection broke in the middle of the answer.
                Err(_) => self.pause(PAUSE * 2_u32.pow(attempt - 1)).await,
            }
        }
        unreachable!("the last attempt answers")
    }

    /// Makes a call whose answer is an endless stream.
    pub(super) async fn stream(&self, call: &ApiCall<'_>) -> Done<Response> {
        self.send(call, None).await
    }

    /// Current time of this machine.
    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Sleeps for the given time.
    pub(super) async fn pause(&self, pause: Duration) {
        self.clock.until(self.clock.now().after(pause)).await;
    }

    async fn send(&self, call: &ApiCall<'_>, patience: Option<Duration>) -> Done<Response> {
        let (mut attempt, mut reached) = (1, false);
        loop {
            let failure = match self.attempt(call, patience).await {
                Ok(response) if response.status().is_success() => return Ok(response),
                Ok(response) => {
                    let status = response.status();
                    let failure = self.problem(response).await;
                    if status != StatusCode::SERVICE_UNAVAILABLE {
                        return Err(failure);
                    }
                    reached = true;
                    failure
                }
                Err(error) => {
                    // No connection has ever been made: this is no lost answer, and repeating will not help.
                    if error.is_builder() || (error.is_connect() && !reached) {
                        return Err(self.lost(&error, call));
                    }
                    reached = true;
                    self.lost(&error, call)
                }
            };
            if attempt == TRIES {
                return Err(failure);
            }
            self.pause(PAUSE * 2_u32.pow(attempt - 1)).await;
            attempt += 1;
        }
    }

    async fn attempt(&self, call: &ApiCall<'_>, patience: Option<Duration>) -> reqwest::Result<Response> {
        let mut url = self.base.clone();
        let prefix = PREFIX.split('/').filter(|part| !part.is_empty());
        let outside = call.path.first().is_some_and(|first| first.is_empty());
        let prefix = prefix.filter(|_| !outside);
        url.path_segments_mut()
            .expect("checked when the client was made")
            .pop_if_empty()
            .extend(prefix)
            .extend(call.path.iter().filter(|part| !part.is_empty()));
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&call.query);
        }
        let mut request = self.http.request(call.method.clone(), url);
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        if let Some(patience) = patience {
            request = request.timeout(patience);
        }
        if let Some(body) = &call.body {
            request = request.header("content-type", call.media).body(body.clone());
        }
        request.send().await
    }

    async fn problem(&self, response: Response) -> Failure {
        let status = response.status();
        let text = response.text().await.unwrap_or_default();
        match serde_json::from_str::<ProblemView>(&text) {
            Ok(problem) => Failure::told(&problem),
            Err(_) => {
                let message = format!("{} answers {status}, but not like a Semel server", self.base);
                Failure::new(Exit::Failed, message).help("check --url or SEMEL_URL; see `semel doctor`")
            }
        }
    }

    /// The failure of a call without an answer. Errors of reqwest contain the URL, which holds no secret: the token
    /// is in a header.
    fn lost(&self, error: &reqwest::Error, call: &ApiCall<'_>) -> Failure {
        let mut cause: &dyn std::error::Error = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        if let Some(what) = semel::remote::certificate_problem(error) {
            let failure = Failure::new(
                Exit::Unavailable,
                format!("the certificate of {} is not trusted: {what}", self.base),
            );
            return failure.help(
                "check the host name in the URL and the server's clock; trust a private authority with --ca-file FILE",
            );
        }
        let message = format!("{} does not answer: {cause}", self.base);
        let failure = Failure::new(Exit::Unavailable, message);
        if error.is_connect() {
            return failure.help(
                "is the server running? `semel dev` starts one on this machine; --url or SEMEL_URL says where it is",
            );
        }
        match call.headers.iter().find(|(name, _)| *name == IDEMPOTENCY_KEY) {
            // The id may have been generated: without it, a repeated command would be a new call.
            Some((_, id)) => failure.help(format!(
                "repeat the command with the id {id} (`--key` of a start, else `--call-id`): nothing is done twice"
            )),
            None => failure.help("try again: it only reads"),
        }
    }
}

/// The certificates of a PEM file.
fn certificates(path: &Path) -> Done<Vec<reqwest::Certificate>> {
    let wrong = |exit, why: String| Failure::new(exit, format!("--ca-file {}: {why}", path.display()));
    let pem = std::fs::read(path).map_err(|error| wrong(Exit::NotFound, error.to_string()))?;
    let found = reqwest::Certificate::from_pem_bundle(&pem);
    let found = found.map_err(|error| wrong(Exit::Usage, error.to_string()))?;
    match found.is_empty() {
        true => Err(wrong(Exit::Usage, "the file has no certificate; give certificates as PEM".to_owned())),
        false => Ok(found),
    }
}

fn address(text: &str) -> Done<Url> {
    let wrong = |why: String| {
        let failure = Failure::new(Exit::Usage, format!("{text:?} is not the URL of a server: {why}"));
        failure.help("give one like http://127.0.0.1:7700 with --url or SEMEL_URL")
    };
    let url: Url = text.parse().map_err(|error| wrong(format!("{error}")))?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        scheme => Err(wrong(format!("{scheme}: is not HTTP"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_shown() {
        let token: SecretToken = "semel_secret".parse().unwrap();
        assert!(!format!("{token:?}").contains("secret"));
    }

    #[test]
    fn ids_are_quoted_and_drawn_ones_differ() {
        assert_eq!(quoted("a\"b\\"), "\"a\\\"b\\\\\"");
        assert_ne!(drawn(), drawn());
    }

    #[test]
    fn an_address_is_http() {
        assert_eq!(address("http://h:1").unwrap().as_str(), "http://h:1/");
        for wrong in ["h:1", "ftp://h", "nothing"] {
            assert_eq!(address(wrong).unwrap_err().exit, Exit::Usage, "{wrong}");
        }
    }
}
