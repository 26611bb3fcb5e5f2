//! Secrets of connections: used by every kind of call, echoed by the other side in every way, and found nowhere afterwards.

#![expect(clippy::unwrap_used, reason = "a test that fails by unwrap says where")]

use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use libtest_mimic::Trial;
use reqwest::Method;
use serde_json::json;
use tokio::net::TcpListener;

use crate::cli::say;
use crate::process::Process;
use crate::world::{Api, Reply, runtime};

pub(crate) fn trials() -> Vec<Trial> {
    crate::served_trials![no_secret_of_a_connection_is_found_anywhere]
}

const BEARER: &str = "canary-bearer/+=0123";
const HEADER: &str = "canary-header-4567";
const PASSWORD: &str = "canary-password-89ab";
const SIGNING: &str = "canary-signing-key-cdef-0123456789";
/// `shop:` and the password, as the header `authorization` has it.
const BASIC: &str = "c2hvcDpjYW5hcnktcGFzc3dvcmQtODlhYg";
/// What may not be found: the secrets, and the forms in which they travel.
const CANARIES: [&str; 7] =
    [BEARER, HEADER, PASSWORD, SIGNING, BASIC, "canary-bearer%2F%2B%3D0123", "Y2FuYXJ5LWhlYWRlci00NTY3"];

/// Whether the secrets reached the other side at all.
type Seen = Arc<Mutex<String>>;

/// A partner that gives back whatever it was sent.
async fn echoing(seen: Seen) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(move |request: Request| echo(seen.clone(), request));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    base
}

/// Gives back a request as the last part of its path says.
async fn echo(seen: Seen, request: Request) -> Response {
    let headers: Vec<(String, String)> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let path = request.uri().to_string();
    let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let body = String::from_utf8_lossy(&body).into_owned();
    // Each partner knows its own secrets.
    let (secret, other) = match path.split('/').nth(1) {
        Some("tokens") => (BEARER, HEADER),
        Some("people") => (PASSWORD, BASIC),
        _ => (SIGNING, SIGNING),
    };
    let in_address: String = secret.replace('/', "%2F").replace('+', "%2B").replace('=', "%3D");
    let text = format!("{headers:?} {body} {secret} {other} {in_address} {path}");
    seen.lock().unwrap().push_str(&text);
    let escaped: String = secret.chars().map(|c| format!("\\u{:04x}", c as u32)).collect();
    let coded = if secret == BEARER { "Y2FuYXJ5LWhlYWRlci00NTY3" } else { "" };
    let all = json!({"headers": headers, "body": body, "told": text, "coded": coded});
    match path.split('?').next().unwrap_or_default().rsplit('/').next().unwrap_or_default() {
        "json" => {
            ([("content-type", "application/json"), ("x-request-id", other)], all.to_string()).into_response()
        }
        "escaped" => format!("{{\"a\": \"{escaped}\", \"{escaped}\": 1}}").into_response(),
        "text" => text.into_response(),
        "refused" => (StatusCode::UNPROCESSABLE_ENTITY, all.to_string()).into_response(),
        "failed" => (StatusCode::INTERNAL_SERVER_ERROR, text).into_response(),
        "near" => (StatusCode::FOUND, [("location", format!("json?token={in_address}"))]).into_response(),
        "far" => (StatusCode::FOUND, [("location", format!("http://10.0.0.1/{other}?a={in_address}"))])
            .into_response(),
        "password" => (StatusCode::FOUND, [("location", format!("http://shop:{in_address}@127.0.0.1/"))])
            .into_response(),
        "moved" => (StatusCode::SEE_OTHER, [("location", format!("/{other}"))]).into_response(),
        "asks" => (StatusCode::UNAUTHORIZED, [("www-authenticate", other)], text).into_response(),
        other => (StatusCode::NOT_FOUND, format!("{other}: {text}")).into_response(),
    }
}

fn connections(base: &str, folder: &Path) -> String {
    let password = folder.join("password");
    std::fs::write(&password, format!("{PASSWORD}\n")).unwrap();
    format!(
        "[connections.tokens]\nkind = \"http\"\nbase = \"{base}\"\n\
         headers = {{ authorization = {{ bearer = {{ env = \"BEARER\" }} }}, x-api-key = {{ env = \"HEADER\" }} }}\n\
         profile = {{ by = \"key\", header = \"Idempotency-Key\", window = \"for-ever\" }}\n\
         [connections.people]\nkind = \"http\"\nbase = \"{base}\"\n\
         headers = {{ authorization = {{ basic = {{ user = \"shop\", password = {{ file = \"{}\" }} }} }} }}\n\
         [connections.told]\nkind = \"webhook\"\nurl = \"{base}\"\nsecret = {{ env = \"SIGNING\" }}\n",
        password.display()
    )
}

/// Every call, each caught, so that also its error is recorded and returned.
fn definition() -> String {
    let mut text = "semel: 1\nname: canaries\nsteps:\n".to_owned();
    let mut names = Vec::new();
    let reads = ["json", "escaped", "text", "refused", "failed", "near", "far", "password", "asks", "gone"];
    let writes = ["json", "text", "refused", "moved"];
    let mut calls = vec!["webhook: {on: told, path: /told/refused, type: a.b, data: {n: 1}}".to_owned()];
    for on in ["tokens", "people"] {
        calls.extend(reads.iter().map(|path| format!("http: {{on: {on}, get: /{on}/{path}}}")));
        let write =
            |path| format!("http: {{on: {on}, post: /{on}/{path}, json: {{key: '{{{{ effect.key }}}}'}}}}");
        calls.extend(writes.iter().map(write));
    }
    for (n, call) in calls.iter().enumerate() {
        text += &format!(
            "  - name: s{n}\n    try: [{{name: call, {call}, retry: {{attempts: 1}}}}]\n    \
             catch: [{{steps: [{{name: caught, set: {{error: '{{{{ error }}}}'}}}}]}}]\n"
        );
        names.push(format!("s{n}: '{{{{ steps.s{n} }}}}'"));
    }
    text + &format!("return: {{{}}}\n", names.join(", "))
}

async fn no_secret_of_a_connection_is_found_anywhere() {
    let (folder, seen) = (tempfile::tempdir().unwrap(), Seen::default());
    let base = echoing(seen.clone()).await;
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (config, store) = (path("semel.toml"), format!("sqlite:{}", path("semel.db")));
    std::fs::write(&config, connections(&base, folder.path())).unwrap();
    let environment = [
        ("SEMEL_AUTH", "none"),
        ("SEMEL_LOG", "trace"),
        ("SEMEL_CONFIG", &config),
        ("BEARER", BEARER),
        ("HEADER", HEADER),
        ("SIGNING", SIGNING),
    ];
    let mut server = Process::serve(&["--store", &store], &environment);
    server.drain();
    let api = Api::at(server.base());
    let mut answers = String::new();
    api.post("/workflow-definitions", definition()).await.ok();
    let start = json!({"definitionId": "canaries", "idempotencyKey": "k"}).to_string();
    let run = api.post("/workflow-runs", start).await.run_id();
    let ended = api.ended(&run).await;
    assert_eq!(ended["status"], "COMPLETED", "{ended}");
    for path in [
        format!("/workflow-runs/{run}?include=ledger"),
        format!("/workflow-runs/{run}/ledger"),
        "/workflow-runs".to_owned(),
        "/workflow-definitions/canaries".to_owned(),
        "/connections".to_owned(),
        "/audit".to_owned(),
    ] {
        answers += &api.get(&path).await.text;
    }
    answers += &api.post(&format!("/workflow-runs/{run}/replay"), "{}").await.text;
    answers += &Reply::of(api.outside(Method::GET, "/metrics")).await.text;
    let log = server.ended();
    let archive = path("archive.ndjson");
    drop(say(&["store", "export", "--store", &store, &archive]).ends(0));
    let sent = seen.lock().unwrap().clone();
    for secret in [BEARER, HEADER, BASIC] {
        assert!(sent.contains(secret), "{secret} was sent");
    }
    assert!(answers.contains("***"), "what was echoed is there, without secrets: {answers:.300}");
    let mut places = vec![("answers".to_owned(), answers.into_bytes()), ("log".to_owned(), log.into_bytes())];
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let file = file.unwrap().path();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if name != "password" {
            places.push((name, std::fs::read(&file).unwrap()));
        }
    }
    assert!(places.len() >= 5, "store, archive and configuration are there too");
    for (name, bytes) in places {
        for canary in CANARIES {
            let hits = bytes.windows(canary.len()).filter(|window| *window == canary.as_bytes()).count();
            assert_eq!(hits, 0, "{canary} in {name}");
        }
    }
}
