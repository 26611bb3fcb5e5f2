//! A real MCP server, as a program and over streamable HTTP; and, in nightly runs, a small real model.

use std::process::Stdio;
use std::sync::Arc;

use semel::rules::entry::Outcome;
use semel::rules::status::Status;
use semel::{Engine, RunHandle};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::{defined, opened, ran_with};
use crate::connections::{Connection, Connections, McpFailed, McpTarget};
use crate::definitions::interpret::tests::TESTED;

/// Node, and the program of the protocol's own example server, which is installed if it is not there.
async fn everything() -> (String, String) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/npm-package");
    let package = "@modelcontextprotocol/server-everything";
    let ended = Command::new(script).args([package, "2026.8.31"]).output().await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let folder = String::from_utf8(ended.stdout).unwrap();
    let node = Command::new("sh").args(["-c", "command -v node"]).output().await.unwrap();
    let node = String::from_utf8(node.stdout).unwrap();
    (node.trim().to_owned(), format!("{}/node_modules/{package}/dist/index.js", folder.trim()))
}

async fn stdio() -> Connections {
    let (node, program) = everything().await;
    opened(&format!(
        "[everything]\nkind = 'mcp'\ncommand = ['{node}', '{program}', 'stdio']\n\
         env = {{ TOKEN = {{ env = 'KEY' }}, PLAIN = 'seen' }}\n\
         tools = {{ echo = 'reads', get-env = 'reads', get-sum = {{ key-in = 'key' }}, get-tiny-image = 'reads' }}"
    ))
}

/// A server over streamable HTTP, which ends with its process.
async fn over_http() -> (Connections, Child, u16) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = listening(port).await;
    let connections = opened(&format!(
        "[everything]\nkind = 'mcp'\nurl = 'http://127.0.0.1:{port}/mcp'\n\
         headers = {{ x-api-key = {{ env = 'KEY' }} }}\ntools = {{ echo = 'reads', get-tiny-image = 'reads' }}"
    ));
    (connections, server, port)
}

async fn listening(port: u16) -> Child {
    let (node, program) = everything().await;
    let mut command = Command::new(node);
    command.args([&program, "streamableHttp"]).env("PORT", port.to_string()).kill_on_drop(true);
    let mut server = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(server.stderr.take().unwrap()).lines();
    while let Some(line) = log.next_line().await.unwrap() {
        if line.contains("listening") {
            break;
        }
    }
    // Its log is read on, or it would end when it writes the next line.
    tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
    server
}

const CALLS: &str = "steps:
  - {name: said, mcp: {on: everything, tool: echo, args: {message: 'Order {{ input.order }}'}}}
  - {name: sum, mcp: {on: everything, tool: get-sum, args: {a: 2, b: 3}}}
  - {name: image, mcp: {on: everything, tool: get-tiny-image}, keep: '{{ this.content|length }}'}
  - name: caught
    try: [{name: wrong, mcp: {on: everything, tool: echo, args: {message: 7}}}]
    catch: [{steps: [{name: told, set: {code: '{{ error.code }}'}}]}]
return: {said: '{{ steps.said.text }}', sum: '{{ steps.sum.text }}', images: '{{ steps.image }}', code: '{{ vars.code }}'}";

fn result(outcome: Outcome) -> Json {
    match outcome {
        Outcome::Completed(value) => value.read().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_real_server_is_called_as_a_program_and_over_http() {
    let (http, _server, _) = over_http().await;
    for connections in [stdio().await, http] {
        let told = result(ran_with(connections, CALLS).await.outcome);
        assert_eq!(
            (&told["said"], &told["images"], &told["code"]),
            (&json!("Echo: Order o7"), &json!(1), &json!("MCP"))
        );
        assert!(told["sum"].as_str().unwrap().contains('5'), "{told}");
    }
}

/// A server that does as the real one, and gives the id of the call with its refusal. A tool that speaks of a session is another matter.
#[tokio::test]
async fn a_refused_session_is_begun_again_and_a_refused_call_is_not() {
    let shop = super::scripted(|_, _, _| super::text("not asked"));
    let steps = "steps:
  - {name: first, mcp: {on: crm, tool: push, args: {n: 1}}}
  - {name: go, event: {token: 'go'}}
  - {name: second, mcp: {on: crm, tool: push, args: {n: 2}}}
  - name: caught
    try: [{name: refused, mcp: {on: crm, tool: session-of-its-own, args: {n: 3}}}]
    catch: [{steps: [{name: told, set: {code: '{{ error.code }}'}}]}]
return: ['{{ steps.second.text }}', '{{ vars.code }}']";
    let engine = super::built(&shop, steps, Engine::builder().store("memory:")).open().await.unwrap();
    let run = engine.start(TESTED, json!({})).await.unwrap();
    run.reached(Status::Waiting).await.unwrap();
    shop.restart();
    engine.deliver("go", json!(1)).await.unwrap();
    assert_eq!(result(ended(&run).await), json!(["push of 2", "MCP"]));
    assert_eq!((shop.count("push"), shop.count("session-of-its-own")), (2, 1));
}

/// The outcome of a run that must not be in doubt.
async fn ended(run: &RunHandle<Json>) -> Outcome {
    let status = run.reached(Status::Paused).await.unwrap();
    assert!(status.is_terminal(), "{status}: {:?}", run.doubts().await);
    run.outcome().await.unwrap()
}

/// A server that was started again answers 400 in a session of before, with an error that names no call.
#[tokio::test]
async fn a_server_over_http_that_was_started_again_is_called_in_a_new_session() {
    let (connections, mut before, port) = over_http().await;
    // About `get-sum` nothing is known: it is called at most once, and the refusal says that it was not called.
    let steps = "steps:
  - {name: first, mcp: {on: everything, tool: echo, args: {message: one}}}
  - {name: go, event: {token: 'go'}}
  - {name: sum, mcp: {on: everything, tool: get-sum, args: {a: 2, b: 3}}}
  - {name: second, mcp: {on: everything, tool: echo, args: {message: two}}}
return: ['{{ steps.first.text }}', '{{ steps.sum.text }}', '{{ steps.second.text }}']";
    let engine = defined(connections, steps, Engine::builder().store("memory:")).open().await.unwrap();
    let run = engine.start(TESTED, json!({})).await.unwrap();
    run.reached(Status::Waiting).await.unwrap();
    before.kill().await.unwrap();
    let _after = listening(port).await;
    engine.deliver("go", json!(1)).await.unwrap();
    let told = result(ended(&run).await);
    assert_eq!((&told[0], &told[2]), (&json!("Echo: one"), &json!("Echo: two")), "{told}");
    assert!(told[1].as_str().unwrap().contains('5'), "{told}");
}

#[tokio::test]
async fn a_program_sees_the_named_environment_only_and_its_secrets_are_not_recorded() {
    let steps =
        "steps: [{name: seen, mcp: {on: everything, tool: get-env}}]\nreturn: '{{ steps.seen.text }}'";
    // That the secret is not in the history is checked there.
    let told = result(ran_with(stdio().await, steps).await.outcome);
    let seen: Json = serde_json::from_str(told.as_str().unwrap()).unwrap();
    assert_eq!((&seen["PLAIN"], &seen["TOKEN"]), (&json!("seen"), &json!("***")));
    assert!(seen.get("PATH").is_none() && seen.get("HOME").is_none(), "{seen}");
}

#[tokio::test]
async fn a_tool_about_which_nothing_is_known_is_in_doubt_when_it_does_not_answer() {
    let slow = "steps: [{name: slow, timeout: 500ms, mcp: {on: everything, tool: trigger-long-running-operation, args: {duration: 60, steps: 2}}}]";
    let engine = defined(stdio().await, slow, Engine::builder().store("memory:")).open().await.unwrap();
    let run = engine.start(TESTED, json!({})).await.unwrap();
    run.reached(Status::Paused).await.unwrap();
    assert_eq!(run.doubts().await.unwrap().len(), 1);
}

/// A program that notes its starts and its calls, and answers every call but the first.
const FORGETFUL: &str = r#"
const fs = require("fs");
const note = (line) => fs.appendFileSync(process.env.LOG, line + "\n");
note("start " + process.pid);
const tool = (name) => ({ name, description: name, inputSchema: { type: "object" } });
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const answer = (result) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, result }) + "\n");
  if (method === "initialize")
    return answer({ protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "f", version: "1" } });
  if (method !== "tools/call") return answer({ tools: [tool("look"), tool("push")] });
  note("call " + params.name);
  if (fs.readFileSync(process.env.LOG, "utf8").match(/^call/gm).length > 1)
    answer({ content: [{ type: "text", text: "answered" }] });
});
"#;

/// The lines of its file that begin so, as soon as there is one.
async fn noted(log: &std::path::Path, word: &str) -> Vec<String> {
    loop {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        // The last line may be written half.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let found: Vec<_> =
            whole.lines().filter_map(|line| line.strip_prefix(word)).map(str::to_owned).collect();
        if !found.is_empty() {
            return found;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_program_that_dies_in_a_call_is_started_by_the_next_one_and_only_a_read_is_repeated() {
    let (node, _) = everything().await;
    for (tool, is_repeated) in [("look", true), ("push", false)] {
        let folder = tempfile::TempDir::new().unwrap();
        let (script, log) = (folder.path().join("server.js"), folder.path().join("log"));
        std::fs::write(&script, FORGETFUL).unwrap();
        let connections = opened(&format!(
            "[notes]\nkind = 'mcp'\ncommand = ['{node}', '{}']\nenv = {{ LOG = '{}' }}\ntools = {{ look = 'reads' }}",
            script.display(),
            log.display()
        ));
        let steps = format!(
            "steps: [{{name: calls, retry: {{attempts: 3, first: 1ms}}, mcp: {{on: notes, tool: {tool}}}}}]\nreturn: '{{{{ steps.calls.text }}}}'"
        );
        let engine = defined(connections, &steps, Engine::builder().store("memory:")).open().await.unwrap();
        let run = engine.start(TESTED, json!({})).await.unwrap();
        assert_eq!(noted(&log, "call ").await, [tool]);
        let process = noted(&log, "start ").await.remove(0);
        assert!(Command::new("kill").args(["-9", &process]).status().await.unwrap().success());
        if !is_repeated {
            run.reached(Status::Paused).await.unwrap();
            assert_eq!(
                noted(&log, "call ").await,
                [tool],
                "nothing is known about it: it is not called again"
            );
            run.did_not_happen("calls").await.unwrap();
        }
        assert_eq!(result(run.outcome().await.unwrap()), "answered");
        assert_eq!((noted(&log, "call ").await.len(), noted(&log, "start ").await.len()), (2, 2), "{tool}");
    }
}

fn server(connections: &Connections) -> Arc<Connection> {
    connections.all().next().unwrap().clone()
}

#[tokio::test]
async fn a_program_that_is_no_server_is_told_with_its_last_words() {
    for (command, said) in [
        ("echo the licence has run out >&2; exit 3", "the licence has run out"),
        ("head -c 6000000 /dev/zero", "is no MCP server"),
    ] {
        let connections = opened(&format!(
            "[broken]\nkind = 'mcp'\ncommand = ['/bin/sh', '-c', '{command}']\nenv = {{ PATH = '/usr/bin:/bin' }}"
        ));
        let connection = server(&connections);
        let mcp: &McpTarget = connection.target().unwrap();
        let Err(McpFailed::NotSent(why)) = mcp.tools().await else { panic!("{command}") };
        assert!(why.contains(said), "{why}");
    }
}

#[tokio::test]
async fn a_check_names_tools_that_the_server_does_not_have() {
    let (node, program) = everything().await;
    let connections = opened(&format!(
        "[everything]\nkind = 'mcp'\ncommand = ['{node}', '{program}', 'stdio']\ntools = {{ echo = 'reads', ecco = 'reads' }}"
    ));
    let checked = server(&connections).look(&connections, false).await;
    assert!(!checked.is_fine && checked.found.contains("`ecco`"), "{checked:?}");
    let checked = server(&stdio().await).look(&connections, false).await;
    assert!(checked.is_fine, "{checked:?}");
}

/// `make models` starts a small model and runs this.
#[tokio::test]
#[ignore = "needs a real model: scripts/with-model"]
async fn a_real_model_answers_fits_a_schema_and_chooses() {
    let steps = "steps:
  - {name: said, llm: {on: model, system: Be brief., prompt: Say hello., max_tokens: 12}}
  - name: judged
    llm:
      on: model
      prompt: Is fire hot?
      output: {type: object, required: [answer], properties: {answer: {enum: ['yes', 'no']}}, additionalProperties: false}
      max_tokens: 24
return: {said: '{{ steps.said.text }}', judged: '{{ steps.judged.output.answer }}', cost: '{{ steps.said.cost }}'}";
    let told = result(ran_with(opened(&real_model()), steps).await.outcome);
    assert!(
        !told["said"].as_str().unwrap().is_empty()
            && ["yes", "no"].contains(&told["judged"].as_str().unwrap()),
        "{told}"
    );
    assert!(told["cost"].as_f64().unwrap() > 0.0, "{told}");
}

/// A connection `model` to the real model.
fn real_model() -> String {
    let base = std::env::var("SEMEL_TEST_MODEL").expect("run it by scripts/with-model");
    format!(
        "[model]\nkind = 'openai'\nbase = '{base}'\nmodel = 'smollm2'\nprice = {{ in = 0.1, out = 0.2 }}\ntimeout = '20m'\n"
    )
}

/// Whatever so small a model answers: every call of it, and of a tool, is recorded, and none is made twice.
#[tokio::test]
#[ignore = "needs a real model: scripts/with-model"]
async fn a_real_model_uses_a_tool_and_plans_and_each_call_is_recorded() {
    let shop = super::scripted(|_, _, _| super::text("not asked"));
    let connections = opened(&format!(
        "{}[shop]\nkind = 'http'\nbase = '{}'\nprofile = {{ by = 'key', header = 'Idempotency-Key', window = 'for-ever' }}\n",
        real_model(),
        shop.base()
    ));
    let steps = "steps:
  - name: asked
    try:
      - name: find
        agent:
          on: model
          prompt: How many pencils are there?
          tools: [{name: look, about: Counts things., input: {n: integer}, http: {on: shop, post: /effects/look, json: {n: 7}}, keep: '{{ this.body.n }}'}]
          max_tokens: 48
          limits: {rounds: 3}
    catch: [{steps: [{name: silent, set: {agent: '{{ error.code }}'}}]}]
  - name: planned
    try:
      - name: plan
        planner:
          on: model
          prompt: Count the pens.
          steps: [{name: count, about: Counts things., http: {on: shop, post: /effects/count, json: {n: 3}}, keep: '{{ this.body.n }}'}]
          max_tokens: 96
          limits: {rounds: 3}
    catch: [{steps: [{name: lost, set: {planner: '{{ error.code }}'}}]}]
return: {agent: '{{ vars.agent|default(none) }}', planner: '{{ vars.planner|default(none) }}'}";
    let ran = ran_with(connections, steps).await;
    let told = result(ran.outcome);
    for gave_up in ["agent", "planner"] {
        let code = told[gave_up].as_str();
        assert!(code.is_none_or(|code| matches!(code, "LIMIT" | "OUTPUT_INVALID")), "{told}");
    }
    let (looks, counts) = (shop.count("look"), shop.count("count"));
    assert!(looks >= 1, "the model calls the tool: {}", ran.history);
    assert_eq!((shop.keys("look").len(), shop.keys("count").len()), (looks, counts));
    // Answers of the model by their paths, and what the tools gave.
    let completed = |path: &str| {
        let lines = ran.history.split("stepCompleted").skip(1);
        lines.filter(|line| line.split("\"value\"").next().is_some_and(|head| head.contains(path))).count()
    };
    assert_eq!((completed("/look\""), completed("/count\"")), (looks, counts), "{}", ran.history);
    let (asked, planned) = (completed("asked/find/model"), completed("planned/plan/model"));
    assert!((1..=3).contains(&asked) && (1..=3).contains(&planned), "{asked} {planned}");
    assert_eq!(ran.history.matches("semel:model").count(), asked + planned);
}

/// A document in a real database, with vectors of a real model.
#[cfg(feature = "ingest")]
#[tokio::test]
#[ignore = "needs a real model and pgvector: scripts/with-model, scripts/with-pgvector"]
async fn a_real_model_makes_the_vectors_of_a_document() {
    use semel::tx::{self, PgPoolOptions, TxSource as _};

    let url = std::env::var("SEMEL_TEST_PGVECTOR").expect("run it by scripts/with-pgvector");
    let pool = PgPoolOptions::new(&url).build().unwrap();
    tx::install(&pool).await.unwrap();
    // The length of the vectors of SmolLM2.
    let table = "CREATE EXTENSION IF NOT EXISTS vector; DROP TABLE IF EXISTS real_chunks; \
                 CREATE TABLE real_chunks (document text NOT NULL, n integer NOT NULL, hash text NOT NULL, text text NOT NULL, \
                 vector vector(576) NOT NULL, PRIMARY KEY (document, n))";
    pool.script(table).await.unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &url).unwrap();
    let connections = || {
        let place = file.path().display();
        opened(&format!("{}[library]\nkind = 'postgres'\nurl = {{ file = '{place}' }}\n", real_model()))
    };
    let steps = "steps:
  - name: know
    ingest: {on: library, embed: {on: model}, table: real_chunks, document: d, size: 50, text: 'The sun is hot and it shines by day. The moon is cold and it shines by night.'}";
    for embedded in [2, 0] {
        let ran = ran_with(connections(), steps).await;
        let told = result(ran.outcome);
        assert_eq!((&told["chunks"], &told["embedded"]), (&json!(2), &json!(embedded)), "{told}");
        assert_eq!(ran.history.matches("semel:model").count(), usize::from(embedded > 0));
        assert_eq!(told["cost"].as_f64().unwrap() > 0.0, embedded > 0, "{told}");
    }
    let near = "SELECT text FROM real_chunks ORDER BY vector <=> (SELECT vector FROM real_chunks WHERE n = 2) LIMIT 1";
    let nearest: String = pool.get().await.unwrap().query_one(near, &[]).await.unwrap().get(0);
    assert_eq!(nearest, "The moon is cold and it shines by night.");
}
