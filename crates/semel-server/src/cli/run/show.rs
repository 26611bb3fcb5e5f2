//! `semel run show`: everything about one run.

use serde::Deserialize;

use crate::api::{
    ChildView, DuplicatesView, FailureView, OnceView, RunDetail, RunView, StepCounts, StepStatus, StepView,
    TimerView, Value,
};
use crate::cli::client::{ApiCall, Client, ServerAnswer, ServerArgs};
use crate::cli::exit::Done;
use crate::cli::output::{Format, Rows, ago, facts, one_line, plain, print, status, when};
use crate::cli::start::word;

/// Show a run: steps and attempts, children, timers, hooks, absorbed duplicates.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel run show run_01j0000000e00800000000007z
  semel run show run_01j0000000e00800000000007z -o json | jq .result")]
pub(in crate::cli) struct Show {
    /// Id of the run.
    run: String,
}

impl Show {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let answer = Client::new(server)?.call(&ApiCall::get(["workflow-runs", &self.run])).await?;
        if server.output == Format::Table {
            return print(&shown(&detail(&answer)?));
        }
        print(&answer.text.replace(['\n', '\r'], " "))
    }
}

/// The fields of a run's detail beside the run. A type of its own, because raw JSON values cannot be read from a
/// flattened object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rest {
    #[serde(default)]
    input: Option<Value>,
    #[serde(default)]
    deadline: Option<String>,
    steps: Vec<StepView>,
    #[serde(default)]
    step_counts: Option<StepCounts>,
    hooks: Vec<String>,
    #[serde(default)]
    children: Vec<ChildView>,
    #[serde(default)]
    timers: Vec<TimerView>,
    #[serde(default)]
    onces: Vec<OnceView>,
    unconsumed: u64,
    duplicates: Vec<DuplicatesView>,
    #[serde(default)]
    next_entry: Option<u64>,
}

pub(super) fn detail(answer: &ServerAnswer) -> Done<RunDetail> {
    let (run, rest): (RunView, Rest) = (answer.read()?, answer.read()?);
    let Rest {
        input,
        deadline,
        steps,
        step_counts,
        hooks,
        children,
        timers,
        onces,
        unconsumed,
        duplicates,
        next_entry,
    } = rest;
    Ok(RunDetail {
        run,
        input,
        deadline,
        steps,
        step_counts,
        hooks,
        children,
        timers,
        onces,
        unconsumed,
        duplicates,
        next_entry,
    })
}

fn shown(detail: &RunDetail) -> String {
    let mut parts = vec![head(detail), steps(&detail.steps)];
    if !detail.children.is_empty() {
        parts.push(children(&detail.children));
    }
    if !detail.timers.is_empty() {
        parts.push(timers(&detail.timers));
    }
    if !detail.onces.is_empty() {
        parts.push(onces(&detail.onces));
    }
    if !detail.duplicates.is_empty() {
        parts.push(duplicates(&detail.duplicates));
    }
    parts.join("\n\n")
}

/// Text for a run that nothing serves; empty otherwise.
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
    let json = |value: &Option<Value>| value.as_ref().map(|value| one_line(value.get())).unwrap_or_default();
    let held = if run.holds_key { "" } else { " (released)" };
    let lineage = if run.lineage == run.id { String::new() } else { run.lineage.clone() };
    let inbox = match detail.unconsumed {
        0 => String::new(),
        1 => "1 message".to_owned(),
        count => format!("{count} messages"),
    };
    facts(&[
        ("run", run.id.clone()),
        ("status", status(&run.status.to_string())),
        ("unserved", unserved(run)),
        ("paused", run.pause_reason.as_deref().map(one_line).unwrap_or_default()),
        ("workflow", plain(&format!("{}@{}", run.workflow, run.workflow_version))),
        ("key", format!("{}{held}", plain(&run.key))),
        ("parent", some(&run.parent)),
        ("lineage", lineage),
        ("version", run.version.to_string()),
        ("driven by", some(&run.node)),
        ("created", when(&run.created_at)),
        ("due", time(&run.due_at)),
        ("deadline", time(&detail.deadline)),
        ("ended", time(&run.ended_at)),
        ("input", detail.input.as_ref().map(|input| plain(input.get())).unwrap_or_default()),
        ("result", json(&run.result)),
        ("error", run.error.as_ref().map(error_text).unwrap_or_default()),
        ("error data", run.error.as_ref().map(|error| json(&error.data)).unwrap_or_default()),
        ("cancelled", run.cancel_reason.as_deref().map(cancelled).unwrap_or_default()),
        ("open hooks", plain(&detail.hooks.join(", "))),
        ("inbox", inbox),
        (
            "history",
            match detail.next_entry {
                _ if run.purged => "deleted after its retention".to_owned(),
                Some(next) => format!("too long for one answer: the steps below end before entry {next}"),
                None => String::new(),
            },
        ),
    ])
}

/// The message of a failure, with its code.
pub(in crate::cli) fn error_text(error: &FailureView) -> String {
    match &error.code {
        Some(code) => format!("{} ({})", one_line(&error.message), plain(code)),
        None => one_line(&error.message),
    }
}

fn cancelled(reason: &str) -> String {
    if reason.is_empty() { "yes, no reason given".to_owned() } else { one_line(reason) }
}

/// Path of a visit; the number of the visit is shown from the second one on.
fn visit(path: &str, tick: u32) -> String {
    if tick == 1 { plain(path) } else { format!("{}#{tick}", plain(path)) }
}

fn children(children: &[ChildView]) -> String {
    let columns = ["CHILD", "RUN", "WORKFLOW OR QUEUE", "STATUS", "DRIVEN BY"];
    let mut rows = Rows::new(columns, "no children").whole([1, 3]).only_from(140, [4]);
    for child in children {
        rows.add([
            visit(&child.path, child.tick),
            child.run.clone(),
            child.workflow.as_deref().map(plain).unwrap_or_default(),
            child.status.map(|word| status(&word.to_string())).unwrap_or_default(),
            child.node.clone().unwrap_or_default(),
        ]);
    }
    rows.text()
}

fn timers(timers: &[TimerView]) -> String {
    let mut rows = Rows::new(["TIMER", "FIRES"], "no timers");
    for timer in timers {
        rows.add([visit(&timer.path, timer.tick), when(&timer.fires_at)]);
    }
    rows.text()
}

fn onces(onces: &[OnceView]) -> String {
    let mut rows = Rows::new(["RUN_ONCE", "SCOPE", "RECORDED", "RESULT"], "no run_once values");
    for once in onces {
        let scope = once.scope.as_deref().unwrap_or("this run");
        rows.add([plain(&once.label), plain(scope), ago(&once.recorded_at), one_line(once.value.get())]);
    }
    rows.text()
}

fn steps(steps: &[StepView]) -> String {
    let columns = ["STEP", "STATUS", "CLASS", "ATTEMPTS", "ENDED", "EFFECT KEY", "RESULT"];
    let mut rows = Rows::new(columns, "no steps yet").whole([1, 4, 5]).only_from(140, [2, 5]);
    for step in steps {
        // Whole: an operator decides by it.
        let result = match (&step.value, &step.error, &step.reason) {
            (Some(value), ..) => one_line(value.get()),
            (None, Some(error), _) => error_text(error),
            (None, None, reason) => reason.as_deref().map(one_line).unwrap_or_default(),
        };
        let time = match step.status {
            StepStatus::Retrying => step.retry_at.as_deref().map(|at| format!("again {}", ago(at))),
            _ => step.ended_at.as_deref().map(ago),
        };
        rows.add([
            visit(&step.path, step.tick),
            status(&word(&step.status)),
            word(&step.class),
            step.attempts.last().map_or(0, |attempt| attempt.number).to_string(),
            time.unwrap_or_default(),
            step.effect_key.clone(),
            result,
        ]);
    }
    rows.text()
}

/// Absorbed duplicates by kind.
pub(in crate::cli) fn duplicates(kinds: &[DuplicatesView]) -> String {
    let columns = ["DUPLICATES ABSORBED", "COUNT", "FIRST", "LAST", "LATEST"];
    let mut rows = Rows::new(columns, "no duplicates").whole([0, 1, 2, 3]);
    for kind in kinds {
        rows.add([
            word(&kind.kind),
            kind.count.to_string(),
            ago(&kind.first_at),
            ago(&kind.last_at),
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
        {"path":"charge","tick":2,"status":"IN_DOUBT","class":"at-most-once","attempts":[{"number":3,
        "beganAt":"2023-11-14T22:13:20.000Z"}],"effectKey":"e1x",
        "reason":"no answer"}],"hooks":["order:7"],"deadline":"2023-11-14T23:13:20.000Z","children":[
        {"path":"pack","tick":1,"run":"run_8","workflow":"queue:packing","status":"RUNNING"}],"timers":[
        {"path":"cool-off","tick":3,"firesAt":"2023-11-14T22:14:20.000Z"}],"onces":[{"label":"rates",
        "recordedAt":"2023-11-14T22:13:21.000Z","value":{"eur":1.10}}],"error":{"kind":"fatal","message":"declined",
        "code":"CARD_DECLINED","data":{"left":3}},"unconsumed":1,"duplicates":[{"kind":"start","count":41,
        "firstAt":"2023-11-14T22:13:20.000Z","lastAt":"2023-11-14T22:13:21.000Z","recent":[{"at":
        "2023-11-14T22:13:21.000Z","detail":"start order-7"}]}]}"#;

    #[test]
    fn a_run_is_shown_with_steps_attempts_and_duplicates() {
        let answer = ServerAnswer { text: DETAIL.to_owned(), replayed: false, date: None };
        let text = shown(&detail(&answer).unwrap());
        for part in [
            "COMPLETED",
            "9007199254740993",
            "[1.50]",
            "charge#2",
            "IN_DOUBT",
            "at-most-once",
            "e1x",
            "41",
            "deadline",
            "queue:packing",
            "run_8",
            "cool-off#3",
            "rates",
            "{\"eur\":1.10}",
            "1 message\n",
            "declined (CARD_DECLINED)",
            "{\"left\":3}",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(!text.contains('\u{1b}') && !text.contains('\u{2063}'), "no colours off a terminal: {text}");
        assert!(!text.contains("parent"), "what is not there is not shown: {text}");
    }

    #[test]
    fn the_whole_reason_of_a_pause_is_shown() {
        let reason = format!("the code no longer matches the ledger: {}", "long ".repeat(40));
        let paused = DETAIL.replace("\"scope\"", &format!("\"pauseReason\":\"{reason}\",\"scope\""));
        let text = shown(&detail(&ServerAnswer { text: paused, replayed: false, date: None }).unwrap());
        assert!(text.contains(&reason), "{text}");
    }

    #[test]
    fn reasons_errors_and_results_of_steps_are_shown_whole() {
        let long = |what: &str| format!("{what}{}", " long".repeat(40));
        let (doubt, error, value) = (long("doubt"), long("error"), long("value"));
        let step = |path: &str, status: &str, outcome: &str| {
            format!(
                r#"{{"path":"{path}","tick":1,"status":"{status}","class":"keyed","attempts":[],"effectKey":"e1x",{outcome}}}"#
            )
        };
        let steps = [
            step("a", "IN_DOUBT", &format!(r#""reason":"{doubt}""#)),
            step("b", "FAILED", &format!(r#""error":{{"kind":"fatal","message":"{error}"}}"#)),
            step("c", "COMPLETED", &format!(r#""value":"{value}""#)),
        ];
        let with_steps = DETAIL.replace("\"steps\":[", &format!("\"steps\":[{},", steps.join(",")));
        let text = shown(&detail(&ServerAnswer { text: with_steps, replayed: false, date: None }).unwrap());
        for part in [doubt, error, value] {
            assert!(text.contains(&part), "{part} is missing in\n{text}");
        }
    }
}
