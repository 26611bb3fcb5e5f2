//! Who may push, what the audit says of it, and what others see: nothing.

use libtest_mimic::Trial;
use reqwest::Method;
use serde_json::{Value, json};

use crate::served::{ROOT, Served, Token, keyed};
use crate::world::{Reply, runtime};

pub(crate) fn trials() -> Vec<Trial> {
    crate::served_trials![
        a_push_needs_define_and_a_read_needs_read,
        pushes_uses_and_archives_are_in_the_audit,
        definitions_of_another_workspace_answer_like_unknown_ones,
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

async fn the_schema_for_editors_needs_no_token() {
    let served = Served::open(&keyed()).await;
    let schema = served.caller("nonsense").get("/definition.schema.json").await.ok();
    assert_eq!(schema["title"], "Definition of a Semel workflow");
}
