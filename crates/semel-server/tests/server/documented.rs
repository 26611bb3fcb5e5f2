//! docs/start.md as a reader plays it: its commands are executed in their order, and answer what the page says.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use libtest_mimic::{Failed, Trial};
use serde_json::{Map, Value};

const PAGE: &str = include_str!("../../../../docs/start.md");
/// The line of the page at which the server is killed and started again.
const KILLED: &str = "<!-- The server is killed and started again here. -->";
/// Where the page says that the server listens.
const THERE: &str = "http://127.0.0.1:7700";

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("documented::the_first_ten_minutes_are_as_the_page_says", first_ten_minutes)]
}

/// A fenced block: its language and its text.
struct Block {
    language: String,
    text: String,
}

fn blocks() -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside = false;
    for line in PAGE.lines() {
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
    fn start(folder: &std::path::Path) -> Result<Self, Failed> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
        command.args(["dev", "--listen", "127.0.0.1:0", "--log-filter", "warn", "--folder"]).arg(folder);
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
    let all = blocks();
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

/// Commands of the page, except those that start servers and the demo.
fn is_played(text: &str) -> bool {
    ["curl", "cat >", "sed", "semel definition"].iter().any(|start| text.starts_with(start))
}

/// Plays a command in a folder, and compares its answer with the block that follows it on the page.
fn play(text: &str, answer: &Block, folder: &std::path::Path, url: &str) -> Result<(), Failed> {
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_semel"));
    let places = std::env::join_paths(
        binary
            .parent()
            .map(Into::into)
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )?;
    let mut command = Command::new("sh");
    command.arg("-c").arg(text).current_dir(folder).env("PATH", places).env("SEMEL_URL", url);
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
