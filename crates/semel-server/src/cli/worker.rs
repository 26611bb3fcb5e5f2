//! `semel worker ls`.

use clap::Subcommand;

use super::client::{Call, Client, Server};
use super::exit::Done;
use super::output::{Rows, plain, when};
use crate::api::WorkerList;

/// See the remote workers.
#[derive(Debug, Subcommand)]
pub(super) enum Worker {
    Ls(Ls),
}

/// List the remote workers that have been heard of lately.
#[derive(Debug, clap::Args)]
#[command(visible_alias = "list", after_help = "Examples:\n  semel worker ls")]
pub(super) struct Ls {}

impl Worker {
    pub(super) async fn execute(self, server: &Server) -> Done {
        let Self::Ls(Ls {}) = self;
        let answer = Client::new(server)?.call(&Call::get(["workers"])).await?;
        answer.print(server.output, |list: &WorkerList| {
            let mut rows =
                Rows::new(["NODE", "NAME", "SERVES", "SEEN"], "no worker has been heard of lately");
            for worker in &list.workers {
                let work = plain(&worker.serves.join(", "));
                rows.add([worker.node.clone(), plain(&worker.name), work, when(&worker.seen_at)]);
            }
            rows.text()
        })
    }
}
