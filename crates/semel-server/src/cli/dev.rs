//! `semel dev`: a local development server without authentication.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::config::{Auth, ClockMode, Config, LISTEN, Log, LogFormat, Outbound, StoreAddress};
use crate::serve::{Error, Server, logs, on_signals};

/// Default log filter: the events of runs, and no requests.
const LOG: &str = "info,semel::runs=debug,semel_server::serve::observe=warn";

/// Local development server: one folder holds everything, no authentication.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  semel dev\n  semel dev --listen 127.0.0.1:7701 --folder /tmp/semel\n  semel dev --config my.toml"
)]
pub(super) struct Dev {
    /// Address and port to listen on; must be an address of this machine.
    #[arg(long, default_value = LISTEN)]
    listen: SocketAddr,
    /// Folder that holds everything; delete it to start afresh.
    #[arg(long, default_value = ".semel")]
    folder: PathBuf,
    /// File with the connections of definitions: its tables `connections` and `http`. Default: `semel.toml`, if it is there.
    #[arg(long, env = "SEMEL_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Clock of the server. With `manual`, tests move the time forward: POST /api/v1/dev/clock {"advanceMs": 604800000}.
    #[arg(long, value_enum, default_value = "machine", value_name = "CLOCK")]
    clock: ClockMode,
    /// Format of the log.
    #[arg(long, value_enum, default_value = "compact", value_name = "FORMAT")]
    log: LogFormat,
    /// Log filter: levels by module. The default shows runs and problems, but not every request; `info` shows requests.
    #[arg(long, env = "SEMEL_LOG", default_value = LOG, value_name = "FILTER")]
    log_filter: String,
}

impl Dev {
    pub(super) async fn run(self) -> Result<(), Error> {
        if !self.listen.ip().is_loopback() {
            return Err(Error::Config(format!(
                "`semel dev` has no authentication, so it listens on addresses of this machine only, not on {}: \
                 use `semel serve`, which authenticates callers by API keys",
                self.listen
            )));
        }
        make_folder(&self.folder)?;
        let store = self.folder.join("semel.db");
        let config = Config {
            listen: self.listen,
            store: StoreAddress::new(format!("sqlite:{}", store.display())),
            auth: Auth::None,
            log: Log { format: Some(self.log), filter: self.log_filter },
            demo: true,
            clock: self.clock,
            ..connections(self.config.as_deref())?
        };
        let _logs = logs::start(&config)?;
        let server = Server::open(&config).await?;
        on_signals(server.stop())?;
        print_welcome(server.address().unwrap_or(self.listen), &self.folder);
        server.run().await
    }
}

/// Where connections are looked for if no file is given: beside the definitions.
const CONNECTIONS: &str = "semel.toml";

/// The connections of a configuration file, whose other settings are those of a server and not of this one. What runs on this
/// machine may be called without a connection.
fn connections(file: Option<&Path>) -> Result<Config, Error> {
    let found = Path::new(CONNECTIONS);
    let file = file.or_else(|| found.is_file().then_some(found));
    let read = match file {
        Some(file) => Config::load(Some(file), std::iter::empty(), std::iter::empty())?,
        None => Config::default(),
    };
    let http = Outbound { loopback: true, ..read.http };
    Ok(Config { connections: read.connections, http, ..Config::default() })
}

/// Creates a folder that only its owner can read, if it does not exist.
fn private(folder: &Path) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // The umask may have removed permissions of the owner as well.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
}

/// Creates the folder and excludes it from version control.
fn make_folder(folder: &Path) -> Result<(), Error> {
    let ignore = folder.join(".gitignore");
    private(folder)
        .and_then(|()| if ignore.exists() { Ok(()) } else { fs::write(&ignore, "*\n") })
        .map_err(|source| Error::Folder { path: folder.to_owned(), source })
}

fn print_welcome(address: SocketAddr, folder: &Path) {
    println!(
        "Semel listens on http://{address}, for this machine only. Everything is in {}.

The console: http://{address}/

Start a run; a second start with the same key returns the same run:

  curl -s http://{address}/api/v1/workflow-runs -H 'content-type: application/json' \\
    -H 'idempotency-key: order-7' -d '{{\"workflow\": \"demo-order\", \"input\": {{\"order\": \"7\", \"amount\": 1999}}}}'

Stop with Ctrl-C.",
        folder.display()
    );
}
