//! A pool of connections to a database that is not a store: the user's own, for transactional steps.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};

use super::address::Address;
use super::place;
use crate::error::{Error, Result};

/// How to make a pool of connections to a PostgreSQL database of the user's. [`PgPoolOptions::new`] fills in the defaults.
#[derive(Clone, Debug)]
pub struct PgPoolOptions {
    /// Address of the database, as [`PostgresOptions::url`](super::PostgresOptions::url) has it, with the same checks of
    /// certificates. The parameter `schema` is the search path.
    pub url: String,
    /// Maximum number of connections. They are opened when needed.
    pub connections: usize,
    /// Maximum time to wait for a connection, to make one, and to hear of a server that has vanished.
    pub patience: Duration,
    /// Settings of every session, such as `lock_timeout` and `10s`.
    pub settings: Vec<(&'static str, String)>,
}

impl PgPoolOptions {
    /// The defaults: 10 connections, 30 seconds, no settings.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), connections: 10, patience: Duration::from_secs(30), settings: Vec::new() }
    }

    /// Makes the pool. Nothing is connected yet, so an error is about the options. A connection that is given back is reset:
    /// whatever a statement has set for its session does not reach the next one.
    ///
    /// ```
    /// # #[cfg(feature = "postgres")] {
    /// use semel::tx::PgPoolOptions;
    ///
    /// let bank = PgPoolOptions::new("postgres://bank@db.example/bank?sslmode=require");
    /// let pool = bank.build().unwrap();
    /// assert_eq!(pool.status().max_size, 10);
    /// # }
    /// ```
    pub fn build(self) -> Result<Pool> {
        let Address { mut config, tls, schema } = Address::parse(&self.url)?;
        let mut options = config.get_options().unwrap_or_default().to_owned();
        let path = schema.map(|schema| ("search_path", format!("\"{schema}\"")));
        for (name, value) in self.settings.into_iter().chain(path) {
            let value = value.replace('\\', "\\\\").replace(' ', "\\ ");
            options.extend([" -c ", name, "=", &value]);
        }
        config.options(options);
        if config.get_application_name().is_none() {
            config.application_name("semel");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(self.patience);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(self.patience);
        }
        let open = |source| Error::Open { what: place(&config), source };
        let how = ManagerConfig { recycling_method: RecyclingMethod::Clean };
        let manager = Manager::from_config(config.clone(), tls.connector()?, how);
        let pool = Pool::builder(manager).max_size(self.connections.max(1)).runtime(Runtime::Tokio1);
        let patience = Some(self.patience);
        let pool = pool.create_timeout(patience).wait_timeout(patience).recycle_timeout(patience).build();
        pool.map_err(|error| open(error.into()))
    }
}
