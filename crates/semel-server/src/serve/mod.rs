//! The server as a process: what it opens, how it listens, how it stops.

mod error;
mod health;
mod host;
mod layers;
mod listen;
pub mod logs;
mod observe;
#[cfg(feature = "otel")]
mod otel;
mod stop;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use semel::Engine;
use semel::clock::{Clock, ForwardClock, SystemClock, Time};
use semel::rules::ledger::LedgerBounds;
use semel::store::Store;

pub use error::Error;
pub(crate) use observe::{CalledIn, RequestId};
pub use stop::{Stop, on_signals};

use self::listen::Listener;
use crate::access::{Access, Bounds, ChildBounds, Keys, workspaces};
use crate::app::App;
use crate::approvals::Approvals;
use crate::config::{Auth, ClockMode, Config};
use crate::connections::Connections;
use crate::definitions::catalog::Catalog;
use crate::definitions::interpret::Interpreter;
use crate::demo;
use crate::http::Services;
use crate::metrics;
use crate::senders::Senders;

/// A server that is open: its store, its engine and its port.
pub struct Server {
    app: Arc<App>,
    engine: Engine,
    listener: Listener,
    router: Router,
    /// The port of operations, if it has one of its own.
    operations: Option<(Listener, Router)>,
    drain: Duration,
}

impl Server {
    /// Takes the port, opens the store, and starts an engine on it: every server sweeps and drives what is built in.
    pub async fn open(config: &Config) -> Result<Self, Error> {
        config.check()?;
        let stop = Stop::default();
        let listener = Listener::bind(config, stop.clone()).await?;
        let operations = match config.metrics.listen {
            Some(address) => Some(Listener::bind_operations(address, config, stop.clone()).await?),
            None => None,
        };
        // Before the store is opened, which counts too.
        metrics::recorder();
        let forward = (config.clock == ClockMode::Manual).then(Arc::<ForwardClock>::default);
        let manual = forward.clone().map(|clock| clock as Arc<dyn Clock>);
        // Otherwise the store has a clock of its own: that of a database is the same for all servers.
        let store = config.store.open(manual.clone()).await?;
        let clock = manual.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let connections = Arc::new(Connections::open(config, store.clone())?);
        let mut builder = Engine::builder().store(store.clone()).clock(clock.clone());
        let catalog = Arc::new(Catalog::new(store.clone()));
        let bounds = Arc::new(Bounds::new(&config.limits));
        let children = Arc::new(ChildBounds::new(store.clone(), clock.clone(), bounds.clone()));
        builder = builder.shared_state(connections.clone()).shared_state(catalog.clone());
        builder = builder.shared_state(children.clone());
        builder = builder.programs(Interpreter::new(catalog.clone()));
        builder = builder.state_of_store(Approvals::new);
        if config.demo {
            let offered = demo::workflows(builder, config.store.folder().as_deref()).await;
            builder = offered.map_err(|fail| Error::Config(format!("`demo`: {fail}")))?;
        }
        let engine = builder.open().await?;
        let access = match config.auth {
            Auth::None => Access::Open,
            Auth::Keys => Access::Keys(Box::new(keys(config, &*store, clock.now()).await?)),
        };
        workspaces::ensure_default(&*store, &*clock).await?;
        let app = Arc::new(App {
            catalog,
            store,
            clock,
            forward,
            access,
            stop,
            bounds,
            ledgers: LedgerBounds::default(),
            children,
            engine: Some(engine.clone()),
            services: Services::default(),
            connections: Some(connections),
            senders: Senders::default(),
        });
        let router = layers::around(routes(&app, config), &app, config)?;
        let operations = operations.map(|listener| {
            let metrics = health::metrics(config.metrics.token.clone());
            (listener, health::router().with_state(app.clone()).merge(metrics))
        });
        Ok(Self { app, engine, listener, router, operations, drain: config.limits.drain })
    }

    /// Address it listens on; none if the system does not tell it.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.address()
    }

    /// Where it serves metrics, if that is an address of its own.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.operations.as_ref().and_then(|(listener, _)| listener.address())
    }

    /// The order to stop: once given, [`Server::run`] ends.
    pub fn stop(&self) -> Stop {
        self.app.stop.clone()
    }

    /// Serves until it is ordered to stop; then it waits for what has begun, and closes the store.
    pub async fn run(self) -> Result<(), Error> {
        let upkeep = tokio::spawn(metrics::upkeep(self.app.clock.clone()));
        let operations = async {
            if let Some((listener, router)) = self.operations {
                listener.serve(router, self.drain).await;
            }
        };
        tokio::join!(self.listener.serve(self.router, self.drain), operations);
        upkeep.abort();
        self.engine.shutdown(self.drain).await?;
        self.app.store.close().await?;
        tracing::info!("stopped");
        Ok(())
    }
}

/// The API keys; refused if there is none and none could be created.
async fn keys(config: &Config, store: &dyn Store, now: Time) -> Result<Keys, Error> {
    let keys = Keys::new(config.root_token.as_ref(), config.limits.rate);
    if keys.any_usable(store, now).await? {
        return Ok(keys);
    }
    Err(Error::Config(
        "no caller could be accepted: the store has no valid API key, and there is no root token to make one. Set SEMEL_ROOT_TOKEN \
         (`openssl rand -hex 32`), or use `semel dev` on your own machine"
            .to_owned(),
    ))
}

/// All routes. Metrics are among them only if they need a token, or if the server accepts this machine only.
fn routes(app: &Arc<App>, config: &Config) -> Router {
    let open = config.auth == Auth::None && config.is_local();
    let metrics = match (&config.metrics.listen, &config.metrics.token) {
        (None, token) if open || token.is_some() => health::metrics(token.clone()),
        _ => health::no_metrics(),
    };
    let pages = crate::ui::router(app.clone());
    crate::http::router(app.clone())
        .merge(pages)
        .merge(health::router().with_state(app.clone()))
        .merge(metrics)
}
