//! `semel node ls`.

use clap::Subcommand;

use super::client::{ApiCall, Client, ServerArgs};
use super::exit::Done;
use super::output::{Rows, ago, capped, plain};
use crate::api::{NodeKind, NodeList, NodeView};

/// Show what drives runs: engines and remote workers.
#[derive(Debug, Subcommand)]
pub(super) enum NodeCommand {
    Ls(NodeLs),
}

/// List engines and remote workers with their leases and runs, and those that were lost within the last day.
#[derive(Debug, clap::Args)]
#[command(visible_alias = "list", after_help = "Examples:\n  semel node ls")]
pub(super) struct NodeLs {}

impl NodeCommand {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let Self::Ls(NodeLs {}) = self;
        let answer = Client::new(server)?.call(&ApiCall::get(["nodes"])).await?;
        answer.print(server.output, |list: &NodeList| {
            let columns = ["NODE", "KIND", "NAME", "SERVES", "LEASE", "RUNS", "STALE"];
            let mut rows = Rows::new(columns, "no nodes").whole([0, 1, 4]);
            for node in &list.nodes {
                let kind = match node.kind {
                    NodeKind::Engine => "engine",
                    NodeKind::Worker => "worker",
                };
                rows.add([
                    node.node.clone(),
                    kind.to_owned(),
                    plain(&node.name),
                    plain(&node.serves.join(", ")),
                    lease(node),
                    capped(node.runs),
                    node.stale.to_string(),
                ]);
            }
            rows.text()
        })
    }
}

fn lease(node: &NodeView) -> String {
    match (&node.lost_at, &node.lease_until) {
        (Some(lost), _) => format!("lost {}", ago(lost)),
        (None, Some(until)) => format!("until {}", ago(until)),
        (None, None) => String::new(),
    }
}
