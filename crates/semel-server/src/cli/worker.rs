//! `semel worker ls`: lists workers and engines.

use clap::Subcommand;

use super::client::{ApiCall, Client, ServerArgs};
use super::exit::Done;
use super::output::{Format, Rows, ago, json, plain, print};
use crate::api::WorkerList;

/// Workers per page: the maximum that a server allows.
const PAGE: usize = 500;

/// Show the engines and the remote workers.
#[derive(Debug, Subcommand)]
pub(super) enum WorkerCommand {
    Ls(WorkerLs),
}

/// List the engines that open the server's store themselves, and the remote workers with a current registration.
#[derive(Debug, clap::Args)]
#[command(visible_alias = "list", after_help = "Examples:\n  semel worker ls")]
pub(super) struct WorkerLs {}

impl WorkerCommand {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let Self::Ls(WorkerLs {}) = self;
        let client = Client::new(server)?;
        let mut all = WorkerList { engines: Vec::new(), workers: Vec::new(), next: None };
        loop {
            let call =
                ApiCall::get(["workers"]).query("limit", Some(PAGE)).query("cursor", all.next.as_ref());
            let page: WorkerList = client.call(&call).await?.read()?;
            all.engines.extend(page.engines);
            all.workers.extend(page.workers);
            all.next = page.next;
            if all.next.is_none() {
                break;
            }
        }
        if server.output != Format::Table {
            return print(&json(&all));
        }
        let heads = ["NODE", "KIND", "NAME", "SERVES", "SEEN"];
        let mut rows = Rows::new(heads, "no registered workers and no engines").whole([0, 1, 4]);
        for engine in &all.engines {
            let name = plain(&format!("{} on {} (process {})", engine.name, engine.host, engine.pid));
            let (work, opened) = (plain(&engine.serves.join(", ")), format!("opened {}", ago(&engine.since)));
            rows.add([engine.node.clone(), "engine".to_owned(), name, work, opened]);
        }
        for worker in &all.workers {
            let (kind, work) = ("worker".to_owned(), plain(&worker.serves.join(", ")));
            rows.add([worker.node.clone(), kind, plain(&worker.name), work, ago(&worker.seen_at)]);
        }
        rows.print()
    }
}
