//! Callers that start runs all the time, repeat calls until they are answered, and remember every answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libtest_mimic::Failed;
use reqwest::Client;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Longest time without an answer: beyond it, something hangs.
const PATIENCE: Duration = Duration::from_secs(90);
/// An answer that takes longer is given up, and asked for again.
const ANSWER: Duration = Duration::from_secs(20);
/// Before a call that failed is made again.
const PAUSE: Duration = Duration::from_millis(20);
/// Runs that are asked for again in one call.
const CHECKED: usize = 500;

/// Key and run of every start that was answered with 2xx.
pub(crate) type Started = HashMap<String, String>;

/// Callers at work.
pub(crate) struct Starters {
    started: Arc<Mutex<Started>>,
    count: watch::Sender<usize>,
    stop: watch::Sender<bool>,
    callers: JoinSet<Result<(), Failed>>,
}

impl Starters {
    /// So many callers, each with one of the servers.
    pub(crate) fn begin(servers: &[String], callers: usize) -> Self {
        let mut starters = Self {
            started: Arc::default(),
            count: watch::Sender::new(0),
            stop: watch::Sender::new(false),
            callers: JoinSet::new(),
        };
        for (caller, base) in (0..callers).zip(servers.iter().cycle()) {
            let caller = Caller {
                name: caller.to_string(),
                base: base.clone(),
                client: client(),
                started: starters.started.clone(),
                count: starters.count.clone(),
                stop: starters.stop.subscribe(),
            };
            starters.callers.spawn(caller.work());
        }
        starters
    }

    /// Waits until so many more starts are answered.
    pub(crate) async fn more(&mut self, starts: usize) -> Result<(), Failed> {
        let mut count = self.count.subscribe();
        let enough = *count.borrow() + starts;
        let waited = tokio::time::timeout(PATIENCE, async {
            tokio::select! {
                counted = count.wait_for(|count| *count >= enough) => counted.map(drop).map_err(Failed::from),
                Some(ended) = self.callers.join_next() => match ended {
                    Ok(ended) => ended.and(Err("a caller has gone home".into())),
                    Err(error) => Err(error.into()),
                },
            }
        });
        waited
            .await
            .map_err(|_| Failed::from(format!("{} of {enough} starts are answered", *self.count.borrow())))?
    }

    /// Waits for the last answers, and gives all of them.
    pub(crate) async fn end(mut self) -> Result<Started, Failed> {
        self.stop.send_replace(true);
        while let Some(ended) = self.callers.join_next().await {
            ended??;
        }
        Ok(std::mem::take(&mut *self.started.lock().map_err(|_| "a caller has panicked")?))
    }
}

struct Caller {
    name: String,
    base: String,
    client: Client,
    started: Arc<Mutex<Started>>,
    count: watch::Sender<usize>,
    stop: watch::Receiver<bool>,
}

impl Caller {
    async fn work(mut self) -> Result<(), Failed> {
        for n in 0.. {
            let key = format!("{}-{n}", self.name);
            let Some(run) = self.ask(&key).await? else { break };
            self.started.lock().map_err(|_| "another caller has panicked")?.insert(key, run);
            self.count.send_modify(|count| *count += 1);
        }
        Ok(())
    }

    /// Asks until there is an answer; none when all is over.
    async fn ask(&mut self, key: &str) -> Result<Option<String>, Failed> {
        while !*self.stop.borrow() {
            match start(&self.client, &self.base, key).await? {
                Answer::Run(run, _) => return Ok(Some(run)),
                Answer::Unavailable(_) | Answer::Lost => {}
            }
            drop(tokio::time::timeout(PAUSE, self.stop.wait_for(|stop| *stop)).await);
        }
        Ok(None)
    }
}

/// A client of such a server.
pub(crate) fn client() -> Client {
    // The first of several callers installs it; all of them want the same.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().timeout(ANSWER).build().expect("a client can be made")
}

/// What comes of a start.
#[derive(Debug)]
pub(crate) enum Answer {
    /// 2xx: this is the run, and it is new or not.
    Run(String, Novelty),
    /// 503 with the code `UNAVAILABLE`, and why.
    Unavailable(String),
    /// The outcome is unknown.
    Lost,
}

/// Whether a start has made its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Novelty {
    Created,
    Found,
}

fn asked(key: &str) -> Value {
    json!({"workflow": "order", "idempotencyKey": key, "input": {"cents": 1999}})
}

/// Starts a run. Any answer but success and `UNAVAILABLE` is an error.
pub(crate) async fn start(client: &Client, base: &str, key: &str) -> Result<Answer, Failed> {
    let request = client.post(format!("{base}/api/v1/workflow-runs")).body(asked(key).to_string());
    let Ok(response) = request.send().await else { return Ok(Answer::Lost) };
    let status = response.status().as_u16();
    let Ok(text) = response.text().await else { return Ok(Answer::Lost) };
    let answer: Value = serde_json::from_str(&text).map_err(|error| format!("{status}: {error}: {text}"))?;
    match (status, answer["run"]["id"].as_str(), answer["code"].as_str()) {
        (201, Some(run), _) => Ok(Answer::Run(run.to_owned(), Novelty::Created)),
        (200, Some(run), _) => Ok(Answer::Run(run.to_owned(), Novelty::Found)),
        (503, _, Some("UNAVAILABLE")) => {
            Ok(Answer::Unavailable(answer["detail"].as_str().unwrap_or_default().to_owned()))
        }
        _ => Err(format!("{status}: {text}").into()),
    }
}

/// Every start that was answered finds its run again.
pub(crate) async fn assert_all_there(base: &str, started: &Started) -> Result<(), Failed> {
    let (client, started) = (client(), started.iter().collect::<Vec<_>>());
    for some in started.chunks(CHECKED) {
        let runs: Vec<_> = some.iter().map(|(key, _)| asked(key)).collect();
        let body = json!({ "runs": runs }).to_string();
        let response = client.post(format!("{base}/api/v1/workflow-runs/batch")).body(body).send().await?;
        let answer: Value = serde_json::from_str(&response.text().await?)?;
        let results = answer["results"].as_array().ok_or_else(|| format!("no results: {answer}"))?;
        if results.len() != some.len() {
            return Err(format!("{} starts are answered with {} results", some.len(), results.len()).into());
        }
        for ((key, run), result) in some.iter().zip(results) {
            if result["status"] != 200 || result["start"]["run"]["id"] != json!(run) {
                return Err(format!("{key} was answered with {run}, and is now {result}").into());
            }
        }
    }
    Ok(())
}
