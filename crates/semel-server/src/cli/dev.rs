//! `semel dev`: a server for one's own machine, that asks for nothing.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::config::{Auth, Config, LISTEN, Log, LogFormat, StoreAddress};
use crate::serve::{Error, Server, logs, on_signals};

/// A server for your own machine: everything is in one folder, and nobody is asked who they are.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  semel dev\n  semel dev --listen 127.0.0.1:7701 --folder /tmp/semel")]
pub(super) struct Dev {
    /// Where to listen; an address of this machine only.
    #[arg(long, default_value = LISTEN)]
    listen: SocketAddr,
    /// The folder that holds everything; deleting it is a fresh start.
    #[arg(long, default_value = ".semel")]
    folder: PathBuf,
    /// How the log is written: text on a terminal and JSON elsewhere, if not given.
    #[arg(long, value_name = "FORMAT")]
    log: Option<LogFormat>,
    /// What is logged.
    #[arg(long, env = "SEMEL_LOG", default_value = "info", value_name = "FILTER")]
    log_filter: String,
}

impl Dev {
    pub(super) async fn run(self) -> Result<(), Error> {
        if !self.listen.ip().is_loopback() {
            return Err(Error::Config(format!(
                "`semel dev` asks nobody who they are, so it listens on this machine only, not on {}: \
                 use `semel serve`, which knows its callers by API keys",
                self.listen
            )));
        }
        make_folder(&self.folder)?;
        let store = self.folder.join("semel.db");
        let config = Config {
            listen: self.listen,
            store: StoreAddress::new(format!("sqlite:{}", store.display())),
            auth: Auth::None,
            log: Log { format: self.log, filter: self.log_filter },
            demo: true,
            ..Config::default()
        };
        let _logs = logs::start(&config)?;
        let server = Server::open(&config).await?;
        on_signals(server.stop())?;
        print_welcome(server.address().unwrap_or(self.listen), &self.folder);
        server.run().await
    }
}

/// Makes a folder that only its owner may look into, unless it is there.
fn private(folder: &Path) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // A umask can take the owner's permissions, too.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
}

/// Makes the folder, and keeps it out of repositories.
fn make_folder(folder: &Path) -> Result<(), Error> {
    let ignore = folder.join(".gitignore");
    private(folder)
        .and_then(|()| if ignore.exists() { Ok(()) } else { fs::write(&ignore, "*\n") })
        .map_err(|source| Error::Folder { path: folder.to_owned(), source })
}

fn print_welcome(address: SocketAddr, folder: &Path) {
    println!(
        "Semel listens on http://{address}, for this machine only. Everything is in {}.

Start a run; the second time the same run answers, because the key is the same:

  curl -s http://{address}/api/v1/workflow-runs -H 'content-type: application/json' \\
    -H 'idempotency-key: order-7' -d '{{\"workflow\": \"demo-order\", \"input\": {{\"order\": \"7\", \"amount\": 1999}}}}'

Stop with Ctrl-C.",
        folder.display()
    );
}
