//! The protocol itself: the answers to a worker that is wrong, late or of another workspace.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::{Clock as _, SystemClock};
use semel::error::Error;
use semel::id::{NodeId, RunId, WorkspaceId};
use semel::remote::wire::DraftView;
use semel::remote::{Options, RemoteStore};
use semel::rules::claim::{Claim, Drives, HeldRuns};
use semel::rules::control::{Control, ControlAction};
use semel::rules::json::Payload;
use semel::rules::key::Key;
use semel::rules::ledger::{Ledger, LedgerBounds};
use semel::rules::path::Name;
use semel::rules::start::Start;
use semel::store::memory::MemoryStore;
use semel::store::{Lease, LeaseAct, Store, Wake};
use semel_server::app::App;
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;

use super::site::{ServedSite, token};
use super::test;

type Done = Result<(), Failed>;

const OURS: WorkspaceId = WorkspaceId::DEFAULT;
const THEIRS: WorkspaceId = WorkspaceId(uuid::Uuid::from_u128(77));
const LEASE: Duration = Duration::from_mins(1);

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test("an_invalid_entry_is_refused_for_its_run_only", an_invalid_entry_is_refused_for_its_run_only),
        test(
            "a_step_that_begins_in_the_future_or_has_a_long_note_is_refused",
            a_step_that_begins_in_the_future_or_has_a_long_note_is_refused,
        ),
        test("values_in_entries_are_checked_like_payloads", values_in_entries_are_checked_like_payloads),
        test("a_commit_that_is_repeated_answers_as_saved", a_commit_that_is_repeated_answers_as_saved),
        test("a_commit_tells_of_messages_and_of_the_time", a_commit_tells_of_messages_and_of_the_time),
        test("a_commit_to_a_full_ledger_is_refused", a_commit_to_a_full_ledger_is_refused),
        test("a_ledger_in_memory_is_not_sent_again", a_ledger_in_memory_is_not_sent_again),
        test("a_run_that_is_cancelled_before_its_ledger_is_read_is_not_claimed", cancelled_before_it_is_read),
        test("a_run_id_with_another_input_is_refused", a_run_id_with_another_input_is_refused),
        test("a_timer_does_not_fire_before_its_time", a_timer_does_not_fire_before_its_time),
        test("a_foreign_node_is_an_unknown_one", a_foreign_node_is_an_unknown_one),
        test("a_foreign_run_is_an_unknown_one", a_foreign_run_is_an_unknown_one),
        test("a_waiting_claim_is_answered_when_a_run_becomes_due", a_waiting_claim_is_answered),
        test("a_claim_takes_the_versions_that_it_names", a_claim_takes_the_versions_that_it_names),
        test("what_happens_is_heard_in_its_workspace_only", what_happens_is_heard_in_its_workspace_only),
        test("every_listener_hears_that_something_is_due", every_listener_hears_that_something_is_due),
        test("a_permission_that_is_missing_is_named", a_permission_that_is_missing_is_named),
        test("a_worker_pauses_the_run_it_holds_and_no_other", a_worker_pauses_the_run_it_holds_and_no_other),
        test("children_of_children_come_to_an_end", children_of_children_come_to_an_end),
        test("workers_are_listed_with_what_they_serve", workers_are_listed_with_what_they_serve),
        test("who_does_not_answer_is_unavailable_and_a_lost_answer_unknown", who_does_not_answer),
    ]
}

/// A server and plain calls to it.
struct Here {
    site: ServedSite,
    http: reqwest::Client,
    clock: Arc<SystemClock>,
    token: String,
}

impl Here {
    async fn new() -> Self {
        let clock = Arc::new(SystemClock::new());
        Self::on(Arc::new(MemoryStore::new(clock.clone())), clock).await
    }

    async fn on(store: Arc<dyn Store>, clock: Arc<SystemClock>) -> Self {
        Self::of(App::open(store, clock.clone()), clock).await
    }

    async fn of(app: App, clock: Arc<SystemClock>) -> Self {
        let site = ServedSite::of(app).await;
        // Any TLS will do: none is spoken here.
        let _ = rustls_provider();
        let http = reqwest::Client::builder().build().expect("a client can be built");
        Self { site, http, clock, token: token(OURS, "admin") }
    }

    async fn call(&self, path: &str, body: impl Into<reqwest::Body>) -> (u16, Value) {
        let url = format!("{}/api/v1/workers{path}", self.site.url());
        let sent = self.http.post(url).bearer_auth(&self.token).body(body).send().await;
        let answer = sent.expect("the server answers");
        let status = answer.status().as_u16();
        let body = answer.bytes().await.expect("a whole answer");
        (status, serde_json::from_slice(&body).expect("JSON"))
    }

    fn name(text: &str) -> Name {
        Name::new(text).expect("a plain name")
    }

    fn request(&self, key: &str) -> Start {
        let (run, input) = (RunId(self.clock.uuid()), Payload::null());
        Start::new(OURS, run, Self::name("order"), input, Some(Key::new(key).expect("a plain key")))
    }

    async fn node(&self, store: &dyn Store) -> NodeId {
        let node = NodeId(self.clock.uuid());
        store.lease(Lease { node, act: LeaseAct::Join(LEASE) }).await.expect("a new node can join");
        node
    }

    /// A run that a worker drives: two entries.
    async fn driven(&self, store: &dyn Store, key: &str) -> RunId {
        let claim = Some(self.node(store).await);
        store.start(Start { claim, ..self.request(key) }).await.expect("it is new").run.id()
    }
}

/// What a worker of the first version asks for.
fn orders(workspace: WorkspaceId) -> Drives {
    Drives { workspace, workflow: Here::name("order"), workflow_version: Here::name("1") }
}

/// The process has no provider of its own unless one is chosen; this client wants one.
fn rustls_provider() -> Result<(), Arc<tokio_rustls::rustls::crypto::CryptoProvider>> {
    tokio_rustls::rustls::crypto::ring::default_provider().install_default()
}

fn step(run: RunId, expected: u64, name: &str, value: &str) -> String {
    format!(
        r#"{{"run":"{run}","expected":{expected},"entries":[{{"stepStarted":{{"step":"{name}","attempt":1}}}},{{"stepCompleted":{{"step":"{name}","value":{value}}}}}]}}"#
    )
}

fn commits(items: &[String]) -> String {
    format!(r#"{{"commits":[{}]}}"#, items.join(","))
}

async fn an_invalid_entry_is_refused_for_its_run_only() -> Done {
    let here = Here::new().await;
    let remote = here.site.remote(OURS).await?;
    let (good, bad) = (here.driven(&remote, "good").await, here.driven(&remote, "bad").await);
    let never_begun =
        format!(r#"{{"run":"{bad}","expected":2,"entries":[{{"stepCompleted":{{"step":"a","value":1}}}}]}}"#);
    let stores = format!(r#"{{"run":"{bad}","expected":2,"entries":[{{"resumed":{{"by":"me"}}}}]}}"#);
    let (status, answer) = here
        .call("/commit", commits(&[never_begun, step(good, 2, "a", "1"), stores, step(bad, 2, "b", "2")]))
        .await;
    assert_eq!(status, 200);
    let answers = answer["answers"].as_array().ok_or("a list")?;
    assert!(answers[0]["error"]["refused"].is_object(), "{answer}");
    assert_eq!(answers[1], json!({ "ok": { "version": 4, "arrivals": 0 } }));
    assert!(answers[2]["error"]["refused"]["source"]["stores"].is_string(), "{answer}");
    assert_eq!(
        answers[3],
        json!({ "ok": { "version": 4, "arrivals": 0 } }),
        "what was refused has left nothing behind"
    );
    Ok(())
}

async fn a_step_that_begins_in_the_future_or_has_a_long_note_is_refused() -> Done {
    let here = Here::new().await;
    let remote = here.site.remote(OURS).await?;
    let run = here.driven(&remote, "k").await;
    let began = |expected: u64, members: &str| {
        format!(
            r#"{{"run":"{run}","expected":{expected},"entries":[{{"stepStarted":{{"step":"a","attempt":1,{members}}}}},{{"stepCompleted":{{"step":"a","value":1}}}}]}}"#
        )
    };
    let long = format!(r#""note":"{}""#, "x".repeat(1_023));
    for (bad, tells) in [(r#""at":4102444800000"#, "leave `at` out"), (long.as_str(), "at most 1024")] {
        let (status, answer) = here.call("/commit", commits(&[began(2, bad)])).await;
        assert_eq!(status, 200, "{answer}");
        assert!(answer["answers"][0]["error"].to_string().contains(tells), "{answer}");
    }
    let (_, answer) = here.call("/commit", commits(&[began(2, r#""at":7,"note":{"cents":1250}"#)])).await;
    assert_eq!(answer["answers"][0]["ok"]["version"], 4, "{answer}");
    Ok(())
}

async fn values_in_entries_are_checked_like_payloads() -> Done {
    let here = Here::new().await;
    let remote = here.site.remote(OURS).await?;
    let run = here.driven(&remote, "k").await;
    let deep = "[".repeat(65) + &"]".repeat(65);
    for bad in [r#"{"a":1,"a":2}"#, r#""\u0000""#, "1e400", r#""\ud800""#, &deep] {
        let (status, answer) = here.call("/commit", commits(&[step(run, 2, "a", bad)])).await;
        assert_eq!(status, 200, "{answer}");
        assert!(answer["answers"][0]["error"].is_object(), "{bad}: {answer}");
    }
    let odd = r#"{"n":9007199254740993,"text":"\\u0000 \u00e9"}"#;
    let (_, answer) = here.call("/commit", commits(&[step(run, 2, "a", odd)])).await;
    assert_eq!(answer["answers"][0]["ok"]["version"], 4, "{answer}");
    let ledger = remote.ledger(OURS, run, 4).await?;
    assert!(serde_json::to_string(&ledger[0].entry)?.contains(odd), "as it was written");
    for (path, body) in [
        ("/commit", "{"),
        ("/commit", r#"{"commits":1}"#),
        ("/commit", "\u{0}"),
        ("/start", r#"{"starts":[1]}"#),
        ("/claim", r#"{"node":"node_1"}"#),
        ("/claim", r#"{"node":"node_01j0000000e00800000000007z","workflows":["order"],"limit":1}"#),
        ("/find", r#"{"by":{"token":"a\u0000"}}"#),
        ("/find", r#"{"by":{"key":["\u0000","k"]}}"#),
        ("/start", r#"{"starts":[{}]}"#),
    ] {
        let (status, answer) = here.call(path, body).await;
        assert_eq!((status, &answer["code"]), (400, &json!("VALIDATION_ERROR")), "{path} {body}");
    }
    Ok(())
}

/// An engine keeps the bounds itself; it has a tenth more for the end of a run that has reached them.
async fn a_commit_to_a_full_ledger_is_refused() -> Done {
    let long = "x".repeat(1_000);
    for (ledgers, value, full) in [
        (LedgerBounds { entries: 10, bytes: 1_000_000 }, "1", 12..=12),
        (LedgerBounds { entries: 1_000, bytes: 5_000 }, long.as_str(), 10..=14),
    ] {
        let clock = Arc::new(SystemClock::new());
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.clone()));
        let here = Here::of(App { ledgers, ..App::open(store, clock.clone()) }, clock).await;
        let remote = here.site.remote(OURS).await?;
        let (run, other) = (here.driven(&remote, "k").await, here.driven(&remote, "other").await);
        let mut version = 2;
        let refused = loop {
            let next = step(run, version, &format!("s{version}"), &format!("\"{value}\""));
            let (_, answer) = here.call("/commit", commits(&[next, step(other, 2, "a", "1")])).await;
            assert_eq!(answer["answers"][1]["ok"]["version"], 4, "other runs go on: {answer}");
            match answer["answers"][0]["ok"]["version"].as_u64() {
                Some(saved) => version = saved,
                None => break answer["answers"][0]["error"]["validation"].to_string(),
            }
        };
        assert!(full.contains(&version), "{version}: {refused}");
        assert!(refused.contains("is full") && refused.contains("keep large values elsewhere"), "{refused}");
        assert_eq!(remote.ledger(OURS, run, 1).await?.len() as u64, version, "nothing of it was written");
    }
    Ok(())
}

async fn a_commit_that_is_repeated_answers_as_saved() -> Done {
    let here = Here::new().await;
    let remote = here.site.remote(OURS).await?;
    let run = here.driven(&remote, "k").await;
    let (one, two) = (step(run, 2, "a", "1"), step(run, 4, "b", "2"));
    for _ in 0..2 {
        let (_, answer) = here.call("/commit", commits(std::slice::from_ref(&one))).await;
        assert_eq!(answer["answers"], json!([{ "ok": { "version": 4, "arrivals": 0 } }]));
    }
    let (_, answer) = here.call("/commit", commits(&[two.clone(), two, one])).await;
    let version = |n: usize| answer["answers"][n]["ok"]["version"].clone();
    assert_eq!((version(0), version(1), version(2)), (json!(6), json!(6), json!(4)), "{answer}");
    let (_, other) = here.call("/commit", commits(&[step(run, 2, "a", "7")])).await;
    assert_eq!(other["answers"][0]["error"]["concurrency"], json!({ "run": run, "expected": 2 }));
    let (_, ahead) = here.call("/commit", commits(&[step(run, 60, "z", "7")])).await;
    assert_eq!(ahead["answers"][0]["error"]["concurrency"], json!({ "run": run, "expected": 60 }));
    assert_eq!(remote.ledger(OURS, run, 1).await?.len(), 6);
    Ok(())
}

/// A worker that commits learns of a delivery at once, and not from its next heartbeat.
async fn a_commit_tells_of_messages_and_of_the_time() -> Done {
    let here = Here::new().await;
    let remote = here.site.remote(OURS).await?;
    let run = here.driven(&remote, "k").await;
    let open = format!(
        r#"{{"run":"{run}","expected":2,"entries":[],"drafts":[{{"after":0,"draft":{{"openHook":{{"hook":"@hook[t]","token":"t"}}}}}}]}}"#
    );
    let before = here.clock.now().0;
    let (_, answer) = here.call("/commit", commits(&[open])).await;
    assert_eq!(answer["answers"][0]["ok"]["arrivals"], 0, "{answer}");
    for n in 1..=2 {
        here.call("/deliver", format!(r#"{{"token":"t","payload":{n}}}"#)).await;
    }
    let one = step(run, 3, "a", "1");
    let (_, answer) = here.call("/commit", commits(std::slice::from_ref(&one))).await;
    assert_eq!(answer["answers"][0]["ok"], json!({ "version": 5, "arrivals": 2 }), "{answer}");
    let now = answer["now"].as_i64().ok_or("a time")?;
    assert!((before..=here.clock.now().0).contains(&now), "{answer}");
    here.call("/deliver", r#"{"token":"t","payload":3}"#).await;
    let (_, answer) = here.call("/commit", commits(&[one, step(run, 1, "b", "2")])).await;
    assert_eq!(answer["answers"][0]["ok"], json!({ "version": 5, "arrivals": 3 }), "a repetition: {answer}");
    assert_eq!(answer["now"], Value::Null, "nothing was written: {answer}");
    Ok(())
}

/// A node that says that it has everything in memory, or nothing.
#[derive(Debug)]
struct Holds(bool);

impl HeldRuns for Holds {
    fn holds(&self, _: i64, _: u64) -> bool {
        self.0
    }
}

async fn a_ledger_in_memory_is_not_sent_again() -> Done {
    let here = Here::new().await;
    let remote = here.site.remote(OURS).await?;
    let node = here.node(&remote).await;
    let run = remote.start(Start { claim: Some(node), ..here.request("k") }).await?.run.id();
    let claim = |node: NodeId, held: Option<bool>| {
        let held = held.map(|holds| Arc::new(Holds(holds)) as Arc<dyn HeldRuns>);
        Claim { held, ..Claim::new(node, vec![orders(OURS)], 1) }
    };
    let rest = |expected: u64| {
        format!(r#"{{"run":"{run}","expected":{expected},"entries":[{{"waiting":{{"due":1}}}}]}}"#)
    };
    for (turn, (held, sent)) in
        [(Some(true), false), (Some(false), true), (None, true)].into_iter().enumerate()
    {
        let expected = 2 + 2 * turn as u64;
        let (_, answer) = here.call("/commit", commits(&[rest(expected)])).await;
        assert_eq!(answer["answers"][0]["ok"]["version"], expected + 1, "{answer}");
        let claims = remote.claim(claim(node, held)).await?;
        assert_eq!(claims.runs.len(), 1);
        let entries = claims.runs[0].entries.as_ref().map(Vec::len);
        assert_eq!(entries, sent.then_some(expected as usize + 2), "{held:?}");
    }
    // Another node has not got it, whatever it says.
    here.call("/commit", commits(&[rest(8)])).await;
    let other = here.node(&remote).await;
    assert!(remote.claim(claim(other, Some(true))).await?.runs[0].entries.is_some());
    Ok(())
}

/// Holds nothing, and cancels the run in the moment in which it is asked: between a claim and the look at the ledger.
struct Cancels(Arc<dyn Store>, RunId);

impl std::fmt::Debug for Cancels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cancels").field(&self.1).finish_non_exhaustive()
    }
}

impl HeldRuns for Cancels {
    fn holds(&self, _: i64, _: u64) -> bool {
        let action = ControlAction::Cancel { reason: "enough".to_owned() };
        let (run, by) = (self.1, "a test".to_owned());
        let cancel = Control { workspace: OURS, run, action, by, id: None, expected: None };
        let cancelled = || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(self.0.control(cancel)).expect("it is open").changed
        };
        assert!(std::thread::scope(|scope| scope.spawn(cancelled).join()).expect("it works"));
        false
    }
}

async fn cancelled_before_it_is_read() -> Done {
    let clock = Arc::new(SystemClock::new());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.clone()));
    let here = Here::on(store.clone(), clock).await;
    let remote = here.site.remote(OURS).await?;
    let node = here.node(&remote).await;
    let run = remote.start(Start { claim: Some(node), ..here.request("k") }).await?.run.id();
    let rest = format!(r#"{{"run":"{run}","expected":2,"entries":[{{"waiting":{{"due":1}}}}]}}"#);
    here.call("/commit", commits(&[rest])).await;
    let held: Arc<dyn HeldRuns> = Arc::new(Cancels(store, run));
    let claim = Claim { held: Some(held), ..Claim::new(node, vec![orders(OURS)], 1) };
    assert_eq!(remote.claim(claim).await?.runs.len(), 0, "the claim is over");
    Ok(())
}

async fn a_timer_does_not_fire_before_its_time() -> Done {
    let here = Here::new().await;
    let remote = here.site.remote(OURS).await?;
    let run = here.driven(&remote, "k").await;
    let far = i64::MAX / 2;
    let fired = format!(
        r#"{{"run":"{run}","expected":2,"entries":[{{"timerSet":{{"timer":"t","at":{far}}}}},{{"timerFired":{{"timer":"t"}}}}]}}"#
    );
    let (_, answer) = here.call("/commit", commits(&[fired])).await;
    assert_eq!(answer["answers"][0]["error"]["tooEarly"]["until"], far, "{answer}");
    assert_eq!(remote.ledger(OURS, run, 1).await?.len(), 2);
    Ok(())
}

async fn a_foreign_node_is_an_unknown_one() -> Done {
    let here = Here::new().await;
    let (ours, theirs) = (here.site.remote(OURS).await?, here.site.remote(THEIRS).await?);
    let node = here.node(&ours).await;
    let lost = |answer: Result<_, Error>| matches!(answer, Err(Error::NodeLost(named)) if named == node);
    assert!(lost(theirs.lease(Lease { node, act: LeaseAct::Renew(LEASE) }).await.map(drop)));
    assert!(lost(theirs.claim(Claim::new(node, vec![orders(THEIRS)], 1)).await.map(drop)));
    // They may take the same id, and go again: that is a node of their own.
    theirs.lease(Lease { node, act: LeaseAct::Join(LEASE) }).await?;
    theirs.lease(Lease { node, act: LeaseAct::Leave }).await?;
    ours.lease(Lease { node, act: LeaseAct::Renew(LEASE) }).await?;
    // Nor does the id that a ledger shows help a forger.
    let started = ours.start(Start { claim: Some(node), ..here.request("k") }).await?;
    assert_eq!(started.run.state.node, Some(node), "under our own id");
    let (_, found) = here.call("/find", format!(r#"{{"by":{{"id":"{}"}}}}"#, started.run.id())).await;
    let shown: NodeId = found["run"]["state"]["node"].as_str().ok_or("driven")?.parse()?;
    assert_ne!(shown, node);
    theirs.lease(Lease { node: shown, act: LeaseAct::Leave }).await?;
    ours.lease(Lease { node: shown, act: LeaseAct::Leave }).await?;
    ours.lease(Lease { node, act: LeaseAct::Renew(LEASE) }).await?;
    Ok(())
}

async fn a_foreign_run_is_an_unknown_one() -> Done {
    let here = Here::new().await;
    let ours = here.site.remote(OURS).await?;
    let run = here.driven(&ours, "k").await;
    let stranger = Here { token: token(THEIRS, "admin"), ..Here::new().await };
    let stranger = Here { site: here.site, ..stranger };
    let unknown = RunId(here.clock.uuid());
    for id in [run, unknown] {
        let (_, answer) = stranger.call("/commit", commits(&[step(id, 2, "a", "1")])).await;
        let lost = json!({ "concurrency": { "run": id, "expected": 2 } });
        assert_eq!(answer, json!({ "answers": [{ "error": lost }] }));
        for path in ["/ledger", "/inbox", "/receipts"] {
            let (status, answer) = stranger.call(path, format!(r#"{{"run":"{id}"}}"#)).await;
            assert_eq!((status, &answer["error"]), (404, &json!({ "runNotFound": id })), "{path}");
        }
        let (status, answer) = stranger.call("/find", format!(r#"{{"by":{{"id":"{id}"}}}}"#)).await;
        assert_eq!((status, answer), (200, Value::Null));
    }
    Ok(())
}

async fn a_waiting_claim_is_answered() -> Done {
    let here = Arc::new(Here::new().await);
    let remote = here.site.remote(OURS).await?;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (here, node) = (here.clone(), here.node(&remote).await);
        waiting.spawn(async move {
            let call =
                json!({ "node": node, "workflows": [{ "workflow": "order" }], "limit": 1, "waitMs": 60_000 });
            here.call("/claim", call.to_string()).await
        });
    }
    for n in 0..20 {
        remote.start(here.request(&n.to_string())).await?;
    }
    let mut claimed = std::collections::HashSet::new();
    while let Some(answer) = waiting.join_next().await {
        let (status, answer) = answer?;
        let runs = answer["runs"].as_array().ok_or("a list")?;
        assert_eq!((status, runs.len()), (200, 1), "long before its time is over: {answer}");
        claimed.insert(runs[0]["run"]["new"]["id"].to_string());
    }
    assert_eq!(claimed.len(), 20, "each run has one driver");
    Ok(())
}

async fn a_claim_takes_the_versions_that_it_names() -> Done {
    let here = Here::new().await;
    let remote = here.site.remote(OURS).await?;
    let start = async |version: &str| {
        let request = Start { workflow_version: Here::name(version), ..here.request(version) };
        Ok::<_, Error>(json!(remote.start(request).await?.run.id()))
    };
    let (three, two, one) = (start("3").await?, start("2").await?, start("1").await?);
    let node = here.node(&remote).await;
    let claim = async |workflows: Value| {
        let call = json!({ "node": node, "workflows": workflows, "limit": 10 });
        let (status, answer) = here.call("/claim", call.to_string()).await;
        let runs = answer["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
        (status, runs.iter().map(|claimed| claimed["run"]["new"]["id"].clone()).collect::<Vec<_>>())
    };
    assert_eq!(claim(json!([{ "workflow": "order" }])).await, (200, vec![one]), "without a version it is 1");
    assert_eq!(claim(json!([{ "workflow": "order", "workflowVersion": "2" }])).await, (200, vec![two]));
    assert_eq!(
        claim(json!([{ "workflow": "order", "version": "3" }])).await.0,
        400,
        "there is no such member"
    );
    assert_eq!(claim(json!([{ "workflow": "order", "workflowVersion": "3" }])).await, (200, vec![three]));
    Ok(())
}

/// Listens until it hears this; all that it has heard.
async fn until(ear: &mut Receiver<Wake>, wanted: impl Fn(Wake) -> bool) -> Vec<Wake> {
    let mut heard = Vec::new();
    while !heard.last().copied().is_some_and(&wanted) {
        heard.push(ear.recv().await.expect("the store is open"));
    }
    heard
}

async fn what_happens_is_heard_in_its_workspace_only() -> Done {
    let here = Here::new().await;
    let (ours, theirs) = (here.site.remote(OURS).await?, here.site.remote(THEIRS).await?);
    let (mut near, mut far) = (ours.wakes(), theirs.wakes());
    let run = here.driven(&ours, "ours").await;
    let end = format!(r#"{{"run":"{run}","expected":2,"entries":[{{"completed":{{"value":1}}}}]}}"#);
    here.call("/commit", commits(&[end])).await;
    assert!(until(&mut near, |wake| wake == Wake::Ended(run)).await.contains(&Wake::Ended(run)));
    ours.start(here.request("due")).await?;
    // What they hear next is of their own.
    let stranger = here.node(&theirs).await;
    let start = Start { claim: Some(stranger), workspace: THEIRS, ..here.request("theirs") };
    let run = theirs.start(start).await?.run.id();
    let end = format!(r#"{{"run":"{run}","expected":2,"entries":[{{"completed":{{"value":1}}}}]}}"#);
    let here = Here { token: token(THEIRS, "worker"), ..here };
    here.call("/commit", commits(&[end])).await;
    let heard = until(&mut far, |wake| matches!(wake, Wake::Ended(_))).await;
    assert_eq!(heard, [Wake::Ended(run)], "not even that others have started something");
    Ok(())
}

async fn every_listener_hears_that_something_is_due() -> Done {
    let here = Here::new().await;
    let (one, other) = (here.site.remote(OURS).await?, here.site.remote(OURS).await?);
    let (mut first, mut second) = (one.wakes(), other.wakes());
    one.start(here.request("k")).await?;
    until(&mut first, |wake| wake == Wake::Due).await;
    until(&mut second, |wake| wake == Wake::Due).await;
    Ok(())
}

async fn a_permission_that_is_missing_is_named() -> Done {
    let here = Here { token: token(OURS, "read"), ..Here::new().await };
    for (path, body) in
        [("/claim", json!({ "node": NodeId(here.clock.uuid()), "workflows": [], "limit": 1 }))]
    {
        let (status, answer) = here.call(path, body.to_string()).await;
        assert_eq!(status, 403);
        assert!(answer["detail"].as_str().is_some_and(|detail| detail.contains("`worker`")), "{answer}");
    }
    let refused =
        RemoteStore::open(Options { token: Some(here.token.clone()), ..Options::new(here.site.url()) }).await;
    // Another key may be put in its place: no refusal is permanent.
    assert!(matches!(refused, Err(Error::Unavailable(why)) if why.to_string().contains("`worker`")));
    // A worker drives; it operates on nothing.
    let here = Here { token: token(OURS, "worker"), ..here };
    let run = RunId(here.clock.uuid());
    let call = |action: Value| json!({ "run": run, "action": action, "by": "me" }).to_string();
    assert_eq!(here.call("/control", call(json!({ "cancel": { "reason": "r" } }))).await.0, 403);
    assert_eq!(here.call("/control", call(json!("pause"))).await.0, 403);
    assert_eq!(here.call("/start", r#"{"starts":[]}"#).await.0, 403);
    Ok(())
}

async fn a_worker_pauses_the_run_it_holds_and_no_other() -> Done {
    let here = Here::new().await;
    let admin = here.site.remote(OURS).await?;
    let run = admin.start(here.request("k")).await?.run.id();
    let worker = async || {
        let token = Some(token(OURS, "worker"));
        RemoteStore::open(Options { token, ..Options::new(here.site.url()) }).await
    };
    let (holder, other) = (worker().await?, worker().await?);
    let node = here.node(&holder).await;
    here.node(&other).await;
    assert_eq!(holder.claim(Claim::new(node, vec![orders(OURS)], 1)).await?.runs.len(), 1);
    let pause = |expected| Control {
        workspace: OURS,
        run,
        action: ControlAction::Pause,
        by: "another person".to_owned(),
        id: None,
        expected,
    };
    for expected in [None, Some(2)] {
        let refused = other.control(pause(expected)).await;
        assert!(matches!(refused, Err(Error::Concurrency { .. })), "{refused:?}");
    }
    let resume = Control { action: ControlAction::Resume, ..pause(None) };
    let refused = holder.control(resume).await;
    assert!(
        matches!(&refused, Err(Error::Unavailable(why)) if why.to_string().contains("`operate`")),
        "{refused:?}"
    );
    let paused = holder.control(pause(None)).await?;
    assert!(paused.changed);
    let ledger = admin.ledger(OURS, run, 1).await?;
    let last = serde_json::to_string(&ledger.last().expect("a pause").entry).expect("plain data");
    assert!(last.contains("test: another person"), "the ledger names the key: {last}");
    Ok(())
}

async fn children_of_children_come_to_an_end() -> Done {
    let here = Here::new().await;
    let ours = here.site.remote(OURS).await?;
    let node = here.node(&ours).await;
    ours.start(here.request("k")).await?;
    let mut generations = 0;
    let refused = loop {
        let claimed = ours.claim(Claim::new(node, vec![orders(OURS)], 1)).await?.runs.remove(0);
        let mut ledger = Ledger::read(claimed.run, claimed.entries.expect("a short ledger comes along"))?;
        let draft = DraftView::StartChild {
            child: serde_json::from_value(json!("child")).expect("a plain path"),
            run: RunId(here.clock.uuid()),
            workflow: Here::name("order"),
            workflow_version: Here::name("1"),
            input: Payload::null(),
        };
        draft.record(&mut ledger)?;
        match ours.commit(ledger.commit().expect("a child is new")).await {
            Ok(_) => generations += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&refused, Error::Validation(said) if said.contains("child of a child")), "{refused}");
    assert_eq!(generations, 64);
    Ok(())
}

async fn a_run_id_with_another_input_is_refused() -> Done {
    let here = Here::new().await;
    let remote = here.site.remote(OURS).await?;
    let request = here.request("k");
    let first = remote.start(request.clone()).await?;
    assert_eq!(remote.start(request.clone()).await?.run.id(), first.run.id());
    let other = remote.start(Start { input: Payload::parse("2")?, ..request }).await;
    assert!(matches!(&other, Err(Error::KeyReused { owner, .. }) if *owner == first.run.id()), "{other:?}");
    Ok(())
}

async fn workers_are_listed_with_what_they_serve() -> Done {
    let here = Here::new().await;
    let (ours, theirs) = (here.site.remote(OURS).await?, here.site.remote(THEIRS).await?);
    let node = here.node(&ours).await;
    here.node(&theirs).await;
    ours.claim(Claim::new(node, vec![orders(OURS)], 1)).await?;
    ours.lease(Lease { node, act: LeaseAct::Renew(LEASE) }).await?;
    let url = format!("{}/api/v1/workers", here.site.url());
    let list: Value =
        serde_json::from_slice(&here.http.get(url).bearer_auth(&here.token).send().await?.bytes().await?)?;
    assert_eq!(list["workers"].as_array().map(Vec::len), Some(1), "{list}");
    assert_eq!(list["workers"][0]["serves"], json!(["order@1"]));
    Ok(())
}

async fn who_does_not_answer() -> Done {
    let here = Here::new().await;
    let remote = here.site.remote(OURS).await?;
    let start = here.request("k");
    let nowhere = Options { token: None, ..Options::new("http://127.0.0.1:9") };
    assert!(matches!(RemoteStore::open(nowhere).await, Err(Error::Unavailable(_))));
    drop(here);
    // The server is gone: a connection is refused, or one that was open is cut.
    let answer = remote.start(start).await;
    assert!(matches!(answer, Err(Error::Unavailable(_) | Error::Unknown(_))), "{answer:?}");
    // A server that takes the request and says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", silent.local_addr()?);
    let talk = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let (mut stream, _) = silent.accept().await.expect("the client connects");
        let (mut wakes, mut buffer) = (stream, [0; 4096]);
        let _ = wakes.read(&mut buffer).await;
        let _ = wakes.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
        (stream, _) = silent.accept().await.expect("the client calls");
        let _ = stream.read(&mut buffer).await;
        drop(stream);
        wakes
    });
    let remote = RemoteStore::open(Options { token: None, ..Options::new(url) }).await?;
    let clock = SystemClock::new();
    let answer = remote.lease(Lease { node: NodeId(clock.uuid()), act: LeaseAct::Join(LEASE) }).await;
    assert!(matches!(answer, Err(Error::Unknown(_))), "{answer:?}");
    drop(talk.await?);
    Ok(())
}
