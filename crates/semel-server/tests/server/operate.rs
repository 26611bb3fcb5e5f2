//! The server as a process: connections, stopping, health, numbers, TLS.

#![expect(clippy::unwrap_used, reason = "a test that fails by unwrap says where")]

use std::time::Duration;

use libtest_mimic::Trial;
use semel_server::config::{Config, Limits, Tls};
use semel_server::serve::Server;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::served::{Served, client, config, rest};
use crate::world::runtime;

pub(crate) fn trials() -> Vec<Trial> {
    crate::served_trials![
        a_connection_that_says_nothing_is_cut,
        a_connection_that_is_idle_is_cut,
        more_connections_than_allowed_wait_for_room,
        a_stop_answers_a_long_poll_early,
        a_stop_ends_a_stream_of_events,
        a_server_that_stops_is_alive_but_not_ready,
        a_request_that_takes_too_long_is_answered,
        tls_speaks_both_versions_of_http,
        a_wrong_certificate_is_refused_with_its_file,
        a_taken_port_is_refused_with_what_to_do,
        numbers_tell_of_an_absorbed_duplicate,
        every_metric_is_described,
        gauges_show_what_is_in_the_store,
    ]
}

fn impatient() -> Config {
    let limits = Limits { header_timeout: Duration::from_millis(150), ..Limits::default() };
    Config { limits, ..config() }
}

async fn a_connection_that_says_nothing_is_cut() {
    let served = Served::open(&impatient()).await;
    for said in ["", "P", "PRI * HTTP/2.0\r\n", "GET /healthz HTTP/1.1\r\nhost: loc"] {
        let answer = served.told(said.as_bytes()).await;
        assert!(!answer.contains("200"), "{said:?}: {answer}");
    }
}

async fn a_connection_that_is_idle_is_cut() {
    let served = Served::open(&impatient()).await;
    let answer = served.told(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("alive\n"), "{answer}");
}

async fn more_connections_than_allowed_wait_for_room() {
    let limits = Limits { connections: 1, ..Limits::default() };
    let served = Served::open(&Config { limits, ..config() }).await;
    let mut first = served.connect().await;
    let ask = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut answered = async || {
        first.write_all(ask.as_bytes()).await.unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"alive\n") {
            seen.push(first.read_u8().await.unwrap());
        }
    };
    answered().await;
    let mut second = served.connect().await;
    second.write_all(ask.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n").as_bytes()).await.unwrap();
    // The server has had time for the second, if it took it: it has answered the first again and again.
    for _ in 0..20 {
        answered().await;
    }
    let nothing = second.try_read(&mut [0]).expect_err("it waits for room");
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    drop(first);
    assert!(rest(&mut second).await.ends_with("alive\n"));
}

const START: &str = r#"{"workflow": "not-served"}"#;

async fn a_stop_answers_a_long_poll_early() {
    let served = Served::open(&config()).await;
    let mut call = served.begun(START).await;
    served.stop.order();
    call.write_all(START.as_bytes()).await.unwrap();
    let answer = rest(&mut call).await;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert!(answer.contains("connection: close") && answer.contains("PENDING"), "{answer}");
    served.stopped().await;
}

async fn a_stop_ends_a_stream_of_events() {
    let served = Served::open(&config()).await;
    let started = served.caller("").post("/workflow-runs", &json!({"workflow": "w"})).await;
    let run = started.run_id();
    let mut stream = served.connect().await;
    let head = format!("GET /api/v1/workflow-runs/{run}/events HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut seen = String::new();
    while !seen.contains("created") {
        let mut bytes = [0; 1024];
        let read = stream.read(&mut bytes).await.unwrap();
        assert!(read > 0, "{seen}");
        seen.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
    }
    served.stop.order();
    rest(&mut stream).await;
    served.stopped().await;
}

async fn a_server_that_stops_is_alive_but_not_ready() {
    let served = Served::open(&config()).await;
    let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert!(served.told(ask("/readyz").as_bytes()).await.contains("200 OK"));
    let mut call = served.begun(START).await;
    served.stop.order();
    for (path, status) in [("/readyz", "503"), ("/healthz", "200"), ("/api/v1/workflow-runs", "503")] {
        let answer = served.told(ask(path).as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
    }
    call.write_all(START.as_bytes()).await.unwrap();
    assert!(rest(&mut call).await.starts_with("HTTP/1.1 201"));
    served.stopped().await;
}

async fn a_request_that_takes_too_long_is_answered() {
    let limits = Limits { request_timeout: Duration::from_millis(100), ..Limits::default() };
    let served = Served::open(&Config { limits, ..config() }).await;
    // The body never comes.
    let head = "POST /api/v1/workflow-runs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\nconnection: close\r\n\r\n";
    let answer = served.told(head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("UNAVAILABLE"), "{answer}");
}

async fn tls_speaks_both_versions_of_http() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let tls = Tls { cert: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
    std::fs::write(&tls.cert, made.cert.pem()).unwrap();
    std::fs::write(&tls.key, made.signing_key.serialize_pem()).unwrap();
    let served = Served::open(&Config { tls: Some(tls), ..config() }).await;
    drop(client());
    for (http1, version) in [(false, reqwest::Version::HTTP_2), (true, reqwest::Version::HTTP_11)] {
        let root = reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
        let builder = reqwest::Client::builder().no_proxy().tls_certs_only([root]);
        let builder = builder.resolve("localhost", served.address);
        let client = if http1 { builder.http1_only() } else { builder }.build().unwrap();
        let url = format!("https://localhost:{}/readyz", served.address.port());
        let answer = client.get(url).send().await.expect("a handshake");
        assert_eq!((answer.status().as_u16(), answer.version()), (200, version));
    }
    assert!(!served.told(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.contains("alive"));
}

async fn refused_naming(config: &Config, what: &str) {
    let error = Server::open(config).await.err().expect("it is refused").to_string();
    assert!(error.contains(what), "{error}");
}

async fn a_wrong_certificate_is_refused_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let tls = Tls { cert: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
    let config = Config { tls: Some(tls.clone()), ..config() };
    refused_naming(&config, "cert.pem").await;
    std::fs::write(&tls.cert, "nothing").unwrap();
    refused_naming(&config, "cert.pem").await;
}

async fn a_taken_port_is_refused_with_what_to_do() {
    let served = Served::open(&config()).await;
    let same = Config { listen: served.address, ..config() };
    refused_naming(&same, "--listen").await;
}

/// The sum of a metric's lines that contain this.
fn sum(text: &str, name: &str, label: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(name) && line.contains(label));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

async fn numbers_tell_of_an_absorbed_duplicate() {
    let served = Served::open(&config()).await;
    let caller = served.caller("");
    let numbers = async || {
        let url = format!("http://{}/metrics", served.address);
        client().get(url).send().await.unwrap().text().await.unwrap()
    };
    // Other tests of this process count too: what is asked is that the numbers grow.
    let before = numbers().await;
    let start = json!({"workflow": "w", "idempotencyKey": "numbers-7"});
    assert_eq!(caller.post("/workflow-runs", &start).await.status, 201);
    assert_eq!(caller.post("/workflow-runs", &start).await.status, 200);
    let after = numbers().await;
    for (name, label) in [
        ("semel_duplicates_absorbed_total", r#"kind="start""#),
        ("semel_starts_total", r#"verdict="created""#),
        ("semel_starts_total", r#"verdict="attached""#),
        ("semel_http_requests_total", r#"route="/api/v1/workflow-runs""#),
        ("semel_http_request_seconds_count", r#"route="/api/v1/workflow-runs""#),
    ] {
        assert!(sum(&after, name, label) > sum(&before, name, label), "{name} {label}:\n{after}");
    }
}

/// The engine of the server sets them with its first sweep.
async fn gauges_show_what_is_in_the_store() {
    let served = Served::open(&config()).await;
    let url = format!("http://{}/metrics", served.address);
    let shown = async {
        loop {
            let text = client().get(&url).send().await.unwrap().text().await.unwrap();
            if sum(&text, "semel_nodes_alive", "") > 0.0 {
                return text;
            }
        }
    };
    let text = tokio::time::timeout(std::time::Duration::from_mins(1), shown).await.unwrap();
    for name in ["semel_runs_in_doubt ", "semel_runs_due "] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}\n{text}");
    }
}

async fn every_metric_is_described() {
    let served = Served::open(&config()).await;
    let url = format!("http://{}/metrics", served.address);
    let text = client().get(url).send().await.unwrap().text().await.unwrap();
    let of = |start: &str| -> Vec<String> {
        let names = text.lines().filter_map(|line| line.strip_prefix(start)?.split(' ').next());
        names.map(str::to_owned).collect()
    };
    let (types, helps) = (of("# TYPE "), of("# HELP "));
    assert!(types.len() > 10, "{text}");
    for name in types {
        assert!(helps.contains(&name), "{name} is not described");
    }
}
