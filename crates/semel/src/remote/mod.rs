//! The store of a server elsewhere: an engine in another process than its runs.
//!
//! [`RemoteStore`] is a [`Store`](crate::store::Store) like the others, spoken over HTTP. So workflows, steps, hooks,
//! children, `run_once` and replay work as on a database of its own:
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
//! so a [`RemoteStore`] does not.

mod batch;
mod client;
mod nodes;
mod store;
mod tls;
mod wakes;
pub mod wire;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

pub use self::tls::certificate_problem;

use self::batch::Batches;
use self::client::HttpClient;
use self::nodes::Nodes;
use self::wakes::WakeListener;
use self::wire::{SavedCommit, StartedRun};
use crate::error::Result;
use crate::store::Wake;

/// The environment variable with the path of a file of certificates, for servers of a private authority.
pub const CA_FILE: &str = "SEMEL_CA_FILE";
/// The environment variable of the token.
pub const TOKEN: &str = "SEMEL_TOKEN";

/// How a server is reached.
#[derive(Clone)]
pub struct Options {
    /// URL of the server: `http://127.0.0.1:7700`, `https://…`.
    pub url: String,
    /// The API key. It names the workspace.
    pub token: Option<String>,
    /// Name of this process in the server's list of workers.
    pub name: String,
    /// Certificates (PEM) to trust, instead of those of the machine. Default: those of `ca_file`.
    pub ca: Option<Vec<u8>>,
    /// File with certificates (PEM) to trust, instead of those of the machine. Default: `SEMEL_CA_FILE`.
    pub ca_file: Option<PathBuf>,
    /// Maximum time for an answer. The outcome of a write that is not answered in time is unknown.
    pub timeout: Duration,
    /// Whether engines use this store. Without any, the server tells it of no runs that are due, and the API key needs the
    /// permission `read` instead of `worker`. True by default.
    pub drives: bool,
}

impl Options {
    /// A server, with the token of `SEMEL_TOKEN` and the certificates of `SEMEL_CA_FILE`, if these are set.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token: std::env::var(TOKEN).ok().filter(|token| !token.is_empty()),
            name: format!("pid-{}", std::process::id()),
            ca: None,
            ca_file: std::env::var_os(CA_FILE).filter(|path| !path.is_empty()).map(PathBuf::from),
            timeout: Duration::from_secs(30),
            drives: true,
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
pub struct RemoteStore {
    client: Arc<HttpClient>,
    name: String,
    nodes: Nodes,
    commits: Batches<SavedCommit>,
    starts: Batches<StartedRun>,
    wakes: broadcast::Sender<Wake>,
    listener: WakeListener,
}

impl fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("name", &self.name).finish_non_exhaustive()
    }
}

impl RemoteStore {
    /// Connects to a server; fails if it does not answer.
    pub async fn open(options: Options) -> Result<Self> {
        let client = Arc::new(HttpClient::new(&options)?);
        let wakes = broadcast::Sender::new(wakes::ON_THEIR_WAY);
        let listener = WakeListener::begin(client.clone(), wakes.clone(), options.drives).await?;
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
