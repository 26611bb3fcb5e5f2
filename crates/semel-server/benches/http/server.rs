//! The server, in a process of its own: this program again.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use semel_server::config::{Auth, Config, StoreAddress};
use semel_server::serve::Server;
use tempfile::TempDir;

use crate::Anything;

const FOLDER: &str = "SEMEL_BENCH_SERVER";

/// The folder of the server that this process shall be, if it shall be one.
pub(crate) fn folder_given() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Serves until it is killed.
pub(crate) async fn serve(folder: &Path) -> Anything<()> {
    let config = Config {
        listen: "127.0.0.1:0".parse()?,
        store: StoreAddress::new(format!("sqlite:{}", folder.join("semel.db").display())),
        auth: Auth::None,
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
    folder: TempDir,
}

fn spawn(folder: &Path) -> Anything<(String, Child)> {
    let this = std::env::current_exe()?;
    let mut child = Command::new(this).env(FOLDER, folder).stdout(Stdio::piped()).spawn()?;
    let mut url = String::new();
    BufReader::new(child.stdout.take().ok_or("a pipe")?).read_line(&mut url)?;
    Ok((url.trim().to_owned(), child))
}

impl Process {
    pub(crate) fn spawn() -> Anything<Self> {
        let folder = TempDir::new()?;
        let (url, child) = spawn(folder.path())?;
        Ok(Self { url, child, folder })
    }

    /// Ends it as a crash does.
    pub(crate) fn kill(&mut self) -> Anything<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts another on the same data.
    pub(crate) fn start(&mut self) -> Anything<()> {
        (self.url, self.child) = spawn(self.folder.path())?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
