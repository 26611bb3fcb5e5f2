//! `semel run …`: reads and controls runs.

mod control;
mod cost;
mod ls;
mod replay;
mod show;
mod story;
mod watch;

pub(super) use control::shown as controlled;
pub(super) use show::{duplicates, error_text, unserved};

use clap::Subcommand;

use super::client::ServerArgs;
use super::exit::Done;

/// List, show, watch and control runs.
#[derive(Debug, Subcommand)]
pub(super) enum Run {
    Ls(Box<ls::Ls>),
    Show(show::Show),
    Cost(cost::CostOf),
    Watch(watch::Watch),
    Cancel(control::Cancel),
    Pause(control::Pause),
    Resume(control::Resume),
    Retry(control::Retry),
    Restart(control::Restart),
    Fork(control::Fork),
    Replay(replay::Replay),
}

impl Run {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        match self {
            Self::Ls(ls) => ls.execute(server).await,
            Self::Show(show) => show.execute(server).await,
            Self::Cost(cost) => cost.execute(server).await,
            Self::Watch(watch) => watch.execute(server).await,
            Self::Cancel(cancel) => cancel.execute(server).await,
            Self::Pause(pause) => pause.execute(server).await,
            Self::Resume(resume) => resume.execute(server).await,
            Self::Retry(retry) => retry.execute(server).await,
            Self::Restart(restart) => restart.execute(server).await,
            Self::Fork(fork) => fork.execute(server).await,
            Self::Replay(replay) => replay.execute(server).await,
        }
    }
}
