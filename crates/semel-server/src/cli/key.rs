//! `semel key show | release`.

use clap::Subcommand;

use super::client::{Call, Client, Server};
use super::exit::Done;
use super::output::{facts, plain, status, when};
use super::run::{controlled, duplicates};
use crate::api::{ControlRun, KeyView};

/// See what a key stands for, and free it.
#[derive(Debug, Subcommand)]
pub(super) enum Key {
    Show(Show),
    Release(Release),
}

/// Which key.
#[derive(Debug, clap::Args)]
struct Which {
    /// The key.
    key: String,
    /// Where it is unique, as runs show it: `*` (default), `w/order`, `v/order/1`, `child`.
    #[arg(long)]
    scope: Option<String>,
}

/// Show the run that holds a key, and the duplicates that were absorbed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  semel key show order-7\n  semel key show order-7 --scope w/demo-order")]
pub(super) struct Show {
    #[command(flatten)]
    which: Which,
}

/// Free a key: the run keeps going, and the next start under the key makes another run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  semel key release order-7")]
pub(super) struct Release {
    #[command(flatten)]
    which: Which,
    /// Only if the run still has this version.
    #[arg(long, value_name = "VERSION")]
    expected_version: Option<u64>,
    /// The id under which this command may be repeated; one is drawn if not given.
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
}

impl Key {
    pub(super) async fn execute(self, server: &Server) -> Done {
        match self {
            Self::Show(show) => show.execute(server).await,
            Self::Release(release) => release.execute(server).await,
        }
    }
}

impl Show {
    async fn execute(self, server: &Server) -> Done {
        let call = Call::get(["keys", &self.which.key]).query("scope", self.which.scope.as_ref());
        let answer = Client::new(server)?.call(&call).await?;
        answer.print(server.output, |key: &KeyView| {
            let head = facts(&[
                ("key", plain(&key.key)),
                ("scope", plain(&key.scope)),
                ("run", key.run.id.clone()),
                ("status", status(&key.run.status.to_string())),
                ("created", when(&key.run.created_at)),
            ]);
            format!("{head}\n\n{}", duplicates(&key.duplicates))
        })
    }
}

impl Release {
    async fn execute(self, server: &Server) -> Done {
        let body = ControlRun { expected_version: self.expected_version };
        let path = ["keys", &self.which.key, "release"];
        let call = Call::post(path, self.call_id.as_deref(), &body).query("scope", self.which.scope.as_ref());
        let answer = Client::new(server)?.call(&call).await?;
        answer.print(server.output, |released| controlled(released, &answer))
    }
}
