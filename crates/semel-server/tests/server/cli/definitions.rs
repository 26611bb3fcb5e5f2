//! Definitions in files.

use std::io::Write as _;
use std::process::Stdio;

use tempfile::TempDir;

use super::{Server, ended, say, semel, tests};

tests![
    a_right_definition_has_an_id_and_a_drawing,
    wrong_definitions_end_with_their_places_and_exit_code_2,
    a_definition_of_conductor_is_converted_into_one_that_is_accepted,
    the_schema_for_editors_is_json,
    a_pushed_definition_is_listed_shown_started_and_archived,
    a_refused_push_says_where_and_pushes_what_came_before,
    a_server_checks_children_too,
    a_server_checks_connections_too_and_lists_them,
    a_start_takes_a_definition_before_a_workflow_in_code,
    definitions_move_with_a_store,
    a_replay_by_the_server_is_a_comparison,
    a_run_of_a_pushed_definition_is_replayed_by_the_server,
];

const RIGHT: &str =
    "semel: 1\nname: hello\nsteps:\n  - {name: greet, worker: {queue: doors}}\n  - {name: pause, wait: 1s}\n";
const WRONG: &str =
    "semel: 1\nname: hello\nsteps:\n  - {name: greet, wrker: {queue: doors}}\n  - {name: pause, wait: 1}\n";

fn file(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn a_right_definition_has_an_id_and_a_drawing() {
    let folder = TempDir::new().unwrap();
    let right = file(&folder, "right.yaml", RIGHT);
    let shown = say(&["definition", "check", &right]).ends(0);
    assert!(shown.out.contains("ok, hello def1_"), "{shown:?}");
    let told = say(&["definition", "check", &right, "-o", "json"]).ends(0).json();
    assert_eq!(told["files"][0]["id"].as_str().unwrap().len(), "def1_".len() + 26);
    assert!(say(&["definition", "graph", &right]).ends(0).out.starts_with("flowchart TD\n"));
    assert!(say(&["definition", "graph", &right, "--format", "dot"]).ends(0).out.starts_with("digraph"));
    let graph = say(&["definition", "graph", &right, "--format", "json"]).ends(0).json();
    assert_eq!((&graph["nodes"][0]["path"], &graph["edges"][0]["to"]), (&"greet".into(), &"pause".into()));
}

fn wrong_definitions_end_with_their_places_and_exit_code_2() {
    let folder = TempDir::new().unwrap();
    let (right, wrong) = (file(&folder, "right.yaml", RIGHT), file(&folder, "wrong.yaml", WRONG));
    let shown = say(&["definition", "check", &right, &wrong]).ends(2).tells("the definition is not accepted");
    for part in ["wrong.yaml:4:19: there is no member `wrker`", "is it `worker`?", "wrong.yaml:5:25:"] {
        assert!(shown.out.contains(part), "{part}: {shown:?}");
    }
    let told = say(&["definition", "check", &wrong, "-o", "json"]).ends(2).json();
    let problem = &told["files"][0]["problems"][0];
    assert_eq!((&problem["pointer"], &problem["line"]), (&"/steps/0/wrker".into(), &4.into()));
    say(&["definition", "graph", &wrong]).ends(2).tells("wrong.yaml:4:19");
    say(&["definition", "check", "nowhere.yaml"]).ends(3);
}

fn a_definition_of_conductor_is_converted_into_one_that_is_accepted() {
    let folder = TempDir::new().unwrap();
    let known = r#"{"name": "pay", "tasks": [{"name": "charge", "taskReferenceName": "charge", "type": "SIMPLE", "inputParameters": {"n": "${workflow.input.cents}"}}]}"#;
    let converted = say(&["definition", "import", "conductor", &file(&folder, "known.json", known)]).ends(0);
    let mut command = semel(&["definition", "check", "-"]);
    let mut check = command.stdin(Stdio::piped()).spawn().unwrap();
    check.stdin.take().unwrap().write_all(converted.out.as_bytes()).unwrap();
    assert!(ended(check).ends(0).out.contains("ok, pay def1_"));
    let unknown =
        r#"{"name": "pay", "tasks": [{"name": "x", "taskReferenceName": "code", "type": "INLINE"}]}"#;
    say(&["definition", "import", "conductor", &file(&folder, "unknown.json", unknown)])
        .ends(2)
        .tells("code: it is JavaScript");
}

fn the_schema_for_editors_is_json() {
    let schema = say(&["definition", "schema"]).ends(0).json();
    assert!(schema["$defs"]["step"]["properties"]["http"].is_object());
}

fn a_pushed_definition_is_listed_shown_started_and_archived() {
    let (folder, server) = (TempDir::new().unwrap(), Server::start());
    let first = file(&folder, "first.yaml", RIGHT);
    let second = file(&folder, "second.yaml", &RIGHT.replace("1s", "2s"));
    let shown = server.say(&["definition", "push", &first, &second]).ends(0);
    for part in ["hello@1", "hello@2", "created", "def1_"] {
        assert!(shown.out.contains(part), "{part}: {shown:?}");
    }
    let again = server.say(&["definition", "push", &first, "--not-current", "-o", "json"]).ends(0).json();
    let pushed = &again["pushed"][0];
    assert_eq!((&pushed["verdict"], &pushed["current"]), (&"unchanged".into(), &false.into()));
    let listed = server.say(&["definition", "ls", "-o", "json"]).ends(0).json();
    assert_eq!(listed["definitions"][0]["current"]["version"], "2");
    assert_eq!(server.say(&["definition", "ls"]).ends(0).out.lines().count(), 2);
    let shown = server.say(&["definition", "show", "hello"]).ends(0);
    assert!(shown.out.contains("hello@2") && shown.out.contains("new starts get this version"), "{shown:?}");
    assert_eq!(server.say(&["definition", "show", "hello@1", "--text"]).ends(0).out, RIGHT);
    server.say(&["definition", "show", "nothing"]).ends(3).tells("DEFINITION_NOT_FOUND");
    assert!(server.say(&["definition", "use", "hello", "1"]).ends(0).out.contains("changed     yes"));
    let started = server.say(&["start", "hello", "--key", "k", "-o", "json"]).ends(0).json();
    assert_eq!(started["run"]["workflowVersion"], pushed["id"]);
    assert!(server.say(&["definition", "archive", "hello"]).ends(0).out.contains("archived"));
    server.say(&["start", "hello", "--key", "k2"]).ends(4).tells("archived");
    assert_eq!(server.say(&["definition", "ls"]).ends(0).out, "no definitions\n");
    assert!(server.say(&["definition", "ls", "--archived"]).ends(0).out.contains("archived"));
}

fn a_refused_push_says_where_and_pushes_what_came_before() {
    let (folder, server) = (TempDir::new().unwrap(), Server::start());
    let (right, wrong) = (file(&folder, "right.yaml", RIGHT), file(&folder, "wrong.yaml", WRONG));
    let said = server
        .say(&["definition", "push", &right, &wrong])
        .ends(2)
        .tells("wrong.yaml:4:19: there is no member");
    assert!(said.out.contains("hello@1"), "{said:?}");
    let labelled = |wait: &str| RIGHT.replace("steps:", "version: x\nsteps:").replace("1s", wait);
    server.say_with(&["definition", "push", "-"], &labelled("1s")).ends(0);
    server
        .say_with(&["definition", "push", "-"], &labelled("2s"))
        .ends(4)
        .tells("VERSION_TAKEN")
        .tells("/steps/1/wait");
    let input = RIGHT.replace("steps:", "input: {type: object, required: [n]}\nsteps:");
    server.say_with(&["definition", "push", "-"], &input).ends(0);
    server.say(&["start", "hello", "--input", "{}"]).ends(4).tells("INPUT_INVALID");
}

fn a_server_checks_children_too() {
    let (folder, server) = (TempDir::new().unwrap(), Server::start());
    let parent = "semel: 1\nname: parent\nsteps: [{name: x, child: {run: leaf}}]\n";
    let parent = file(&folder, "parent.yaml", parent);
    say(&["definition", "check", &parent]).ends(0);
    let refused = server.say(&["definition", "check", &parent, "--url", &server.url]).ends(2);
    assert!(refused.out.contains("parent.yaml:3:32: there is no definition `leaf`"), "{refused:?}");
    server.say_with(&["definition", "push", "-"], &RIGHT.replace("hello", "leaf")).ends(0);
    server.say(&["definition", "check", &parent, "--url", &server.url]).ends(0);
    assert_eq!(
        server.say(&["definition", "ls", "-o", "ndjson"]).ends(0).out.lines().count(),
        1,
        "nothing was pushed"
    );
}

fn a_server_checks_connections_too_and_lists_them() {
    let folder = TempDir::new().unwrap();
    let secret = file(&folder, "secret", "the secret of the receiver");
    let server = Server::configured(&format!(
        "[connections.shop]\nkind = 'http'\nbase = 'http://127.0.0.1:1'\nprofile = 'stripe'\n\
         [connections.told]\nkind = 'webhook'\nurl = 'http://127.0.0.1:1'\nsecret = {{ file = '{secret}' }}\n"
    ));
    let listed = server.say(&["connection", "ls"]).ends(0);
    for row in ["shop", "http", "stripe (key, 24h)", "told", "webhook"] {
        assert!(listed.out.contains(row), "{row}: {listed:?}");
    }
    let listed = server.say(&["connection", "ls", "-o", "json"]).ends(0).json();
    let names: Vec<_> = listed["connections"].as_array().unwrap().iter().map(|view| &view["name"]).collect();
    assert_eq!(names, ["shop", "told"]);
    let check = |on: &str| {
        let text = format!("semel: 1\nname: calls\nsteps:\n  - {{name: a, http: {{on: {on}, post: /a}}}}\n");
        let path = file(&folder, "calls.yaml", &text);
        server.say(&["definition", "check", &path, "--url", &server.url])
    };
    check("shop").ends(0);
    let near = check("shp").ends(2);
    assert!(
        near.out.contains("calls.yaml:4:26: there is no connection `shp` for this workspace; is it `shop`?"),
        "{near:?}"
    );
    let kind = check("told").ends(2);
    assert!(kind.out.contains("calls.yaml:4:26: the connection `told` is of the kind `webhook`"), "{kind:?}");
}

fn a_start_takes_a_definition_before_a_workflow_in_code() {
    let server = Server::start();
    let version = |arguments: &[&str]| {
        let said = server.say(&[&["start", "hello", "-o", "json"], arguments].concat()).ends(0);
        said.json()["run"]["workflowVersion"].as_str().unwrap().to_owned()
    };
    assert_eq!(version(&[]), "1");
    server.say_with(&["definition", "push", "-"], RIGHT).ends(0);
    assert!(version(&[]).starts_with("def1_"));
    assert_eq!(version(&["--workflow-version", "7"]), "7");
    server.say(&["start", "hello@9"]).ends(3).tells("DEFINITION_NOT_FOUND");
}

fn definitions_move_with_a_store() {
    let mut server = Server::start();
    let pushed = server.say_with(&["definition", "push", "-", "-o", "json"], RIGHT).ends(0).json();
    server.kill();
    let folder = TempDir::new().unwrap();
    let archive = folder.path().join("all.ndjson").to_str().unwrap().to_owned();
    let new = folder.path().join("semel.db").to_str().unwrap().to_owned();
    say(&["store", "export", "--store", &server.file(), &archive]).ends(0);
    say(&["store", "import", "--store", &new, &archive]).ends(0);
    assert!(say(&["store", "check", "--store", &new]).ends(0).out.contains("findings  0"));
    let (child, url) = Server::dev(&folder, "127.0.0.1:0");
    let server = Server { folder, child, url };
    let shown = server.say(&["definition", "show", "hello", "-o", "json"]).ends(0).json();
    assert_eq!((&shown["id"], &shown["text"]), (&pushed["pushed"][0]["id"], &RIGHT.into()));
}

fn a_replay_by_the_server_is_a_comparison() {
    let server = Server::start();
    let input = r#"{"order": "7", "amount": 1999}"#;
    let started =
        server.say(&["start", "demo-order", "--key", "k", "--input", input, "-o", "json"]).ends(0).json();
    let run = started["run"]["id"].as_str().unwrap().to_owned();
    server.say(&["run", "watch", &run]).ends(0);
    let replayed = server.say(&["run", "replay", &run]).ends(0).tells(" 0 changed, 0 missing, 0 added");
    assert_eq!(replayed.out, "the code does what is recorded\n");
    let diff = server.say(&["run", "replay", &run, "-o", "json"]).ends(0).json();
    assert!(diff["identical"] == true && diff["rows"].as_array().unwrap().len() > 2, "{diff}");
    let history = server.say(&["run", "replay", &run, "--history"]).ends(0).json();
    assert_eq!(history["format"], "semel/history/1");
    let idle = server.run("idle");
    assert_eq!(
        server.say(&["run", "replay", &idle]).ends(0).json()["format"],
        "semel/history/1",
        "nothing has its code"
    );
}

fn a_run_of_a_pushed_definition_is_replayed_by_the_server() {
    let server = Server::start();
    let text = "semel: 1\nname: quick\nsteps:\n  - {name: total, set: {n: '{{ input.n + 1 }}'}}\n  - {name: pause, wait: 1ms}\n";
    server.say_with(&["definition", "push", "-"], text).ends(0);
    let started =
        server.say(&["start", "quick", "--key", "k", "--input", "{\"n\": 6}", "-o", "json"]).ends(0).json();
    let run = started["run"]["id"].as_str().unwrap().to_owned();
    server.say(&["run", "watch", &run]).ends(0);
    let replayed = server.say(&["run", "replay", &run]).ends(0).tells(" 0 changed, 0 missing, 0 added");
    assert_eq!(replayed.out, "the code does what is recorded\n");
    let diff = server.say(&["run", "replay", &run, "-o", "json"]).ends(0).json();
    let paths: Vec<_> =
        diff["rows"].as_array().unwrap().iter().map(|row| row["path"].as_str().unwrap()).collect();
    assert!(
        diff["identical"] == true && ["total", "pause"].iter().all(|path| paths.contains(path)),
        "{diff}"
    );
}
