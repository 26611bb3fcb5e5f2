//! Secrets of connections, used by every kind of call and echoed by the other side in every way, and those of addresses, of links and of
//! their senders: found nowhere afterwards.

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
use semel::clock::{Clock as _, SystemClock};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::cli::{ended, semel};
use crate::process::Process;
use crate::senders::{borrowed, standard};
use crate::world::{Api, Reply, fresh_schema, runtime};

pub(crate) fn trials() -> Vec<Trial> {
    crate::served_trials![
        no_secret_is_found_anywhere_beside_sqlite,
        no_secret_is_found_anywhere_beside_postgresql,
    ]
}

const BEARER: &str = "canary-bearer/+=0123";
const HEADER: &str = "canary-header-4567";
const PASSWORD: &str = "canary-password-89ab";
const SIGNING: &str = "canary-signing-key-cdef-0123456789";
/// Secret of a sender of webhooks, and what it is the base64 of.
const SENDER: &str = "whsec_Y2FuYXJ5LXNlbmRlci0wMTIzNDU2Nzg5";
const SENDER_RAW: &str = "canary-sender-0123456789";
/// `shop:` and the password, as the header `authorization` has it.
const BASIC: &str = "c2hvcDpjYW5hcnktcGFzc3dvcmQtODlhYg";
/// What may not be found: the secrets, and the forms in which they travel.
const CANARIES: [&str; 9] = [
    BEARER,
    HEADER,
    PASSWORD,
    SIGNING,
    BASIC,
    SENDER,
    SENDER_RAW,
    "canary-bearer%2F%2B%3D0123",
    "Y2FuYXJ5LWhlYWRlci00NTY3",
];

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
         sender-secret = {{ env = \"SENDER\" }}\n\
         profile = {{ by = \"key\", header = \"Idempotency-Key\", window = \"for-ever\" }}\n\
         [connections.people]\nkind = \"http\"\nbase = \"{base}\"\n\
         headers = {{ authorization = {{ basic = {{ user = \"shop\", password = {{ file = \"{}\" }} }} }} }}\n\
         [connections.told]\nkind = \"webhook\"\nurl = \"{base}\"\nsecret = {{ env = \"SIGNING\" }}\n",
        password.display()
    )
}

/// Every call, each caught, so that also its error is recorded and returned.
fn definition() -> String {
    let mut text = "semel: 1\nname: canaries\nhooks: {payments: canaries}\nsteps:\n".to_owned();
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
    text +=
        "  - {name: approve, approval: {title: the last word}}\n  - {name: told, event: {hook: payments}}\n";
    text + &format!("return: {{{}}}\n", names.join(", "))
}

/// A server process, and everything that it has said so far.
struct Listener {
    folder: TempDir,
    environment: Vec<(&'static str, String)>,
    api: Api,
    answers: String,
    /// Secrets that the server has made: parts of addresses and of links.
    made: Vec<String>,
}

impl Listener {
    fn path(folder: &TempDir, name: &str) -> String {
        folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn environment(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.environment.iter().map(|(name, value)| (*name, value.as_str()))
    }

    async fn get(&mut self, path: &str) {
        self.answers += &self.api.get(path).await.text;
    }

    async fn outside(&mut self, method: Method, path: &str) -> Reply {
        let reply = Reply::of(self.api.outside(method, path)).await;
        self.answers += &reply.text;
        reply
    }

    /// What a command says that needs the server or its configuration.
    async fn command(&mut self, arguments: &[&str]) {
        let mut command = semel(arguments);
        command.envs(self.environment()).env("SEMEL_URL", self.api.url());
        let said = tokio::task::spawn_blocking(move || ended(command.spawn().unwrap())).await.unwrap();
        assert!(!said.stdout().is_empty(), "{said:?}");
        self.answers += &said.all();
    }

    /// An approval that is asked for by the run, decided by a link.
    async fn decide(&mut self) {
        let open = self.api.get("/approvals").await.ok();
        let id = open["approvals"][0]["id"].as_str().unwrap().to_owned();
        self.get("/approvals").await;
        let links = json!({"choices": ["approved", "rejected"]}).to_string();
        let links = self.api.post(&format!("/approvals/{id}/links"), links).await.ok();
        let link = |n: usize| links["links"][n]["path"].as_str().unwrap().to_owned();
        let secret = |link: &str| link.split_once("sig=").unwrap().1.to_owned();
        self.made.extend([secret(&link(0)), secret(&link(1))]);
        // The page of a link has the link: it is an answer to its holder only.
        for (method, path, status) in
            [(Method::GET, link(0), 200), (Method::POST, link(0), 200), (Method::GET, link(1), 409)]
        {
            let page = Reply::of(self.api.outside(method, &path)).await;
            assert_eq!(page.status, status, "{}", page.text);
        }
        let forged = format!("{}x", link(1));
        assert_eq!(self.outside(Method::GET, &forged).await.status, 403);
    }

    /// Deliveries to addresses with and without a sender: one whose signature is wrong, and those that are taken.
    async fn deliver(&mut self) {
        let address = async |asked: Value| {
            let made = self.api.post("/hooks/canaries/address", asked.to_string()).await;
            made.ok()["path"].as_str().unwrap().to_owned()
        };
        let signed =
            address(json!({"verify": {"scheme": "standard-webhooks", "connection": "tokens"}})).await;
        let open = address(json!({})).await;
        self.made.extend([&signed, &open].map(|path| path.split_once('_').unwrap().1.to_owned()));
        let now = SystemClock::new().now().0 / 1_000;
        for (path, body, status) in [(&signed, "2", 401), (&signed, "1", 200), (&open, "3", 200)] {
            let mut request = self.api.outside(Method::POST, path).body(body);
            for (name, value) in borrowed(&standard(SENDER, "msg_1", now, "1")) {
                request = request.header(name, value);
            }
            let reply = Reply::of(request).await;
            assert_eq!(reply.status, status, "{}", reply.text);
            self.answers += &reply.text;
        }
        let forged = format!("{open}x");
        assert_eq!(self.outside(Method::POST, &forged).await.status, 404);
    }
}

/// Everything that can be asked of a server with such a run.
async fn asked(listener: &mut Listener) {
    listener.api.post("/workflow-definitions", definition()).await.ok();
    let start = json!({"definitionId": "canaries", "idempotencyKey": "k"}).to_string();
    let run = listener.api.post("/workflow-runs", start).await.run_id();
    listener.api.reached(&run, "WAITING").await;
    listener.deliver().await;
    listener.decide().await;
    let ended = listener.api.ended(&run).await;
    assert_eq!(ended["status"], "COMPLETED", "{ended}");
    for path in [
        format!("/workflow-runs/{run}?include=ledger"),
        format!("/workflow-runs/{run}/ledger"),
        format!("/workflow-runs/{run}/events"),
        "/workflow-runs".to_owned(),
        "/workflow-definitions/canaries".to_owned(),
        "/connections".to_owned(),
        "/hook-addresses".to_owned(),
        "/approvals".to_owned(),
        "/audit".to_owned(),
    ] {
        listener.get(&path).await;
    }
    let replay = format!("/workflow-runs/{run}/replay");
    listener.answers += &listener.api.post(&replay, "{}").await.text;
    listener.outside(Method::GET, "/metrics").await;
    for arguments in [
        &["run", "show", &run][..],
        &["run", "show", &run, "-o", "json"],
        &["connection", "ls"],
        &["connection", "check"],
        &["connection", "check", "-o", "json"],
    ] {
        listener.command(arguments).await;
    }
}

async fn no_secret_is_found_anywhere_beside_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", Listener::path(&folder, "semel.db"));
    drop(grepped(folder, vec![("SEMEL_STORE", store)]).await);
}

async fn no_secret_is_found_anywhere_beside_postgresql() {
    let url = std::env::var("SEMEL_TEST_POSTGRES").expect("main has seen to it that there is a server");
    let schema = fresh_schema();
    let store = vec![("SEMEL_STORE", url.clone()), ("SEMEL_STORE_SCHEMA", schema.clone())];
    let made = grepped(tempfile::tempdir().unwrap(), store).await;
    let rows = rows(&url, &schema).await;
    assert!(rows.contains("canaries"), "the rows of the store are there");
    grep(&[("rows".to_owned(), rows.into_bytes())], &made);
}

/// All rows of all tables of a schema, as text.
async fn rows(url: &str, schema: &str) -> String {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = $1";
    let mut text = String::new();
    for table in client.query(tables, &[&schema]).await.unwrap() {
        let table: String = table.get(0);
        let all = format!("SELECT row_to_json(t)::text FROM \"{schema}\".\"{table}\" t");
        for row in client.query(&all, &[]).await.unwrap() {
            text += &row.get::<_, String>(0);
        }
    }
    text
}

/// Looks for secrets in whatever a server on this store writes and answers; gives those that it has made.
async fn grepped(folder: TempDir, store: Vec<(&'static str, String)>) -> Vec<String> {
    let seen = Seen::default();
    let base = echoing(seen.clone()).await;
    let config = Listener::path(&folder, "semel.toml");
    std::fs::write(&config, connections(&base, folder.path())).unwrap();
    let mut environment = store;
    environment.extend(
        [
            ("SEMEL_AUTH", "none"),
            ("SEMEL_LOG", "trace"),
            ("SEMEL_CONFIG", &config),
            ("BEARER", BEARER),
            ("HEADER", HEADER),
            ("SIGNING", SIGNING),
            ("SENDER", SENDER),
        ]
        .map(|(name, value)| (name, value.to_owned())),
    );
    let settings: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut server = Process::serve(&[], &settings);
    server.drain();
    let api = Api::at(server.base());
    let mut listener = Listener { folder, environment, api, answers: String::new(), made: Vec::new() };
    asked(&mut listener).await;
    let log = server.ended();
    // The rows of a schema of PostgreSQL are read by themselves.
    if listener.environment().all(|(name, _)| name != "SEMEL_STORE_SCHEMA") {
        let archive = Listener::path(&listener.folder, "archive.ndjson");
        let mut export = semel(&["store", "export", &archive]);
        drop(ended(export.envs(listener.environment()).spawn().unwrap()).ends(0));
    }
    let sent = seen.lock().unwrap().clone();
    for secret in [BEARER, HEADER, BASIC] {
        assert!(sent.contains(secret), "{secret} was sent");
    }
    let Listener { folder, answers, made, .. } = listener;
    assert!(answers.contains("***"), "what was echoed is there, without secrets: {answers:.300}");
    assert!(
        answers.contains("event: ") || answers.contains("data: "),
        "the events are there: {answers:.300}"
    );
    assert!(made.len() == 4 && made.iter().all(|secret| secret.len() > 16), "{made:?}");
    let mut places = vec![("answers".to_owned(), answers.into_bytes()), ("log".to_owned(), log.into_bytes())];
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let file = file.unwrap().path();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if name != "password" {
            places.push((name, std::fs::read(&file).unwrap()));
        }
    }
    assert!(places.len() >= 3, "the configuration is there too, and the archive if there is one");
    grep(&places, &made);
    made
}

fn grep(places: &[(String, Vec<u8>)], made: &[String]) {
    for (name, bytes) in places {
        for canary in CANARIES.into_iter().chain(made.iter().map(String::as_str)) {
            // Bytes are written in hexadecimal digits by PostgreSQL.
            let hex: String = canary.bytes().map(|byte| format!("{byte:02x}")).collect();
            for form in [canary, &hex] {
                let hits = bytes.windows(form.len()).filter(|window| *window == form.as_bytes()).count();
                assert_eq!(hits, 0, "{canary} in {name}");
            }
        }
    }
}
