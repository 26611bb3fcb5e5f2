//! `semel worker ls`.

use clap::Subcommand;

use super::client::{Call, Client, Server};
use super::exit::Done;
use super::output::{Format, Rows, json, plain, print, when};
use crate::api::WorkerList;

/// Workers of one page: the most that a server gives.
const PAGE: usize = 500;

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
        let client = Client::new(server)?;
        let mut all = WorkerList { workers: Vec::new(), next: None };
        loop {
            let call = Call::get(["workers"]).query("limit", Some(PAGE)).query("cursor", all.next.as_ref());
            let page: WorkerList = client.call(&call).await?.read()?;
            all.workers.extend(page.workers);
            all.next = page.next;
            if all.next.is_none() {
                break;
            }
        }
        if server.output != Format::Table {
            return print(&json(&all));
        }
        let mut rows = Rows::new(["NODE", "NAME", "SERVES", "SEEN"], "no worker has been heard of lately");
        for worker in &all.workers {
            let work = plain(&worker.serves.join(", "));
            rows.add([worker.node.clone(), plain(&worker.name), work, when(&worker.seen_at)]);
        }
        rows.print()
    }
}
