//! The order workflow that newcomers meet first, and the show around it.
//!
//! - [`order`]: the workflow `demo-order`. [`shop`]: what it works with: a database and a payment provider.
//! - `provider`: that provider. It loses answers on purpose, in this process or in another one.
//! - [`show`]: `semel demo`, with [`process`]es that are killed.

mod dice;
mod error;
pub mod order;
pub mod process;
mod provider;
pub mod shop;
pub mod show;

use std::path::Path;
use std::sync::Arc;

use semel::Result;
use semel::clock::{Clock, SystemClock};
use semel::engine::Builder;
use semel::tx::SqliteDb;

pub use self::error::Error;
pub use self::order::{NAME, Order, Receipt, token};
use self::provider::{Books, Desk, Temper, Wire, log};
use self::shop::Shop;

/// Offers `demo-order` in an engine, with a provider in this process. What shop and provider keep is in the folder; without
/// one it is in memory, and gone with the process.
pub async fn workflows(builder: Builder, folder: Option<&Path>) -> Result<Builder> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let books = folder.map_or(Ok(Books::default()), |folder| Books::open(&folder.join(process::PROVIDER)))?;
    let database = folder.map_or(":memory:".into(), |folder| folder.join(process::SHOP));
    let desk = Desk::new(books, Temper::mild(), clock.clone(), log);
    let shop = Shop::open(&database, Wire::Here(Arc::new(desk)), clock).await?;
    Ok(offer(builder, shop))
}

/// Offers `demo-order` in an engine, for this shop.
fn offer(builder: Builder, shop: Shop<SqliteDb>) -> Builder {
    builder.state(shop).workflow(NAME, order::order::<SqliteDb>)
}

/// For HTTP on the loopback, where nothing is encrypted; the library wants a provider for that all the same.
fn http_client() -> Result<reqwest::Client> {
    // Another one may have been installed before: then that one will do.
    drop(tokio_rustls::rustls::crypto::ring::default_provider().install_default());
    Ok(reqwest::Client::builder().no_proxy().build()?)
}
