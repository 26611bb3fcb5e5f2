//! The client of the servers, which does not give up: a call without an answer is repeated at the next server,
//! under the same key.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Failed;
use reqwest::Method;
use semel::clock::{Clock as _, SystemClock};
use serde_json::Value;

use crate::findings::{Findings, Sort};
use crate::outside::client;

/// How long an answer may take beyond the wait that the call asks for: a server that is stopped gives none.
const ANSWER: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(25);
/// Nothing stays away for that long.
const PATIENCE: Duration = Duration::from_mins(1);

/// The servers.
#[derive(Clone)]
pub(crate) struct Api {
    http: reqwest::Client,
    servers: Arc<Vec<String>>,
    clock: SystemClock,
    findings: Arc<Findings>,
}

/// What comes of one call.
enum Answer {
    /// An answer, whole.
    Whole(u16, Value),
    /// The outcome is unknown, and why.
    Lost(String),
}

/// A question.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// The server that is asked first.
    pub(crate) server: usize,
    pub(crate) method: Method,
    pub(crate) path: String,
    /// The header `Idempotency-Key`.
    pub(crate) key: Option<String>,
    pub(crate) body: Option<Value>,
    /// How long the answer may be waited for, as the question says.
    pub(crate) wait: Duration,
}

impl Question {
    pub(crate) fn get(server: usize, path: impl Into<String>) -> Self {
        let (method, path, wait) = (Method::GET, path.into(), Duration::ZERO);
        Self { server, method, path, key: None, body: None, wait }
    }

    pub(crate) fn post(server: usize, path: impl Into<String>, key: &str, body: Value) -> Self {
        let (key, body) = (Some(key.to_owned()), Some(body));
        Self { method: Method::POST, key, body, ..Self::get(server, path) }
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Value,
    /// Who has answered.
    pub(crate) server: usize,
    /// Whether an earlier try of the same call had an unknown outcome.
    pub(crate) repeated: bool,
}

impl Reply {
    pub(crate) fn is_ok(&self) -> bool {
        matches!(self.status, 200 | 201)
    }

    pub(crate) fn text(&self, pointer: &str) -> String {
        self.body.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

impl Api {
    pub(crate) fn new(servers: Vec<String>, findings: Arc<Findings>) -> Self {
        Self { http: client(), servers: Arc::new(servers), clock: SystemClock::new(), findings }
    }

    pub(crate) fn servers(&self) -> usize {
        self.servers.len()
    }

    /// Repeats the call until the answer is another than that the store is unavailable. (No key has a rate limit here.)
    pub(crate) async fn ask(&self, question: &Question) -> Result<Reply, Failed> {
        let end = self.clock.now().after(PATIENCE + question.wait);
        let mut said = String::new();
        for try_ in 0.. {
            let server = (question.server + try_) % self.servers.len();
            match self.ask_once(server, question).await? {
                Answer::Whole(status, body) if !is_unavailable(status, &body) => {
                    if status >= 500 {
                        let said = format!("{} is answered with {status} {body}", question.method);
                        self.findings.add(Sort::Wrong, "of any", &question.path, said);
                    }
                    return Ok(Reply { status, body, server, repeated: try_ > 0 });
                }
                Answer::Whole(status, body) => said = format!("{status} {body}"),
                Answer::Lost(why) => said = why,
            }
            if self.clock.now() > end {
                break;
            }
            self.clock.until(self.clock.now().after(PAUSE)).await;
        }
        Err(format!("no answer to {} {}: {said}", question.method, question.path).into())
    }

    /// Pushes a definition, which is text and not JSON.
    pub(crate) async fn push(&self, text: &str) -> Result<Reply, Failed> {
        let url = format!("{}/api/v1/workflow-definitions", self.servers[0]);
        let response = self.http.post(url).timeout(ANSWER).body(text.to_owned()).send().await?;
        let (status, text) = (response.status().as_u16(), response.text().await?);
        Ok(Reply { status, body: serde_json::from_str(&text)?, server: 0, repeated: false })
    }

    async fn ask_once(&self, server: usize, question: &Question) -> Result<Answer, Failed> {
        let url = format!("{}/api/v1{}", self.servers[server], question.path);
        let mut request = self.http.request(question.method.clone(), url).timeout(ANSWER + question.wait);
        if let Some(key) = &question.key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = &question.body {
            request = request.body(body.to_string());
        }
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Ok(Answer::Lost(error.to_string())),
        };
        let (status, text) = (response.status().as_u16(), response.text().await);
        // An answer that was cut off is lost; one that came as a whole can be read.
        let text = match text {
            Ok(text) => text,
            Err(error) => return Ok(Answer::Lost(error.to_string())),
        };
        serde_json::from_str(&text).map(|body| Answer::Whole(status, body)).map_err(|error| {
            let said = format!("{} is answered with {status} {text:?}: {error}", question.method);
            self.findings.add(Sort::Wrong, "of any", &question.path, said.clone());
            said.into()
        })
    }
}

/// What a server says whose store does not answer. A request that has panicked is answered with the same code, and is not.
fn is_unavailable(status: u16, body: &Value) -> bool {
    let defect = body["detail"].as_str().is_some_and(|detail| detail.contains("defect"));
    status == 503 && body["code"] == "UNAVAILABLE" && !defect
}
