//! The store of a server elsewhere: an engine in another process than its runs.
//!
//! [`Remote`] is a [`Store`](crate::store::Store) like the others, spoken over HTTP. So workflows, steps, hooks,
//! children, once and replay are what they are on a database of one's own:
//!
//! ```no_run
//! # async fn greet(_: semel::Ctx, name: String) -> semel::Result<String> { Ok(name) }
//! # async fn worker() -> semel::Result<()> {
//! // The token comes from SEMEL_TOKEN; the workspace is the token's.
//! let engine =
//!     semel::Engine::builder().store("http://127.0.0.1:7700").workflow("greet", greet).open().await?;
//! # Ok(())
//! # }
//! ```
//!
//! What belongs here: what travels ([`wire`]), and the client. The server's side is in the server's crate. Calls share
//! requests as they share writes in a database: while one request is under way the next one fills up. The server sweeps,
//! so a [`Remote`] does not.

mod batch;
mod client;
mod nodes;
mod store;
mod tls;
mod wakes;
pub mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use self::batch::Batches;
use self::client::Client;
use self::nodes::Nodes;
use self::wakes::Listener;
use crate::error::Result;
use crate::rules::commit::Saved;
use crate::store::{Started, Wake};

/// The environment variable of the token.
pub const TOKEN: &str = "SEMEL_TOKEN";

/// How a server is reached.
#[derive(Clone)]
pub struct Options {
    /// Where it listens: `http://127.0.0.1:7700`, `https://…`.
    pub url: String,
    /// The API key. It names the workspace.
    pub token: Option<String>,
    /// What this process calls itself in the server's list of workers.
    pub name: String,
    /// The certificates (PEM) that the server's is checked with, instead of those of the machine.
    pub ca: Option<Vec<u8>>,
    /// How long an answer may take. A write that is not answered in time is unknown.
    pub timeout: Duration,
}

impl Options {
    /// A server with the token of `SEMEL_TOKEN`, if that is set.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token: std::env::var(TOKEN).ok().filter(|token| !token.is_empty()),
            name: format!("pid-{}", std::process::id()),
            ca: None,
            timeout: Duration::from_secs(30),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the token nor an address that may have a password in it.
        f.debug_struct("Options").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The store of a server elsewhere.
pub struct Remote {
    client: Arc<Client>,
    name: String,
    nodes: Nodes,
    commits: Batches<Saved>,
    starts: Batches<Started>,
    wakes: broadcast::Sender<Wake>,
    listener: Listener,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Remote {
    /// Connects to a server; fails if it does not answer.
    pub async fn open(options: Options) -> Result<Self> {
        let client = Arc::new(Client::new(&options)?);
        let wakes = broadcast::Sender::new(wakes::ON_THEIR_WAY);
        let listener = Listener::begin(client.clone(), wakes.clone()).await?;
        Ok(Self {
            commits: Batches::new(&client, wire::COMMIT, "commits"),
            starts: Batches::new(&client, wire::START, "starts"),
            client,
            name: options.name,
            nodes: Nodes::default(),
            wakes,
            listener,
        })
    }
}
