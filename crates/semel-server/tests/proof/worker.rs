//! The process that is killed and stopped: a remote engine that executes programs, and does the steps of a queue.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Failed;
use semel::clock::{Clock as _, SystemClock};
use semel::id::NodeId;
use semel::remote::{Options, RemoteStore};
use semel::store::Store;
use semel::{Engine, Limits};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::execute::{QUEUE, Rows, WORKFLOW, execute};
use crate::outside::{Ask, Outside, client};
use crate::program::Kind;
use crate::{poison, restarts};

/// What a worker is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) server: String,
    pub(crate) recorder: String,
    pub(crate) rows: String,
    pub(crate) lease: Duration,
}

/// How long a call may take: a server that is stopped gives no answer.
const ANSWER: Duration = Duration::from_secs(3);
/// Between two tries to reach a server that is not there.
const PAUSE: Duration = Duration::from_millis(100);

/// Works until it is killed.
pub(crate) async fn work(place: Place) -> Result<(), Failed> {
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::WARN)
        .init();
    let clock = SystemClock::new();
    let (outside, rows) = (Outside::new(place.recorder.clone()), Rows::open(&place.rows).await?);
    let engine = loop {
        match open(&place, &outside, &rows).await {
            Ok(engine) => break engine,
            Err(error) => tracing::warn!(%error, "there is no server yet"),
        }
        clock.until(clock.now().after(PAUSE)).await;
    };
    serve(&place, &outside, &clock).await?;
    drop(engine);
    Ok(())
}

async fn open(place: &Place, outside: &Outside, rows: &Rows) -> semel::error::Result<Engine> {
    let store = RemoteStore::open(Options { timeout: ANSWER, ..Options::new(&place.server) }).await?;
    let store: Arc<dyn Store> = Arc::new(store);
    let limits = Limits { lease: place.lease, ..Limits::default() };
    Engine::builder()
        .store(store)
        .state(outside.clone())
        .state(rows.clone())
        .workflow(WORKFLOW, execute)
        .workflow(restarts::LETTERS, restarts::write)
        .workflow(poison::POISON, poison::kill)
        .limits(limits)
        .open()
        .await
}

/// A step in the hands of this worker.
#[derive(Clone, Debug, Deserialize)]
struct Task {
    run: String,
    step: String,
    /// The place of the program.
    input: String,
    key: String,
    attempt: u32,
    fence: u64,
}

/// Takes steps from the queue and does them. If an answer is lost it goes on under another id, as engines do.
async fn serve(place: &Place, outside: &Outside, clock: &SystemClock) -> Result<(), Failed> {
    let desk = Desk { http: client(), base: format!("{}/api/v1/workers", place.server) };
    let lease = place.lease.as_millis() as u64;
    loop {
        let node = NodeId(clock.uuid()).to_string();
        let join = json!({"node": node, "name": "queue", "serves": [], "leaseMs": lease});
        let mut alive = desk.post("", &join).await.is_ok();
        while alive {
            let take = json!({"node": node, "queues": [QUEUE], "limit": 10, "waitMs": lease / 4});
            alive = match desk.post("/steps/claim", &take).await {
                Ok(taken) => {
                    let tasks: Vec<Task> = serde_json::from_value(taken["steps"].clone())?;
                    for task in tasks {
                        tokio::spawn(desk.clone().perform(outside.clone(), *clock, task));
                    }
                    desk.post("/heartbeat", &json!({"node": node, "leaseMs": lease})).await.is_ok()
                }
                Err(_) => false,
            };
        }
        clock.until(clock.now().after(PAUSE)).await;
    }
}

/// The server's routes for workers.
#[derive(Clone)]
struct Desk {
    http: reqwest::Client,
    base: String,
}

impl Desk {
    async fn post(&self, path: &str, body: &Value) -> Result<Value, Failed> {
        let request = self.http.post(format!("{}{path}", self.base)).timeout(ANSWER).body(body.to_string());
        let response = request.send().await?;
        let (status, text) = (response.status(), response.text().await?);
        match status.is_success() {
            true => Ok(serde_json::from_str(&text)?),
            false => Err(format!("{status}: {text}").into()),
        }
    }

    async fn perform(self, outside: Outside, clock: SystemClock, task: Task) {
        let Task { run, step, input, key, attempt, fence } = task;
        let ask =
            Ask { at: format!("{input} {step}"), run: run.clone(), key, fence, attempt, kind: Kind::Keyed };
        let (path, report) = match outside.effect(&ask).await {
            Ok(number) => ("/steps/complete", json!({"run": run, "fence": fence, "value": number})),
            Err(fail) => ("/steps/fail", json!({"run": run, "fence": fence, "message": fail.to_string()})),
        };
        // Until the report is answered: the step is this worker's for as long as the worker lives. A repeated report is
        // absorbed, or refused.
        while self.post(path, &json!({ "steps": [report] })).await.is_err() {
            clock.until(clock.now().after(PAUSE)).await;
        }
    }
}
