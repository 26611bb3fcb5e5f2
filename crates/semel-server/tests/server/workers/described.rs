//! The description of the worker routes is the truth: what a worker sends and gets fits the schemas that the server
//! gives, and what does not fit is told apart.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use jsonschema::Validator;
use libtest_mimic::{Failed, Trial};
use semel::clock::{Clock as _, SystemClock};
use semel::id::{NodeId, RunId, WorkspaceId};
use semel::store::memory::MemoryStore;
use serde_json::{Value, json};

use super::site::{ServedSite, token};
use super::test;

type Done = Result<(), Failed>;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test("all_that_a_worker_sends_and_gets_fits_the_description", traffic),
        test("a_request_of_another_protocol_is_refused_with_a_sentence", protocol),
    ]
}

/// A worker whose requests and answers are all checked.
struct CheckedWorker {
    site: ServedSite,
    http: reqwest::Client,
    clock: Arc<SystemClock>,
    document: Value,
    /// Operations that were called.
    called: Mutex<BTreeSet<String>>,
}

impl CheckedWorker {
    async fn open() -> Self {
        let clock = Arc::new(SystemClock::new());
        let site = ServedSite::open(Arc::new(MemoryStore::new(clock.clone())), clock.clone()).await;
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().build().expect("a client can be built");
        let mut checked = Self { site, http, clock, document: Value::Null, called: Mutex::default() };
        let document = checked.send("GET", "/openapi.json", None).await;
        checked.document = document.1;
        checked
    }

    fn run(&self) -> RunId {
        RunId(self.clock.uuid())
    }

    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let url = format!("{}/api/v1{path}", self.site.url());
        let method = method.parse().expect("a method");
        let mut call = self.http.request(method, url).bearer_auth(token(WorkspaceId::DEFAULT, "admin"));
        if let Some(body) = body {
            call = call.body(body.to_string());
        }
        let answer = call.send().await.expect("the server answers");
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(&answer.bytes().await.expect("a whole answer")).expect("JSON"))
    }

    fn operation(&self, method: &str, path: &str) -> &Value {
        &self.document["paths"][format!("/api/v1{path}")][method.to_lowercase()]
    }

    fn validator(&self, schema: &Value) -> Validator {
        let whole = json!({"allOf": [schema], "components": self.document["components"]});
        jsonschema::draft202012::new(&whole).expect("a schema")
    }

    /// The schema of an answer, found through the shared answers of problems.
    fn answer_schema(&self, operation: &Value, status: u16) -> Value {
        let answer = &operation["responses"][status.to_string()];
        let answer = match answer["$ref"].as_str().and_then(|at| at.strip_prefix('#')) {
            Some(at) => self.document.pointer(at).expect("the shared answer"),
            None => answer,
        };
        let (_, content) =
            answer["content"].as_object().expect("it has a content").iter().next().expect("one");
        content["schema"].clone()
    }

    /// Calls a route of workers, and checks request and answer against their schemas.
    async fn call(&self, path: &str, body: Value) -> Result<(u16, Value), Failed> {
        let path = format!("/workers{path}");
        let (status, answer) = self.send("POST", &path, Some(&body)).await;
        let operation = self.operation("POST", &path);
        let asked = &operation["requestBody"]["content"]["application/json"]["schema"];
        self.fits(&format!("request of {path}"), asked, &body)?;
        let answered = self.answer_schema(operation, status);
        self.fits(&format!("answer {status} of {path}"), &answered, &answer)?;
        self.called.lock().expect("no panic").insert(operation["operationId"].to_string());
        Ok((status, answer))
    }

    async fn ok(&self, path: &str, body: Value) -> Result<Value, Failed> {
        let (status, answer) = self.call(path, body).await?;
        assert_eq!(status, 200, "{path}: {answer}");
        Ok(answer)
    }

    /// The value fits its schema, and no longer does without a member that is required, or with a wrong one.
    fn fits(&self, what: &str, schema: &Value, value: &Value) -> Done {
        let validator = self.validator(schema);
        if let Some(wrong) = validator.iter_errors(value).next() {
            return Err(format!("{what}: {wrong} at {} of {value}", wrong.instance_path()).into());
        }
        for (member, spoiled) in self.spoiled(schema, value) {
            assert!(!validator.is_valid(&spoiled), "{what}: `{member}` may be anything: {schema}");
        }
        Ok(())
    }

    /// The value with one member spoiled: left out if it is required, and of a type that it never has.
    fn spoiled(&self, schema: &Value, value: &Value) -> Vec<(String, Value)> {
        let schema = match schema["$ref"].as_str().and_then(|at| at.strip_prefix('#')) {
            Some(at) => self.document.pointer(at).expect("the schema"),
            None => schema,
        };
        let (Some(properties), Some(members)) = (schema["properties"].as_object(), value.as_object()) else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for (name, _) in properties.iter().filter(|(name, _)| members.contains_key(*name)) {
            if schema["required"].as_array().is_some_and(|required| required.contains(&json!(name))) {
                let mut without = members.clone();
                without.remove(name);
                all.push((name.clone(), Value::Object(without)));
            }
            // Payloads may be any JSON.
            if !["payload", "input", "value"].contains(&name.as_str()) {
                let mut other = members.clone();
                other.insert(name.clone(), json!({"neither": [1.5]}));
                all.push((name.clone(), Value::Object(other)));
            }
        }
        all
    }
}

fn id(value: &Value) -> String {
    value.as_str().expect("an id").to_owned()
}

async fn traffic() -> Done {
    let worker = CheckedWorker::open().await;
    let node = NodeId(worker.clock.uuid());
    let join = json!({"node": node, "name": "w", "serves": ["order@1", "queue:payments"], "leaseMs": 60_000});
    worker.ok("", join).await?;
    let (first, second) = (worker.run(), worker.run());
    starts(&worker, node, first, second).await?;
    drives(&worker, node, first).await?;
    shares(&worker, first).await?;
    reads(&worker, first).await?;
    tasks(&worker, node).await?;
    refusals(&worker).await?;
    worker
        .ok("/control", json!({"run": second, "action": {"cancel": {"reason": "enough"}}, "by": "ann"}))
        .await?;
    let (_, list) = worker.send("GET", "/workers", None).await;
    let operation = worker.operation("GET", "/workers");
    worker.fits("the list of workers", &worker.answer_schema(operation, 200), &list)?;
    worker.ok("/release", json!({"node": node})).await?;
    every_route_was_called(&worker);
    Ok(())
}

/// Starts with a preset by its name, with a matrix, and one that is refused.
async fn starts(worker: &CheckedWorker, node: NodeId, first: RunId, second: RunId) -> Done {
    let row = |action: &str| json!({"open": action, "completed": action, "failed": action, "cancelled": action, "timedOut": action});
    let one = json!({"run": first, "workflow": "order", "input": {"n": 7}, "key": "a", "policy": "strict",
        "retention": {"historyMs": 3_600_000, "keyMs": 7_200_000}, "timeoutMs": 86_400_000});
    let two = json!({"run": second, "workflow": "order", "workflowVersion": "1", "input": 7, "key": "b", "scope": "workflow",
        "policy": {"same": row("attach"), "other": row("refuse")}, "excluded": ["/sentAt"], "delayMs": 3_600_000,
        "deliver": {"token": "early", "payload": [1], "id": "d-1"}, "claim": node});
    let other = json!({"run": worker.run(), "workflow": "order", "input": {"n": 8}, "key": "a"});
    let answers = worker.ok("/start", json!({"starts": [one, two, other]})).await?;
    let answers = &answers["answers"];
    assert_eq!(
        answers[0]["ok"]["run"]["new"]["retention"],
        json!({"historyMs": 3_600_000, "keyMs": 7_200_000})
    );
    assert_eq!(answers[1]["ok"]["verdict"], "created", "{answers}");
    assert_eq!(answers[2]["error"]["keyReused"]["pointers"], json!(["/input/n"]), "{answers}");
    let unknown =
        json!({"run": worker.run(), "workflow": "order", "input": 1, "key": "c", "policy": "whatever"});
    let (status, problem) = worker.send("POST", "/workers/start", Some(&json!({"starts": [unknown]}))).await;
    assert_eq!(status, 400, "{problem}");
    Ok(())
}

/// A run is claimed, driven with entries of all kinds, and claimed again in both forms.
async fn drives(worker: &CheckedWorker, node: NodeId, run: RunId) -> Done {
    let claim = |folded: bool| json!({"node": node, "workflows": [{"workflow": "order"}], "limit": 10, "waitMs": 0, "folded": folded});
    let claims = worker.ok("/claim", claim(true)).await?;
    let claimed = claims["runs"][0].clone();
    assert_eq!(id(&claimed["run"]), run.to_string(), "{claims}");
    let entries = json!([
        {"stepStarted": {"step": "charge", "attempt": 1}},
        {"stepCompleted": {"step": "charge", "value": {"id": 1}}},
        {"stepStarted": {"step": "letter", "attempt": 1, "class": "reconcile"}},
        {"stepStarted": {"step": "pack[ink]", "attempt": 1}},
        {"stepFailed": {"step": "pack[ink]", "attempt": 1, "error": {"kind": "retryable", "message": "no", "code": "BUSY", "data": [1]}, "retryAt": 7}},
        {"stepSkipped": {"step": "gift", "reason": "not asked for"}},
        {"timerSet": {"timer": "nap", "at": 5}},
        {"timerFired": {"timer": "nap"}},
        {"recorded": {"at": "@now[t]", "value": 12}},
        {"once": {"label": "rate", "value": 0.94}},
        {"waiting": {"due": 1}}
    ]);
    let drafts = json!([
        {"after": 10, "draft": {"openHook": {"hook": "@hook[a]", "token": "approve-7"}}},
        {"after": 10, "draft": {"startChild": {"child": "price", "run": worker.run(), "workflow": "price", "workflowVersion": "1", "input": "ink"}}}
    ]);
    let commit = json!({"run": run, "node": node, "expected": claimed["version"], "seen": 0, "entries": entries, "drafts": drafts});
    let lost = json!({"run": run, "expected": 1, "entries": [{"waiting": {"due": null}}]});
    let misfit = json!({"run": worker.run(), "expected": 1, "entries": [{"timerFired": {"timer": "none"}}]});
    let saved = worker.ok("/commit", json!({"commits": [commit, lost, misfit]})).await?;
    assert_eq!(saved["answers"][0]["ok"]["settled"].as_array().map(Vec::len), Some(2), "{saved}");
    assert!(saved["answers"][1]["error"]["concurrency"].is_object(), "{saved}");
    let click = json!({"token": "approve-7", "payload": {"ok": true}, "id": "click-1"});
    let delivered = worker.ok("/deliver", click.clone()).await?;
    assert_eq!(id(&delivered["run"]), run.to_string());
    assert_eq!(worker.ok("/deliver", click).await?["absorbed"], true, "and there is a receipt");
    let again = worker.ok("/claim", claim(false)).await?;
    assert!(again["runs"][0]["entries"].as_array().is_some_and(|entries| entries.len() > 10), "{again}");
    let folded =
        json!({"node": node, "workflows": [{"workflow": "order"}], "limit": 1, "run": run, "folded": true});
    let folded = worker.ok("/claim", folded).await?["runs"][0].clone();
    assert_eq!(folded["records"].as_object().map(serde_json::Map::len), Some(8), "{folded}");
    let beat = json!({"node": node, "leaseMs": 60_000, "runs": [{"run": run, "fence": folded["fence"], "seen": 0}],
        "steps": [{"run": worker.run(), "fence": 2}]});
    let beat = worker.ok("/heartbeat", beat).await?;
    assert_eq!(
        (&beat["news"][0]["arrived"], &beat["stop"][0]["reason"]),
        (&json!(1), &json!("ended")),
        "{beat}"
    );
    let entries = json!([
        {"hookReceived": {"hook": "@hook[a]", "arrival": 1, "payload": {"ok": true}}},
        {"hookClosed": {"hook": "@hook[a]"}},
        {"stepInDoubt": {"step": "letter", "reason": "the post office does not answer"}},
        {"paused": {"reason": "inDoubt"}}
    ]);
    let commit = json!({"run": run, "expected": folded["version"], "seen": 1, "entries": entries});
    let saved = worker.ok("/commit", json!({"commits": [commit]})).await?;
    assert!(saved["answers"][0]["ok"]["version"].is_u64(), "{saved}");
    let resolve = json!({"resolve": {"step": "letter", "resolution": {"giveUp": {"kind": "fatal", "message": "lost"}}}});
    worker
        .ok("/control", json!({"run": run, "action": resolve, "by": "ann", "id": "call-1", "expected": null}))
        .await?;
    Ok(())
}

/// Values of `run_once` that runs share.
async fn shares(worker: &CheckedWorker, run: RunId) -> Done {
    let once = |scope: Value, ask: Value| {
        worker.ok("/once", json!({"scope": scope, "label": "rate", "run": run, "ask": ask}))
    };
    let mine = once(json!("workspace"), json!("claim")).await?;
    let settle = json!({"settle": {"fence": mine["mine"], "value": 0.94, "ttlMs": 3_600_000}});
    assert_eq!(once(json!("workspace"), settle).await?, json!({"settled": 0.94}));
    let mine = once(json!({"key": ["*", "a"]}), json!("claim")).await?;
    let release = json!({"release": {"fence": mine["mine"]}});
    assert_eq!(once(json!({"key": ["*", "a"]}), release).await?, json!("released"));
    Ok(())
}

async fn reads(worker: &CheckedWorker, run: RunId) -> Done {
    for by in [json!({"id": run}), json!({"key": ["*", "a"]}), json!({"call": "call-1"})] {
        let found = worker.ok("/find", json!({"by": by})).await?;
        assert_eq!(id(&found["run"]["new"]["id"]), run.to_string(), "{by}");
    }
    assert_eq!(worker.ok("/find", json!({"by": {"token": "unowned"}})).await?, Value::Null);
    let page = worker
        .ok("/list", json!({"workflow": "order", "status": null, "since": null, "before": null, "limit": 1}))
        .await?;
    assert_eq!(page["runs"].as_array().map(Vec::len), Some(1), "{page}");
    let counts = worker.ok("/counts", json!({"cap": 100})).await?;
    // The doubt is settled, so its run goes on; its child is open too.
    let open = |workflow: &str, open: u32| json!({"workflow": workflow, "open": open, "paused": 0});
    assert_eq!(
        counts,
        json!({"workflows": [open("order", 2), open("price", 1)], "inDoubt": 0, "capped": false})
    );
    for (path, least) in [("/ledger", 15), ("/inbox", 0), ("/receipts", 1)] {
        let all = worker.ok(path, json!({"run": run, "from": 1, "maxBytes": 8_388_608})).await?;
        assert!(all.as_array().is_some_and(|all| all.len() >= least), "{path}: {all}");
    }
    Ok(())
}

/// Steps of a queue: one is completed, one fails, one was never held.
async fn tasks(worker: &CheckedWorker, node: NodeId) -> Done {
    let task = |key: &str| json!({"run": worker.run(), "workflow": "queue:payments", "input": {"step": "pay", "input": 7, "timeoutMs": 60_000}, "key": key});
    worker.ok("/start", json!({"starts": [task("p-1"), task("p-2")]})).await?;
    let taken = worker.ok("/steps/claim", json!({"node": node, "queues": ["payments"], "limit": 10})).await?;
    let (one, two) = (&taken["steps"][0], &taken["steps"][1]);
    let done = json!({"run": one["run"], "fence": one["fence"], "value": {"receipt": 1}});
    let lost = json!({"run": worker.run(), "fence": 2, "value": 1});
    let answers = worker.ok("/steps/complete", json!({"node": node, "steps": [done, lost]})).await?;
    assert_eq!(
        (&answers["results"][0]["status"], &answers["results"][1]["status"]),
        (&json!(200), &json!(404))
    );
    let failed = json!({"run": two["run"], "fence": two["fence"], "kind": "fatal", "message": "no", "code": "NO", "data": {"a": 1}});
    let answers = worker.ok("/steps/fail", json!({"steps": [failed]})).await?;
    assert_eq!(answers["results"][0]["status"], json!(200), "{answers}");
    Ok(())
}

/// Refused calls are described too: a problem, with the error in the store's terms.
async fn refusals(worker: &CheckedWorker) -> Done {
    let (status, problem) = worker.call("/ledger", json!({"run": worker.run()})).await?;
    assert_eq!((status, problem["error"]["runNotFound"].is_string()), (404, true), "{problem}");
    let (status, problem) =
        worker.call("/heartbeat", json!({"node": NodeId(worker.clock.uuid()), "leaseMs": 1})).await?;
    assert_eq!((status, problem["error"]["nodeLost"].is_string()), (409, true), "{problem}");
    Ok(())
}

/// Every route of the description was called; none has a schema that says nothing.
fn every_route_was_called(worker: &CheckedWorker) {
    let called = worker.called.lock().expect("no panic");
    let paths = worker.document["paths"].as_object().expect("a map");
    for (path, item) in paths.iter().filter(|(path, _)| path.starts_with("/api/v1/workers")) {
        for (method, operation) in item.as_object().expect("a map") {
            let ok = worker.answer_schema(operation, 200);
            assert!(
                ok["$ref"].is_string() || ok["items"].is_object() || ok["oneOf"].is_array(),
                "{path}: {ok}"
            );
            assert!(
                method == "get" || called.contains(&operation["operationId"].to_string()),
                "{path} was not called"
            );
            let header = operation["parameters"]
                .as_array()
                .is_some_and(|all| all.iter().any(|parameter| parameter["name"] == "Semel-Protocol"));
            assert!(header, "{path} takes the header of the protocol");
        }
    }
}

async fn protocol() -> Done {
    let worker = CheckedWorker::open().await;
    let ask = |protocol: Option<&'static str>, path: &'static str| {
        let call = worker.http.get(format!("{}/api/v1{path}", worker.site.url()));
        let call = call.bearer_auth(token(WorkspaceId::DEFAULT, "admin"));
        let call = protocol.into_iter().fold(call, |call, protocol| call.header("Semel-Protocol", protocol));
        async move {
            let answer = call.send().await.expect("the server answers");
            let said =
                answer.headers().get("semel-protocol").map(|said| said.to_str().expect("text").to_owned());
            let (status, text) = (answer.status().as_u16(), answer.text().await.expect("text"));
            (status, said, text)
        }
    };
    let one = Some("1".to_owned());
    for spoken in [None, Some("1")] {
        let (status, said, _) = ask(spoken, "/workers").await;
        assert_eq!((status, &said), (200, &one), "{spoken:?}");
    }
    let (status, said, text) = ask(Some("2"), "/workers").await;
    assert_eq!((status, &said), (400, &one), "{text}");
    for part in ["version 1", "version 2", "install release", env!("CARGO_PKG_VERSION"), "VALIDATION_ERROR"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(ask(Some("2"), "/workflow-runs").await.0, 200, "other routes have no protocol of workers");
    Ok(())
}
