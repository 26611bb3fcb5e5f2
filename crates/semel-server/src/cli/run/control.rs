//! `semel run cancel | pause | resume | retry | restart | fork`. Each may be repeated under its call id and takes
//! place once.

use serde::Serialize;

use crate::api::{
    CancelRun, ControlAnswer, ControlRun, ForkRun, PauseKind, RestartRun, ResumeRuns, ResumedRuns,
};
use crate::cli::client::{ApiCall, Client, ServerAnswer, ServerArgs, drawn};
use crate::cli::exit::Done;
use crate::cli::output::{Format, facts, json, plain, print, status, when};

/// The run to control, and the conditions of the call.
#[derive(Debug, clap::Args)]
struct ControlTarget {
    /// Id of the run.
    run: String,
    /// Only if the run still has this version.
    #[arg(long, value_name = "VERSION")]
    expected_version: Option<u64>,
    /// Id under which this command may be repeated. Generated if absent.
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
}

impl ControlTarget {
    async fn control<B: Serialize>(&self, server: &ServerArgs, verb: &str, body: &B) -> Done {
        let path = ["workflow-runs", &self.run, verb];
        let answer = Client::new(server)?.call(&ApiCall::post(path, self.call_id.as_deref(), body)).await?;
        answer.print(server.output, |controlled| shown(controlled, &answer))
    }
}

/// Shows the answer to a control call.
pub(in crate::cli) fn shown(controlled: &ControlAnswer, answer: &ServerAnswer) -> String {
    let run = &controlled.run;
    let changed = match (controlled.changed, answer.replayed) {
        (_, true) => "before; this is the answer to the first call",
        (true, false) => "yes",
        (false, false) => "no: it was in this state already, or another call was first",
    };
    facts(&[
        ("run", run.id.clone()),
        ("status", status(&run.status.to_string())),
        ("changed", changed.to_owned()),
        ("version", run.version.to_string()),
        ("key", plain(&run.key)),
        ("ended", run.ended_at.as_deref().map(when).unwrap_or_default()),
    ])
}

/// Cancel a run; no new step begins once its node has learnt of the cancel.
///
/// A cancel that comes too late changes nothing: `changed` and the status show the outcome.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel run cancel run_01j0000000e00800000000007z --reason 'the customer changed their mind'
  semel run cancel run_01j0000000e00800000000007z --graceful")]
pub(in crate::cli) struct Cancel {
    #[command(flatten)]
    target: ControlTarget,
    /// Reason, recorded in the ledger.
    #[arg(long)]
    reason: Option<String>,
    /// Let the run's clean-up code run first, instead of ending the run at once.
    #[arg(long)]
    graceful: bool,
}

impl Cancel {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let expected_version = self.target.expected_version;
        let body = CancelRun { reason: self.reason, graceful: self.graceful, expected_version };
        self.target.control(server, "cancel", &body).await
    }
}

/// Pause a run: it does not continue until it is resumed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  semel run pause run_01j0000000e00800000000007z")]
pub(in crate::cli) struct Pause {
    #[command(flatten)]
    target: ControlTarget,
}

impl Pause {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let body = ControlRun { expected_version: self.target.expected_version };
        self.target.control(server, "pause", &body).await
    }
}

/// Resume a paused run, or all runs that are paused for one reason.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel run resume run_01j0000000e00800000000007z
  semel run resume --all --reason poisoned")]
pub(in crate::cli) struct Resume {
    /// Id of the run.
    #[arg(required_unless_present = "all")]
    run: Option<String>,
    /// Resume every run that is paused for `--reason`.
    #[arg(long, conflicts_with = "run", requires = "reason")]
    all: bool,
    /// With `--all`: reason of the pause.
    #[arg(long, requires = "all")]
    reason: Option<PauseKind>,
    /// With `--all`: only runs of this workflow.
    #[arg(long, requires = "all")]
    workflow: Option<String>,
    /// Only if the run still has this version.
    #[arg(long, value_name = "VERSION", conflicts_with = "all")]
    expected_version: Option<u64>,
    /// Id under which this command may be repeated. Generated if absent.
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
}

impl Resume {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let Self { run, reason, workflow, expected_version, call_id, .. } = self;
        match (run, reason) {
            (Some(run), _) => {
                let target = ControlTarget { run, expected_version, call_id };
                target.control(server, "resume", &ControlRun { expected_version }).await
            }
            (None, Some(reason)) => resume_all(server, reason, workflow, call_id).await,
            (None, None) => unreachable!("`--all` needs `--reason`"),
        }
    }
}

async fn resume_all(
    server: &ServerArgs,
    reason: PauseKind,
    workflow: Option<String>,
    call_id: Option<String>,
) -> Done {
    let client = Client::new(server)?;
    let call_id = call_id.unwrap_or_else(drawn);
    let mut all = ResumedRuns { resumed: Vec::new(), next: None };
    loop {
        let body = ResumeRuns { reason, workflow: workflow.clone(), limit: None, cursor: all.next.take() };
        let answer = client.call(&ApiCall::post(["workflow-runs", "resume"], Some(&call_id), &body)).await?;
        let page: ResumedRuns = answer.read()?;
        all.resumed.extend(page.resumed);
        all.next = page.next;
        if all.next.is_none() {
            break;
        }
    }
    let lines = match all.resumed.as_slice() {
        [] => "no run was resumed".to_owned(),
        runs => runs.join("\n"),
    };
    match server.output {
        Format::Table => print(&lines),
        Format::Json | Format::Ndjson => print(&json(&all)),
    }
}

/// Continue a failed run where it failed; recorded results are kept.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  semel run retry run_01j0000000e00800000000007z")]
pub(in crate::cli) struct Retry {
    #[command(flatten)]
    target: ControlTarget,
}

impl Retry {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let body = ControlRun { expected_version: self.target.expected_version };
        self.target.control(server, "retry", &body).await
    }
}

/// Restart a failed run, from the failure or from the beginning.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel run restart run_01j0000000e00800000000007z
  semel run restart run_01j0000000e00800000000007z --from beginning")]
pub(in crate::cli) struct Restart {
    #[command(flatten)]
    target: ControlTarget,
    /// Where the run starts again.
    #[arg(long, value_parser = ["failure", "beginning"], default_value = "failure")]
    from: String,
}

impl Restart {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let from = serde_json::from_value(self.from.into()).expect("clap has checked it");
        let body = RestartRun { from: Some(from), expected_version: self.target.expected_version };
        self.target.control(server, "restart", &body).await
    }
}

/// Fork a run: create a new run with the same history, which continues independently.
///
/// Without `--fresh-keys`, the fork shares the effect keys of its source, so that providers recognise repeated
/// effects.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel run fork run_01j0000000e00800000000007z
  semel run fork run_01j0000000e00800000000007z --at 12 --key order-7-again --fresh-keys")]
pub(in crate::cli) struct Fork {
    #[command(flatten)]
    target: ControlTarget,
    /// Number of ledger entries that the new run inherits. Default: all.
    #[arg(long, value_name = "NUMBER")]
    at: Option<u64>,
    /// Key of the new run. Default: its own id.
    #[arg(long)]
    key: Option<String>,
    /// Give the effects of the new run new effect keys.
    #[arg(long)]
    fresh_keys: bool,
}

impl Fork {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let expected_version = self.target.expected_version;
        let body = ForkRun { at: self.at, key: self.key, fresh_keys: self.fresh_keys, expected_version };
        self.target.control(server, "fork", &body).await
    }
}
