//! `semel step resolve`: decides a step in doubt.

use clap::Subcommand;

use super::client::{ApiCall, Client, ServerArgs};
use super::exit::Done;
use super::input::parse;
use super::run::controlled;
use crate::api::{ResolutionView, ResolveStep};

/// Resolve steps in doubt.
#[derive(Debug, Subcommand)]
pub(super) enum Step {
    Resolve(Resolve),
}

/// Decide a step in doubt: did its effect take place?
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel step resolve run_01j0000000e00800000000007z charge --happened '{\"charge\": \"ch_7\"}'
  semel step resolve run_01j0000000e00800000000007z charge --did-not-happen
  semel step resolve run_01j0000000e00800000000007z 'left/pack[item-3]' --give-up 'the warehouse has burnt down'")]
pub(super) struct Resolve {
    /// Id of the run.
    run: String,
    /// Path of the step.
    path: String,
    #[command(flatten)]
    what: What,
    /// Which visit of the path. Default: 1, the first.
    #[arg(long)]
    tick: Option<u32>,
    /// Id under which this command may be repeated. Generated if absent.
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
}

/// Decision about the step.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct What {
    /// The effect took place, with this result as JSON; `null` if absent.
    #[arg(long, value_name = "JSON", num_args = 0..=1, default_missing_value = "null")]
    happened: Option<String>,
    /// The effect did not take place: run the step again.
    #[arg(long)]
    did_not_happen: bool,
    /// Give up: the step fails with this message. If the run is retried, the question is asked again.
    #[arg(long, value_name = "MESSAGE")]
    give_up: Option<String>,
}

impl What {
    fn body(self, tick: Option<u32>) -> Done<ResolveStep> {
        let (resolution, value, message) = match (self.happened, self.give_up) {
            (Some(value), _) => (ResolutionView::Happened, Some(parse(&value)?), None),
            (None, Some(message)) => (ResolutionView::GiveUp, None, Some(message)),
            (None, None) => (ResolutionView::DidNotHappen, None, None),
        };
        Ok(ResolveStep { resolution, tick, value, message, code: None, data: None })
    }
}

impl Step {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let Self::Resolve(Resolve { run, path, what, tick, call_id }) = self;
        let body = what.body(tick)?;
        let path = ["workflow-runs", &run, "steps", &path, "resolve"];
        let answer = Client::new(server)?.call(&ApiCall::post(path, call_id.as_deref(), &body)).await?;
        answer.print(server.output, |resolved| controlled(resolved, &answer))
    }
}
