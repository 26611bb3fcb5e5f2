//! The clock of a development server: moved forward, it ends sleeps of days, and no lease.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use semel::clock::{Clock as _, ForwardClock};
use semel::id::{NodeId, WorkspaceId};
use semel::store::memory::MemoryStore;
use semel_server::app::App;
use serde_json::{Value, json};

use super::site::{ServedSite, token};
use super::test;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test("a_waiting_claim_gets_a_run_that_slept_for_days_when_the_clock_moves", week),
        test("a_server_without_a_manual_clock_has_no_route_for_it", none),
    ]
}

const WEEK_MS: i64 = 7 * 24 * 60 * 60 * 1_000;

struct ClockCaller {
    url: String,
    http: reqwest::Client,
}

impl ClockCaller {
    fn of(site: &ServedSite) -> Self {
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        Self { url: site.url(), http: reqwest::Client::builder().build().expect("a client can be built") }
    }

    async fn send(&self, call: reqwest::RequestBuilder) -> (u16, Value) {
        let answer = call.bearer_auth(token(WorkspaceId::DEFAULT, "admin")).send().await.expect("an answer");
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(&answer.bytes().await.expect("a whole answer")).expect("JSON"))
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.send(self.http.post(format!("{}/api/v1{path}", self.url)).body(body.to_string())).await
    }

    async fn ok(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.post(path, body).await;
        assert!(status < 300, "{path}: {answer}");
        answer
    }

    async fn described(&self) -> bool {
        let document = self.send(self.http.get(format!("{}/api/v1/openapi.json", self.url))).await.1;
        document["paths"]["/api/v1/dev/clock"]["post"]["operationId"] == "advanceClock"
    }
}

async fn week() -> Result<(), Failed> {
    let clock = Arc::new(ForwardClock::default());
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let site = ServedSite::of(App { forward: Some(clock.clone()), ..App::open(store, clock.clone()) }).await;
    let caller = Arc::new(ClockCaller::of(&site));
    let node = NodeId(clock.uuid());
    caller.ok("/workers", json!({"node": node, "name": "w", "leaseMs": 10_000})).await;
    let claim = |wait: u64| json!({"node": node, "workflows": [{"workflow": "nap"}], "limit": 1, "waitMs": wait, "folded": true});
    caller.ok("/workflow-runs", json!({"workflow": "nap", "idempotencyKey": "n-1"})).await;
    let claimed = caller.ok("/workers/claim", claim(0)).await["runs"][0].clone();
    let due = clock.now().0 + WEEK_MS;
    let entries = json!([{"timerSet": {"timer": "week", "at": due}}, {"waiting": {"due": due}}]);
    let commit = json!({"run": claimed["run"], "expected": claimed["version"], "entries": entries});
    caller.ok("/workers/commit", json!({"commits": [commit]})).await;
    let waits = tokio::spawn({
        let (caller, claim) = (caller.clone(), claim(30_000));
        async move { caller.ok("/workers/claim", claim).await }
    });
    let now = clock.now().0;
    let answer = caller.ok("/dev/clock", json!({"advanceMs": WEEK_MS})).await;
    assert!(answer["now"].as_str().is_some_and(|now| now.ends_with('Z')), "{answer}");
    let claims = waits.await.expect("no panic");
    assert!((WEEK_MS..WEEK_MS + 25_000).contains(&(clock.now().0 - now)), "the claim waited: {claims}");
    let run = &claims["runs"][0];
    assert_eq!(run["run"], claimed["run"], "{claims}");
    let entries = json!([{"timerFired": {"timer": "week"}}, {"completed": {"value": "rested"}}]);
    let commit = json!({"run": run["run"], "expected": run["version"], "entries": entries});
    let saved = caller.ok("/workers/commit", json!({"commits": [commit]})).await;
    assert!(saved["answers"][0]["ok"].is_object(), "{saved}");
    caller.ok("/workers/heartbeat", json!({"node": node, "leaseMs": 10_000})).await;
    assert_eq!(caller.post("/dev/clock", json!({"advanceMs": u64::MAX})).await.0, 400);
    assert!(caller.described().await);
    Ok(())
}

async fn none() -> Result<(), Failed> {
    let clock = Arc::new(semel::clock::SystemClock::new());
    let site = ServedSite::open(Arc::new(MemoryStore::new(clock.clone())), clock).await;
    let caller = ClockCaller::of(&site);
    assert_eq!(caller.post("/dev/clock", json!({"advanceMs": 1})).await.0, 404);
    assert!(!caller.described().await);
    Ok(())
}
