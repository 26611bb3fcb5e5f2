//! `semel hook deliver | show | address`.

mod address;

pub(super) use address::url;

use clap::Subcommand;

use super::client::{ApiCall, Client, ServerArgs};
use super::exit::{Done, Exit, Failure};
use super::input::Given;
use super::output::{facts, plain, status};
use crate::api::{DeliverAnswer, HookView};

/// Deliver to hooks, show the owner of a token, and manage public addresses.
#[derive(Debug, Subcommand)]
pub(super) enum Hook {
    Deliver(Deliver),
    Show(HookShow),
    #[command(subcommand)]
    Address(address::AddressCommand),
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
            Self::Deliver(deliver) => deliver.execute(server).await,
            Self::Show(show) => show.execute(server).await,
            Self::Address(address) => address.execute(server).await,
        }
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
