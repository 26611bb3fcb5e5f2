//! What all routes share.

use std::sync::Arc;

use semel::clock::Clock;
use semel::store::Store;

use crate::access::{Access, Bounds};
use crate::http::Services;
use crate::serve::Stop;

/// The server behind the routes.
pub struct App {
    /// Where runs are kept.
    pub store: Arc<dyn Store>,
    /// Where time and fresh ids come from.
    pub clock: Arc<dyn Clock>,
    /// Who may do what.
    pub access: Access,
    /// The order to stop: long polls and streams wait for it too, and answer early.
    pub stop: Stop,
    /// What callers may hold at once.
    pub bounds: Bounds,
    /// Which workflows are served.
    pub services: Services,
}

impl App {
    /// A server for everybody on this machine, which nobody orders to stop.
    pub fn open(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            clock,
            access: Access::Open,
            stop: Stop::default(),
            bounds: Bounds::default(),
            services: Services::default(),
        }
    }
}
