//! The server, in a process of its own: this program again.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use semel_server::config::{Auth, Config, Limits, StoreAddress};
use semel_server::serve::Server;
use tempfile::TempDir;

use crate::Anything;

const FILE: &str = "semel.db";
const STORE: &str = "SEMEL_BENCH_SERVER";

/// The store of the server that this process shall be, if it shall be one.
pub(crate) fn store_given() -> Option<String> {
    std::env::var(STORE).ok()
}

/// Serves until it is killed.
pub(crate) async fn serve(store: String) -> Anything<()> {
    let config = Config {
        listen: "127.0.0.1:0".parse()?,
        store: StoreAddress::new(store),
        auth: Auth::None,
        // The workers of `idle` wait in one workspace, which may have a sixteenth of these.
        limits: Limits { connections: 32_000, ..Limits::default() },
        ..Config::default()
    };
    let server = Server::open(&config).await?;
    println!("http://{}", server.address().ok_or("a port")?);
    server.run().await?;
    Ok(())
}

/// A server process; it ends with its value, and so does its data.
pub(crate) struct Process {
    pub(crate) url: String,
    child: Child,
    store: String,
    folder: TempDir,
}

fn spawn(store: &str) -> Anything<(String, Child)> {
    let this = std::env::current_exe()?;
    let mut child = Command::new(this).env(STORE, store).stdout(Stdio::piped()).spawn()?;
    let mut url = String::new();
    BufReader::new(child.stdout.take().ok_or("a pipe")?).read_line(&mut url)?;
    Ok((url.trim().to_owned(), child))
}

impl Process {
    /// A server on a file of its own.
    pub(crate) fn spawn() -> Anything<Self> {
        let folder = TempDir::new()?;
        let store = format!("sqlite:{}", folder.path().join(FILE).display());
        let (url, child) = spawn(&store)?;
        Ok(Self { url, child, store, folder })
    }

    /// A server on a PostgreSQL database, in which nothing is left of a phase before.
    pub(crate) async fn spawn_on(url: &str) -> Anything<Self> {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        let connected = tokio::spawn(connection);
        client.batch_execute("DROP SCHEMA IF EXISTS semel CASCADE").await?;
        drop(client);
        connected.await??;
        let (store, folder) = (url.to_owned(), TempDir::new()?);
        let (url, child) = spawn(&store)?;
        Ok(Self { url, child, store, folder })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file of a server that has one.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join(FILE)
    }

    /// Ends it as a crash does.
    pub(crate) fn kill(&mut self) -> Anything<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts another on the same data.
    pub(crate) fn start(&mut self) -> Anything<()> {
        (self.url, self.child) = spawn(&self.store)?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
