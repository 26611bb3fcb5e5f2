//! `semel approval ls | show | decide | link | rotate-links`: questions to people that runs wait for.

use clap::Subcommand;
use jiff::Timestamp;

use super::client::{ApiCall, Client, ServerArgs};
use super::exit::{Done, Exit, Failure};
use super::hook::url;
use super::input::Given;
use super::output::{Rows, ago, facts, note, plain, print, status, when};
use super::token::expiry;
use crate::api::{
    ApprovalList, ApprovalStatus, ApprovalView, Choice, DecideApproval, LinksMade, MakeLinks, Value,
};

/// List, show and decide what runs ask people.
#[derive(Debug, Subcommand)]
pub(super) enum ApprovalCommand {
    Ls(ApprovalLs),
    Show(ApprovalShow),
    Decide(ApprovalDecide),
    Link(ApprovalLink),
    RotateLinks(RotateLinks),
}

/// List open approvals, the oldest first.
#[derive(Debug, clap::Args)]
#[command(
    visible_alias = "list",
    after_help = "Examples:\n  semel approval ls\n  semel approval ls --role sales"
)]
pub(super) struct ApprovalLs {
    /// Only approvals that this role may decide.
    #[arg(long)]
    role: Option<String>,
    /// Maximum number of approvals on the page.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Cursor of the page, as the previous page has named it.
    #[arg(long)]
    cursor: Option<String>,
}

/// Show an approval with its content, its form and its decision.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  semel approval show apr_01j0000000e00800000000007z")]
pub(super) struct ApprovalShow {
    /// Id of the approval.
    id: String,
}

/// Decide an approval, or answer the form of a `human` task.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel approval decide apr_01j0000000e00800000000007z approved --comment 'as agreed'
  semel approval decide apr_01j0000000e00800000000007z edited --input '{\"cents\": 900}'
  semel approval decide apr_01j0000000e00800000000007z --input '{\"size\": 42}'")]
pub(super) struct ApprovalDecide {
    /// Id of the approval.
    id: String,
    /// The decision; left out for the form of a `human` task.
    decision: Option<Choice>,
    /// Comment on the decision.
    #[arg(long)]
    comment: Option<String>,
    #[command(flatten)]
    input: Given,
}

/// Make links with which a person decides an approval without a token.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel approval link apr_01j0000000e00800000000007z
  semel approval link apr_01j0000000e00800000000007z --to ada@example.com --expires 2d")]
pub(super) struct ApprovalLink {
    /// Id of the approval.
    id: String,
    /// Decision for which a link is made; may be repeated. Default: approved and rejected.
    #[arg(long, value_name = "CHOICE")]
    choice: Vec<Choice>,
    /// Person for whom the links are made, shown as the author of the decision.
    #[arg(long, value_name = "PERSON")]
    to: Option<String>,
    /// Time at which the links expire, such as `2030-01-31T12:00:00Z`, or a period from now, such as `2d`. Default: with
    /// the approval.
    #[arg(long, value_name = "WHEN", value_parser = expiry)]
    expires: Option<Timestamp>,
}

/// Replace the key that signs links: all links from before are invalid. Needs the root token.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  semel approval rotate-links --token \"$SEMEL_ROOT_TOKEN\"")]
pub(super) struct RotateLinks {}

impl ApprovalCommand {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        match self {
            Self::Ls(ls) => ls.execute(server).await,
            Self::Show(show) => show.execute(server).await,
            Self::Decide(decide) => decide.execute(server).await,
            Self::Link(link) => link.execute(server).await,
            Self::RotateLinks(rotate) => rotate.execute(server).await,
        }
    }
}

impl ApprovalLs {
    async fn execute(self, server: &ServerArgs) -> Done {
        let call = ApiCall::get(["approvals"])
            .query("role", self.role)
            .query("limit", self.limit)
            .query("cursor", self.cursor);
        let answer = Client::new(server)?.call(&call).await?;
        if let Some(next) = answer.read::<ApprovalList>()?.next {
            note(&format!("more: --cursor {next}"));
        }
        answer.print(server.output, |list: &ApprovalList| {
            let columns = ["ID", "TASK", "TITLE", "BY", "RUN", "OPENED", "EXPIRES"];
            let mut rows = Rows::new(columns, "no open approvals").whole([0]).only_from(120, [4]);
            for approval in &list.approvals {
                rows.add([
                    approval.id.clone(),
                    plain(&approval.task),
                    plain(&approval.title),
                    plain(&approval.by.join(", ")),
                    approval.run.clone(),
                    ago(&approval.opened_at),
                    ago(&approval.expires_at),
                ]);
            }
            rows.text()
        })
    }
}

impl ApprovalShow {
    async fn execute(self, server: &ServerArgs) -> Done {
        let answer = Client::new(server)?.call(&ApiCall::get(["approvals", &self.id])).await?;
        answer.print(server.output, shown)
    }
}

fn shown(approval: &ApprovalView) -> String {
    let text = |value: &Option<Value>| value.as_ref().map(|value| plain(value.get())).unwrap_or_default();
    let decided = approval.decided.as_ref();
    let author =
        |decided: &crate::api::DecidedView| format!("{} by {}", when(&decided.at), plain(&decided.by));
    facts(&[
        ("id", approval.id.clone()),
        ("task", plain(&approval.task)),
        ("status", state(approval.status)),
        ("title", plain(&approval.title)),
        ("by", plain(&approval.by.join(", "))),
        ("run", approval.run.clone()),
        ("step", plain(&approval.step)),
        ("opened", when(&approval.opened_at)),
        ("expires", when(&approval.expires_at)),
        ("content", text(&approval.content)),
        ("form", text(&approval.form)),
        ("decided", decided.map(author).unwrap_or_default()),
        ("answer", decided.map(|decided| text(&decided.content)).unwrap_or_default()),
        ("comment", decided.and_then(|decided| decided.comment.as_deref()).map(plain).unwrap_or_default()),
    ])
}

fn state(state: ApprovalStatus) -> String {
    status(state.as_str())
}

impl ApprovalDecide {
    async fn execute(self, server: &ServerArgs) -> Done {
        let content = self.input.read()?;
        if self.decision.is_none() && content.is_none() {
            let failure = Failure::new(Exit::Usage, "there is no decision");
            return Err(failure.help("say approved, rejected or edited, or answer a form with --input"));
        }
        let body = DecideApproval { decision: self.decision, content, comment: self.comment };
        let answer =
            Client::new(server)?.call(&ApiCall::post(["approvals", &self.id, "decide"], None, &body)).await?;
        if answer.replayed {
            note("it was decided so before");
        }
        answer.print(server.output, shown)
    }
}

impl ApprovalLink {
    async fn execute(self, server: &ServerArgs) -> Done {
        let both = || vec![Choice::Approved, Choice::Rejected];
        let choices = if self.choice.is_empty() { both() } else { self.choice };
        let expires_at = self.expires.map(|at| at.to_string());
        let body = MakeLinks { choices, expires_at, to: self.to };
        let client = Client::new(server)?;
        let answer = client.call(&ApiCall::post(["approvals", &self.id, "links"], None, &body)).await?;
        let made: LinksMade = answer.read()?;
        let urls = made.links.iter().map(|link| url(&client, &link.path)).collect::<Done<Vec<_>>>()?;
        answer.print(server.output, |made: &LinksMade| {
            let links = made.links.iter().zip(urls);
            facts(&links.map(|(link, url)| (link.choice.as_str(), url)).collect::<Vec<_>>())
        })
    }
}

impl RotateLinks {
    async fn execute(self, server: &ServerArgs) -> Done {
        let call = ApiCall::post(["approval-links", "rotate"], None, &serde_json::json!({}));
        Client::new(server)?.call(&call).await?;
        print("all links that were made before are invalid")
    }
}
