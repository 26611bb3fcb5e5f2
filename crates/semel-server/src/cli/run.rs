//! `semel run …`: what there is of runs, and what can be done about them.

mod control;
mod ls;
mod show;
mod watch;

pub(super) use control::shown as controlled;
pub(super) use show::{duplicates, unserved};

use clap::Subcommand;

use super::client::Server;
use super::exit::Done;

/// List, look at, follow and control runs.
#[derive(Debug, Subcommand)]
pub(super) enum Run {
    Ls(ls::Ls),
    Show(show::Show),
    Watch(watch::Watch),
    Cancel(control::Cancel),
    Pause(control::Pause),
    Resume(control::Resume),
    Retry(control::Retry),
    Restart(control::Restart),
    Fork(control::Fork),
    Replay(show::Replay),
}

impl Run {
    pub(super) async fn execute(self, server: &Server) -> Done {
        match self {
            Self::Ls(ls) => ls.execute(server).await,
            Self::Show(show) => show.execute(server).await,
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
