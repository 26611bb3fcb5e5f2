//! The binary: how it starts, what it prints, how it ends.

#![expect(clippy::unwrap_used, reason = "a test that fails by unwrap says where")]

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;

use libtest_mimic::Trial;
use reqwest::Method;
use serde_json::Value;

use crate::served::Token;
use crate::world::{Reply, runtime};

pub(crate) fn trials() -> Vec<Trial> {
    crate::served_trials![
        dev_prints_where_it_listens_and_a_first_curl,
        dev_logs_runs_and_no_requests,
        tests_move_the_manual_clock_of_dev,
        serve_stops_in_good_order_when_it_is_terminated,
        living_workers_keep_their_work_over_a_restart,
        a_second_signal_ends_it_at_once,
        what_is_wrong_with_the_settings_is_said,
        the_printed_configuration_hides_its_secrets,
        each_request_is_one_line_of_the_log,
        #[cfg(feature = "otel")]
        a_span_reaches_the_collector,
    ]
}

const ROOT: &str = "root-token-of-the-tests";

/// The binary, which listens.
pub(crate) struct Process {
    child: Child,
    log: Box<dyn BufRead + Send>,
    /// Reads what is logged, where it is not read line by line.
    rest: Option<JoinHandle<String>>,
    seen: String,
    address: String,
}

fn semel() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(arguments: &[&str], environment: &[(&str, &str)]) -> (i32, String, String) {
    let ended = semel().args(arguments).envs(environment.iter().copied()).output();
    let Output { status, stdout, stderr } = ended.expect("the binary can be run");
    let text = |bytes| String::from_utf8(bytes).expect("it prints text");
    (status.code().expect("it ends by itself"), text(stdout), text(stderr))
}

impl Process {
    /// Starts `semel serve` and waits until it listens.
    pub(crate) fn serve(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = semel();
        command.args(["serve", "--listen", "127.0.0.1:0", "--log", "json"]).args(arguments);
        let mut child = command.envs(environment.iter().copied()).spawn().expect("the binary can be run");
        let log = Box::new(BufReader::new(child.stderr.take().expect("it is piped")));
        let mut process = Self { child, log, rest: None, seen: String::new(), address: String::new() };
        while process.address.is_empty() {
            let from = process.seen.len();
            let read = process.log.read_line(&mut process.seen).expect("text");
            assert!(read > 0, "it has ended: {}", process.seen);
            let line: Value = serde_json::from_str(&process.seen[from..]).unwrap_or_default();
            if line["message"] == "listening" {
                line["address"].as_str().expect("it says where").clone_into(&mut process.address);
            }
        }
        process
    }

    /// Reads its log from now on, so that it can log more than a pipe holds.
    pub(crate) fn drain(&mut self) {
        let mut log = std::mem::replace(&mut self.log, Box::new(std::io::empty()));
        self.rest = Some(std::thread::spawn(move || {
            let mut rest = String::new();
            log.read_to_string(&mut rest).expect("text");
            rest
        }));
    }

    /// Its most memory so far, in bytes, as the kernel counts it.
    pub(crate) fn most_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says so");
        let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse().expect("a number");
        kib * 1024
    }

    /// Where it listens.
    pub(crate) fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends it as a crash does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    pub(crate) fn caller(&self, token: &str) -> Token {
        Token::at(format!("http://{}", self.address), token)
    }

    fn signal(&self) {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(sent.expect("there is a kill").success());
    }

    /// Terminates it, and gives all that it logged.
    pub(crate) fn ended(mut self) -> String {
        self.signal();
        self.log.read_to_string(&mut self.seen).expect("text");
        if let Some(rest) = self.rest.take() {
            self.seen += &rest.join().expect("text");
        }
        let status = self.child.wait().expect("it is ours");
        assert_eq!(status.code(), Some(0), "{}", self.seen);
        std::mem::take(&mut self.seen)
    }
}

impl Drop for Process {
    /// A test that has failed leaves nothing behind. One that has ended cannot be ended again, and need not be.
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

async fn dev_prints_where_it_listens_and_a_first_curl() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = semel().args(["dev", "--listen", "127.0.0.1:0"]).current_dir(&folder).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut printed = String::new();
    while !printed.contains("Stop with") {
        let Some(line) = lines.next() else { panic!("{:?}: {printed}", child.wait()) };
        printed += &line.unwrap();
    }
    let address = printed.split("http://").nth(1).unwrap().split([',', '/']).next().unwrap();
    assert!(printed.contains(&format!("curl -s http://{address}/api/v1/workflow-runs")), "{printed}");
    assert!(printed.contains("demo-order"), "{printed}");
    let dev = Token::at(format!("http://{address}"), "");
    dev.get("/workflow-runs").await.ok();
    assert!(folder.path().join(".semel/semel.db").exists());
    let mode = std::fs::metadata(folder.path().join(".semel")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "the folder is its owner's only");
    assert_eq!(std::fs::read_to_string(folder.path().join(".semel/.gitignore")).unwrap(), "*\n");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// A definition that waits for a week ends at once, and the engine of the server keeps its lease.
async fn tests_move_the_manual_clock_of_dev() {
    let folder = tempfile::tempdir().unwrap();
    let dev = ["dev", "--listen", "127.0.0.1:0", "--clock", "manual"];
    let mut child = semel().args(dev).current_dir(&folder).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address =
        lines.find_map(|line| Some(line.unwrap().split_once("http://")?.1.split_once(',')?.0.to_owned()));
    let dev = Token::at(format!("http://{}", address.unwrap()), "");
    let nap = serde_json::json!({"semel": 1, "name": "nap", "steps": [{"name": "week", "wait": "7d"}]});
    dev.post("/workflow-definitions", &nap).await.ok();
    let run = dev.post("/workflow-runs", &serde_json::json!({"definitionId": "nap"})).await.run_id();
    // More than once: the timer may be set after the first time.
    for weeks in 1.. {
        assert!(weeks < 30, "the run sleeps on");
        dev.post("/dev/clock", &serde_json::json!({"advanceMs": 604_800_000})).await.ok();
        let waits = dev.request(Method::GET, &format!("/workflow-runs/{run}")).header("prefer", "wait=1");
        if Reply::of(waits).await.ok()["status"] == "COMPLETED" {
            break;
        }
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let log = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert!(log.contains("run started") && !log.contains("lease"), "no lease has ended: {log}");
}

/// The log of `semel dev` is read by people: runs, and no requests.
async fn dev_logs_runs_and_no_requests() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = semel();
    let mut child = command.args(["dev", "--listen", "127.0.0.1:0"]).current_dir(&folder).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address =
        lines.find_map(|line| Some(line.unwrap().split_once("http://")?.1.split_once(',')?.0.to_owned()));
    let dev = Token::at(format!("http://{}", address.unwrap()), "");
    let start = serde_json::json!({"workflow": "idle", "idempotencyKey": "order-7"});
    let run = dev.post("/workflow-runs", &start).await.run_id();
    dev.post(&format!("/workflow-runs/{run}/cancel"), &serde_json::json!({})).await.ok();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let log = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    for part in ["run started", "run cancelled", "workflow=idle", &run] {
        assert!(log.contains(part), "{part}: {log}");
    }
    // A key may be a secret.
    assert!(!log.contains("order-7") && !log.contains("request") && !log.contains("semel_server::"), "{log}");
    assert!(log.lines().all(|line| line.as_bytes().get(2) == Some(&b':')), "times of day: {log}");
}

async fn serve_stops_in_good_order_when_it_is_terminated() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("semel.db").display());
    let process = Process::serve(&["--store", &store], &[("SEMEL_ROOT_TOKEN", ROOT)]);
    let (_, key) = process.caller(ROOT).key(None, &["start", "read"]).await;
    let run = key.post("/workflow-runs", &serde_json::json!({"workflow": "w"})).await.run_id();
    let log = process.ended();
    assert!(log.contains("stopping") && log.contains("\"stopped\""), "{log}");
    // The key is in the store, so that no root token is needed any more.
    let again = Process::serve(&["--store", &store], &[]);
    again.caller(key.text()).get(&format!("/workflow-runs/{run}")).await.ok();
    again.ended();
}

/// Of a server that is killed, and of one that stops in good order; more often than a run may stall.
async fn living_workers_keep_their_work_over_a_restart() {
    const NODE: &str = "node_01j0000000e00800000000007z";
    const OTHER: &str = "node_01j0000000e008000000000080";
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("semel.db").display());
    let serve = || Process::serve(&["--store", &store], &[("SEMEL_ROOT_TOKEN", ROOT)]);
    let mut process = serve();
    let (_, key) = process.caller(ROOT).key(None, &["start", "read", "worker"]).await;
    let token = key.text().to_owned();
    let input = serde_json::json!({"step": "charge", "input": 7});
    let start = serde_json::json!({"workflow": "queue:payments", "input": input});
    let run = key.post("/workflow-runs", &start).await.run_id();
    let register = |node: &str| serde_json::json!({"node": node, "name": "w", "serves": ["queue:payments"], "leaseMs": 30000});
    let claim =
        |node: &str| serde_json::json!({"node": node, "queues": ["payments"], "limit": 10, "waitMs": 0});
    key.post("/workers", &register(NODE)).await.ok();
    let claimed = key.post("/workers/steps/claim", &claim(NODE)).await.ok();
    let fence = claimed["steps"][0]["fence"].clone();
    for n in 0..6 {
        if n % 2 == 0 {
            process.kill();
        } else {
            process.ended();
        }
        process = serve();
        let worker = process.caller(&token);
        worker.post("/workers/heartbeat", &serde_json::json!({"node": NODE, "leaseMs": 30000})).await.ok();
        worker.post("/workers", &register(OTHER)).await.ok();
        let other = worker.post("/workers/steps/claim", &claim(OTHER)).await.ok();
        assert_eq!(other["steps"], serde_json::json!([]), "its step is handed to no other");
    }
    let worker = process.caller(&token);
    let report = serde_json::json!({"steps": [{"run": run, "fence": fence, "value": "done"}]});
    worker.post("/workers/steps/complete", &report).await.ok();
    let ended = worker.get(&format!("/workflow-runs/{run}")).await.ok();
    assert_eq!(ended["status"], "COMPLETED", "{ended}");
}

async fn a_second_signal_ends_it_at_once() {
    let mut process = Process::serve(&["--store", "memory:"], &[("SEMEL_ROOT_TOKEN", ROOT)]);
    let (_, key) = process.caller(ROOT).key(None, &["admin"]).await;
    let run = key.post("/workflow-runs", &serde_json::json!({"workflow": "w"})).await.run_id();
    // A request whose body never comes keeps it from ending in good order.
    let mut stream = std::net::TcpStream::connect(&process.address).unwrap();
    let head = format!(
        "POST /api/v1/workflow-runs/{run}/cancel HTTP/1.1\r\nhost: localhost\r\nx-api-key: {}\r\n\
         expect: 100-continue\r\ncontent-length: 9\r\n\r\n",
        key.text()
    );
    std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
    stream.read_exact(&mut [0; 25]).unwrap();
    process.signal();
    while !process.seen.contains("stopping") {
        assert!(process.log.read_line(&mut process.seen).unwrap() > 0, "{}", process.seen);
    }
    process.signal();
    assert_eq!(process.child.wait().unwrap().code(), Some(130));
}

async fn what_is_wrong_with_the_settings_is_said() {
    for (arguments, environment, said) in [
        (vec!["dev", "--listen", "0.0.0.0:7700"], vec![], "semel serve"),
        (vec!["serve", "--listen", "0.0.0.0:7700"], vec![("SEMEL_AUTH", "none")], "SEMEL_ROOT_TOKEN"),
        (vec!["serve", "--store", "memory:"], vec![], "SEMEL_ROOT_TOKEN"),
        (vec!["serve"], vec![("SEMEL_LISEN", "x")], "SEMEL_LISEN"),
        (vec!["serve", "--config", "nowhere.toml"], vec![], "nowhere.toml"),
        (vec!["serve", "--tls-cert", "cert.pem"], vec![], "key"),
    ] {
        let (code, _, stderr) = output(&arguments, &environment);
        assert_eq!(code, 2, "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("semel: ") && stderr.contains(said), "{arguments:?}: {stderr}");
    }
}

async fn the_printed_configuration_hides_its_secrets() {
    let environment = [("SEMEL_ROOT_TOKEN", "canary-canary-canary"), ("SEMEL_LIMITS_RATE", "7")];
    let arguments = ["serve", "--print-config", "--store", "postgres://me:canary@host/db"];
    let (code, stdout, stderr) = output(&arguments, &environment);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("rate = 7") && stdout.contains("postgres://me@host/db"), "{stdout}");
    assert!(!stdout.contains("canary"), "{stdout}");
}

async fn each_request_is_one_line_of_the_log() {
    let process = Process::serve(&["--store", "memory:"], &[("SEMEL_ROOT_TOKEN", ROOT)]);
    let (_, key) = process.caller(ROOT).key(None, &["start"]).await;
    key.post("/workflow-runs", &serde_json::json!({"workflow": "w"})).await.ok();
    let log = process.ended();
    let lines: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    let requests: Vec<_> = lines.iter().filter(|line| line["message"] == "request").collect();
    assert_eq!(requests.len(), 2, "{log}");
    let start = requests[1];
    assert_eq!((&start["method"], &start["route"]), (&"POST".into(), &"/api/v1/workflow-runs".into()));
    assert_eq!((&start["status"], &start["workspace"]), (&201.into(), &format!("ws_{:026}", 0).into()));
    assert!(start["ms"].is_number() && start["id"].is_string(), "{start}");
}

#[cfg(feature = "otel")]
async fn a_span_reaches_the_collector() {
    use std::io::Write;
    let collector = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let collected = std::thread::spawn(move || {
        let (mut stream, _) = collector.accept().unwrap();
        let mut bytes = Vec::new();
        while !String::from_utf8_lossy(&bytes).contains("/api/v1/workflow-runs") {
            let mut more = [0; 4096];
            let read = stream.read(&mut more).unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&bytes));
            bytes.extend(&more[..read]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let environment = [("SEMEL_ROOT_TOKEN", ROOT), ("SEMEL_OTEL_ENDPOINT", &endpoint)];
    let process = Process::serve(&["--store", "memory:"], &environment);
    process.caller(ROOT).get("/workflow-runs").await.problem(403, "FORBIDDEN");
    process.ended();
    let collected = collected.join().unwrap();
    assert!(collected.starts_with("POST /v1/traces"), "{collected}");
    assert!(!collected.contains(ROOT));
}
