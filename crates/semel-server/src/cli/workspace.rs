//! `semel workspace create | ls`. Both need the root token.

use clap::Subcommand;

use super::client::{Call, Client, Server};
use super::exit::Done;
use super::output::{Rows, facts, plain, when};
use crate::api::{CreateWorkspace, WorkspaceList, WorkspaceView};

/// Make and list workspaces; both need the root token.
#[derive(Debug, Subcommand)]
pub(super) enum Workspace {
    Create(Create),
    Ls(Ls),
}

/// Make a workspace: a tenant with runs, keys and tokens of its own.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  semel workspace create shop\n  semel workspace create shop --rate-limit 500"
)]
pub(super) struct Create {
    /// Its name, unique among workspaces.
    name: String,
    /// Calls per second that it may make; the server's default if not given.
    #[arg(long, value_name = "CALLS")]
    rate_limit: Option<u32>,
    /// The id under which this command may be repeated; one is drawn if not given.
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
}

/// List the workspaces.
#[derive(Debug, clap::Args)]
#[command(visible_alias = "list", after_help = "Examples:\n  semel workspace ls")]
pub(super) struct Ls {}

impl Workspace {
    pub(super) async fn execute(self, server: &Server) -> Done {
        match self {
            Self::Create(create) => create.execute(server).await,
            Self::Ls(Ls {}) => list(server).await,
        }
    }
}

impl Create {
    async fn execute(self, server: &Server) -> Done {
        let body = CreateWorkspace { name: self.name, rate_limit: self.rate_limit };
        let call = Call::post(["workspaces"], self.call_id.as_deref(), &body);
        let answer = Client::new(server)?.call(&call).await?;
        answer.print(server.output, |made: &WorkspaceView| {
            facts(&[
                ("workspace", made.id.clone()),
                ("name", plain(&made.name)),
                ("rate limit", made.rate_limit.map(|limit| format!("{limit}/s")).unwrap_or_default()),
                ("created", when(&made.created_at)),
            ])
        })
    }
}

async fn list(server: &Server) -> Done {
    let answer = Client::new(server)?.call(&Call::get(["workspaces"])).await?;
    answer.print(server.output, |list: &WorkspaceList| {
        let mut rows = Rows::new(["WORKSPACE", "NAME", "RATE LIMIT", "CREATED"], "no workspaces");
        for workspace in &list.workspaces {
            let limit = workspace.rate_limit.map_or("default".to_owned(), |limit| format!("{limit}/s"));
            rows.add([workspace.id.clone(), plain(&workspace.name), limit, when(&workspace.created_at)]);
        }
        rows.text()
    })
}
