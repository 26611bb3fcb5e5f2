//! `semel hook deliver | show`.

use clap::Subcommand;

use super::client::{Call, Client, Server};
use super::exit::{Done, Exit, Failure};
use super::input::Given;
use super::output::{facts, plain, status};
use crate::api::{DeliverAnswer, HookView};

/// Deliver to hooks, and see who owns a token.
#[derive(Debug, Subcommand)]
pub(super) enum Hook {
    Deliver(Deliver),
    Show(Show),
}

/// Deliver a payload to the owner of a token.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel hook deliver approve-8 --input '{\"approved\": true}' --call-id approval-8
  echo '{\"approved\": true}' | semel hook deliver approve-8 --input -")]
pub(super) struct Deliver {
    /// The token.
    token: String,
    #[command(flatten)]
    input: Given,
    /// The id of the delivery: the same id again is absorbed. One is drawn if not given.
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
}

/// Show who owns a token.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  semel hook show approve-8")]
pub(super) struct Show {
    /// The token.
    token: String,
}

impl Hook {
    pub(super) async fn execute(self, server: &Server) -> Done {
        match self {
            Self::Deliver(deliver) => deliver.execute(server).await,
            Self::Show(show) => show.execute(server).await,
        }
    }
}

impl Deliver {
    async fn execute(self, server: &Server) -> Done {
        let payload = self.input.read()?.ok_or_else(|| {
            let failure = Failure::new(Exit::Usage, "there is nothing to deliver");
            failure.help("give the payload with --input or --input-file; `--input null` if there is none")
        })?;
        let path = ["hooks", self.token.as_str()];
        let answer = Client::new(server)?.call(&Call::post(path, self.call_id.as_deref(), &payload)).await?;
        answer.print(server.output, |delivered: &DeliverAnswer| {
            facts(&[
                ("run", delivered.run.clone()),
                ("message", delivered.arrival.to_string()),
                (
                    "absorbed",
                    if delivered.absorbed { "yes: it was delivered before" } else { "no" }.to_owned(),
                ),
            ])
        })
    }
}

impl Show {
    async fn execute(self, server: &Server) -> Done {
        let answer = Client::new(server)?.call(&Call::get(["hooks", self.token.as_str()])).await?;
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
