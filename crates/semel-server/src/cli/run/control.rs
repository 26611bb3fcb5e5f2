//! `semel run cancel | pause | resume | retry | restart | fork`. Each can be repeated under its call id, and is done once.

use serde::Serialize;

use crate::api::{
    CancelRun, ControlAnswer, ControlRun, ForkRun, PauseKind, RestartRun, ResumeRuns, ResumedRuns,
};
use crate::cli::client::{Answer, Call, Client, Server, drawn};
use crate::cli::exit::Done;
use crate::cli::output::{Format, facts, json, plain, print, status, when};

/// On which run, and how.
#[derive(Debug, clap::Args)]
struct Target {
    /// The run's id.
    run: String,
    /// Only if the run still has this version.
    #[arg(long, value_name = "VERSION")]
    expected_version: Option<u64>,
    /// The id under which this command may be repeated; one is drawn if not given.
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
}

impl Target {
    async fn control<B: Serialize>(&self, server: &Server, verb: &str, body: &B) -> Done {
        let path = ["workflow-runs", &self.run, verb];
        let answer = Client::new(server)?.call(&Call::post(path, self.call_id.as_deref(), body)).await?;
        answer.print(server.output, |controlled| shown(controlled, &answer))
    }
}

/// What a control came to.
pub(in crate::cli) fn shown(controlled: &ControlAnswer, answer: &Answer) -> String {
    let run = &controlled.run;
    let changed = match (controlled.changed, answer.replayed) {
        (_, true) => "before; this is the answer from then",
        (true, false) => "yes",
        (false, false) => "no: it was so already, or somebody else was first",
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

/// Cancel a run; no step begins once whoever drives it has heard of it.
///
/// A cancel that came too late changes nothing: `changed` and the status say who was first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel run cancel run_01j0000000e00800000000007z --reason 'the customer changed their mind'
  semel run cancel run_01j0000000e00800000000007z --graceful")]
pub(in crate::cli) struct Cancel {
    #[command(flatten)]
    target: Target,
    /// Why; recorded.
    #[arg(long)]
    reason: Option<String>,
    /// Let its clean-up run first, instead of ending it at once.
    #[arg(long)]
    graceful: bool,
}

impl Cancel {
    pub(super) async fn execute(self, server: &Server) -> Done {
        let expected_version = self.target.expected_version;
        let body = CancelRun { reason: self.reason, graceful: self.graceful, expected_version };
        self.target.control(server, "cancel", &body).await
    }
}

/// Pause a run: nothing of it goes on until it is resumed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  semel run pause run_01j0000000e00800000000007z")]
pub(in crate::cli) struct Pause {
    #[command(flatten)]
    target: Target,
}

impl Pause {
    pub(super) async fn execute(self, server: &Server) -> Done {
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
    /// The run's id.
    #[arg(required_unless_present = "all")]
    run: Option<String>,
    /// Resume every run that is paused for `--reason`.
    #[arg(long, conflicts_with = "run", requires = "reason")]
    all: bool,
    /// With `--all`: why the runs are paused.
    #[arg(long, requires = "all")]
    reason: Option<PauseKind>,
    /// With `--all`: only runs of this workflow.
    #[arg(long, requires = "all")]
    workflow: Option<String>,
    /// Only if the run still has this version.
    #[arg(long, value_name = "VERSION", conflicts_with = "all")]
    expected_version: Option<u64>,
    /// The id under which this command may be repeated; one is drawn if not given.
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
}

impl Resume {
    pub(super) async fn execute(self, server: &Server) -> Done {
        let Self { run, reason, workflow, expected_version, call_id, .. } = self;
        match (run, reason) {
            (Some(run), _) => {
                let target = Target { run, expected_version, call_id };
                target.control(server, "resume", &ControlRun { expected_version }).await
            }
            (None, Some(reason)) => resume_all(server, reason, workflow, call_id).await,
            (None, None) => unreachable!("`--all` needs `--reason`"),
        }
    }
}

async fn resume_all(
    server: &Server,
    reason: PauseKind,
    workflow: Option<String>,
    call_id: Option<String>,
) -> Done {
    let client = Client::new(server)?;
    let call_id = call_id.unwrap_or_else(drawn);
    let mut all = ResumedRuns { resumed: Vec::new(), next: None };
    loop {
        let body = ResumeRuns { reason, workflow: workflow.clone(), limit: None, cursor: all.next.take() };
        let answer = client.call(&Call::post(["workflow-runs", "resume"], Some(&call_id), &body)).await?;
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

/// Let a failed run go on where it failed; what succeeded is kept.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  semel run retry run_01j0000000e00800000000007z")]
pub(in crate::cli) struct Retry {
    #[command(flatten)]
    target: Target,
}

impl Retry {
    pub(super) async fn execute(self, server: &Server) -> Done {
        let body = ControlRun { expected_version: self.target.expected_version };
        self.target.control(server, "retry", &body).await
    }
}

/// Let a failed run begin again, where it failed or from the beginning.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel run restart run_01j0000000e00800000000007z
  semel run restart run_01j0000000e00800000000007z --from beginning")]
pub(in crate::cli) struct Restart {
    #[command(flatten)]
    target: Target,
    /// From where.
    #[arg(long, value_parser = ["failure", "beginning"], default_value = "failure")]
    from: String,
}

impl Restart {
    pub(super) async fn execute(self, server: &Server) -> Done {
        let from = serde_json::from_value(self.from.into()).expect("clap has checked it");
        let body = RestartRun { from: Some(from), expected_version: self.target.expected_version };
        self.target.control(server, "restart", &body).await
    }
}

/// Fork a run: another one that has done what this one had done, and goes on by itself.
///
/// Unless fresh keys are asked for, an effect that this run had is not repeated by the fork.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel run fork run_01j0000000e00800000000007z
  semel run fork run_01j0000000e00800000000007z --at 12 --key order-7-again --fresh-keys")]
pub(in crate::cli) struct Fork {
    #[command(flatten)]
    target: Target,
    /// The number of entries after which it goes its own way; all of them if not given.
    #[arg(long, value_name = "NUMBER")]
    at: Option<u64>,
    /// The key of the new run; its id if not given.
    #[arg(long)]
    key: Option<String>,
    /// Its effects get keys of their own.
    #[arg(long)]
    fresh_keys: bool,
}

impl Fork {
    pub(super) async fn execute(self, server: &Server) -> Done {
        let expected_version = self.target.expected_version;
        let body = ForkRun { at: self.at, key: self.key, fresh_keys: self.fresh_keys, expected_version };
        self.target.control(server, "fork", &body).await
    }
}
