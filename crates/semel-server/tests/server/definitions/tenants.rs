//! Who may push, what the audit says of it, and what others see: nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use libtest_mimic::Trial;
use reqwest::Method;
use semel_server::config::{Config, StoreAddress};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::served::{ROOT, Served, Token, keyed};
use crate::world::{Reply, runtime};

pub(crate) fn trials() -> Vec<Trial> {
    crate::served_trials![
        a_push_needs_define_and_a_read_needs_read,
        pushes_uses_and_archives_are_in_the_audit,
        definitions_of_another_workspace_answer_like_unknown_ones,
        connections_are_those_of_the_workspace_that_pushes,
        a_run_whose_connection_was_closed_to_its_workspace_sends_nothing,
        the_schema_for_editors_needs_no_token,
    ]
}

const PUSH: &str = "/workflow-definitions";

fn definition(wait: &str) -> Value {
    json!({"semel": 1, "name": "greet", "steps": [{"name": "pause", "wait": wait}]})
}

async fn a_push_needs_define_and_a_read_needs_read() {
    let served = Served::open(&keyed()).await;
    let root = served.caller(ROOT);
    let (_, define) = root.key(None, &["define"]).await;
    let (_, admin) = root.key(None, &["admin"]).await;
    let (_, reader) = root.key(None, &["read"]).await;
    let (_, others) = root.key(None, &["read", "start", "worker"]).await;
    let changes = [
        (PUSH.to_owned(), definition("1s")),
        (format!("{PUSH}?check=true"), definition("1s")),
        (format!("{PUSH}/greet/use"), json!({"version": "1"})),
        (format!("{PUSH}/greet/archive"), json!({})),
    ];
    for (path, body) in &changes {
        let refused = others.post(path, body).await.problem(403, "FORBIDDEN");
        assert!(refused["detail"].as_str().unwrap().contains("`define`"), "{refused}");
        root.post(path, body).await.problem(403, "FORBIDDEN");
        define.post(path, body).await.ok();
        admin.post(path, body).await.ok();
    }
    for path in [PUSH.to_owned(), format!("{PUSH}/greet"), format!("{PUSH}/greet/graph")] {
        reader.get(&path).await.ok();
        define.get(&path).await.problem(403, "FORBIDDEN");
    }
    let start = json!({"definitionId": "greet"});
    define.post("/workflow-runs", &start).await.problem(403, "FORBIDDEN");
}

async fn pushes_uses_and_archives_are_in_the_audit() {
    let served = Served::open(&keyed()).await;
    let (id, define) = served.caller(ROOT).key(None, &["define"]).await;
    let pushed = define.post(PUSH, &definition("1s")).await.ok();
    define.post(&format!("{PUSH}?check=true"), &definition("2s")).await.ok();
    define.post(PUSH, &json!({})).await.problem(400, "VALIDATION_ERROR");
    define.post(&format!("{PUSH}/greet/use"), &json!({"version": "1"})).await.ok();
    define.post(&format!("{PUSH}/greet/archive"), &json!({})).await.ok();
    let calls = served.caller(ROOT).get("/audit").await.ok();
    let calls: Vec<_> = calls["calls"].as_array().unwrap().iter().filter(|call| call["by"] == *id).collect();
    let told: Vec<_> = calls
        .iter()
        .map(|call| (call["subject"].as_str().unwrap(), call["status"].as_u64().unwrap()))
        .collect();
    let version = format!("{PUSH}/{}", pushed["id"].as_str().unwrap());
    let (used, archived) = (format!("{PUSH}/greet/use"), format!("{PUSH}/greet/archive"));
    assert_eq!(
        told,
        [(&*archived, 200), (&*used, 200), (PUSH, 400), (&*version, 201)],
        "a check is not there"
    );
}

/// Two workspaces, each with an administrator.
async fn two(root: &Token) -> [Token; 2] {
    for name in ["acme", "bolt"] {
        root.post("/workspaces", &json!({"name": name})).await.ok();
    }
    [root.key(Some("acme"), &["admin"]).await.1, root.key(Some("bolt"), &["admin"]).await.1]
}

async fn definitions_of_another_workspace_answer_like_unknown_ones() {
    let served = Served::open(&keyed()).await;
    let [acme, bolt] = two(&served.caller(ROOT)).await;
    let pushed = bolt.post(PUSH, &definition("1s")).await.ok();
    let id = pushed["id"].as_str().unwrap();
    let unknown = "def1_00000000000000000000000000";
    let alike = async |method: Method, path: &str, body: &str, [foreign, unknown]: [&str; 2]| {
        let ask = async |id: &str| {
            let body = body.replace("{}", id);
            let reply = Reply::of(acme.request(method.clone(), &path.replace("{}", id)).body(body)).await;
            (reply.status, reply.text.replace(id, "ID"))
        };
        let answer = ask(foreign).await;
        assert_eq!(answer, ask(unknown).await, "{method} {path}");
        assert_eq!(answer.0, 404, "{method} {path}: {}", answer.1);
    };
    for [foreign, unknown] in [[id, unknown], ["greet", "unknown"], ["greet@1", "unknown@1"]] {
        alike(Method::GET, &format!("{PUSH}/{{}}"), "", [foreign, unknown]).await;
        alike(Method::GET, &format!("{PUSH}/{{}}/graph"), "", [foreign, unknown]).await;
        alike(Method::POST, "/workflow-runs", "{\"definitionId\": \"{}\"}", [foreign, unknown]).await;
    }
    alike(Method::POST, &format!("{PUSH}/{{}}/archive"), "", ["greet", "unknown"]).await;
    alike(Method::POST, &format!("{PUSH}/{{}}/use"), "{\"version\": \"1\"}", ["greet", "unknown"]).await;
    assert_eq!(acme.get(PUSH).await.ok()["definitions"], json!([]));
    // The same content is another definition there, with labels of its own.
    let own = acme.post(PUSH, &definition("1s")).await;
    assert_eq!((own.status, &own.json()["id"]), (201, &pushed["id"]));
    acme.post(&format!("{PUSH}/greet/archive"), &json!({})).await.ok();
    bolt.post("/workflow-runs", &json!({"definitionId": "greet"})).await.ok();
}

/// The problems of a push: pointer, line and column, and message.
async fn problems(caller: &Token, document: &str) -> Vec<(String, String, String)> {
    let reply = Reply::of(caller.request(Method::POST, PUSH).body(document.to_owned())).await;
    let refused = reply.problem(400, "VALIDATION_ERROR");
    let all = refused["problems"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    all.map(|problem| {
        let place = format!("{}:{}", problem["line"], problem["column"]);
        (text(&problem["pointer"]), place, text(&problem["message"]))
    })
    .collect()
}

async fn connections_are_those_of_the_workspace_that_pushes() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "the secret of the receiver").unwrap();
    let text = format!(
        "[connections.acmes]\nkind = 'http'\nbase = 'https://acme.example'\nworkspaces = ['acme']\n\
         [connections.told]\nkind = 'webhook'\nurl = 'https://told.example'\nsecret = {{ file = '{}' }}\n",
        secret.display()
    );
    let configured: Config = toml::from_str(&text).unwrap();
    let served = Served::open(&Config { connections: configured.connections, ..keyed() }).await;
    let [acme, bolt] = two(&served.caller(ROOT)).await;
    let document = "semel: 1
name: calls
steps:
  - {name: own, http: {on: acmes, post: /a}}
  - {name: kind, http: {on: told, get: /b}}
  - name: none
    webhook: {on: nowhere, type: a.b, data: 1}
  - {name: other, webhook: {on: acmes, type: a.b, data: 1}}
";
    let at = |line: usize, name: &str| {
        let column = document.lines().nth(line - 1).unwrap().find(name).unwrap() + 1;
        format!("{line}:{column}")
    };
    let problem =
        |pointer: &str, place: String, message: &str| (pointer.to_owned(), place, message.to_owned());
    let kind = problem(
        "/steps/1/http/on",
        at(5, "told"),
        "the connection `told` is of the kind `webhook`, and `http` is needed",
    );
    let none = |pointer: &str, line, name: &str| {
        problem(pointer, at(line, name), &format!("there is no connection `{name}` for this workspace"))
    };
    let unknown = none("/steps/2/webhook/on", 7, "nowhere");
    let other = problem(
        "/steps/3/webhook/on",
        at(8, "acmes"),
        "the connection `acmes` is of the kind `http`, and `webhook` is needed",
    );
    assert_eq!(problems(&acme, document).await, [kind.clone(), unknown.clone(), other]);
    let closed =
        [none("/steps/0/http/on", 4, "acmes"), kind, unknown, none("/steps/3/webhook/on", 8, "acmes")];
    assert_eq!(problems(&bolt, document).await, closed, "what is closed looks like what does not exist");
    let names = async |caller: &Token| {
        let listed = caller.get("/connections").await.ok();
        let all = listed["connections"].as_array().unwrap().iter();
        all.map(|connection| connection["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        (names(&acme).await, names(&bolt).await),
        (vec!["acmes".to_owned(), "told".to_owned()], vec!["told".to_owned()])
    );
}

/// An address that counts what is sent to it.
async fn counting(calls: Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let count = move || {
        calls.fetch_add(1, Ordering::SeqCst);
        std::future::ready("{}")
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(count)).await.unwrap() });
    base
}

/// Both workspaces push while the connection is open to both; then the operator closes it to one of them.
async fn a_run_whose_connection_was_closed_to_its_workspace_sends_nothing() {
    let (folder, calls) = (tempfile::tempdir().unwrap(), Arc::new(AtomicUsize::new(0)));
    let base = counting(calls.clone()).await;
    let config = |workspaces: &str| {
        let text =
            format!("[connections.shop]\nkind = 'http'\nbase = '{base}'\nworkspaces = [{workspaces}]\n");
        let configured: Config = toml::from_str(&text).unwrap();
        let store = StoreAddress::new(format!("sqlite:{}", folder.path().join("semel.db").display()));
        Config { connections: configured.connections, store, ..keyed() }
    };
    let document = json!({"semel": 1, "name": "calls", "steps": [
        {"name": "call", "http": {"on": "shop", "post": "/orders"}, "retry": {"attempts": 1}}
    ]});
    let served = Served::open(&config("'acme', 'bolt'")).await;
    let callers = two(&served.caller(ROOT)).await;
    for caller in &callers {
        caller.post(PUSH, &document).await.ok();
    }
    served.stop.order();
    served.stopped().await;
    let served = Served::open(&config("'acme'")).await;
    let mut outcomes = Vec::new();
    for caller in &callers {
        let caller = served.caller(caller.text());
        let start = json!({"definitionId": "calls", "idempotencyKey": "k"});
        let asked = caller.request(Method::POST, "/workflow-runs").header("prefer", "wait=60");
        let run = Reply::of(asked.body(start.to_string())).await.json()["run"].clone();
        outcomes.push((run["status"].clone(), run["error"]["code"].clone()));
    }
    assert_eq!(outcomes, [(json!("COMPLETED"), Value::Null), (json!("FAILED"), json!("CONNECTION"))]);
    assert_eq!(calls.load(Ordering::SeqCst), 1, "acme's call alone was made");
}

async fn the_schema_for_editors_needs_no_token() {
    let served = Served::open(&keyed()).await;
    let schema = served.caller("nonsense").get("/definition.schema.json").await.ok();
    assert_eq!(schema["title"], "Definition of a Semel workflow");
}
