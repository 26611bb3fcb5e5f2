//! `semel serve`: a server for others, who are known by their API keys.

use std::path::PathBuf;

use crate::config::{Auth, Config, LogFormat};
use crate::serve::{Error, Server, logs, on_signals};

/// A server for others, who are known by their API keys.
///
/// Settings come from the file, then from variables of the environment (`limits.rate` is `SEMEL_LIMITS_RATE`), then from
/// flags; later beats earlier. `--print-config` shows what came of it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel serve --config semel.toml
  SEMEL_ROOT_TOKEN=… semel serve --listen 0.0.0.0:7700 --store postgres://semel@localhost/semel
  semel serve --config semel.toml --print-config")]
pub(super) struct Serve {
    /// The file with settings, as TOML.
    #[arg(long, env = "SEMEL_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen: an address and a port.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Where runs are kept: `sqlite:semel.db` or `postgres://…`.
    #[arg(long, value_name = "ADDRESS")]
    store: Option<String>,
    /// The certificate for TLS, with those that vouch for it, as PEM.
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<String>,
    /// The private key of the certificate, as PEM.
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// How the log is written: text on a terminal and JSON elsewhere, if not given.
    #[arg(long, value_name = "FORMAT")]
    log: Option<LogFormat>,
    /// Shows all settings, without secrets, and ends.
    #[arg(long)]
    print_config: bool,
}

impl Serve {
    pub(super) async fn run(self) -> Result<(), Error> {
        // A variable that is no Unicode is none of ours.
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let config = Config::load(self.config.as_deref(), environment, self.flags())?;
        if self.print_config {
            print!("{}", config.shown());
            return Ok(());
        }
        let _logs = logs::start(&config)?;
        let server = Server::open(&config).await?;
        on_signals(server.stop())?;
        let (address, store) = (server.address().unwrap_or(config.listen), &config.store);
        tracing::info!(%address, %store, tls = config.tls.is_some(), "listening");
        if config.auth == Auth::Keys && config.tls.is_none() && !config.is_local() {
            tracing::warn!(
                "API keys travel in the clear: set `tls.cert` and `tls.key`, or let a proxy speak TLS"
            );
        }
        server.run().await
    }

    fn flags(&self) -> impl Iterator<Item = (&'static str, String)> {
        let format = self.log.map(|format| match format {
            LogFormat::Text => "text".to_owned(),
            LogFormat::Json => "json".to_owned(),
        });
        let flags = [
            ("listen", self.listen.clone()),
            ("store", self.store.clone()),
            ("tls.cert", self.tls_cert.clone()),
            ("tls.key", self.tls_key.clone()),
            ("log.format", format),
        ];
        flags.into_iter().filter_map(|(key, value)| Some((key, value?)))
    }
}
