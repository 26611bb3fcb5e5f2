//! `semel run show`, and `semel run replay`, which shows all that a replay needs.

use serde::Deserialize;

use crate::api::{DuplicatesView, RunDetail, RunView, StepStatus, StepView, Value};
use crate::cli::client::{Answer, Call, Client, Server};
use crate::cli::exit::Done;
use crate::cli::output::{Format, Rows, facts, plain, print, status, when};
use crate::cli::start::word;

/// Show a run: its steps and attempts, its hooks, the duplicates it has absorbed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel run show run_01j0000000e00800000000007z
  semel run show run_01j0000000e00800000000007z -o json | jq .result")]
pub(in crate::cli) struct Show {
    /// Its id.
    run: String,
}

/// Print the history of a run: all that a replay needs, as one JSON document.
///
/// Whoever has the workflow's code replays it, calling nothing and writing nothing: `Engine::replay_history`, or a test in
/// CI with a folder of such files.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel run replay run_01j0000000e00800000000007z > histories/order.json")]
pub(in crate::cli) struct Replay {
    /// Its id.
    run: String,
}

impl Show {
    pub(super) async fn execute(self, server: &Server) -> Done {
        let answer = Client::new(server)?.call(&Call::get(["workflow-runs", &self.run])).await?;
        if server.output == Format::Table {
            return print(&shown(&detail(&answer)?));
        }
        print(&answer.text.replace(['\n', '\r'], " "))
    }
}

impl Replay {
    pub(super) async fn execute(self, server: &Server) -> Done {
        let path = ["workflow-runs", &self.run, "replay"];
        let answer = Client::new(server)?.call(&Call::post(path, None, &serde_json::json!({}))).await?;
        print(&answer.text)
    }
}

/// What a run's detail has beside the run. Apart, because values that are kept as they came cannot be read from a
/// flattened object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rest {
    #[serde(default)]
    input: Option<Value>,
    #[serde(default)]
    pause_reason: Option<String>,
    steps: Vec<StepView>,
    hooks: Vec<String>,
    unconsumed: u64,
    duplicates: Vec<DuplicatesView>,
    #[serde(default)]
    next_entry: Option<u64>,
}

pub(super) fn detail(answer: &Answer) -> Done<RunDetail> {
    let (run, rest): (RunView, Rest) = (answer.read()?, answer.read()?);
    let Rest { input, pause_reason, steps, hooks, unconsumed, duplicates, next_entry } = rest;
    Ok(RunDetail { run, input, pause_reason, steps, hooks, unconsumed, duplicates, next_entry })
}

fn shown(detail: &RunDetail) -> String {
    let mut parts = vec![head(detail), steps(&detail.steps)];
    if !detail.duplicates.is_empty() {
        parts.push(duplicates(&detail.duplicates));
    }
    parts.join("\n\n")
}

/// That nothing serves a run; empty if something does.
pub(in crate::cli) fn unserved(run: &RunView) -> String {
    match run.unserved {
        true => "nothing serves this workflow: it waits until a worker or an engine does".to_owned(),
        false => String::new(),
    }
}

fn head(detail: &RunDetail) -> String {
    let run = &detail.run;
    let some = |text: &Option<String>| text.as_deref().map(plain).unwrap_or_default();
    let time = |text: &Option<String>| text.as_deref().map(when).unwrap_or_default();
    let json = |value: &Option<Value>| value.as_ref().map(|value| plain(value.get())).unwrap_or_default();
    let held = if run.holds_key { "" } else { " (it no longer points at this run)" };
    let lineage = if run.lineage == run.id { String::new() } else { run.lineage.clone() };
    let inbox =
        if detail.unconsumed == 0 { String::new() } else { format!("{} messages", detail.unconsumed) };
    facts(&[
        ("run", run.id.clone()),
        ("status", status(&run.status.to_string())),
        ("unserved", unserved(run)),
        ("paused for", some(&detail.pause_reason)),
        ("workflow", plain(&format!("{}@{}", run.workflow, run.workflow_version))),
        ("key", format!("{}{held}", plain(&run.key))),
        ("parent", some(&run.parent)),
        ("lineage", lineage),
        ("version", run.version.to_string()),
        ("driven by", some(&run.node)),
        ("created", when(&run.created_at)),
        ("due", time(&run.due_at)),
        ("ended", time(&run.ended_at)),
        ("input", json(&detail.input)),
        ("result", json(&run.result)),
        ("error", run.error.as_ref().map(|error| plain(&error.message)).unwrap_or_default()),
        ("cancelled for", some(&run.cancel_reason)),
        ("open hooks", plain(&detail.hooks.join(", "))),
        ("inbox", inbox),
        (
            "history",
            match detail.next_entry {
                _ if run.purged => "forgotten; only the key is remembered".to_owned(),
                Some(next) => {
                    format!("long: the steps below end before entry {next}; the ledger has all of it")
                }
                None => String::new(),
            },
        ),
    ])
}

fn steps(steps: &[StepView]) -> String {
    let mut rows =
        Rows::new(["STEP", "STATUS", "CLASS", "ATTEMPTS", "ENDED", "EFFECT KEY", "RESULT"], "no steps yet");
    for step in steps {
        let path = if step.tick == 1 { step.path.clone() } else { format!("{}#{}", step.path, step.tick) };
        let result = match (&step.value, &step.error, &step.reason) {
            (Some(value), ..) => plain(value.get()),
            (None, Some(error), _) => plain(&error.message),
            (None, None, reason) => reason.as_deref().map(plain).unwrap_or_default(),
        };
        let time = match step.status {
            StepStatus::Retrying => step.retry_at.as_deref().map(|at| format!("again {}", when(at))),
            _ => step.ended_at.as_deref().map(when),
        };
        rows.add([
            plain(&path),
            status(&word(&step.status)),
            word(&step.class),
            step.attempts.to_string(),
            time.unwrap_or_default(),
            step.effect_key.clone(),
            result,
        ]);
    }
    rows.text()
}

/// Absorbed duplicates, kind by kind.
pub(in crate::cli) fn duplicates(kinds: &[DuplicatesView]) -> String {
    let mut rows = Rows::new(["DUPLICATES ABSORBED", "COUNT", "FIRST", "LAST", "LATEST"], "no duplicates");
    for kind in kinds {
        rows.add([
            word(&kind.kind),
            kind.count.to_string(),
            when(&kind.first_at),
            when(&kind.last_at),
            kind.recent.last().map(|absorbed| plain(&absorbed.detail)).unwrap_or_default(),
        ]);
    }
    rows.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DETAIL: &str = r#"{"id":"run_7","workflow":"order","workflowVersion":"1","status":"COMPLETED","version":4,
        "key":"order-7","scope":"*","holdsKey":true,"lineage":"run_7","createdAt":"2023-11-14T22:13:20.000Z",
        "endedAt":"2023-11-14T22:13:21.000Z","result":{"n": 9007199254740993},"input":[1.50],"steps":[
        {"path":"charge","tick":2,"status":"IN_DOUBT","class":"at-most-once","attempts":3,"effectKey":"e1x",
        "reason":"no answer"}],"hooks":["order:7"],"unconsumed":2,"duplicates":[{"kind":"start","count":41,
        "firstAt":"2023-11-14T22:13:20.000Z","lastAt":"2023-11-14T22:13:21.000Z","recent":[{"at":
        "2023-11-14T22:13:21.000Z","detail":"start order-7"}]}]}"#;

    #[test]
    fn a_run_is_shown_with_steps_attempts_and_duplicates() {
        let answer = Answer { text: DETAIL.to_owned(), replayed: false, date: None };
        let text = shown(&detail(&answer).unwrap());
        for part in
            ["COMPLETED", "9007199254740993", "[1.50]", "charge#2", "IN_DOUBT", "at-most-once", "e1x", "41"]
        {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(!text.contains('\u{1b}') && !text.contains('\u{2063}'), "no colours off a terminal: {text}");
        assert!(!text.contains("parent"), "what is not there is not shown: {text}");
    }
}
