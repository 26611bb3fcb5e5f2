//! Calls without a connection: none of the addresses that are not public is reached, however it is written, whatever a name says
//! and wherever an answer leads.

#![expect(clippy::unwrap_used, reason = "a test that fails by unwrap says where")]

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::RawQuery;
use axum::http::StatusCode;
use axum::routing::get;
use libtest_mimic::Trial;
use reqwest::header::HeaderMap;
use reqwest::{Method, Url};
use semel::clock::SystemClock;
use semel::store::memory::MemoryStore;
use semel_server::config::Config;
use semel_server::connections::{CallFailed, Connections, HostNames, Looking, Opening, Outgoing};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::process::Process;
use crate::world::{Api, runtime};

pub(crate) fn trials() -> Vec<Trial> {
    crate::served_trials![
        no_address_that_is_not_public_is_reached,
        no_name_that_leads_to_such_an_address_is_reached,
    ]
}

/// Hosts that are addresses, in all the ways in which they can be written. Those that lead to this machine would be caught.
const LITERALS: [&str; 35] = [
    "127.0.0.1",
    "127.0.0.1.",
    "127.1",
    "127.0.1",
    "127.255.255.254",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "%31%32%37.0.0.1",
    "①②⑦.⓪.⓪.①",
    "127。0。0。1",
    "0.0.0.0",
    "0",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[2002:7f00:1::]",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "100.64.0.1",
    "169.254.169.254",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "168.63.129.16",
    "192.0.0.192",
    "224.0.0.1",
    "255.255.255.255",
];

/// Names that every machine knows for itself, and addresses with something around them.
const NAMES: [&str; 4] = ["localhost", "LocalHost", "localhost.", PASSWORD];
/// An address with a password in front of it.
const PASSWORD: &str = "a:b@127.0.0.1";
/// Public, as far as the policy knows, and nowhere: only a proxy would be reached.
const UNUSED: &str = "[2fff::1]";
/// Why a call is refused.
const NOT_PUBLIC: &str = "is not a public address";

/// A port of this machine that nothing may connect to.
struct Catcher {
    port: u16,
    caught: Arc<AtomicUsize>,
}

impl Catcher {
    async fn open() -> Self {
        let (caught, listener) =
            (Arc::new(AtomicUsize::new(0)), TcpListener::bind("0.0.0.0:0").await.unwrap());
        let port = listener.local_addr().unwrap().port();
        let mut listeners = vec![listener];
        // A machine without IPv6 cannot be reached by it.
        listeners.extend(TcpListener::bind(("::1", port)).await.ok());
        for listener in listeners {
            let caught = caught.clone();
            tokio::spawn(async move {
                while listener.accept().await.is_ok() {
                    caught.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        Self { port, caught }
    }

    fn caught(&self) -> usize {
        self.caught.load(Ordering::SeqCst)
    }
}

/// A partner of the operator's that leads its callers elsewhere.
async fn leading() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/lead", get(lead));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    base
}

/// Leads to the address in the query, which comes encoded.
async fn lead(RawQuery(query): RawQuery) -> (StatusCode, [(&'static str, String); 1]) {
    let to = Url::parse(&format!("http://query?{}", query.unwrap_or_default())).unwrap();
    let to = to.query_pairs().next().map(|(_, to)| to.into_owned()).unwrap_or_default();
    (StatusCode::FOUND, [("location", to)])
}

const DEFINITION: &str = "semel: 1
name: outside
steps:
  - name: called
    for_each: {in: '{{ input.urls }}', parallel: 8}
    steps:
      - name: guarded
        try: [{name: call, http: {url: '{{ item }}', get: /x}, retry: {attempts: 1}, timeout: 5s}]
        catch: [{steps: [{name: refused, set: {code: '{{ error.code }}', why: '{{ error.message }}'}}]}]
  - name: led
    for_each: {in: '{{ input.leads }}', parallel: 8}
    steps:
      - name: guarded
        try: [{name: call, http: {on: partner, get: /lead, query: {to: '{{ item }}/x'}}, retry: {attempts: 1}, timeout: 5s}]
        catch: [{steps: [{name: refused, set: {code: '{{ error.code }}', why: '{{ error.message }}'}}]}]
return: {called: '{{ steps.called }}', led: '{{ steps.led }}'}
";

/// By a server as it is installed, with a proxy in its environment that would be caught too.
async fn no_address_that_is_not_public_is_reached() {
    let (catcher, folder) = (Catcher::open().await, tempfile::tempdir().unwrap());
    let config = folder.path().join("semel.toml");
    let partner = format!("[connections.partner]\nkind = \"http\"\nbase = \"{}\"\n", leading().await);
    std::fs::write(&config, partner).unwrap();
    let proxy = format!("http://127.0.0.1:{}", catcher.port);
    let mut environment = vec![("SEMEL_AUTH", "none"), ("SEMEL_CONFIG", config.to_str().unwrap())];
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        environment.push((name, &proxy));
    }
    let server = Process::serve(&["--store", "memory:"], &environment);
    let api = Api::at(server.base());
    api.post("/workflow-definitions", DEFINITION).await.ok();
    let url = |host: &&str| format!("http://{host}:{}", catcher.port);
    let unused = [UNUSED].iter();
    let urls: Vec<String> = LITERALS.iter().chain(&NAMES).chain(unused).map(url).collect();
    assert_eq!(urls.len(), 40);
    let leads: Vec<&String> = urls.iter().filter(|url| url.is_ascii()).collect();
    let start = json!({"definitionId": "outside", "input": {"urls": &urls, "leads": &leads}});
    let run = api.post("/workflow-runs", start.to_string()).await.run_id();
    let ended = api.ended(&run).await;
    assert_eq!(ended["status"], "COMPLETED", "{ended}");
    for (asked, member) in [(urls.iter().collect(), "called"), (leads, "led")] {
        let asked: Vec<&String> = asked;
        let results: &Vec<Value> = ended["result"][member].as_array().unwrap();
        assert_eq!(results.len(), asked.len());
        for (url, result) in asked.iter().zip(results) {
            let (code, why) = (result["code"].as_str(), result["why"].as_str().unwrap_or_default());
            let refused = match url {
                url if url.contains(PASSWORD) => {
                    (code == Some("EXPRESSION") && why.contains("has a password"))
                        || why.contains("a password in it")
                }
                url if url.contains(UNUSED) => {
                    matches!(code, Some("CONNECTION" | "TIMEOUT")) && !why.contains(NOT_PUBLIC)
                }
                // Not every resolver knows the name with a dot at its end.
                url if url.contains("localhost.") => {
                    why.contains(NOT_PUBLIC) || why.contains("failed to lookup")
                }
                _ => why.contains(NOT_PUBLIC),
            };
            assert!(refused, "{member}: {url}: {result}");
        }
    }
    assert_eq!(catcher.caught(), 0);
}

/// Names, and the answers to the first and to all later questions about them.
#[derive(Debug)]
struct Names {
    known: HashMap<&'static str, [Vec<IpAddr>; 2]>,
    asked: Mutex<HashMap<String, usize>>,
}

impl HostNames for Names {
    fn look_up(&self, host: &str) -> Looking {
        let mut asked = self.asked.lock().unwrap();
        let times = asked.entry(host.to_owned()).or_default();
        let answers = self.known.get(host).cloned().unwrap_or_default();
        let answer = answers[(*times).min(1)].clone();
        *times += 1;
        Box::pin(async move { Ok(answer) })
    }
}

async fn no_name_that_leads_to_such_an_address_is_reached() {
    let catcher = Catcher::open().await;
    // No network has it, and the policy does not know that.
    let nowhere = "2fff::1";
    let addresses = |list: &[&str]| list.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
    let always = |list: &[&str]| [addresses(list), addresses(list)];
    let known = HashMap::from([
        ("loopback.example", always(&["127.0.0.1"])),
        ("six.example", always(&["::1"])),
        ("mapped.example", always(&["::ffff:127.0.0.1"])),
        ("zero.example", always(&["0.0.0.0"])),
        ("metadata.example", always(&["169.254.169.254"])),
        ("private.example", always(&["10.0.0.1", "192.168.0.1"])),
        ("some.example", always(&[nowhere, "127.0.0.1", "::1"])),
        ("other.example", always(&["127.0.0.1", nowhere])),
        ("rebound.example", [addresses(&[nowhere]), addresses(&["127.0.0.1"])]),
        ("none.example", always(&[])),
    ]);
    let names: Vec<&'static str> = known.keys().copied().collect();
    let names_of_hosts = Arc::new(Names { known, asked: Mutex::default() });
    let opening = Opening {
        config: &Config::default(),
        store: Arc::new(MemoryStore::new(Arc::new(SystemClock::new()))),
        environment: &|_| None,
        names: names_of_hosts.clone(),
    };
    let connections = Connections::open_with(opening).unwrap();
    let route = connections.public_route();
    for name in names {
        let url = Url::parse(&format!("http://{name}:{}/x", catcher.port)).unwrap();
        let request = Outgoing { method: Method::GET, url, headers: HeaderMap::new(), body: None };
        let called =
            tokio::time::timeout(Duration::from_secs(5), route.call(route, request, 1024, None)).await;
        let refused = !matches!(name, "some.example" | "other.example" | "rebound.example");
        match called {
            Ok(Ok(answer)) => panic!("{name} has answered: {answer:?}"),
            Ok(Err(CallFailed::Refused(why))) => {
                assert!(refused && why.contains(NOT_PUBLIC), "{name}: {why}");
            }
            // The address of no network is tried, and the others are not.
            Ok(Err(_)) | Err(_) => assert!(!refused, "{name} is tried"),
        }
    }
    assert_eq!(catcher.caught(), 0);
    let asked = names_of_hosts.asked.lock().unwrap();
    assert!(asked.values().all(|times| *times == 1), "what was checked is what is connected to: {asked:?}");
}
