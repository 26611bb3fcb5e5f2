//! `semel key show | release`.

use clap::Subcommand;

use super::client::{ApiCall, Client, ServerArgs};
use super::exit::Done;
use super::output::{facts, plain, status, when};
use super::run::{controlled, duplicates};
use crate::api::{ControlRun, KeyView};

/// Show and release idempotency keys.
#[derive(Debug, Subcommand)]
pub(super) enum Key {
    Show(KeyShow),
    Release(Release),
}

/// Arguments that identify a key.
#[derive(Debug, clap::Args)]
struct Which {
    /// Idempotency key of the run.
    key: String,
    /// Scope of the key, as runs show it: `*` (default), `w/order`, `v/order/1`, `child`.
    #[arg(long)]
    scope: Option<String>,
}

/// Show the run that holds a key, and its absorbed duplicates.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  semel key show order-7\n  semel key show order-7 --scope w/demo-order")]
pub(super) struct KeyShow {
    #[command(flatten)]
    which: Which,
}

/// Release a key: its run continues, and the next start with the key creates a new run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  semel key release order-7")]
pub(super) struct Release {
    #[command(flatten)]
    which: Which,
    /// Only if the run still has this version.
    #[arg(long, value_name = "VERSION")]
    expected_version: Option<u64>,
    /// Id under which this command may be repeated. Generated if absent.
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
}

impl Key {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        match self {
            Self::Show(show) => show.execute(server).await,
            Self::Release(release) => release.execute(server).await,
        }
    }
}

impl KeyShow {
    async fn execute(self, server: &ServerArgs) -> Done {
        let call = ApiCall::get(["keys", &self.which.key]).query("scope", self.which.scope.as_ref());
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
    async fn execute(self, server: &ServerArgs) -> Done {
        let body = ControlRun { expected_version: self.expected_version };
        let path = ["keys", &self.which.key, "release"];
        let call =
            ApiCall::post(path, self.call_id.as_deref(), &body).query("scope", self.which.scope.as_ref());
        let answer = Client::new(server)?.call(&call).await?;
        answer.print(server.output, |released| controlled(released, &answer))
    }
}
