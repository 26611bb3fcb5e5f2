//! The server as a process: what it opens, how it listens, how it stops.

mod error;
mod health;
mod listen;
pub mod logs;
mod stop;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use semel::Engine;
use semel::clock::SystemClock;

pub use error::Error;
pub use stop::{Stop, on_signals};

use self::listen::Listener;
use crate::access::Access;
use crate::app::App;
use crate::config::{Auth, Config};
use crate::demo;

/// A server that is open: its store, its engine and its port.
pub struct Server {
    app: Arc<App>,
    engine: Engine,
    listener: Listener,
    drain: Duration,
}

impl Server {
    /// Takes the port, opens the store, and starts an engine on it: every server sweeps and drives what is built in.
    pub async fn open(config: &Config) -> Result<Self, Error> {
        config.check()?;
        let stop = Stop::default();
        let listener = Listener::bind(config, stop.clone()).await?;
        let store = semel::engine::open_store(config.store.expose(), None).await?;
        let clock = Arc::new(SystemClock::new());
        let mut builder = Engine::builder().store(store.clone()).clock(clock.clone());
        if config.demo {
            let offered = demo::workflows(builder, config.store.folder().as_deref()).await;
            builder = offered.map_err(|fail| Error::Config(format!("`demo`: {fail}")))?;
        }
        let engine = builder.open().await?;
        let access = match config.auth {
            Auth::None => Access::Open,
            Auth::Keys => Access::Keys { root: config.root_token.clone() },
        };
        let app = Arc::new(App { store, clock, access, stop });
        Ok(Self { app, engine, listener, drain: config.limits.drain })
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.address()
    }

    /// Give the order here, and [`Server::run`] comes to its end.
    pub fn stop(&self) -> Stop {
        self.app.stop.clone()
    }

    /// Serves until it is ordered to stop; then what has begun comes to its end, and the store is closed.
    pub async fn run(self) -> Result<(), Error> {
        let router = routes(&self.app);
        self.listener.serve(router, self.drain).await;
        self.engine.shutdown(self.drain).await?;
        self.app.store.close().await?;
        tracing::info!("stopped");
        Ok(())
    }
}

/// All routes, with what stands before them.
fn routes(app: &Arc<App>) -> Router {
    crate::http::router(app.clone()).merge(health::router().with_state(app.clone()))
}
