//! Senders of webhooks: programs that cannot set an API key.
//!
//! - `address` is the record of a public address, whose path cannot be guessed: what is sent there is delivered to one hook.
//! - `signature` verifies that a request comes from the sender, with a secret of a connection: it is in the configuration of the
//!   server, never in the store.

pub(crate) mod address;
pub(crate) mod signature;

use semel::Error;
use semel::id::{AddressId, WorkspaceId};

use crate::access::cache::Cache;
use crate::app::App;
use crate::config::Secret;

/// State of a server about senders of webhooks.
#[derive(Debug, Default)]
pub struct Senders {
    /// Addresses that were used lately.
    pub(crate) seen: Cache<AddressId, address::HookAddress>,
}

/// Secrets with which the sender behind a connection signs, if the workspace may use it; a signature by any of them is valid.
pub(crate) async fn secrets(
    app: &App,
    workspace: WorkspaceId,
    connection: &str,
) -> Result<Vec<Secret>, Error> {
    let Some(connections) = &app.connections else { return Ok(Vec::new()) };
    let found = connections.find(workspace, connection).await?;
    Ok(found.map(|connection| connection.sender_secrets.clone()).unwrap_or_default())
}
