//! Commands on runs, against a server.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use super::{Server, ended, say, tests};

/// The root token of a server with authentication.
const ROOT: &str = "root-token-of-the-tests";

tests![
    a_second_start_is_absorbed_and_shown,
    a_key_for_another_input_is_refused,
    input_comes_from_the_command_a_file_or_stdin,
    lists_are_tables_documents_and_lines,
    controls_are_done_once_under_their_id,
    a_fork_and_a_history,
    a_wait_ends_with_the_run,
    a_wait_for_what_nothing_serves_ends_at_its_limit,
    all_runs_that_are_paused_for_one_reason_are_resumed,
    a_watch_goes_on_after_a_crash_and_ends_with_the_run,
    hooks_and_keys,
    what_is_not_there_is_not_found,
    no_server_answers,
    tokens_and_workspaces,
];

fn a_second_start_is_absorbed_and_shown() {
    let server = Server::start();
    let start = ["start", "idle", "--key", "order-7", "--input", r#"{"n": 9007199254740993}"#];
    let first = server.say(&start).ends(0);
    assert!(first.out.contains("created (a new run)"), "{first:?}");
    assert!(!first.out.contains('\u{1b}'), "no colours in a pipe: {first:?}");
    let again = server.say(&[&start[..], &["-o", "json"]].concat()).ends(0).json();
    assert_eq!((again["created"].as_bool(), again["verdict"].as_str()), (Some(false), Some("attached")));
    let id = again["run"]["id"].as_str().unwrap();
    let shown = server.say(&["run", "show", id]).ends(0);
    for part in ["order-7", "9007199254740993", "DUPLICATES ABSORBED", "start order-7", "ago (", "PENDING"] {
        assert!(
            shown.out.contains(part) || (part == "ago (" && shown.out.contains("now (")),
            "{part}: {shown:?}"
        );
    }
    let other = ["start", "idle", "--key", "order-7", "--input", r#"{"n": 1}"#];
    server.say(&other).ends(4);
    let listed = server.say(&["duplicate", "ls"]).ends(0);
    for part in ["order-7", "start", "refused", "KEY_REUSED at /input/n", id] {
        assert!(listed.out.contains(part), "{part}: {listed:?}");
    }
    let stats = server.say(&["stats", "--workflows"]).ends(0);
    assert!(stats.out.contains("idle") && stats.out.contains("LATE P99"), "{stats:?}");
    let detail = server.say(&["run", "show", id, "-o", "json"]).ends(0);
    assert!(detail.out.contains("9007199254740993"), "every digit: {detail:?}");
    assert_eq!(detail.json()["duplicates"][0]["count"], 1);
}

fn a_wait_for_what_nothing_serves_ends_at_its_limit() {
    let server = Server::start();
    let waited = server.say(&["start", "nope", "--wait", "--timeout", "1s"]).ends(7);
    waited.tells("nothing serves this workflow");
    let started = server.say(&["start", "nope", "--key", "k"]).ends(0);
    assert!(started.out.contains("nothing serves this workflow"), "{started:?}");
    let listed = server.say(&["run", "ls"]).ends(0);
    assert!(listed.out.contains("  unserved"), "{listed:?}");
    let id = server.say(&["start", "nope", "--key", "k", "-o", "json"]).ends(0).json()["run"]["id"].clone();
    let shown = server.say(&["run", "show", id.as_str().unwrap()]).ends(0);
    assert!(shown.out.contains("nothing serves this workflow"), "{shown:?}");
    let demo =
        ["start", "demo-order", "--key", "d", "--delay", "1h", "--input", r#"{"order": "1", "amount": 1}"#];
    let known = server.say(&demo).ends(0);
    assert!(!known.out.contains("nothing serves"), "{known:?}");
}

fn all_runs_that_are_paused_for_one_reason_are_resumed() {
    let server = Server::start();
    let mut ids = Vec::new();
    for key in ["a", "b"] {
        let started = server.say(&["start", "idle", "--key", key, "-o", "json"]).ends(0).json();
        let id = started["run"]["id"].as_str().unwrap().to_owned();
        server.say(&["run", "pause", &id]).ends(0);
        ids.push(id);
    }
    let none = server.say(&["run", "resume", "--all", "--reason", "poisoned"]).ends(0);
    assert!(none.out.contains("no run was resumed"), "{none:?}");
    let resumed = server.say(&["run", "resume", "--all", "--reason", "operator"]).ends(0);
    assert!(ids.iter().all(|id| resumed.out.contains(id)), "{resumed:?}");
    server.say(&["run", "resume", "--all"]).ends(2).tells("--reason");
    server.say(&["run", "resume"]).ends(2);
}

fn a_key_for_another_input_is_refused() {
    let server = Server::start();
    server.say(&["start", "idle", "--key", "k", "--input", "1"]).ends(0);
    let refused = server.say(&["start", "idle", "--key", "k", "--input", "2"]).ends(4);
    assert_eq!(refused.out, "");
    refused.tells("KEY_REUSED").tells("/input");
    let rejected = ["start", "idle", "--key", "k", "--input", "1", "--on-conflict", "reject"];
    server.say(&rejected).ends(4).tells("DUPLICATE_RUN");
}

fn input_comes_from_the_command_a_file_or_stdin() {
    let server = Server::start();
    let file = server.folder.path().join("input.json");
    std::fs::write(&file, "{\"a\":\n 1.50}").unwrap();
    let path = file.to_str().unwrap();
    let input = |said: super::Said| {
        let id = said.ends(0).json()["run"]["id"].as_str().unwrap().to_owned();
        server.say(&["run", "show", &id, "-o", "json"]).ends(0).out
    };
    let start = ["start", "idle", "-o", "json"];
    let from_file = input(server.say(&[&start[..], &["--input-file", path]].concat()));
    assert!(from_file.contains("1.50"), "{from_file}");
    for dash in [["--input", "-"], ["--input-file", "-"]] {
        let piped = input(server.say_with(&[&start[..], &dash].concat(), "[\"é\", 1e2]"));
        assert!(piped.contains("[\"é\", 1e2]"), "{piped}");
    }
    server.say(&["start", "idle", "--input", "{a: 1}"]).ends(2).tells("quote JSON");
    server.say(&["start", "idle", "--input-file", "/nowhere.json"]).ends(3).tells("/nowhere.json");
    server.say(&["start", "idle", "--input", "1", "--input-file", path]).ends(2);
    server.say(&["start", "idle", "--delay", "soon"]).ends(2).tells("VALIDATION_ERROR");
}

fn lists_are_tables_documents_and_lines() {
    let server = Server::start();
    assert_eq!(server.say(&["run", "ls"]).ends(0).out, "no runs\n");
    let ids: Vec<_> = (0..5).map(|n| server.run(&format!("k{n}"))).collect();
    server.say(&["run", "cancel", &ids[0]]).ends(0);
    let table = server.say(&["run", "ls"]).ends(0);
    assert!(table.out.starts_with("RUN"), "{table:?}");
    assert_eq!(table.out.lines().count(), 6);
    assert!(!table.out.contains('\u{1b}') && !table.out.contains('\u{2063}'), "{table:?}");
    let page = server.say(&["run", "ls", "--limit", "2", "-o", "json"]).ends(0).json();
    assert_eq!(page["runs"].as_array().unwrap().len(), 2);
    let cursor = page["next"].as_str().unwrap().to_owned();
    let next = server.say(&["run", "ls", "--limit", "2", "--cursor", &cursor, "-o", "ndjson"]).ends(0);
    let found: Vec<serde_json::Value> =
        next.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(found.iter().map(|run| run["id"].as_str().unwrap()).collect::<Vec<_>>(), [&ids[2], &ids[1]]);
    assert_eq!(server.say(&["run", "ls", "--all", "-o", "ndjson"]).ends(0).out.lines().count(), 5);
    let cancelled = server.say(&["run", "ls", "--status", "cancelled", "-o", "json"]).ends(0).json();
    assert_eq!(cancelled["runs"][0]["id"], ids[0].as_str());
    assert_eq!(server.say(&["run", "ls", "--key", "k3", "-o", "ndjson"]).ends(0).out.lines().count(), 1);
    server.say(&["run", "ls", "--status", "done"]).ends(2).tells("COMPLETED");
    assert!(server.say(&["run", "ls", "--limit", "2"]).ends(0).err.contains("--all"));
}

fn controls_are_done_once_under_their_id() {
    let server = Server::start();
    let run = server.run("k");
    assert_eq!(server.say(&["run", "pause", &run, "-o", "json"]).ends(0).json()["run"]["status"], "PAUSED");
    assert!(server.say(&["run", "pause", &run]).ends(0).out.contains("no: it was in this state already"));
    let resume = ["run", "resume", &run, "--call-id", "r1"];
    assert!(server.say(&resume).ends(0).out.contains("changed  yes"));
    server.say(&["run", "pause", &run]).ends(0);
    let again = server.say(&resume).ends(0);
    assert!(
        again.out.contains("this is the answer to the first call"),
        "a repeated call does nothing: {again:?}"
    );
    let listed = server.say(&["run", "ls"]).ends(0);
    assert!(listed.out.contains("REASON") && listed.out.contains("paused by local"), "{listed:?}");
    let shown = server.say(&["run", "show", &run]).ends(0);
    assert!(shown.out.contains("paused by local; resume it to continue"), "{shown:?}");
    assert_eq!(server.say(&["run", "show", &run, "-o", "json"]).json()["status"], "PAUSED");
    server.say(&["run", "cancel", &run, "--expected-version", "1"]).ends(4).tells("CONCURRENCY_ERROR");
    let cancelled = server.say(&["run", "cancel", &run, "--reason", "enough", "-o", "json"]).ends(0).json();
    assert_eq!(cancelled["run"]["cancelReason"], "enough");
    assert_eq!(server.say(&["run", "cancel", &run, "-o", "json"]).ends(0).json()["changed"], false);
    server.say(&["run", "retry", &run]).ends(4);
    server.say(&["run", "restart", &run, "--from", "beginning"]).ends(4);
    server.say(&["run", "restart", &run, "--from", "somewhere"]).ends(2);
}

fn a_fork_and_a_history() {
    let server = Server::start();
    let run = server.run("k");
    let fork = ["run", "fork", &run, "--key", "k2", "--call-id", "f", "-o", "json"];
    let forked = server.say(&fork).ends(0).json();
    assert_ne!(forked["run"]["id"], run.as_str());
    assert_eq!(forked["run"]["lineage"], run.as_str());
    assert_eq!(server.say(&fork).ends(0).json()["run"]["id"], forked["run"]["id"], "once");
    let history = server.say(&["run", "replay", &run]).ends(0).json();
    assert!(history.to_string().contains("semel/history/1"), "{history}");
}

fn a_wait_ends_with_the_run() {
    let server = Server::start();
    let run = server.run("k");
    let waits = server.command(&["start", "idle", "--key", "k", "--wait"]).spawn().unwrap();
    server.say(&["run", "cancel", &run, "--reason", "too late"]).ends(0);
    let said = ended(waits).ends(7).tells("CANCELLED").tells("too late");
    assert_eq!(said.out, "", "no result");
}

fn a_watch_goes_on_after_a_crash_and_ends_with_the_run() {
    let mut server = Server::start();
    let run = server.run("k");
    let mut watch = server.command(&["run", "watch", &run, "-o", "ndjson"]).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let first: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((first["number"].as_u64(), first["kind"].as_str()), (Some(1), Some("created")));
    server.crash();
    server.say(&["run", "cancel", &run]).ends(0);
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(rest.len(), 1, "what was shown is not shown again: {rest:?}");
    assert!(rest[0].contains("\"cancelled\""), "{rest:?}");
    ended(watch).ends(7).tells("CANCELLED");
    let table = server.say(&["run", "watch", &run]).ends(7);
    assert_eq!(table.out.lines().count(), 2, "{table:?}");
    assert!(table.out.contains("created: idle@1, input {}"), "for people: {table:?}");
    let raw = server.say(&["run", "watch", &run, "-o", "json"]).ends(7);
    assert!(raw.out.starts_with('{'), "{raw:?}");
    assert_eq!(server.say(&["run", "watch", &run, "--after", "1"]).ends(7).out.lines().count(), 1);
}

fn hooks_and_keys() {
    let server = Server::start();
    let start =
        ["start", "idle", "--key", "k", "--deliver-token", "order:7", "--deliver-payload", "{\"ok\":1}"];
    server.say(&start).ends(0);
    let owner = server.say(&["hook", "show", "order:7", "-o", "json"]).ends(0).json();
    assert_eq!(owner["run"]["key"], "k");
    let deliver = ["hook", "deliver", "order:7", "--input", "2", "--call-id", "d1"];
    assert!(server.say(&deliver).ends(0).out.contains("absorbed  no"));
    assert!(server.say(&deliver).ends(0).out.contains("absorbed  yes"));
    server
        .say(&["hook", "deliver", "order:7", "--input", "3", "--call-id", "d1"])
        .ends(4)
        .tells("KEY_REUSED");
    server.say_with(&["hook", "deliver", "order:7", "--input", "-"], "[]").ends(0);
    server.say(&["hook", "deliver", "order:7"]).ends(2).tells("--input");
    assert!(server.say(&["key", "show", "k"]).ends(0).out.contains("delivery"));
    let released = server.say(&["key", "release", "k", "-o", "json"]).ends(0).json();
    assert_eq!(released["run"]["holdsKey"], false);
    server.say(&["key", "show", "k"]).ends(3);
}

fn what_is_not_there_is_not_found() {
    let server = Server::start();
    let unknown = "run_01j0000000e00800000000007z";
    server.say(&["run", "show", unknown]).ends(3).tells("NOT_FOUND");
    server.say(&["run", "watch", unknown]).ends(3).tells("NOT_FOUND");
    server.say(&["hook", "show", "nothing"]).ends(3).tells("HOOK_NOT_FOUND");
    server.say(&["key", "show", "nothing/at %all"]).ends(3).tells("nothing/at %all");
    server.say(&["step", "resolve", unknown, "left/pack[item-3]", "--did-not-happen"]).ends(3);
    server.say(&["run", "show", "seven"]).ends(2).tells("seven");
    server.say(&["step", "resolve", unknown, "pay"]).ends(2);
    server.say(&["step", "resolve", unknown, "pay", "--happened", "{", "--tick", "2"]).ends(2);
}

fn no_server_answers() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let said = say(&["run", "ls", "--url", &url, "--token", "semel_secret"]).ends(5);
    let said = said.tells("is the server running?").tells("semel dev").tells(&url);
    assert!(!format!("{said:?}").contains("semel_secret"));
    say(&["run", "ls", "--url", "nowhere"]).ends(2).tells("http://127.0.0.1:7700");
    say(&["run", "ls", "--token", "a\nb"]).ends(2).tells("token");
}

/// A server with authentication, on a port that was free a moment ago.
fn served() -> Server {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let folder = tempfile::TempDir::new().unwrap();
    let store = format!("sqlite:{}", folder.path().join("semel.db").display());
    let mut command = super::semel(&["serve", "--listen", &address, "--store", &store]);
    let command = command.env("SEMEL_ROOT_TOKEN", ROOT).env("SEMEL_LOG", "off");
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let server = Server { folder, child, url: format!("http://{address}") };
    // Until the server answers: with a refusal, since the call has no token.
    while server.say(&["run", "ls"]).code == 5 {}
    server
}

fn tokens_and_workspaces() {
    let server = served();
    let by = |token: &str, arguments: &[&str]| server.say(&[arguments, &["--token", token]].concat());
    server.say(&["run", "ls"]).ends(6).tells("SEMEL_TOKEN");
    by("semel_nonsense", &["run", "ls"]).ends(6);
    let create = ["workspace", "create", "shop", "--call-id", "w1", "-o", "json"];
    let shop = by(ROOT, &create).ends(0).json();
    assert_eq!(by(ROOT, &create).ends(0).json()["id"], shop["id"], "once");
    assert!(by(ROOT, &["workspace", "ls"]).ends(0).out.contains("shop"));
    let create =
        ["token", "create", "the shop", "--allow", "start", "--allow", "read", "--workspace", "shop"];
    let made = by(ROOT, &[&create[..], &["-o", "json"]].concat()).ends(0).tells("shown this once").json();
    let (id, token) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    let run = by(token, &["start", "idle", "-o", "json"]).ends(0).json();
    let run = run["run"]["id"].as_str().unwrap();
    by(token, &["run", "cancel", run]).ends(6).tells("FORBIDDEN");
    by(token, &["workspace", "create", "other"]).ends(6);
    let listed = by(ROOT, &["token", "ls", "--workspace", "shop"]).ends(0);
    assert!(listed.out.contains("the shop") && listed.out.contains("start, read"), "{listed:?}");
    assert!(!listed.out.contains(token), "{listed:?}");
    assert_eq!(by(token, &["worker", "ls"]).ends(0).out, "no registered workers and no engines\n");
    assert!(by(ROOT, &["token", "revoke", id]).ends(0).out.contains("revoked"));
    // Within a second.
    while by(token, &["run", "ls"]).code == 0 {}
    by(token, &["run", "ls"]).ends(6);
}
