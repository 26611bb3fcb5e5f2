//! The other side of the connections, as a process that is never killed: it does what is asked of it, counts it, and treats its
//! callers as badly as providers do. What it can do about a repeated request is what the profile of the connection says.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use libtest_mimic::Failed;
use semel::clock::{Clock as _, SystemClock, Time};
use semel::testing::Dice;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// What the provider is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ProviderPlace {
    pub(crate) port: u16,
    pub(crate) seed: u64,
}

/// Longer requests are none.
const LONGEST: usize = 64 * 1024;
/// Longest pause before something is done; no request is done later than that after it came.
const SLOW: Duration = Duration::from_millis(120);
/// How long the search does not find what was done. `settle` of the connections is longer.
const LAG: Duration = Duration::from_millis(200);
/// How long the key of a connection with a window is remembered.
pub(crate) const WINDOW: Duration = Duration::from_secs(1);

/// What was done, by the place and path of the step that asked for it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sales {
    /// Numbers of what was done, one for each time.
    pub(crate) done: BTreeMap<String, Vec<u64>>,
    pub(crate) asked: u64,
    /// Requests that were recognised as repetitions.
    pub(crate) absorbed: u64,
    /// Repetitions that were not the same request.
    pub(crate) changed: Vec<String>,
}

/// A request that was done.
#[derive(Clone)]
struct Known {
    at: String,
    number: u64,
    /// The request without its key.
    body: Value,
    since: Time,
    /// Whether the answer is an error that is given to every repetition.
    failed: bool,
}

#[derive(Default)]
struct Counter {
    sales: Sales,
    /// By connection and key.
    known: HashMap<(String, String), Known>,
    last: u64,
}

/// How a request is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Treatment {
    Plain,
    Slow,
    DoneThenDropped,
    DoneThenError,
    /// Done, and its error is the answer to every repetition.
    DoneThenKeptError,
    ErrorBefore,
    NotNow,
}

struct Provider {
    counter: Mutex<Counter>,
    pending: watch::Sender<usize>,
    dice: Mutex<Dice>,
    clock: SystemClock,
}

/// Answers until the process ends.
pub(crate) async fn provide(place: ProviderPlace) -> Result<(), Failed> {
    let provider = Arc::new(Provider {
        counter: Mutex::default(),
        pending: watch::Sender::new(0),
        dice: Mutex::new(Dice::named(place.seed, "provider")),
        clock: SystemClock::new(),
    });
    let listener = TcpListener::bind(("127.0.0.1", place.port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let provider = provider.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| respond(provider.clone(), request));
            // It ends with an error on purpose, or because the caller was killed.
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

/// Without an answer the line ends.
type Wrong = Box<dyn std::error::Error + Send + Sync>;

/// What a request asks for.
struct Asked {
    method: Method,
    path: String,
    query: String,
    /// `Idempotency-Key`, or `webhook-id`.
    key: Option<String>,
    body: Value,
}

struct Answered {
    status: StatusCode,
    headers: Vec<(&'static str, &'static str)>,
    body: Value,
}

impl Answered {
    fn of(status: StatusCode, body: Value) -> Self {
        Self { status, headers: Vec::new(), body }
    }

    fn ok(body: Value) -> Self {
        Self::of(StatusCode::OK, body)
    }

    fn error() -> Self {
        Self::of(StatusCode::INTERNAL_SERVER_ERROR, json!("something is wrong"))
    }
}

/// A request is carried out even if its caller has died: only so can one arrive too late.
async fn respond(provider: Arc<Provider>, request: Request<Incoming>) -> Result<Response<Body>, Wrong> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let key = header("idempotency-key").or_else(|| header("webhook-id")).map(str::to_owned);
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let body = to_bytes(Body::new(request.into_body()), LONGEST).await?;
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body)? };
    let (path, query) = (uri.path().to_owned(), uri.query().unwrap_or_default().to_owned());
    let asked = Asked { method, path, query, key, body };
    let Answered { status, headers, body } =
        tokio::spawn(async move { provider.answer(asked).await }).await??;
    let mut response = Response::builder().status(status).header("content-type", "application/json");
    for (name, value) in headers {
        response = response.header(name, value);
    }
    Ok(response.body(Body::from(body.to_string()))?)
}

impl Provider {
    fn counter(&self) -> MutexGuard<'_, Counter> {
        self.counter.lock().expect("no holder of the lock panics")
    }

    async fn answer(&self, asked: Asked) -> Result<Answered, Wrong> {
        match (asked.path.trim_start_matches('/').split_once('/'), asked.path.as_str()) {
            // Tells the parent process that it listens.
            (_, "/") => Ok(Answered::ok(json!(null))),
            (_, "/sales") => {
                self.all_done().await?;
                Ok(Answered::ok(serde_json::to_value(&self.counter().sales)?))
            }
            (_, "/asked-by-the-operator") => {
                // Whatever a caller that was killed has sent is done by then.
                self.clock.until(self.clock.now().after(SLOW * 2)).await;
                self.all_done().await?;
                let at = asked.body.as_str().unwrap_or_default().to_owned();
                Ok(Answered::ok(json!(
                    self.counter().sales.done.get(&at).and_then(|numbers| numbers.first())
                )))
            }
            (Some((connection, "effects")), _) if asked.method == Method::POST => {
                self.effect(connection, &asked).await
            }
            (Some((connection, "found")), _) => Ok(self.found(connection, &asked.query)),
            (Some((_, "prices")), _) if self.draw().0 == Treatment::ErrorBefore => Ok(Answered::error()),
            (Some((_, "prices")), _) => Ok(Answered::ok(json!({"n": 1}))),
            (Some((_, "refused")), _) => {
                Ok(Answered::of(StatusCode::UNPROCESSABLE_ENTITY, json!({"why": "no"})))
            }
            _ => Ok(Answered::of(StatusCode::NOT_FOUND, json!(asked.path))),
        }
    }

    async fn all_done(&self) -> Result<(), Wrong> {
        self.pending.subscribe().wait_for(|pending| *pending == 0).await?;
        Ok(())
    }

    fn draw(&self) -> (Treatment, Duration) {
        let mut dice = self.dice.lock().expect("no holder of the lock panics");
        let treatment = match dice.below(1000) {
            0..30 => Treatment::DoneThenDropped,
            30..50 => Treatment::DoneThenError,
            50..60 => Treatment::DoneThenKeptError,
            60..75 => Treatment::ErrorBefore,
            75..95 => Treatment::NotNow,
            95..170 => Treatment::Slow,
            _ => Treatment::Plain,
        };
        let pause = match treatment {
            Treatment::Slow => Duration::from_millis(dice.between(5, SLOW.as_millis() as u64)),
            _ => Duration::ZERO,
        };
        (treatment, pause)
    }

    async fn effect(&self, connection: &str, asked: &Asked) -> Result<Answered, Wrong> {
        let _pending = Pending::new(&self.pending);
        let (mut treatment, pause) = self.draw();
        // Only the connection that says so keeps errors.
        if treatment == Treatment::DoneThenKeptError && connection != "kept" {
            treatment = Treatment::DoneThenError;
        }
        self.counter().sales.asked += 1;
        match treatment {
            Treatment::ErrorBefore => return Ok(Answered::error()),
            Treatment::NotNow => {
                let mut answered = Answered::of(StatusCode::SERVICE_UNAVAILABLE, json!("not now"));
                answered.headers.push(("retry-after", "0"));
                return Ok(answered);
            }
            _ => self.clock.until(self.clock.now().after(pause)).await,
        }
        let answered = self.carry_out(connection, asked, treatment == Treatment::DoneThenKeptError);
        match treatment {
            Treatment::DoneThenDropped => Err("the answer is lost on purpose".into()),
            Treatment::DoneThenError => Ok(Answered::error()),
            _ => Ok(answered),
        }
    }

    /// Does it, unless the key says that it was done before.
    fn carry_out(&self, connection: &str, asked: &Asked, failed: bool) -> Answered {
        let now = self.clock.now();
        let mut body = asked.body.clone();
        // A webhook has what the author says in `data`.
        let at = ["/at", "/data/at"].iter().find_map(|at| body.pointer(at)?.as_str()).unwrap_or_default();
        let at = at.to_owned();
        let in_body = body.as_object_mut().and_then(|body| body.remove("reference"));
        let in_body = in_body.and_then(|key| key.as_str().map(str::to_owned));
        let mut counter = self.counter();
        let name = asked.key.clone().or(in_body).map(|key| (connection.to_owned(), key));
        // A provider with a look-up, or with nothing, does whatever it is asked for.
        let recognises = !matches!(connection, "look-up" | "nothing");
        let known = name.as_ref().filter(|_| recognises).and_then(|name| counter.known.get(name)).cloned();
        let is_forgotten =
            |known: &Known| matches!(connection, "window" | "found") && now >= known.since.after(WINDOW);
        if let Some(known) = known.filter(|known| !is_forgotten(known)) {
            counter.sales.absorbed += 1;
            if (&known.at, &known.body) != (&at, &body) {
                counter.sales.changed.push(format!("{at}: {} and {body}", known.body));
            }
            let mut answered = match connection {
                "repeated" => Answered::of(StatusCode::BAD_REQUEST, json!({"code": "duplicate"})),
                _ if known.failed => Answered::error(),
                _ => Answered::ok(json!({"n": known.number})),
            };
            answered.headers.push(("idempotent-replayed", "true"));
            return answered;
        }
        counter.last += 1;
        let number = counter.last;
        counter.sales.done.entry(at.clone()).or_default().push(number);
        if let Some(name) = name {
            counter.known.insert(name, Known { at, number, body, since: now, failed });
        }
        if failed { Answered::error() } else { Answered::ok(json!({"n": number})) }
    }

    /// A search by reference, which lags behind.
    fn found(&self, connection: &str, query: &str) -> Answered {
        let key = query.strip_prefix("reference=").unwrap_or_default();
        let counter = self.counter();
        let known = counter.known.get(&(connection.to_owned(), key.to_owned()));
        let now = self.clock.now();
        let found: Vec<Value> = known
            .filter(|known| now >= known.since.after(LAG))
            .map(|known| json!({"n": known.number}))
            .into_iter()
            .collect();
        Answered::ok(json!({ "found": found }))
    }
}

/// A request that is under way, as long as this is there.
struct Pending<'a>(&'a watch::Sender<usize>);

impl<'a> Pending<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
