//! `semel start`: a run, or the one its key stands for.

use std::time::Duration;

use semel::rules::status::Status;

use super::client::{Answer, Call, Client, Server, drawn};
use super::exit::{Done, Exit, Failure};
use super::input::Given;
use super::output::{Format, facts, note, plain, print, status, when};
use super::run::unserved;
use crate::api::{
    DeliverWithStart, OnConflict, Period, RetentionView, RunView, StartAnswer, StartRun, Value,
};

/// How long one long poll waits, in seconds.
const POLL: u64 = 30;
/// How long a wait that has less than a second left waits by itself: the server counts whole seconds.
const LAST_LOOK: Duration = Duration::from_millis(200);
/// How much longer than its time limit a run is waited for: its driver ends it at the limit, and that has to be recorded.
const GRACE: Duration = Duration::from_millis(500);

/// Start a run, or find the one that the key stands for.
///
/// The same key with the same input is the same run, however often and from wherever it is started; with another input
/// it is refused. A start without a key gets one, which it keeps if its answer is lost on the way.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel start demo-order --key order-7 --input '{\"order\": \"7\", \"amount\": 1999}'
  semel start demo-order --key order-7 --input '{\"order\": \"7\", \"amount\": 1999}' --wait
  jq -n '{order: \"8\", amount: 1999}' | semel start demo-order --key order-8 --input -")]
pub(super) struct Start {
    /// The workflow.
    workflow: String,
    /// Its version; `1` if not given.
    #[arg(long, value_name = "VERSION")]
    workflow_version: Option<String>,
    #[command(flatten)]
    input: Given,
    /// The key: the same key, the same run.
    #[arg(long)]
    key: Option<String>,
    /// Where the key is unique.
    #[arg(long, value_parser = ["workspace", "workflow", "workflow-version"])]
    scope: Option<String>,
    /// What to do if the key is in use.
    #[arg(long, value_parser = ["attach", "strict", "reject", "unique-while-open", "retry-failed", "supersede"])]
    on_conflict: Option<String>,
    /// Not before this much time has passed, as in `90s` or `1h 30m`.
    #[arg(long, value_name = "PERIOD")]
    delay: Option<String>,
    /// The run must have ended after this much time.
    #[arg(long, value_name = "PERIOD")]
    timeout: Option<String>,
    /// How long its history is kept after its end.
    #[arg(long, value_name = "PERIOD")]
    keep_history: Option<String>,
    /// How long its key is remembered after its end.
    #[arg(long, value_name = "PERIOD")]
    keep_key: Option<String>,
    /// A JSON pointer into the input that does not count when inputs are compared; may be repeated.
    #[arg(long, value_name = "POINTER")]
    exclude: Vec<String>,
    /// The token whose owner gets the payload; the new run, if nobody owns it.
    #[arg(long, value_name = "TOKEN", requires = "deliver_payload")]
    deliver_token: Option<String>,
    /// The payload for it, as JSON.
    #[arg(long, value_name = "JSON", requires = "deliver_token")]
    deliver_payload: Option<String>,
    /// Wait for the run's end, and print its result; exit code 7 if it has none, or if it is still open after `--timeout`.
    #[arg(long)]
    wait: bool,
}

impl Start {
    pub(super) async fn execute(self, server: &Server) -> Done {
        let client = Client::new(server)?;
        let (key, wait) = (self.key.clone().unwrap_or_else(drawn), self.wait);
        let limit = self.timeout.clone().map(Period).and_then(|period| period.duration());
        let start = self.request(&key)?;
        let answer = client.call(&Call::post(["workflow-runs"], Some(&key), &start)).await?;
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
        Ok(StartRun {
            workflow: self.workflow,
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

fn shown(started: &StartAnswer, answer: &Answer) -> String {
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

/// A word of an enumeration, as it travels.
pub(super) fn word<T: serde::Serialize>(value: &T) -> String {
    super::output::json(value).trim_matches('"').to_owned()
}

/// Waits for a run's end and prints its result. With a limit, the time limit of the run, it waits hardly longer than that:
/// a run that nothing serves, or whose worker has died, may be ended later.
pub(super) async fn await_end(client: &Client, id: &str, limit: Option<Duration>, output: Format) -> Done {
    let end = limit.map(|limit| client.now().after(limit.saturating_add(GRACE)));
    loop {
        let left =
            end.map(|end| Duration::from_millis(end.0.saturating_sub(client.now().0).max(0).unsigned_abs()));
        let wait = left.map_or(POLL, |left| left.as_secs().min(POLL));
        let call = Call::get(["workflow-runs", id]).query("wait", Some(wait));
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

/// The exit of a wait whose time is over.
fn still_open(run: &RunView) -> Failure {
    let message = format!("{} is {} and its time is over", run.id, run.status);
    let help = match run.unserved {
        true => format!("{}; see `semel worker ls`", unserved(run)),
        false => format!("see `semel run show {}`; `semel run watch {0}` goes on waiting", run.id),
    };
    Failure::new(Exit::NotCompleted, message).help(help)
}

/// Prints how a run ended: its result is the output, everything else a note.
fn ended(run: &RunView, answer: &Answer, output: Format) -> Done {
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

/// The exit of a command that wanted a run to complete.
pub(super) fn not_completed(run: &RunView) -> Failure {
    let why = match (&run.error, &run.cancel_reason) {
        (Some(error), _) => format!(": {}", plain(&error.message)),
        (None, Some(reason)) => format!(": {}", plain(reason)),
        (None, None) => String::new(),
    };
    let failure = Failure::new(Exit::NotCompleted, format!("{} is {}{why}", run.id, run.status));
    match run.status {
        Status::Failed | Status::TimedOut => failure
            .help(format!("see `semel run show {0}`; `semel run retry {0}` goes on where it failed", run.id)),
        _ => failure,
    }
}
