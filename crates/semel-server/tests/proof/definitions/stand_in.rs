//! A stand-in for models and for an MCP server, as a process that is killed: it notes each call in a file before it answers, and knows
//! after a restart what it knew before.
//!
//! A model is asked about a place, which is the question itself: `d7 work/models/asked`. Its answers are in [`super::script`].

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use libtest_mimic::Failed;
use semel::clock::{Clock as _, SystemClock, Time};
use semel::testing::Dice;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::deeds::{Called, Deeds};
use super::script;

/// What a stand-in is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StandInPlace {
    pub(crate) port: u16,
    /// File of its calls.
    pub(crate) journal: PathBuf,
    pub(crate) seed: u64,
}

/// Longer questions are none.
const LONGEST: usize = 1 << 20;
/// Longest pause between a call and its answer, so that a kill falls in between.
const SLOW: Duration = Duration::from_millis(80);
/// What a caller that was killed has sent is noted by then.
const SETTLED: Duration = Duration::from_millis(300);

/// A call, as a line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Noted {
    /// Place and path of the step.
    at: String,
    /// Effect key.
    key: String,
    /// Number of what was done; the same for a repetition that was recognised.
    number: u64,
    /// When it was noted, in milliseconds since 1970.
    when: i64,
    /// The request.
    body: Value,
}

struct Journal {
    file: File,
    calls: Vec<Noted>,
}

#[derive(Clone)]
struct StandIn {
    journal: Arc<Mutex<Journal>>,
    dice: Arc<Mutex<Dice>>,
    clock: SystemClock,
}

/// Reads the calls of all lives so far. A call whose line was cut off by a kill was not answered, and does not count.
fn noted(journal: &Path) -> Result<Vec<Noted>, Failed> {
    let text = std::fs::read_to_string(journal)?;
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Answers until the process ends.
pub(crate) async fn stand_in(place: StandInPlace) -> Result<(), Failed> {
    let file = OpenOptions::new().create(true).append(true).open(&place.journal)?;
    let journal = Journal { file, calls: noted(&place.journal)? };
    let life = journal.calls.len();
    let server = StandIn {
        journal: Arc::new(Mutex::new(journal)),
        dice: Arc::new(Mutex::new(Dice::named(place.seed, &format!("stand-in {life}")))),
        clock: SystemClock::new(),
    };
    let listener = TcpListener::bind(("127.0.0.1", place.port)).await?;
    axum::serve(listener, Router::new().fallback(answer).with_state(server)).await?;
    Ok(())
}

impl StandIn {
    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().expect("no holder of the lock panics")
    }

    /// Notes a call, and gives its number. `recognises` is whether a repetition gets the number of the first call.
    fn note(&self, at: &str, key: &str, recognises: bool, body: &Value) -> Result<u64, std::io::Error> {
        let mut journal = self.journal();
        let known = journal.calls.iter().find(|call| recognises && call.at == at && call.key == key);
        let number = match known {
            Some(call) => call.number,
            None => journal.calls.iter().map(|call| call.number).max().unwrap_or_default() + 1,
        };
        let when = self.clock.now().0;
        let call = Noted { at: at.to_owned(), key: key.to_owned(), number, when, body: body.clone() };
        // A line of its own, whatever a kill has left before it.
        journal.file.write_all(format!("\n{}", json!(call)).as_bytes())?;
        journal.calls.push(call);
        Ok(number)
    }

    async fn pause(&self) {
        let millis = self.dice.lock().expect("no holder of the lock panics").below(SLOW.as_millis() as u64);
        self.clock.until(self.clock.now().after(Duration::from_millis(millis))).await;
    }

    /// The number of what was first done at a place; null if nothing was.
    async fn look(&self, at: &Value) -> Value {
        self.clock.until(self.clock.now().after(SETTLED)).await;
        let journal = self.journal();
        json!(journal.calls.iter().find(|call| call.at == *at).map(|call| call.number))
    }

    async fn model(&self, headers: &HeaderMap, question: &Value, of: script::Wire) -> Response {
        let Some((at, round)) = script::asked(question) else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        let path = if round == 0 { format!("{at}/model") } else { format!("{at}/model#{}", round + 1) };
        let Ok(number) = self.note(&path, effect_key(headers), true, question) else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        self.pause().await;
        match script::answer(&at, round, number) {
            Some(said) => answered(&said.encoded(of, round)),
            None => StatusCode::BAD_REQUEST.into_response(),
        }
    }

    /// Embeddings of texts, the first of which is the place itself.
    async fn embeddings(&self, headers: &HeaderMap, question: &Value) -> Response {
        let texts = question["input"].as_array().map(Vec::as_slice).unwrap_or_default();
        let Some(at) = texts.first().and_then(Value::as_str) else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        if self.note(at, effect_key(headers), true, question).is_err() {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
        self.pause().await;
        answered(&script::embeddings(texts.len()))
    }

    async fn tool(&self, message: &Value) -> Response {
        let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
        let params = &message["params"];
        let result = match message["method"].as_str().unwrap_or_default() {
            "tools/call" => {
                let name = params["name"].as_str().unwrap_or_default();
                let at = params["arguments"]["at"].as_str().unwrap_or_default();
                let key = params["_meta"]["semel/effect-key"].as_str().unwrap_or_default();
                let number = match name {
                    // It only reads.
                    "find" => 0,
                    // `push` does whatever it is asked for.
                    _ => match self.note(at, key, name == "book", &params["arguments"]) {
                        Ok(number) => number,
                        Err(_) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
                    },
                };
                self.pause().await;
                json!({"content": [{"type": "text", "text": format!("{name} {number}")}], "structuredContent": {"n": number}})
            }
            method => script::introduction(method),
        };
        answered(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }
}

async fn answer(State(server): State<StandIn>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, LONGEST).await else { return StatusCode::BAD_REQUEST.into_response() };
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    match (parts.method.as_str(), parts.uri.path()) {
        ("POST", "/v1/chat/completions") => {
            server.model(&parts.headers, &body, script::Wire::Completions).await
        }
        ("POST", "/v1/messages") => server.model(&parts.headers, &body, script::Wire::Messages).await,
        ("POST", "/v1/embeddings") => server.embeddings(&parts.headers, &body).await,
        ("POST", "/mcp") => server.tool(&body).await,
        ("POST", "/look") => answered(&server.look(&body).await),
        // Whether it listens.
        ("POST", "/") => answered(&Value::Null),
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

fn effect_key(headers: &HeaderMap) -> &str {
    headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default()
}

fn answered(body: &Value) -> Response {
    ([("content-type", "application/json")], Body::from(body.to_string())).into_response()
}

/// Adds all calls of a stand-in, whose kills are counted as `killed`.
pub(super) fn count(journal: &Path, killed: &'static str, deeds: &mut Deeds) -> Result<(), Failed> {
    let mut first: HashMap<(String, u64), Noted> = HashMap::new();
    for call in noted(journal)? {
        let calls =
            deeds.calls.entry(call.at.clone()).or_insert_with(|| Called { killed, times: Vec::new() });
        calls.times.push(Time(call.when));
        match first.get(&(call.at.clone(), call.number)) {
            None => {
                deeds.add(&call.at, call.number);
                first.insert((call.at.clone(), call.number), call);
            }
            Some(known) => {
                deeds.asked += 1;
                deeds.absorbed += 1;
                if known.body != call.body {
                    deeds.changed.push(format!("{}: {} and {}", call.at, known.body, call.body));
                }
            }
        }
    }
    Ok(())
}
