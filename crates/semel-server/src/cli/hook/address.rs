//! `semel hook address create | ls | revoke`: public addresses for senders that have no API key.

use clap::Subcommand;
use jiff::Timestamp;

use crate::api::{AddressCreated, AddressList, AddressView, CreateAddress, Scheme, VerifySender};
use crate::cli::client::{ApiCall, Client, ServerArgs};
use crate::cli::exit::{Done, Exit, Failure};
use crate::cli::output::{Rows, ago, facts, note, plain, status, when};
use crate::cli::start::word;
use crate::cli::token::expiry;

/// Create, list and revoke public addresses of hooks.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum AddressCommand {
    Create(AddressCreate),
    Ls(AddressLs),
    Revoke(AddressRevoke),
}

/// Create a public address; its path is shown only once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel hook address create order:7
  semel hook address create payments --verify stripe --connection stripe --expires 365d")]
pub(in crate::cli) struct AddressCreate {
    /// Token of the hook, which need not be open yet.
    token: String,
    /// Time at which the address expires, such as `2030-01-31T12:00:00Z`, or a period from now, such as `90d`. Default: in
    /// 30 days.
    #[arg(long, value_name = "WHEN", value_parser = expiry)]
    expires: Option<Timestamp>,
    /// Scheme by which the sender signs. Default: none; the address is the only credential.
    #[arg(long, value_name = "SCHEME", requires = "connection")]
    verify: Option<Scheme>,
    /// Connection of the server that has the secret of the sender.
    #[arg(long, value_name = "NAME", requires = "verify")]
    connection: Option<String>,
    /// Id under which this command may be repeated; the path is not shown again. Generated if absent.
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
}

/// List the public addresses of hooks, without their paths.
#[derive(Debug, clap::Args)]
#[command(visible_alias = "list", after_help = "Examples:\n  semel hook address ls")]
pub(in crate::cli) struct AddressLs {
    /// Maximum number of addresses on the page.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Cursor of the page, as the previous page has named it.
    #[arg(long)]
    cursor: Option<String>,
}

/// Revoke a public address: what is sent to it is refused.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  semel hook address revoke adr_01j0000000e00800000000007z")]
pub(in crate::cli) struct AddressRevoke {
    /// Id of the address, as `semel hook address ls` shows it.
    id: String,
}

impl AddressCommand {
    pub(in crate::cli) async fn execute(self, server: &ServerArgs) -> Done {
        match self {
            Self::Create(create) => create.execute(server).await,
            Self::Ls(ls) => ls.execute(server).await,
            Self::Revoke(revoke) => revoke.execute(server).await,
        }
    }
}

impl AddressCreate {
    async fn execute(self, server: &ServerArgs) -> Done {
        let verify = self.verify.zip(self.connection);
        let body = CreateAddress {
            expires_at: self.expires.map(|at| at.to_string()),
            verify: verify.map(|(scheme, connection)| VerifySender { scheme, connection }),
        };
        let call = ApiCall::post(["hooks", &self.token, "address"], self.call_id.as_deref(), &body);
        let client = Client::new(server)?;
        let answer = client.call(&call).await?;
        let created: AddressCreated = answer.read()?;
        match created.path.is_some() {
            true => note("keep the address: it is shown this once"),
            false => note("this call made the address before; it is not shown again"),
        }
        let url = created.path.as_deref().map(|path| url(&client, path)).transpose()?.unwrap_or_default();
        answer.print(server.output, |created: &AddressCreated| {
            format!("{}\n{}", address(&created.address), facts(&[("address", url)]))
        })
    }
}

/// The address of a path at the server as this command reaches it.
pub(in crate::cli) fn url(client: &Client, path: &str) -> Done<String> {
    let joined = client.base().join(path);
    joined.map(String::from).map_err(|error| {
        Failure::new(Exit::Failed, format!("the server's answer is not understood: {path:?}: {error}"))
    })
}

fn address(address: &AddressView) -> String {
    facts(&[
        ("id", address.id.clone()),
        ("token", plain(&address.token)),
        ("verifies", verified(address)),
        ("created", format!("{} by {}", ago(&address.created_at), plain(&address.created_by))),
        ("expires", when(&address.expires_at)),
        ("revoked", address.revoked_at.as_deref().map(when).unwrap_or_default()),
    ])
}

fn verified(address: &AddressView) -> String {
    let scheme =
        |verify: &VerifySender| format!("{} with {}", word(&verify.scheme), plain(&verify.connection));
    address.verify.as_ref().map(scheme).unwrap_or_default()
}

impl AddressLs {
    async fn execute(self, server: &ServerArgs) -> Done {
        let call = ApiCall::get(["hook-addresses"]).query("limit", self.limit).query("cursor", self.cursor);
        let answer = Client::new(server)?.call(&call).await?;
        if let Some(next) = answer.read::<AddressList>()?.next {
            note(&format!("more: --cursor {next}"));
        }
        answer.print(server.output, |list: &AddressList| {
            let columns = ["ID", "STATE", "TOKEN", "VERIFIES", "CREATED", "EXPIRES"];
            let mut rows = Rows::new(columns, "no addresses").whole([0, 1]);
            for address in &list.addresses {
                let state = match &address.revoked_at {
                    Some(at) => format!("revoked {}", ago(at)),
                    None => status("ok"),
                };
                let (created, expires) = (ago(&address.created_at), ago(&address.expires_at));
                rows.add([
                    address.id.clone(),
                    state,
                    plain(&address.token),
                    verified(address),
                    created,
                    expires,
                ]);
            }
            rows.text()
        })
    }
}

impl AddressRevoke {
    async fn execute(self, server: &ServerArgs) -> Done {
        let answer = Client::new(server)?.call(&ApiCall::delete(["hook-addresses", &self.id])).await?;
        answer.print(server.output, address)
    }
}
