//! The way to a server. A call that changes something carries its id over every try, so that it takes place once.

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

/// How often a call is made whose answer was lost, or for which the server had no time.
const TRIES: u32 = 6;
/// The header that lets a call be repeated.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Before the second try; doubled for each one after it. All tries take some six seconds: a server's restart.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a server may take to answer; long polls are shorter.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Which server, on whose behalf.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Server {
    /// The server's address.
    #[arg(
        long,
        global = true,
        env = "SEMEL_URL",
        default_value = "http://127.0.0.1:7700",
        value_name = "URL"
    )]
    url: String,
    /// The token to be known by.
    // Under another name inside: `hook` has tokens as well.
    #[arg(
        id = "credential",
        long = "token",
        global = true,
        env = "SEMEL_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    token: Option<Token>,
    /// How results are written.
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(super) output: Format,
}

/// A token: never shown.
#[derive(Clone)]
struct Token(String);

impl std::str::FromStr for Token {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// What a server has answered.
#[derive(Debug)]
pub(super) struct Answer {
    /// The JSON, as it came.
    pub(super) text: String,
    /// Whether it is the answer to an earlier call under the same id.
    pub(super) replayed: bool,
    /// The time at the server, if it said so.
    pub(super) date: Option<String>,
}

impl Answer {
    pub(super) fn read<T: DeserializeOwned>(&self) -> Done<T> {
        serde_json::from_str(&self.text).map_err(|error| {
            let failure =
                Failure::new(Exit::Failed, format!("the server's answer is not understood: {error}"));
            failure.help("is it a Semel server, of this version? see `semel doctor`")
        })
    }

    /// Prints it as it came, or as a table.
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

/// A call.
pub(super) struct Call<'a> {
    method: Method,
    path: Vec<&'a str>,
    query: Vec<(&'a str, String)>,
    headers: Vec<(&'static str, String)>,
    body: Option<String>,
}

impl<'a> Call<'a> {
    /// Reads.
    pub(super) fn get(path: impl IntoIterator<Item = &'a str>) -> Self {
        let path = path.into_iter().collect();
        Self { method: Method::GET, path, query: Vec::new(), headers: Vec::new(), body: None }
    }

    /// Changes something, under an id.
    pub(super) fn post<B: Serialize>(
        path: impl IntoIterator<Item = &'a str>,
        id: Option<&str>,
        body: &B,
    ) -> Self {
        let body = Some(super::output::json(body));
        let call = Self { method: Method::POST, body, ..Self::get(path) };
        call.header(IDEMPOTENCY_KEY, quoted(&id.map_or_else(drawn, str::to_owned)))
    }

    /// Takes something away, under an id.
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

/// An id of one's own: it is the same over all tries of one command.
pub(super) fn drawn() -> String {
    format!("cli-{}", SystemClock::new().uuid())
}

/// As the draft of the IETF has it: a quoted string, in which anything may stand.
fn quoted(id: &str) -> String {
    format!("\"{}\"", id.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The way to a server.
pub(super) struct Client {
    http: reqwest::Client,
    base: Url,
    clock: SystemClock,
}

impl Client {
    pub(super) fn new(server: &Server) -> Done<Self> {
        let base = address(&server.url)?;
        let mut headers = HeaderMap::new();
        if let Some(Token(token)) = &server.token {
            let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
            let mut bearer = bearer.map_err(|_| {
                let failure = Failure::new(Exit::Usage, "the token has characters that no token has");
                failure.help("copy it again, without line ends")
            })?;
            bearer.set_sensitive(true);
            headers.insert("authorization", bearer);
        }
        // Ring: no C library. That somebody has chosen a provider before is as good.
        drop(tokio_rustls::rustls::crypto::ring::default_provider().install_default());
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .user_agent(concat!("semel/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .build()
            .map_err(|error| Failure::new(Exit::Failed, format!("HTTP cannot be set up: {error}")))?;
        Ok(Self { http, base, clock: SystemClock::new() })
    }

    /// Where it leads.
    pub(super) fn base(&self) -> &Url {
        &self.base
    }

    /// Makes a call under the prefix of the API, again and again if its answer is lost.
    pub(super) async fn call(&self, call: &Call<'_>) -> Done<Answer> {
        for attempt in 1.. {
            let response = self.send(call, Some(PATIENCE)).await?;
            let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
            let (replayed, date) =
                (header("idempotent-replayed") == Some("true"), header("date").map(str::to_owned));
            match response.text().await {
                Ok(text) => return Ok(Answer { text, replayed, date }),
                Err(error) if attempt == TRIES => return Err(self.lost(&error, call)),
                // It broke off in the middle of the answer.
                Err(_) => self.pause(PAUSE * 2_u32.pow(attempt - 1)).await,
            }
        }
        unreachable!("the last attempt answers")
    }

    /// Makes a call whose answer has no end that could be waited for.
    pub(super) async fn stream(&self, call: &Call<'_>) -> Done<Response> {
        self.send(call, None).await
    }

    /// The time of this machine.
    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Waits.
    pub(super) async fn pause(&self, pause: Duration) {
        self.clock.until(self.clock.now().after(pause)).await;
    }

    async fn send(&self, call: &Call<'_>, patience: Option<Duration>) -> Done<Response> {
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
                    // Nobody was there to begin with: that is no lost answer, and waiting will not help.
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

    async fn attempt(&self, call: &Call<'_>, patience: Option<Duration>) -> reqwest::Result<Response> {
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
            request = request.header("content-type", "application/json").body(body.clone());
        }
        request.send().await
    }

    async fn problem(&self, response: Response) -> Failure {
        let status = response.status();
        let text = response.text().await.unwrap_or_default();
        match serde_json::from_str::<ProblemView>(&text) {
            Ok(problem) => Failure::told(&problem),
            Err(_) => {
                let message = format!("{} answers {status}, and not as a Semel server does", self.base);
                Failure::new(Exit::Failed, message).help("look at --url or SEMEL_URL; see `semel doctor`")
            }
        }
    }

    /// Why nobody has answered. Errors of reqwest name the address, which holds no secret: the token is in a header.
    fn lost(&self, error: &reqwest::Error, call: &Call<'_>) -> Failure {
        let mut cause: &dyn std::error::Error = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        let message = format!("{} does not answer: {cause}", self.base);
        let failure = Failure::new(Exit::Unavailable, message);
        if error.is_connect() {
            return failure.help(
                "is the server running? `semel dev` starts one on this machine; --url or SEMEL_URL says where it is",
            );
        }
        match call.headers.iter().find(|(name, _)| *name == IDEMPOTENCY_KEY) {
            // The id may have been drawn: without it a repeated command would be another one.
            Some((_, id)) => failure.help(format!(
                "repeat the command with the id {id} (`--key` of a start, else `--call-id`): nothing is done twice"
            )),
            None => failure.help("try again: it only reads"),
        }
    }
}

fn address(text: &str) -> Done<Url> {
    let wrong = |why: String| {
        let failure = Failure::new(Exit::Usage, format!("{text:?} is no address of a server: {why}"));
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
        let token: Token = "semel_secret".parse().unwrap();
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
