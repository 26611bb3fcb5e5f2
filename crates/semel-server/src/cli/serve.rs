//! `semel serve`: a server for many callers, authenticated by API keys.

use std::path::PathBuf;

use crate::config::{Auth, Config, LogFormat};
use crate::serve::{Error, Server, logs, on_signals};

/// Server with authentication by API keys.
///
/// Settings come from the file, then from environment variables (`limits.rate` is `SEMEL_LIMITS_RATE`), then from
/// flags; later ones win. `--print-config` shows the result.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel serve --config semel.toml
  SEMEL_ROOT_TOKEN=… semel serve --listen 0.0.0.0:7700 --store postgres://semel@localhost/semel
  semel serve --config semel.toml --print-config")]
pub(super) struct Serve {
    /// File with settings, as TOML.
    #[arg(long, env = "SEMEL_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address and port to listen on.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Store of the runs: `sqlite:semel.db` or `postgres://…`.
    #[arg(long, value_name = "ADDRESS")]
    store: Option<String>,
    /// Certificate chain for TLS, as a PEM file.
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<String>,
    /// Private key of the certificate, as a PEM file.
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// Log format. Default: text on a terminal, JSON elsewhere.
    #[arg(long, value_name = "FORMAT")]
    log: Option<LogFormat>,
    /// Print all settings, without secrets, and exit.
    #[arg(long)]
    print_config: bool,
}

impl Serve {
    pub(super) async fn run(self) -> Result<(), Error> {
        // A variable that is not Unicode is not one of ours.
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
            LogFormat::Compact => "compact".to_owned(),
            LogFormat::Json => "json".to_owned(),
        });
        let flags = [
            ("listen", self.listen.clone()),
            ("store.address", self.store.clone()),
            ("tls.cert", self.tls_cert.clone()),
            ("tls.key", self.tls_key.clone()),
            ("log.format", format),
        ];
        flags.into_iter().filter_map(|(key, value)| Some((key, value?)))
    }
}
