//! `semel start`: starts a run, or finds the run that holds the key.

use std::time::Duration;

use semel::rules::status::Status;

use super::client::{ApiCall, Client, ServerAnswer, ServerArgs, drawn};
use super::exit::{Done, Exit, Failure};
use super::input::Given;
use super::output::{Format, facts, note, one_line, plain, print, status, when};
use super::run::{error_text, unserved};
use crate::api::{
    DeliverWithStart, OnConflict, Period, RetentionView, RunView, StartAnswer, StartRun, Value,
};
use crate::definitions::catalog::Reference;

/// Duration of one long poll, in seconds.
const POLL: u64 = 30;
/// Pause between polls in the last second of a wait: the server's `wait` counts whole seconds.
const LAST_LOOK: Duration = Duration::from_millis(200);
/// How long to wait beyond the run's time limit: its driver ends it at the limit, and the end has to be recorded.
const GRACE: Duration = Duration::from_millis(500);

/// Start a run, or find the run that holds the key.
///
/// The same key with the same input always gives the same run; with another input the start is refused. If no key is
/// given, one is generated, so that the command can repeat a start whose answer was lost.
///
/// What is started is a definition, if there is one with this name; else a workflow in code.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel start demo-order --key order-7 --input '{\"order\": \"7\", \"amount\": 1999}'
  semel start demo-order --key order-7 --input '{\"order\": \"7\", \"amount\": 1999}' --wait
  jq -n '{order: \"8\", amount: 1999}' | semel start demo-order --key order-8 --input -
  semel start process-order@3 --key order-9 --input-file order.json")]
pub(super) struct Start {
    /// Definition, by name, `name@label` or id; or name of a workflow in code.
    workflow: String,
    /// Version of the workflow in code, which is started even if a definition has the name. If absent, the current one of a
    /// workflow that the server hosts, else `1`.
    #[arg(long, value_name = "VERSION")]
    workflow_version: Option<String>,
    #[command(flatten)]
    input: Given,
    /// Idempotency key: the same key gives the same run.
    #[arg(long)]
    key: Option<String>,
    /// Scope in which the key is unique. Default: workspace.
    #[arg(long, value_parser = ["workspace", "workflow", "workflow-version"])]
    scope: Option<String>,
    /// What to do if the key is in use. Default: attach.
    #[arg(long, value_parser = ["attach", "strict", "reject", "unique-while-open", "retry-failed", "supersede"])]
    on_conflict: Option<String>,
    /// Do not begin before this period has passed, such as `90s` or `1h 30m`.
    #[arg(long, value_name = "PERIOD")]
    delay: Option<String>,
    /// End the run as `TIMED_OUT` after this period. Default: as the definition says, else never.
    #[arg(long, value_name = "PERIOD")]
    timeout: Option<String>,
    /// How long the history is kept after the run's end. Default: as the definition says, else 90 days.
    #[arg(long, value_name = "PERIOD")]
    keep_history: Option<String>,
    /// How long the key stays in use after the run's end. Default: as the definition says, else 90 days.
    #[arg(long, value_name = "PERIOD")]
    keep_key: Option<String>,
    /// JSON pointer into the input that is ignored when inputs are compared; may be repeated.
    #[arg(long, value_name = "POINTER")]
    exclude: Vec<String>,
    /// Token whose owner receives the payload; the new run, if the token has no owner.
    #[arg(long, value_name = "TOKEN", requires = "deliver_payload")]
    deliver_token: Option<String>,
    /// Payload to deliver to the token, as JSON.
    #[arg(long, value_name = "JSON", requires = "deliver_token")]
    deliver_payload: Option<String>,
    /// Wait for the run's end and print its result. Exit code 7 if it does not complete, or is still open after
    /// `--timeout`.
    #[arg(long)]
    wait: bool,
}

impl Start {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let client = Client::new(server)?;
        let (key, wait) = (self.key.clone().unwrap_or_else(drawn), self.wait);
        let limit = self.timeout.clone().map(Period).and_then(|period| period.duration());
        let start = self.request(&key)?;
        let answer = started(&client, &key, start).await?;
        if wait {
            let started: StartAnswer = answer.read()?;
            if started.run.unserved {
                note(&format!("{}: {}", started.run.id, unserved(&started.run)));
            }
            return await_end(&client, &started.run.id, limit, server.output).await;
        }
        answer.print(server.output, |started: &StartAnswer| shown(started, &answer))
    }

    fn request(self, key: &str) -> Done<StartRun> {
        let deliver = match (self.deliver_token, self.deliver_payload) {
            (Some(token), Some(payload)) => {
                Some(DeliverWithStart { token, payload: super::input::parse(&payload)?, id: None })
            }
            _ => None,
        };
        let retention = (self.keep_history.is_some() || self.keep_key.is_some()).then(|| RetentionView {
            history: self.keep_history.map(Period),
            key: self.keep_key.map(Period),
        });
        let scope =
            self.scope.map(|scope| serde_json::from_value(scope.into()).expect("clap has checked it"));
        let (definition_id, workflow) = match self.workflow_version {
            Some(_) => (None, Some(self.workflow)),
            None => (Some(self.workflow), None),
        };
        Ok(StartRun {
            definition_id,
            workflow,
            workflow_version: self.workflow_version,
            input: self.input.read()?,
            idempotency_key: Some(key.to_owned()),
            scope,
            on_conflict: self.on_conflict.map(OnConflict::Preset),
            retention,
            deliver,
            delay: self.delay.map(Period),
            timeout: self.timeout.map(Period),
            exclude: self.exclude,
        })
    }
}

/// Starts a definition; if there is none with this name, a workflow in code. A start of a definition that is not there has no effect.
async fn started(client: &Client, key: &str, start: StartRun) -> Done<ServerAnswer> {
    let answer = client.call(&ApiCall::post(["workflow-runs"], Some(key), &start)).await;
    let may_be_code = |reference: &String| matches!(Reference::read(reference), Reference::Current(_));
    match (answer, start.definition_id.clone().filter(may_be_code)) {
        (Err(failure), Some(workflow)) if failure.exit == Exit::NotFound => {
            let start = StartRun { definition_id: None, workflow: Some(workflow), ..start };
            client.call(&ApiCall::post(["workflow-runs"], Some(key), &start)).await
        }
        (answer, _) => answer,
    }
}

fn shown(started: &StartAnswer, answer: &ServerAnswer) -> String {
    let run = &started.run;
    let how = match (started.created, answer.replayed) {
        (true, false) => "a new run".to_owned(),
        (true, true) => "a new run; this is the answer from when it was started".to_owned(),
        (false, _) => format!("the run exists: this start was {}", word(&started.verdict)),
    };
    facts(&[
        ("run", run.id.clone()),
        ("status", status(&run.status.to_string())),
        ("unserved", unserved(run)),
        ("verdict", format!("{} ({how})", word(&started.verdict))),
        ("key", plain(&run.key)),
        ("workflow", plain(&format!("{}@{}", run.workflow, run.workflow_version))),
        ("created", when(&run.created_at)),
        ("superseded", started.superseded.clone().unwrap_or_default()),
        ("delivered", delivered(started)),
        ("result", run.result.as_ref().map(|value| plain(value.get())).unwrap_or_default()),
    ])
}

fn delivered(started: &StartAnswer) -> String {
    let told = |delivered: &crate::api::DeliverAnswer| match delivered.absorbed {
        true => format!("to {} before; absorbed", delivered.run),
        false => format!("to {} as message {}", delivered.run, delivered.arrival),
    };
    started.delivered.as_ref().map(told).unwrap_or_default()
}

/// The wire name of an enumeration's value.
pub(super) fn word<T: serde::Serialize>(value: &T) -> String {
    super::output::json(value).trim_matches('"').to_owned()
}

/// Waits for a run's end and prints its result. `limit` is the run's time limit: the wait is only slightly longer,
/// because a run that nothing serves, or whose worker has died, may end later.
pub(super) async fn await_end(client: &Client, id: &str, limit: Option<Duration>, output: Format) -> Done {
    let end = limit.map(|limit| client.now().after(limit.saturating_add(GRACE)));
    loop {
        let left =
            end.map(|end| Duration::from_millis(end.0.saturating_sub(client.now().0).max(0).unsigned_abs()));
        let wait = left.map_or(POLL, |left| left.as_secs().min(POLL));
        let call = ApiCall::get(["workflow-runs", id]).query("wait", Some(wait));
        let answer = client.call(&call).await?;
        let run: RunView = answer.read()?;
        if run.status.is_terminal() {
            return ended(&run, &answer, output);
        }
        if left.is_some_and(|left| left.is_zero()) {
            return Err(still_open(&run));
        }
        if wait == 0 {
            client.pause(left.unwrap_or_default().min(LAST_LOOK)).await;
        }
    }
}

/// The failure of a wait that has reached its limit.
fn still_open(run: &RunView) -> Failure {
    let message = format!("{} is still {} when the time limit of the wait is reached", run.id, run.status);
    let help = match run.unserved {
        true => format!("{}; see `semel worker ls`", unserved(run)),
        false => format!("see `semel run show {}`; `semel run watch {0}` continues to wait", run.id),
    };
    Failure::new(Exit::NotCompleted, message).help(help)
}

/// Prints how a run ended: the result to stdout, everything else as a note.
fn ended(run: &RunView, answer: &ServerAnswer, output: Format) -> Done {
    if output != Format::Table {
        print(&answer.text.replace(['\n', '\r'], " "))?;
    }
    if run.status != Status::Completed {
        return Err(not_completed(run));
    }
    if output == Format::Table {
        note(&format!("{} has completed", run.id));
        print(run.result.as_ref().map_or("null", |value: &Value| value.get()))?;
    }
    Ok(())
}

/// The failure of a command that expected the run to complete.
pub(super) fn not_completed(run: &RunView) -> Failure {
    let why = match (&run.error, &run.cancel_reason) {
        (Some(error), _) => format!(": {}", error_text(error)),
        (None, Some(reason)) => format!(": {}", one_line(reason)),
        (None, None) => String::new(),
    };
    let failure = Failure::new(Exit::NotCompleted, format!("{} is {}{why}", run.id, run.status));
    match run.status {
        Status::Failed | Status::TimedOut => failure.help(format!(
            "see `semel run show {0}`; `semel run retry {0}` continues where it failed",
            run.id
        )),
        _ => failure,
    }
}
