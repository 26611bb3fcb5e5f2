//! A request and its answer over HTTP: what is sent, how redirects of reads are followed, and how much of an answer is read.

use std::error::Error as StdError;
use std::sync::Arc;

use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Method, Url};
use serde_json::Value as Json;

use super::address::AddressPolicy;
use super::kind::{Checked, TargetCheck};
use super::names::{NotPublic, check_literal};
use super::secret::Redactor;

/// Maximum number of redirects that a read follows.
const HOPS: usize = 5;
/// The headers of an answer that are recorded: what a caller decides by, and the id that the other side's support asks for.
const RECORDED: [&str; 6] =
    ["content-type", "location", "retry-after", "request-id", "x-message-id", "x-request-id"];

/// A way to another system: its client, and what every request through it has.
#[derive(Debug)]
pub struct Route {
    pub(super) client: reqwest::Client,
    /// Headers with credentials, which are never recorded.
    pub(super) headers: HeaderMap,
    /// Which addresses may be called; all if absent, as the operator has named them.
    pub(super) policy: Option<Arc<AddressPolicy>>,
    /// Takes the credentials out of what comes back.
    pub redactor: Redactor,
}

/// A request that is ready to be sent.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Method of the request.
    pub method: Method,
    /// Address of the request, with its query.
    pub url: Url,
    /// Headers of the author's.
    pub headers: HeaderMap,
    /// Body of the request; none for reads.
    pub body: Option<Vec<u8>>,
}

/// An answer, without secrets.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpAnswer {
    /// Status of the answer.
    pub status: u16,
    /// The headers that are recorded, by their names in lower case.
    pub headers: Vec<(String, String)>,
    /// Whether the profile's header says that this is the answer to an earlier request.
    pub replayed: bool,
    /// Body of the answer as text.
    pub body: String,
    /// Body as JSON, exactly as it came, if it is JSON that can be kept.
    pub json: Option<semel::rules::json::Payload>,
    /// Whether all of the body was read.
    pub is_whole: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum CallFailed {
    /// The other side was not reached: nothing took place.
    Unreachable(String),
    /// The request may not or cannot be sent: nothing took place, and no other try mends it.
    Refused(String),
    /// It was sent, and its outcome is not known.
    Unknown(String),
    /// It was not answered within this time; whether it was sent is not known either.
    TimedOut(std::time::Duration),
}

impl CallFailed {
    /// What happened, as a sentence.
    pub fn message(&self) -> String {
        match self {
            Self::Unreachable(why) | Self::Refused(why) | Self::Unknown(why) => why.clone(),
            Self::TimedOut(limit) => format!("there was no answer within {limit:?}"),
        }
    }
}

impl HttpAnswer {
    /// The value of a recorded header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

impl Route {
    /// Sends `HEAD` to an address, with the credentials: whether it is there and accepts them.
    pub(super) async fn reach(&self, check: TargetCheck<'_>, url: Url) -> Checked {
        let request = Outgoing { method: Method::HEAD, url, headers: HeaderMap::new(), body: None };
        let calling = self.call(check.connections.public_route(), request, 0, None);
        let called = match tokio::time::timeout(check.timeout, calling).await {
            Ok(called) => called,
            Err(_) => Err(CallFailed::TimedOut(check.timeout)),
        };
        match called {
            Ok(answer) if matches!(answer.status, 401 | 403 | 407) => Checked::wrong(format!(
                "reached, and the credentials are not accepted: status {}",
                answer.status
            )),
            Ok(answer) if answer.status >= 500 => {
                Checked::wrong(format!("reached, and it answers with status {}", answer.status))
            }
            Ok(answer) => Checked::fine(format!("reached, status {}", answer.status)),
            Err(failed) => Checked::wrong(failed.message()),
        }
    }

    /// Sends a request and reads at most this number of bytes of the answer. Redirects of reads are followed: within the same origin as
    /// they are, elsewhere by `public`, which has no credentials and goes to public addresses only.
    pub async fn call(
        &self,
        public: &Self,
        mut request: Outgoing,
        most: usize,
        replayed: Option<&reqwest::header::HeaderName>,
    ) -> Result<HttpAnswer, CallFailed> {
        let (mut route, is_read) = (self, matches!(request.method, Method::GET | Method::HEAD));
        for _ in 0..=HOPS {
            let response = route.send(request.clone()).await.map_err(|failed| self.cleaned(failed))?;
            let Some(next) =
                (is_read && response.status().is_redirection()).then(|| location(&response)).flatten()
            else {
                return self.read(response, most, replayed).await;
            };
            let next = redirected(&request.url, &next)?;
            if next.origin() != request.url.origin() {
                route = public;
            }
            request.url = next;
        }
        Err(CallFailed::Refused(format!("the answer has led to another address more than {HOPS} times")))
    }

    async fn send(&self, request: Outgoing) -> Result<reqwest::Response, CallFailed> {
        if let Some(policy) = &self.policy {
            check_literal(policy, &request.url)
                .map_err(|refused| CallFailed::Refused(refused.to_string()))?;
        }
        let mut headers = request.headers;
        for (name, value) in &self.headers {
            headers.insert(name.clone(), value.clone());
        }
        let mut building = self.client.request(request.method, request.url).headers(headers);
        if let Some(body) = request.body {
            building = building.body(body);
        }
        building.send().await.map_err(|error| failed(&error))
    }

    async fn read(
        &self,
        mut response: reqwest::Response,
        most: usize,
        replayed: Option<&reqwest::header::HeaderName>,
    ) -> Result<HttpAnswer, CallFailed> {
        let status = response.status().as_u16();
        let replayed = replayed.is_some_and(|name| is_true(response.headers().get(name)));
        let text =
            |name: &str| response.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let headers = RECORDED
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), self.redactor.text(&text(name)?))))
            .collect();
        let (mut bytes, mut is_whole) = (Vec::new(), true);
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if bytes.len() + chunk.len() > most => {
                    bytes.extend_from_slice(&chunk[..most - bytes.len()]);
                    is_whole = false;
                    break;
                }
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(error) => {
                    let why = format!("the answer with status {status} broke off: {}", cause(&error));
                    return Err(self.cleaned(CallFailed::Unknown(why)));
                }
            }
        }
        let (body, json) = self.clean_body(&bytes, is_whole);
        Ok(HttpAnswer { status, headers, replayed, body, json, is_whole })
    }

    /// A body without secrets, as text, and as JSON if it is JSON.
    fn clean_body(&self, bytes: &[u8], is_whole: bool) -> (String, Option<semel::rules::json::Payload>) {
        use semel::rules::json::Payload;
        // A zero byte cannot be kept in a ledger.
        let text = String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}");
        let clean = self.redactor.text(&text);
        let exact = Payload::parse(&text).ok().filter(|_| is_whole);
        let Some(exact) = exact else { return (clean, None) };
        // JSON may have written a secret with escapes, or as a number: it is looked at as values.
        let looked = clean != text || text.contains('\\');
        let Some(value) = looked.then(|| exact.read::<Json>().ok()).flatten() else {
            return (clean, Some(exact));
        };
        let redacted = self.redactor.json(value.clone());
        if redacted == value && clean == text {
            return (clean, Some(exact));
        }
        let json = Payload::of(&redacted).ok();
        (json.as_ref().map_or(clean, |json| json.text().to_owned()), json)
    }

    fn cleaned(&self, failed: CallFailed) -> CallFailed {
        match failed {
            CallFailed::Unreachable(why) => CallFailed::Unreachable(self.redactor.text(&why)),
            CallFailed::Refused(why) => CallFailed::Refused(self.redactor.text(&why)),
            CallFailed::Unknown(why) => CallFailed::Unknown(self.redactor.text(&why)),
            CallFailed::TimedOut(limit) => CallFailed::TimedOut(limit),
        }
    }
}

fn is_true(value: Option<&HeaderValue>) -> bool {
    value.is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"false"))
}

fn location(response: &reqwest::Response) -> Option<String> {
    let location = response.headers().get("location")?;
    Some(String::from_utf8_lossy(location.as_bytes()).into_owned())
}

/// Where a redirect leads.
fn redirected(from: &Url, location: &str) -> Result<Url, CallFailed> {
    let refuse = |why: &str| CallFailed::Refused(format!("the answer leads to another address, {why}"));
    let next = from.join(location).map_err(|_| refuse("which is none"))?;
    let has_credentials = !next.username().is_empty() || next.password().is_some();
    match (from.scheme(), next.scheme()) {
        _ if has_credentials => Err(refuse("which has a password in it")),
        ("https", "http") => Err(refuse("without encryption")),
        (_, "http" | "https") => Ok(next),
        _ => Err(refuse("which is not of HTTP")),
    }
}

/// What an error of the client says about the request.
fn failed(error: &reqwest::Error) -> CallFailed {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(source) = next {
        if let Some(refused) = source.downcast_ref::<NotPublic>() {
            return CallFailed::Refused(refused.to_string());
        }
        next = source.source();
    }
    if error.is_builder() {
        return CallFailed::Refused(format!("the request cannot be sent: {}", cause(error)));
    }
    if error.is_connect() || error.is_dns() {
        return CallFailed::Unreachable(format!("it cannot be reached: {}", cause(error)));
    }
    CallFailed::Unknown(format!("it was sent and not answered: {}", cause(error)))
}

/// The innermost cause, which does not have the address in it.
fn cause(error: &reqwest::Error) -> String {
    if let Some(what) = semel::remote::certificate_problem(error) {
        return format!("its certificate is not trusted: {what}");
    }
    let mut cause: &dyn StdError = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    match cause.source().is_none() && std::ptr::eq(cause, error as &dyn StdError) {
        true => "the client gave up".to_owned(),
        false => cause.to_string(),
    }
}
