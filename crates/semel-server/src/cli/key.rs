//! `semel key ls | show | release`.

use clap::Subcommand;

use super::client::{ApiCall, Client, ServerArgs};
use super::exit::Done;
use super::output::{Rows, ago, facts, json, note, plain, status, when};
use super::run::{controlled, duplicates};
use crate::api::{ControlRun, FormerHolder, KeyList, KeyView, LostKey};

/// List, show and release idempotency keys.
#[derive(Debug, Subcommand)]
pub(super) enum Key {
    Ls(KeyLs),
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

/// List keys by their beginning, with the runs that hold them.
#[derive(Debug, clap::Args)]
#[command(visible_alias = "list", after_help = "Examples:\n  semel key ls --prefix order-")]
pub(super) struct KeyLs {
    /// Only keys that begin like this.
    #[arg(long)]
    prefix: Option<String>,
    /// Scope of the keys, as runs show it: `*` (default), `w/order`, `v/order/1`, `child`.
    #[arg(long)]
    scope: Option<String>,
    /// Maximum number of runs on the page, former holders included.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Cursor of the page, as the previous page has named it.
    #[arg(long)]
    cursor: Option<String>,
}

impl KeyLs {
    async fn execute(self, server: &ServerArgs) -> Done {
        let call = ApiCall::get(["keys"])
            .query("prefix", self.prefix)
            .query("scope", self.scope)
            .query("limit", self.limit)
            .query("cursor", self.cursor);
        let answer = Client::new(server)?.call(&call).await?;
        if let Some(next) = answer.read::<KeyList>()?.next {
            note(&format!("more: --cursor {}", json(&next)));
        }
        answer.print(server.output, |list: &KeyList| {
            let columns = ["KEY", "RUN", "STATUS", "CREATED", "EARLIER"];
            let mut rows = Rows::new(columns, "no keys").whole([1, 2]);
            for key in &list.keys {
                let of = |shown: fn(&crate::api::RunView) -> String| {
                    key.run.as_ref().map(shown).unwrap_or_default()
                };
                rows.add([
                    plain(&key.key),
                    of(|run| run.id.clone()),
                    of(|run| status(&run.status.to_string())),
                    of(|run| ago(&run.created_at)),
                    key.earlier.len().to_string(),
                ]);
            }
            rows.text()
        })
    }
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
            Self::Ls(ls) => ls.execute(server).await,
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
                ("fingerprint", key.fingerprint.clone()),
                ("remembered until", key.remembered_until.as_deref().map(when).unwrap_or_default()),
                ("earlier", earlier(&key.earlier)),
            ]);
            format!("{head}\n\n{}", duplicates(&key.duplicates))
        })
    }
}

/// The former holders of a key, in a line.
fn earlier(holders: &[FormerHolder]) -> String {
    let shown = |holder: &FormerHolder| match (holder.lost, &holder.detail) {
        (LostKey::Released, Some(by)) => format!("{} (released by {})", holder.run, plain(by)),
        (LostKey::Released, None) => format!("{} (released)", holder.run),
        (LostKey::Superseded, _) => format!("{} (superseded)", holder.run),
        (LostKey::TakenOver, _) => format!("{} (taken over)", holder.run),
    };
    holders.iter().map(shown).collect::<Vec<_>>().join(", ")
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
