//! `semel hook ls | deliver | show | address`.

mod address;

pub(super) use address::url;

use clap::Subcommand;

use super::client::{ApiCall, Client, ServerArgs};
use super::exit::{Done, Exit, Failure};
use super::input::Given;
use super::output::{Rows, ago, capped, facts, json, note, plain, status};
use crate::api::{DeliverAnswer, HookList, HookView};

/// List hooks, deliver to them, show the owner of a token, and manage public addresses.
#[derive(Debug, Subcommand)]
pub(super) enum Hook {
    Ls(HookLs),
    Deliver(Deliver),
    Show(HookShow),
    #[command(subcommand)]
    Address(address::AddressCommand),
}

/// List open hooks, by token or by age.
#[derive(Debug, clap::Args)]
#[command(
    visible_alias = "list",
    after_help = "Examples:\n  semel hook ls --prefix approve-\n  semel hook ls --oldest"
)]
pub(super) struct HookLs {
    /// Only tokens that begin like this.
    #[arg(long, conflicts_with = "oldest")]
    prefix: Option<String>,
    /// The hook that was opened first comes first.
    #[arg(long)]
    oldest: bool,
    /// Maximum number of hooks on the page.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Cursor of the page, as the previous page has named it.
    #[arg(long)]
    cursor: Option<String>,
}

/// Deliver a payload to the owner of a token.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel hook deliver approve-8 --input '{\"approved\": true}' --call-id approval-8
  echo '{\"approved\": true}' | semel hook deliver approve-8 --input -")]
pub(super) struct Deliver {
    /// Token of the hook.
    token: String,
    #[command(flatten)]
    input: Given,
    /// Id of the delivery: the same id again is absorbed. Generated if absent.
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
}

/// Show the run that owns a token.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  semel hook show approve-8")]
pub(super) struct HookShow {
    /// Token of the hook.
    token: String,
}

impl Hook {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        match self {
            Self::Ls(ls) => ls.execute(server).await,
            Self::Deliver(deliver) => deliver.execute(server).await,
            Self::Show(show) => show.execute(server).await,
            Self::Address(address) => address.execute(server).await,
        }
    }
}

impl HookLs {
    async fn execute(self, server: &ServerArgs) -> Done {
        let call = ApiCall::get(["hooks"])
            .query("prefix", self.prefix)
            .query("order", self.oldest.then_some("age"))
            .query("limit", self.limit)
            .query("cursor", self.cursor);
        let answer = Client::new(server)?.call(&call).await?;
        if let Some(next) = answer.read::<HookList>()?.next {
            note(&format!("more: --cursor {}", json(&next)));
        }
        answer.print(server.output, |list: &HookList| {
            let columns = ["TOKEN", "RUN", "STATUS", "KEY", "OPENED", "UNCONSUMED"];
            let mut rows = Rows::new(columns, "no open hooks").whole([1, 2]);
            for hook in &list.hooks {
                rows.add([
                    plain(&hook.token),
                    hook.run.clone(),
                    status(&hook.status.to_string()),
                    plain(&hook.key),
                    hook.opened_at.as_deref().map(ago).unwrap_or_default(),
                    capped(hook.unconsumed),
                ]);
            }
            rows.text()
        })
    }
}

impl Deliver {
    async fn execute(self, server: &ServerArgs) -> Done {
        let payload = self.input.read()?.ok_or_else(|| {
            let failure = Failure::new(Exit::Usage, "there is nothing to deliver");
            failure.help("give the payload with --input or --input-file; `--input null` if there is none")
        })?;
        let path = ["hooks", self.token.as_str()];
        let answer =
            Client::new(server)?.call(&ApiCall::post(path, self.call_id.as_deref(), &payload)).await?;
        answer.print(server.output, |delivered: &DeliverAnswer| {
            facts(&[
                ("run", delivered.run.clone()),
                ("message", delivered.arrival.to_string()),
                (
                    "absorbed",
                    if delivered.absorbed { "yes: an earlier delivery was accepted" } else { "no" }
                        .to_owned(),
                ),
            ])
        })
    }
}

impl HookShow {
    async fn execute(self, server: &ServerArgs) -> Done {
        let answer = Client::new(server)?.call(&ApiCall::get(["hooks", self.token.as_str()])).await?;
        answer.print(server.output, |hook: &HookView| {
            let workflow = format!("{}@{}", hook.run.workflow, hook.run.workflow_version);
            facts(&[
                ("token", plain(&hook.token)),
                ("run", hook.run.id.clone()),
                ("status", status(&hook.run.status.to_string())),
                ("workflow", plain(&workflow)),
            ])
        })
    }
}
