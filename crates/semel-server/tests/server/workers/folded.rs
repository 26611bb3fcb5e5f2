//! Claims as workers in other languages make them: folded runs, repeated claims, claims of one run, news by heartbeats.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use reqwest::header::HeaderMap;
use semel::clock::{Clock as _, SystemClock};
use semel::id::{NodeId, WorkspaceId};
use semel::store::memory::MemoryStore;
use serde_json::{Value, json};

use super::site::{ServedSite, token};
use super::test;

type Done = Result<(), Failed>;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test("a_folded_claim_says_what_stands_at_each_visit", says_what_stands),
        test("a_claim_repeated_under_its_id_gets_the_same_runs", repeated),
        test("a_claim_of_one_run_takes_that_run", one_run),
        test("a_heartbeat_tells_what_has_arrived_and_what_is_lost", news),
    ]
}

/// A server, and a worker that is registered there.
struct FoldedWorker {
    _site: ServedSite,
    url: String,
    node: NodeId,
    http: reqwest::Client,
}

impl FoldedWorker {
    async fn join() -> Self {
        let clock = Arc::new(SystemClock::new());
        let site = ServedSite::open(Arc::new(MemoryStore::new(clock.clone())), clock.clone()).await;
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().build().expect("a client can be built");
        let worker = Self { url: site.url(), _site: site, node: NodeId(clock.uuid()), http };
        let joined = worker.workers("", json!({"node": worker.node, "name": "w", "leaseMs": 60_000})).await;
        assert_eq!(
            joined["until"].as_i64().expect("a time") - joined["now"].as_i64().expect("a time"),
            60_000
        );
        worker
    }

    /// Calls a route with an `Idempotency-Key`, or without one if it is empty.
    async fn under(&self, key: &str, path: &str, body: &Value) -> (u16, Value) {
        let url = format!("{}/api/v1{path}", self.url);
        let mut headers = HeaderMap::new();
        if !key.is_empty() {
            headers.insert("idempotency-key", key.parse().expect("a plain key"));
        }
        let token = token(WorkspaceId::DEFAULT, "admin");
        let call = self.http.post(url).bearer_auth(token).headers(headers).body(body.to_string());
        let answer = call.send().await.expect("the server answers");
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(&answer.bytes().await.expect("a whole answer")).expect("JSON"))
    }

    async fn call(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.under("", path, &body).await;
        assert!(status < 300, "{path}: {answer}");
        answer
    }

    async fn workers(&self, path: &str, body: Value) -> Value {
        self.call(&format!("/workers{path}"), body).await
    }

    async fn start(&self, key: &str) -> String {
        let start = json!({"workflow": "order", "input": {"n": 7}, "idempotencyKey": key});
        let started = self.call("/workflow-runs", start).await;
        started["run"]["id"].as_str().expect("an id").to_owned()
    }

    fn claim_call(&self, more: &Value) -> Value {
        let mut call =
            json!({"node": self.node, "workflows": [{"workflow": "order"}], "limit": 10, "folded": true});
        let members = call.as_object_mut().expect("an object");
        members.extend(more.as_object().expect("an object").clone());
        call
    }

    async fn claim(&self, more: Value) -> Vec<Value> {
        let claims = self.workers("/claim", self.claim_call(&more)).await;
        claims["runs"].as_array().expect("a list").clone()
    }

    async fn commit(&self, run: &Value, entries: Value, drafts: Value) -> Value {
        let commit =
            json!({"run": run["run"], "expected": run["version"], "entries": entries, "drafts": drafts});
        let answers = self.workers("/commit", json!({"commits": [commit]})).await;
        assert!(answers["answers"][0]["ok"]["version"].is_u64(), "{answers}");
        answers["answers"][0]["ok"].clone()
    }
}

async fn says_what_stands() -> Done {
    let worker = FoldedWorker::join().await;
    let run = worker.start("k").await;
    let claimed = worker.claim(json!({})).await.remove(0);
    assert_eq!((&claimed["run"], &claimed["lineage"]), (&json!(run), &json!(run)));
    assert_eq!((&claimed["key"], &claimed["scope"]), (&json!("k"), &json!("*")));
    assert_eq!(
        (&claimed["version"], &claimed["fence"], &claimed["claims"]),
        (&json!(2), &json!(2), &json!(1))
    );
    assert_eq!((&claimed["input"], &claimed["records"]), (&json!({"n": 7}), &json!({})));
    let entries = json!([
        {"stepStarted": {"step": "charge", "attempt": 1}},
        {"stepCompleted": {"step": "charge", "value": {"id": 9_007_199_254_740_993_u64}}},
        {"stepStarted": {"step": "letter", "attempt": 1, "class": "reconcile"}},
        {"stepStarted": {"step": "pack[ink]", "attempt": 1}},
        {"stepFailed": {"step": "pack[ink]", "attempt": 1, "error": {"kind": "retryable", "message": "no", "code": "BUSY"}, "retryAt": 7}},
        {"stepSkipped": {"step": "gift", "reason": "not asked for"}},
        {"timerSet": {"timer": "nap", "at": 5}},
        {"timerFired": {"timer": "nap"}},
        {"recorded": {"at": "@now[t]", "value": 12}},
        {"once": {"label": "rate", "value": 0.94}},
        {"waiting": {"due": 1}}
    ]);
    let drafts = json!([{"after": 10, "draft": {"openHook": {"hook": "@hook[a]", "token": "approve-7"}}}]);
    worker.commit(&claimed, entries, drafts).await;
    let delivered = worker.call("/hooks/approve-7", json!({"ok": true})).await;
    assert_eq!(delivered["run"], json!(run));
    let again = worker.claim(json!({})).await.remove(0);
    assert_eq!((&again["version"], &again["claims"]), (&json!(15), &json!(2)));
    assert_eq!(
        again["records"],
        json!({
            "charge": {"completed": {"id": 9_007_199_254_740_993_u64}},
            "letter": {"started": {"attempt": 1, "class": "reconcile"}},
            "pack[ink]": {"retrying": {"attempt": 1, "at": 7, "error": {"kind": "retryable", "message": "no", "code": "BUSY"}}},
            "gift": "skipped",
            "nap": {"timer": {"at": 5, "fired": true}},
            "@now[t]": {"value": 12},
            "@hook[a]": {"hook": {"token": "approve-7", "state": "open"}},
        })
    );
    assert_eq!(again["once"], json!([{"label": "rate", "value": 0.94}]));
    assert_eq!(again["inbox"][0]["number"], json!(1));
    assert_eq!(
        again["inbox"][0]["message"],
        json!({"delivery": {"token": "approve-7", "payload": {"ok": true}}})
    );
    Ok(())
}

async fn repeated() -> Done {
    let worker = FoldedWorker::join().await;
    let (one, two) = (worker.start("1").await, worker.start("2").await);
    let call = worker.claim_call(&json!({}));
    let (_, first) = worker.under("claim-1", "/workers/claim", &call).await;
    let (_, second) = worker.under("claim-1", "/workers/claim", &call).await;
    let runs = |answer: &Value| {
        let runs = answer["runs"].as_array().expect("a list").clone();
        runs.into_iter().map(|run| (run["run"].clone(), run["version"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(runs(&first), [(json!(one), json!(2)), (json!(two), json!(2))]);
    assert_eq!(runs(&second), runs(&first), "the same runs under the same claims");
    let (_, next) = worker.under("claim-2", "/workers/claim", &call).await;
    assert_eq!(runs(&next), [], "another claim finds nothing due");
    let (_, late) = worker.under("claim-1", "/workers/claim", &call).await;
    assert_eq!(runs(&late), [], "only the last claim is repeated; an older id claims anew");
    Ok(())
}

async fn one_run() -> Done {
    let worker = FoldedWorker::join().await;
    let (one, two) = (worker.start("1").await, worker.start("2").await);
    let claimed = worker.claim(json!({"run": two})).await;
    assert_eq!((claimed.len(), &claimed[0]["run"]), (1, &json!(two)));
    let again = worker.claim(json!({"run": two})).await;
    assert_eq!(again, claimed, "what the worker holds is given again, without another claim");
    worker.commit(&claimed[0], json!([{"completed": {"value": 1}}]), json!([])).await;
    assert_eq!(worker.claim(json!({"run": two})).await, Vec::<Value>::new(), "it has ended");
    let others = json!({"run": one, "workflows": [{"workflow": "order", "workflowVersion": "2"}]});
    assert_eq!(worker.claim(others).await, Vec::<Value>::new(), "the worker does not have this version");
    let waits = worker.claim_call(&json!({"run": one, "waitMs": 10}));
    assert_eq!(worker.under("", "/workers/claim", &waits).await.0, 400);
    assert_eq!(worker.claim(json!({})).await[0]["run"], json!(one));
    Ok(())
}

async fn news() -> Done {
    let worker = FoldedWorker::join().await;
    let run = worker.start("k").await;
    let claimed = worker.claim(json!({})).await.remove(0);
    let drafts = json!([{"after": 0, "draft": {"openHook": {"hook": "@hook[a]", "token": "a"}}}]);
    worker.commit(&claimed, json!([]), drafts).await;
    let beat = |seen: u64| {
        let runs = json!([{"run": run, "fence": claimed["fence"], "seen": seen}]);
        worker.workers("/heartbeat", json!({"node": worker.node, "leaseMs": 60_000, "runs": runs}))
    };
    assert!(beat(0).await.get("news").is_none());
    worker.call("/hooks/a", json!(1)).await;
    assert_eq!(beat(0).await["news"], json!([{"run": run, "arrived": 1}]));
    assert!(beat(1).await.get("news").is_none(), "the worker has seen it");
    worker.call(&format!("/workflow-runs/{run}/pause"), json!({})).await;
    assert_eq!(beat(1).await["news"], json!([{"run": run, "taken": true}]));
    Ok(())
}
