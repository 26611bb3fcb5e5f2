//! The documentation as a reader plays it: its commands are executed in their order, and answer what the page says.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use libtest_mimic::{Failed, Trial};
use serde_json::{Map, Value};

const START: &str = include_str!("../../../../docs/start.md");
const DEFINITIONS: &str = include_str!("../../../../docs/definitions.md");
const CONNECTIONS: &str = include_str!("../../../../docs/connections.md");
/// The definition whose problems docs/definitions.md shows.
const PROBLEMS: &str = include_str!("../definitions/problems.yaml");
/// The secrets that the configurations of the pages name.
const SECRETS: [(&str, &str); 3] = [
    ("STRIPE_KEY", "the key of a test"),
    ("STRIPE_WEBHOOK_SECRET", "whsec_c2VjcmV0IG9mIGEgdGVzdA=="),
    ("SHOP_SECRET", "the secret of a test"),
];
/// The line of the page at which the server is killed and started again.
const KILLED: &str = "<!-- The server is killed and started again here. -->";
/// Where the page says that the server listens.
const THERE: &str = "http://127.0.0.1:7700";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("documented::the_first_ten_minutes_are_as_the_page_says", first_ten_minutes),
        Trial::test("documented::the_commands_of_the_page_of_definitions_succeed", page_of_definitions),
        Trial::test("documented::the_commands_of_the_page_of_connections_succeed", page_of_connections),
        Trial::test("documented::problems_are_told_as_the_page_says", problems),
    ]
}

/// A fenced block: its language and its text.
struct Block {
    language: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        match (line.strip_prefix("```"), inside) {
            (Some(language), false) => {
                blocks.push(Block { language: language.to_owned(), text: String::new() });
                inside = true;
            }
            (Some(_), true) => inside = false,
            (None, false) if line == KILLED => {
                blocks.push(Block { language: "killed".to_owned(), text: String::new() });
            }
            (None, true) => {
                let block = blocks.last_mut().expect("one was opened");
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, false) => {}
        }
    }
    blocks
}

/// `semel dev`, ended with the test.
struct Dev {
    child: Child,
    url: String,
}

impl Dev {
    fn start(folder: &Path) -> Result<Self, Failed> {
        Self::configured(folder, "")
    }

    /// The same with connections.
    fn configured(folder: &Path, connections: &str) -> Result<Self, Failed> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
        command.args(["dev", "--listen", "127.0.0.1:0", "--log-filter", "warn", "--folder"]).arg(folder);
        let config = folder.with_extension("toml");
        std::fs::write(&config, connections)?;
        command.arg("--config").arg(config).envs(SECRETS);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("a pipe")?).lines();
        let url = lines.by_ref().find_map(|line| address(&line.ok()?));
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self { child, url: url.ok_or("it does not say where it listens")? })
    }
}

/// The first address in a line, without what follows it.
fn address(line: &str) -> Option<String> {
    let rest = line.split_once("http://")?.1;
    Some(format!("http://{}", rest.split([',', '/', ' ']).next()?))
}

impl Drop for Dev {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn first_ten_minutes() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let mut dev = Dev::start(&folder.path().join("semel"))?;
    let all = blocks(START);
    let end = Block { language: String::new(), text: String::new() };
    let (mut played, mut kills) = (0, 0);
    for (block, answer) in all.iter().zip(all.iter().skip(1).chain([&end])) {
        match block.language.as_str() {
            "killed" => {
                drop(dev);
                dev = Dev::start(&folder.path().join("semel"))?;
                kills += 1;
            }
            "sh" if is_played(&block.text) => {
                play(&block.text.replace(THERE, &dev.url), answer, folder.path(), &dev.url)?;
                played += 1;
            }
            _ => {}
        }
    }
    assert!(played >= 12 && kills == 1, "{played} commands and {kills} kills are not the page that is meant");
    Ok(())
}

/// Plays the commands of a page that begin with this one; each of them must succeed.
fn commands(page: &str, start: &str, folder: &Path, url: &str) -> Result<(), Failed> {
    let all = blocks(page);
    let block = all.iter().find(|block| block.language == "sh" && block.text.starts_with(start));
    let block = block.ok_or_else(|| format!("there is no block that begins with {start:?}"))?;
    let end = Block { language: String::new(), text: String::new() };
    assert!(block.text.lines().count() > 1, "{}", block.text);
    play(&format!("set -e\n{}", block.text), &end, folder, url)
}

/// The first block of a page in a language.
fn first(page: &str, language: &str) -> String {
    blocks(page).into_iter().find(|block| block.language == language).expect("the page has one").text
}

fn page_of_definitions() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let connection = "[connections.stripe]\nkind = 'http'\nbase = 'http://127.0.0.1:1'\nprofile = 'stripe'\n";
    let dev = Dev::configured(&folder.path().join("semel"), connection)?;
    let conductor =
        r#"{"name": "pay", "tasks": [{"name": "charge", "taskReferenceName": "charge", "type": "SIMPLE"}]}"#;
    for (name, text) in [
        ("order.yaml", &*first(DEFINITIONS, "yaml")),
        ("order.json", r#"{"order": "7", "cents": 1900, "lines": []}"#),
        ("workflow.json", conductor),
    ] {
        std::fs::write(folder.path().join(name), text)?;
    }
    commands(DEFINITIONS, "semel definition check order.yaml", folder.path(), &dev.url)
}

/// The configuration of the page, with a server of this machine in the place of its addresses.
fn page_of_connections() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let dev = Dev::start(&folder.path().join("semel"))?;
    let mut text = String::new();
    for line in first(CONNECTIONS, "toml").lines() {
        let is_address = line.starts_with("base = ") || line.starts_with("url = ");
        text += &match line.split_once(" = ") {
            Some((name, _)) if is_address => format!("{name} = '{}'\n", dev.url),
            _ => format!("{line}\n"),
        };
    }
    let text = text.replace("/run/secrets", &folder.path().display().to_string());
    std::fs::write(folder.path().join("shop-old"), "the secret before that one")?;
    std::fs::write(folder.path().join("semel.toml"), text)?;
    commands(CONNECTIONS, "semel connection ls", folder.path(), &dev.url)
}

fn problems() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("order.yaml"), PROBLEMS)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    let output = command.args(["definition", "check", "order.yaml"]).current_dir(folder.path()).output()?;
    assert_eq!(output.status.code(), Some(2));
    let shown = blocks(DEFINITIONS).into_iter().find(|block| block.text.starts_with("order.yaml:"));
    assert_eq!(
        String::from_utf8(output.stdout)?.trim_end(),
        shown.expect("the page shows them").text.trim_end()
    );
    Ok(())
}

/// Commands of the page, except those that start servers and the demo.
fn is_played(text: &str) -> bool {
    ["curl", "cat >", "sed", "semel definition"].iter().any(|start| text.starts_with(start))
}

/// Plays a command in a folder, and compares its answer with the block that follows it on the page.
fn play(text: &str, answer: &Block, folder: &Path, url: &str) -> Result<(), Failed> {
    let binary = Path::new(env!("CARGO_BIN_EXE_semel"));
    let places = std::env::join_paths(
        binary
            .parent()
            .map(Into::into)
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )?;
    let mut command = Command::new("sh");
    command.arg("-c").arg(text).current_dir(folder).env("PATH", places).env("SEMEL_URL", url).envs(SECRETS);
    let output = command.output()?;
    let (said, told) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    match answer.language.as_str() {
        "json" => {
            let said: Value =
                serde_json::from_str(&said).map_err(|_| format!("{text}\nanswers {said:?} {told}"))?;
            let expected: Value =
                serde_json::from_str(&answer.text).map_err(|e| format!("{}: {e}", answer.text))?;
            assert_eq!(timeless(&said), timeless(&expected), "{text}\nanswers\n{said:#}");
        }
        "text" => {
            for line in answer.text.lines() {
                assert!(said.contains(line) || told.contains(line), "{line:?} is not in\n{said}{told}");
            }
        }
        _ => assert!(output.status.success(), "{text}\n{said}{told}"),
    }
    Ok(())
}

/// Without what is another one each time: ids, times, and numbers that others have a part in.
fn timeless(value: &Value) -> Value {
    let object = |object: &Map<String, Value>| {
        let kept = object.iter().filter(|(name, _)| *name != "node" && *name != "dueAt");
        kept.map(|(name, value)| (name.clone(), member(name, value))).collect()
    };
    match value {
        Value::Object(map) => Value::Object(object(map)),
        Value::Array(list) => Value::Array(list.iter().map(timeless).collect()),
        Value::String(text) => Value::String(text.split_whitespace().map(word).collect::<Vec<_>>().join(" ")),
        other => other.clone(),
    }
}

fn member(name: &str, value: &Value) -> Value {
    match name {
        _ if name.ends_with("At") => Value::from("a time"),
        // Whether the run had just ended when it was asked for again.
        "verdict" if *value == "attached" => Value::from("replayed"),
        "charge" | "letter" | "receipt" | "balance" | "version" => Value::from("a number"),
        _ => timeless(value),
    }
}

fn word(word: &str) -> &str {
    let ids = [("run_", "run_…"), ("def1_", "def1_…")];
    ids.iter().find(|(start, _)| word.starts_with(start)).map_or(word, |(_, id)| id)
}
