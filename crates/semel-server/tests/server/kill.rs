//! A server that is killed under load: what it has answered with 2xx is there afterwards.
//!
//! `SEMEL_KILLS` says how often; `make kill` is the long version.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use libtest_mimic::Trial;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::process::Process;
use crate::world::{Api, runtime};

/// Concurrent callers: half of them start runs one by one, half of them in batches.
const CALLERS: usize = 16;
const BATCH: usize = 10;
/// Runs that are asked for again in one call.
const CHECKED: usize = 500;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("kill::every_start_that_was_answered_exists_after_a_kill", || {
        runtime().block_on(siege());
        Ok(())
    })]
}

/// What the callers share.
#[derive(Default)]
struct Answers {
    /// Key and run of every start that was answered with 2xx.
    started: Mutex<Vec<(String, String)>>,
    count: AtomicUsize,
    more: Notify,
}

async fn siege() {
    let kills: u32 = std::env::var("SEMEL_KILLS").map_or(5, |kills| kills.parse().expect("a number"));
    let folder = tempfile::tempdir().expect("a folder for the file");
    let store = format!("sqlite:{}", folder.path().join("semel.db").display());
    let (answers, mut random) = (Arc::new(Answers::default()), 0x5eed_u32);
    for life in 0..=kills {
        let mut server = Process::serve(&["--store", &store], &[("SEMEL_AUTH", "none")]);
        let api = Api::at(server.base());
        check(&api, &answers).await;
        if life == kills {
            break;
        }
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let enough = answers.count.load(Ordering::SeqCst) + 50 + (random >> 16) as usize % 500;
        let mut callers = tokio::task::JoinSet::new();
        for caller in 0..CALLERS {
            callers.spawn(load(api.clone(), answers.clone(), format!("{life}-{caller}"), caller % 2 == 0));
        }
        loop {
            let told = answers.more.notified();
            if answers.count.load(Ordering::SeqCst) >= enough {
                break;
            }
            told.await;
        }
        server.kill();
        while callers.join_next().await.is_some() {}
    }
    let started = answers.started.lock().expect("no holder panics").len();
    assert!(started >= kills as usize * 50);
    println!("{kills} kills, {started} starts, all there");
}

fn start(key: &str) -> Value {
    json!({"workflow": "order", "idempotencyKey": key, "input": {"cents": 1999}})
}

/// Starts runs until the server answers no more.
async fn load(api: Api, answers: Arc<Answers>, name: String, batched: bool) {
    for n in 0.. {
        let keys: Vec<String> = match batched {
            true => (0..BATCH).map(|place| format!("{name}-{n}-{place}")).collect(),
            false => vec![format!("{name}-{n}")],
        };
        let Some(runs) = call(&api, &keys, batched).await else { return };
        answers.count.fetch_add(runs.len(), Ordering::SeqCst);
        answers.started.lock().expect("no holder panics").extend(keys.into_iter().zip(runs));
        answers.more.notify_one();
    }
}

/// The ids of the runs; none if the answer was cut off.
async fn call(api: &Api, keys: &[String], batched: bool) -> Option<Vec<String>> {
    let (path, body) = match batched {
        true => {
            let runs: Vec<_> = keys.iter().map(|key| start(key)).collect();
            ("/workflow-runs/batch", json!({ "runs": runs }))
        }
        false => ("/workflow-runs", start(&keys[0])),
    };
    let response = api.request(Method::POST, path).body(body.to_string()).send().await.ok()?;
    let (status, text) = (response.status().as_u16(), response.text().await.ok()?);
    assert!(matches!(status, 200 | 201), "{status}: {text}");
    let answer: Value = serde_json::from_str(&text).expect("a whole answer is JSON");
    let id = |start: &Value| start["run"]["id"].as_str().expect("every start has its run").to_owned();
    Some(match answer["results"].as_array() {
        Some(results) => results.iter().map(|result| id(&result["start"])).collect(),
        None => vec![id(&answer)],
    })
}

/// Every start that was answered finds its run again.
async fn check(api: &Api, answers: &Answers) {
    let started = answers.started.lock().expect("no holder panics").clone();
    for some in started.chunks(CHECKED) {
        let starts: Vec<_> = some.iter().map(|(key, _)| start(key)).collect();
        let reply = api.post("/workflow-runs/batch", json!({ "runs": starts }).to_string()).await;
        let answer = reply.ok();
        for ((key, run), result) in some.iter().zip(answer["results"].as_array().expect("a list")) {
            assert_eq!(result["status"], 200, "{key} was answered and is gone: {result}");
            assert_eq!(result["start"]["run"]["id"], json!(run), "{key}");
        }
    }
}
