//! The demo's two other processes: the provider, and the engine that is killed. Each says on its first line where it
//! listens, and ends when its input does: so neither outlives the process that started it, however that ends.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use semel::Engine;
use semel::clock::{Clock, SystemClock};
use semel::store::Store;
use semel::store::sqlite::{SqliteOptions, SqliteStore};
use tokio::net::TcpListener;

use super::error::DemoError;
use super::provider::{Books, Desk, Note, Temper, Wire, serve};
use super::shop::Shop;
use crate::app::App;

/// How long a stopping engine waits for running steps.
const GRACE: Duration = Duration::from_secs(2);

/// The files of a demo.
pub(super) const STORE: &str = "semel.db";
pub(super) const SHOP: &str = "shop.db";
pub(super) const PROVIDER: &str = "provider.jsonl";

/// The provider, until its input ends. What happens there is told line by line.
pub async fn provider(folder: &Path, seed: u64) -> Result<(), DemoError> {
    let books = Books::open(&folder.join(PROVIDER)).map_err(DemoError::io("the provider's file"))?;
    let desk = Desk::new(books, Temper::bad(seed), Arc::new(SystemClock::new()), tell);
    let listener = listen(None).await?;
    tokio::select! {
        served = serve(Arc::new(desk), listener) => served.map_err(DemoError::io("the provider")),
        () = orphaned() => Ok(()),
    }
}

/// An engine with the HTTP API on the loopback, until its input ends.
pub async fn engine(folder: &Path, provider: String, address: Option<SocketAddr>) -> Result<(), DemoError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let wire = Wire::to(provider)?;
    let shop = Shop::open(&folder.join(SHOP), wire, clock.clone()).await?;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(SqliteOptions::new(folder.join(STORE))).await?);
    let engine = super::offer(Engine::builder().store(store.clone()), shop).open().await?;
    let app = Arc::new(App::open(store.clone(), clock));
    let listener = listen(address).await?;
    tokio::select! {
        served = axum::serve(listener, crate::http::router(app)) => served.map_err(DemoError::io("the engine"))?,
        () = orphaned() => {}
    }
    engine.shutdown(GRACE).await?;
    Ok(store.close().await?)
}

/// Takes a port of the loopback, this one if it is free, and prints it.
async fn listen(address: Option<SocketAddr>) -> Result<TcpListener, DemoError> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let taken = match address {
        Some(address) => TcpListener::bind(address).await.ok(),
        None => None,
    };
    let bound = match taken {
        Some(listener) => Ok(listener),
        None => TcpListener::bind(any).await,
    };
    let listener = bound.map_err(DemoError::io("no port of the loopback is free"))?;
    let address = listener.local_addr().map_err(DemoError::io("a port without an address"))?;
    println!("{address}");
    Ok(listener)
}

/// Ends when standard input is closed: the parent process is gone.
async fn orphaned() {
    let (alone, over) = tokio::sync::oneshot::channel();
    // A thread of its own: a read of the input cannot be cancelled, and the runtime would wait for it at its end.
    std::thread::spawn(move || {
        let read = io::copy(&mut io::stdin().lock(), &mut io::sink());
        drop(alone.send(read));
    });
    drop(over.await);
}

/// Writes a line for the demo. If the pipe is closed, the demo is over, and this process ends at once.
fn tell(note: &Note) {
    let line = serde_json::to_string(note).map_err(io::Error::from);
    let told = line.and_then(|line| {
        use io::Write as _;
        writeln!(io::stdout().lock(), "{line}")
    });
    if let Err(error) = told {
        tracing::debug!(%error, "the event was not delivered");
    }
}
