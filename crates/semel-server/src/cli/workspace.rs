//! `semel workspace create | ls`. Both need the root token.

use clap::Subcommand;

use super::client::{ApiCall, Client, ServerArgs};
use super::exit::Done;
use super::output::{Rows, ago, facts, plain};
use crate::api::{CreateWorkspace, WorkspaceList, WorkspaceView};

/// Create and list workspaces; needs the root token.
#[derive(Debug, Subcommand)]
pub(super) enum WorkspaceCommand {
    Create(WorkspaceCreate),
    Ls(WorkspaceLs),
}

/// Create a workspace: a tenant with its own runs, keys and tokens.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  semel workspace create shop\n  semel workspace create shop --rate-limit 500"
)]
pub(super) struct WorkspaceCreate {
    /// Name of the workspace, unique on the server.
    name: String,
    /// Calls per second that the workspace may make. Default: the server's setting.
    #[arg(long, value_name = "CALLS")]
    rate_limit: Option<u32>,
    /// Id under which this command may be repeated. Generated if absent.
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
}

/// List all workspaces.
#[derive(Debug, clap::Args)]
#[command(visible_alias = "list", after_help = "Examples:\n  semel workspace ls")]
pub(super) struct WorkspaceLs {}

impl WorkspaceCommand {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        match self {
            Self::Create(create) => create.execute(server).await,
            Self::Ls(WorkspaceLs {}) => list(server).await,
        }
    }
}

impl WorkspaceCreate {
    async fn execute(self, server: &ServerArgs) -> Done {
        let body = CreateWorkspace { name: self.name, rate_limit: self.rate_limit };
        let call = ApiCall::post(["workspaces"], self.call_id.as_deref(), &body);
        let answer = Client::new(server)?.call(&call).await?;
        answer.print(server.output, |made: &WorkspaceView| {
            facts(&[
                ("workspace", made.id.clone()),
                ("name", plain(&made.name)),
                ("rate limit", made.rate_limit.map(|limit| format!("{limit}/s")).unwrap_or_default()),
                ("created", ago(&made.created_at)),
            ])
        })
    }
}

async fn list(server: &ServerArgs) -> Done {
    let answer = Client::new(server)?.call(&ApiCall::get(["workspaces"])).await?;
    answer.print(server.output, |list: &WorkspaceList| {
        let mut rows = Rows::new(["WORKSPACE", "NAME", "RATE LIMIT", "CREATED"], "no workspaces").whole([0]);
        for workspace in &list.workspaces {
            let limit = workspace.rate_limit.map_or("default".to_owned(), |limit| format!("{limit}/s"));
            rows.add([workspace.id.clone(), plain(&workspace.name), limit, ago(&workspace.created_at)]);
        }
        rows.text()
    })
}
