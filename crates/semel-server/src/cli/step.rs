//! `semel step resolve`: what became of a step in doubt.

use clap::Subcommand;

use super::client::{Call, Client, Server};
use super::exit::Done;
use super::input::parse;
use super::run::controlled;
use crate::api::{ResolutionView, ResolveStep};

/// Settle steps in doubt.
#[derive(Debug, Subcommand)]
pub(super) enum Step {
    Resolve(Resolve),
}

/// Say what became of a step whose end a crash has hidden.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel step resolve run_01j0000000e00800000000007z charge --happened '{\"charge\": \"ch_7\"}'
  semel step resolve run_01j0000000e00800000000007z charge --did-not-happen
  semel step resolve run_01j0000000e00800000000007z 'left/pack[item-3]' --give-up 'the warehouse has burnt down'")]
pub(super) struct Resolve {
    /// The run's id.
    run: String,
    /// The step's path.
    path: String,
    #[command(flatten)]
    what: What,
    /// Which visit of the path; the first if not given.
    #[arg(long)]
    tick: Option<u32>,
    /// The id under which this command may be repeated; one is drawn if not given.
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
}

/// What became of it.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct What {
    /// It took place, with this result as JSON; `null` if not given.
    #[arg(long, value_name = "JSON", num_args = 0..=1, default_missing_value = "null")]
    happened: Option<String>,
    /// It did not take place: run it again.
    #[arg(long)]
    did_not_happen: bool,
    /// Give up: the step has failed, with this message. A retry of the run asks again.
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
        Ok(ResolveStep { resolution, tick, value, message })
    }
}

impl Step {
    pub(super) async fn execute(self, server: &Server) -> Done {
        let Self::Resolve(Resolve { run, path, what, tick, call_id }) = self;
        let body = what.body(tick)?;
        let path = ["workflow-runs", &run, "steps", &path, "resolve"];
        let answer = Client::new(server)?.call(&Call::post(path, call_id.as_deref(), &body)).await?;
        answer.print(server.output, |resolved| controlled(resolved, &answer))
    }
}
