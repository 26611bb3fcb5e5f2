//! `semel token create | ls | revoke`: the API keys of a workspace.

use clap::Subcommand;
use jiff::{Span, SpanRelativeTo, Timestamp};
use semel::clock::{Clock as _, SystemClock};

use super::client::{ApiCall, Client, ServerArgs};
use super::exit::Done;
use super::output::{Rows, ago, facts, note, plain, status, when};
use super::start::word;
use crate::api::{ApiKeyCreated, ApiKeyList, ApiKeyView, CreateApiKey, Permission};

/// Create, list and revoke tokens: the API keys of a workspace.
#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    Create(TokenCreate),
    Ls(TokenLs),
    Revoke(Revoke),
}

/// Create a token; it is shown only once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel token create 'the shop' --allow start --allow read
  semel token create 'worker 1' --allow worker --workspace shop
  semel token create 'a contractor' --allow read --expires 30d
  semel token create Ada --allow decide --role sales
  export SEMEL_TOKEN=$(semel token create me --allow admin -o json | jq -r .token)")]
pub(super) struct TokenCreate {
    /// Description of what the token is for.
    name: String,
    /// Permission of the token; may be repeated.
    #[arg(long, required = true, value_name = "PERMISSION")]
    allow: Vec<Permission>,
    /// Role of the token, for approvals that name it; may be repeated.
    #[arg(long, value_name = "ROLE")]
    role: Vec<String>,
    /// Workspace, by name or id; only the root token may choose.
    #[arg(long)]
    workspace: Option<String>,
    /// Time at which the token expires, such as `2030-01-31T12:00:00Z`, or a period from now, such as `90d`. Default:
    /// never.
    #[arg(long, value_name = "WHEN", value_parser = expiry)]
    expires: Option<Timestamp>,
    /// Id under which this command may be repeated; the token is not shown again. Generated if absent.
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
}

/// List the tokens of a workspace, without their secrets.
#[derive(Debug, clap::Args)]
#[command(
    visible_alias = "list",
    after_help = "Examples:\n  semel token ls\n  semel token ls --workspace shop"
)]
pub(super) struct TokenLs {
    /// Workspace, by name or id; only the root token may choose.
    #[arg(long)]
    workspace: Option<String>,
}

/// Revoke a token: it is no longer accepted.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  semel token revoke key_01j0000000e00800000000007z")]
pub(super) struct Revoke {
    /// Id of the token, as `semel token ls` shows it.
    id: String,
}

impl TokenCommand {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        match self {
            Self::Create(create) => create.execute(server).await,
            Self::Ls(ls) => ls.execute(server).await,
            Self::Revoke(revoke) => revoke.execute(server).await,
        }
    }
}

impl TokenCreate {
    async fn execute(self, server: &ServerArgs) -> Done {
        let body = CreateApiKey {
            name: self.name,
            permissions: self.allow,
            roles: self.role,
            workspace: self.workspace,
            expires_at: self.expires.map(|at| at.to_string()),
        };
        let call = ApiCall::post(["api-keys"], self.call_id.as_deref(), &body);
        let answer = Client::new(server)?.call(&call).await?;
        let created: ApiKeyCreated = answer.read()?;
        match created.token.is_some() {
            true => note("keep the token: it is shown this once"),
            false => note("this call made the token before; its secret is not shown again"),
        }
        answer.print(server.output, |created: &ApiKeyCreated| {
            format!(
                "{}\n{}",
                key(&created.key),
                facts(&[("token", created.token.clone().unwrap_or_default())])
            )
        })
    }
}

fn key(key: &ApiKeyView) -> String {
    facts(&[
        ("id", key.id.clone()),
        ("name", plain(&key.name)),
        ("workspace", plain(&key.workspace)),
        ("allows", allowed(key)),
        ("roles", plain(&key.roles.join(", "))),
        ("created", ago(&key.created_at)),
        ("expires", key.expires_at.as_deref().map(when).unwrap_or_default()),
        ("revoked", key.revoked_at.as_deref().map(when).unwrap_or_default()),
    ])
}

fn allowed(key: &ApiKeyView) -> String {
    key.permissions.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// Whether a token is accepted, by this machine's clock.
fn state(key: &ApiKeyView) -> String {
    let expired = |at: &String| at.parse::<Timestamp>().is_ok_and(|at| at <= now());
    match (&key.revoked_at, &key.expires_at) {
        (Some(at), _) => format!("revoked {}", ago(at)),
        (None, Some(at)) if expired(at) => "expired".to_owned(),
        _ => status("ok"),
    }
}

fn now() -> Timestamp {
    Timestamp::from_millisecond(SystemClock::new().now().0).unwrap_or(Timestamp::MAX)
}

/// Parses a time, or a period from now.
pub(super) fn expiry(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let wrong = || format!("{text:?} is neither a time like 2030-01-31T12:00:00Z nor a period like 90d");
    let period: Span = text.parse().map_err(|_| wrong())?;
    let period = period.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    now().checked_add(period).map_err(|_| wrong())
}

impl TokenLs {
    async fn execute(self, server: &ServerArgs) -> Done {
        let call = ApiCall::get(["api-keys"]).query("workspace", self.workspace.as_ref());
        let answer = Client::new(server)?.call(&call).await?;
        answer.print(server.output, |list: &ApiKeyList| {
            let mut rows =
                Rows::new(["ID", "STATE", "NAME", "ALLOWS", "ROLES", "CREATED", "EXPIRES"], "no tokens")
                    .whole([0, 1]);
            for key in &list.keys {
                let expires = key.expires_at.as_deref().map(ago).unwrap_or_default();
                let created = ago(&key.created_at);
                let (allows, roles) = (allowed(key), plain(&key.roles.join(", ")));
                rows.add([key.id.clone(), state(key), plain(&key.name), allows, roles, created, expires]);
            }
            rows.text()
        })
    }
}

impl Revoke {
    async fn execute(self, server: &ServerArgs) -> Done {
        let answer = Client::new(server)?.call(&ApiCall::delete(["api-keys", &self.id])).await?;
        answer.print(server.output, key)
    }
}
