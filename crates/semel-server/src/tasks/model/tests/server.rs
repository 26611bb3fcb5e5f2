//! A server that plays a model, a shop and an MCP server. It has a thread of its own and survives every crash of an engine, and it
//! counts calls by their effect keys.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value as Json, json};
use tokio::sync::{Notify, oneshot};

/// What the model says: by the number of its messages so far, how often this question was asked before, and the question.
pub(super) type Script = fn(usize, usize, &Json) -> Say;

/// What a model says.
pub(super) enum Say {
    /// A text.
    Text(String),
    /// Calls of tools.
    Tools(Vec<(&'static str, Json)>),
    /// A text that ends early, for this reason.
    Cut(String, &'static str),
    /// Any answer: status, `Retry-After`, body.
    Raw(u16, Option<&'static str>, String),
    /// The answer breaks off.
    Lost,
    /// There is never an answer.
    Silent,
}

/// A call as it was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counted {
    what: String,
    key: String,
}

#[derive(Clone)]
pub(super) struct Scripted(Arc<Inner>);

struct Inner {
    address: SocketAddr,
    script: Script,
    calls: Mutex<Vec<Counted>>,
    /// Bodies of the questions.
    questions: Mutex<Vec<Json>>,
    /// The session of the MCP server: another one after each start.
    life: AtomicUsize,
    /// The call whose answer waits: what, and which of them.
    held: Mutex<Option<(&'static str, usize)>>,
    arrived: Notify,
    released: Notify,
    _stop: oneshot::Sender<()>,
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.calls())
    }
}

impl Scripted {
    pub(super) fn start(script: Script) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let (stop, stopped) = oneshot::channel();
        let inner = Inner {
            address: listener.local_addr().unwrap(),
            script,
            calls: Mutex::default(),
            questions: Mutex::default(),
            life: AtomicUsize::new(1),
            held: Mutex::default(),
            arrived: Notify::new(),
            released: Notify::new(),
            _stop: stop,
        };
        let server = Self(Arc::new(inner));
        // The thread must not keep alive what stops it.
        let weak = Arc::downgrade(&server.0);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let router = Router::new().fallback(answer).with_state(weak);
                tokio::select! {
                    served = axum::serve(listener, router).into_future() => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        server
    }

    pub(super) fn base(&self) -> String {
        format!("http://{}", self.0.address)
    }

    fn calls(&self) -> MutexGuard<'_, Vec<Counted>> {
        self.0.calls.lock().unwrap()
    }

    /// How often this was called.
    pub(super) fn count(&self, what: &str) -> usize {
        self.calls().iter().filter(|call| call.what == what).count()
    }

    /// The keys under which this was called, each once, in the order of the first calls.
    pub(super) fn keys(&self, what: &str) -> Vec<String> {
        let mut keys: Vec<String> = Vec::new();
        for call in self.calls().iter().filter(|call| call.what == what) {
            if !keys.contains(&call.key) {
                keys.push(call.key.clone());
            }
        }
        keys
    }

    /// How often the key that was called most was called.
    pub(super) fn most(&self) -> usize {
        let calls = self.calls();
        calls.iter().map(|call| calls.iter().filter(|other| *other == call).count()).max().unwrap_or_default()
    }

    /// The bodies of the questions to the model.
    pub(super) fn questions(&self) -> Vec<Json> {
        self.0.questions.lock().unwrap().clone()
    }

    /// The MCP server is started again: it knows no session of before.
    pub(super) fn restart(&self) {
        self.0.life.fetch_add(1, Ordering::SeqCst);
    }

    /// Lets the n-th call of this wait for [`Self::release`].
    pub(super) fn hold(&self, what: &'static str, n: usize) {
        *self.0.held.lock().unwrap() = Some((what, n));
    }

    /// Waits until the call is there whose answer waits.
    pub(super) async fn arrived(&self) {
        self.0.arrived.notified().await;
    }

    pub(super) fn release(&self) {
        self.0.released.notify_one();
    }

    /// Counts a call, and says how often the same was called before.
    async fn note(&self, what: &str, key: &str) -> usize {
        let before = self.counted(what, key);
        let is_held = self.0.held.lock().unwrap().is_some_and(|held| held == (what, self.count(what)));
        if is_held {
            self.0.arrived.notify_one();
            self.0.released.notified().await;
        }
        before
    }

    fn counted(&self, what: &str, key: &str) -> usize {
        let call = Counted { what: what.to_owned(), key: key.to_owned() };
        let mut calls = self.calls();
        let before = calls.iter().filter(|other| **other == call).count();
        calls.push(call);
        before
    }
}

async fn answer(State(server): State<std::sync::Weak<Inner>>, request: Request) -> Response {
    let Some(server) = server.upgrade().map(Scripted) else { return StatusCode::GONE.into_response() };
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 4 << 20).await.unwrap();
    let body: Json = serde_json::from_slice(&body).unwrap_or_default();
    match (parts.method.as_str(), parts.uri.path()) {
        ("POST", "/v1/chat/completions") => model(&server, &parts.headers, &body, openai).await,
        ("POST", "/v1/messages") => {
            assert_eq!(parts.headers["anthropic-version"], "2023-06-01");
            model(&server, &parts.headers, &body, anthropic).await
        }
        ("POST", "/v1/embeddings") => {
            let again = server.note("embeddings", &key(&parts.headers)).await;
            if again == 0 {
                return lost();
            }
            let texts = body["input"].as_array().unwrap().iter();
            let vectors = texts
                .enumerate()
                .map(|(at, text)| json!({"index": at, "embedding": [text.as_str().unwrap().len(), 1]}));
            answered(&json!({"data": vectors.collect::<Vec<_>>(), "usage": {"prompt_tokens": 3}}))
                .into_response()
        }
        ("POST", "/mcp") => mcp(&server, &parts.headers, &body).await,
        ("POST", path) => match path.strip_prefix("/effects/") {
            Some(name) => {
                let again = server.note(name, &key(&parts.headers)).await;
                answered(&json!({"n": body["n"], "again": again > 0}))
            }
            None => StatusCode::NOT_FOUND.into_response(),
        },
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

/// An answer of JSON.
fn answered(body: &Json) -> Response {
    ([("content-type", "application/json")], body.to_string()).into_response()
}

fn key(headers: &HeaderMap) -> String {
    headers.get("idempotency-key").map(|key| key.to_str().unwrap().to_owned()).unwrap_or_default()
}

type Encoding = fn(&Say, usize) -> Json;

async fn model(server: &Scripted, headers: &HeaderMap, question: &Json, encode: Encoding) -> Response {
    let round = question["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "assistant")
        .count();
    let again = server.note("model", &key(headers)).await;
    server.0.questions.lock().unwrap().push(question.clone());
    let said = (server.0.script)(round, again, question);
    match &said {
        Say::Raw(status, retry_after, body) => {
            let mut response = (StatusCode::from_u16(*status).unwrap(), body.clone()).into_response();
            if let Some(pause) = retry_after {
                response.headers_mut().insert("retry-after", pause.parse().unwrap());
            }
            response
        }
        Say::Lost => lost(),
        Say::Silent => std::future::pending().await,
        _ => answered(&encode(&said, round)),
    }
}

/// An answer that breaks off.
fn lost() -> Response {
    let broken: Result<String, std::io::Error> = Err(std::io::Error::other("the line is cut"));
    Response::new(Body::from_stream(stream::iter([broken])))
}

fn openai(said: &Say, round: usize) -> Json {
    let (message, end) = match said {
        Say::Tools(calls) => {
            let call = |(at, (name, arguments)): (usize, &(&str, Json))| {
                json!({"id": format!("c{round}-{at}"), "type": "function",
                "function": {"name": name, "arguments": arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned)}})
            };
            (
                json!({"role": "assistant", "content": null, "tool_calls": calls.iter().enumerate().map(call).collect::<Vec<_>>()}),
                "tool_calls",
            )
        }
        Say::Cut(text, why) => (json!({"role": "assistant", "content": text}), *why),
        Say::Text(text) => (json!({"role": "assistant", "content": text}), "stop"),
        _ => unreachable!("it is answered elsewhere"),
    };
    json!({"choices": [{"message": message, "finish_reason": end}], "usage": {"prompt_tokens": 100, "completion_tokens": 10}})
}

fn anthropic(said: &Say, round: usize) -> Json {
    let (content, end) = match said {
        Say::Tools(calls) => {
            let call = |(at, (name, input)): (usize, &(&str, Json))| json!({"type": "tool_use", "id": format!("c{round}-{at}"), "name": name, "input": input});
            (calls.iter().enumerate().map(call).collect::<Vec<_>>(), "tool_use")
        }
        Say::Cut(text, why) => (vec![json!({"type": "text", "text": text})], *why),
        Say::Text(text) => (vec![json!({"type": "text", "text": text})], "end_turn"),
        _ => unreachable!("it is answered elsewhere"),
    };
    json!({"content": content, "stop_reason": end, "usage": {"input_tokens": 100, "output_tokens": 10}})
}

/// Four tools: `find` reads, `book` has an argument for the key, `push` has nothing, `fails` fails. The first answer to a `book` is lost.
async fn mcp(server: &Scripted, headers: &HeaderMap, message: &Json) -> Response {
    let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
    let session = server.0.life.load(Ordering::SeqCst).to_string();
    if headers.get("mcp-session-id").is_some_and(|given| *given != *session) {
        let error = json!({"code": -32000, "message": "Bad Request: No valid session ID provided"});
        let body = answered(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
        return (StatusCode::BAD_REQUEST, body).into_response();
    }
    let result = match message["method"].as_str().unwrap() {
        "initialize" => {
            let result = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "crm", "version": "1"}});
            let body = answered(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
            return ([("mcp-session-id", session)], body).into_response();
        }
        "tools/list" => {
            let tool = |name: &str| {
                json!({"name": name, "description": format!("To {name}."),
                "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}})
            };
            let tools = ["find", "book", "push", "fails"].map(tool);
            json!({"tools": tools})
        }
        "tools/call" => {
            let (name, arguments) =
                (message["params"]["name"].as_str().unwrap(), &message["params"]["arguments"]);
            let key = message["params"]["_meta"]["semel/effect-key"].as_str().unwrap();
            let again = server.note(name, key).await;
            match name {
                "book" => assert_eq!(arguments["request"], key, "the key is in the argument, too"),
                "gone" => return StatusCode::OK.into_response(),
                "session-of-its-own" => {
                    let error = json!({"code": -32000, "message": "the session of the customer has ended"});
                    return answered(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
                }
                "lost" => return lost(),
                "unknown" => {
                    let error = json!({"code": -32602, "message": "there is no such tool"});
                    return answered(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
                }
                _ => {}
            }
            if name == "book" && again == 0 {
                return lost();
            }
            let content = json!([{"type": "text", "text": format!("{name} of {}", arguments["n"])}]);
            json!({"content": content, "structuredContent": {"n": arguments["n"]}, "isError": name == "fails"})
        }
        other => panic!("{other}"),
    };
    answered(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
}
