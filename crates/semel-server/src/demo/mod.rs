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

use std::future::ready;
use std::path::Path;
use std::sync::Arc;

use semel::Result;
use semel::clock::{Clock, SystemClock};
use semel::engine::{Builder, Code, Programs};
use semel::id::WorkspaceId;
use semel::rules::family::Family;
use semel::rules::path::Name;
use semel::store::Answer;
use semel::tx::SqliteDb;

pub use self::error::DemoError;
pub use self::order::{NAME, Order, Receipt, token};
use self::provider::{Books, Desk, Temper, Wire, log};
use self::shop::Shop;

/// Registers `demo-order` with an engine, for all workspaces, with a provider in this process. Shop and provider keep their data
/// in the folder; without one it is in memory and lost with the process.
pub async fn workflows(builder: Builder, folder: Option<&Path>) -> Result<Builder> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let books = folder.map_or(Ok(Books::default()), |folder| Books::open(&folder.join(process::PROVIDER)))?;
    let database = folder.map_or(":memory:".into(), |folder| folder.join(process::SHOP));
    let desk = Desk::new(books, Temper::mild(), clock.clone(), log);
    let shop = Shop::open(&database, Wire::Here(Arc::new(desk)), clock).await?;
    Ok(builder.state(shop).programs(BuiltIn::new()))
}

/// The family of the workflows that are built in: a server drives them in all workspaces.
const FAMILY: &str = "demo_";
/// Version of `demo-order`, of that family. It changes when runs of before could not go on with the new code.
const VERSION: &str = "demo_1";

/// Version that a start of a workflow gets that is built in; none for others.
pub(crate) fn hosted_version(workflow: &str) -> Option<&'static str> {
    (workflow == NAME).then_some(VERSION)
}

/// The workflows that are built in.
struct BuiltIn {
    order: Code,
}

impl BuiltIn {
    fn new() -> Self {
        Self { order: Code::of(order::order::<SqliteDb>) }
    }
}

impl Programs for BuiltIn {
    fn families(&self) -> Vec<Family> {
        vec![Family::new(FAMILY).expect("four letters and an underscore")]
    }

    fn code(&self, _: WorkspaceId, workflow: &Name, version: &Name) -> Option<Code> {
        (workflow.as_str() == NAME && version.as_str() == VERSION).then(|| self.order.clone())
    }

    fn current<'a>(&'a self, _: WorkspaceId, workflow: &'a Name) -> Answer<'a, Option<Name>> {
        let version =
            hosted_version(workflow.as_str()).map(|version| Name::new(version).expect("a plain name"));
        Box::pin(ready(Ok(version)))
    }
}

/// Registers `demo-order` with an engine of the demo, for this shop.
fn offer(builder: Builder, shop: Shop<SqliteDb>) -> Builder {
    builder.state(shop).workflow(NAME, order::order::<SqliteDb>)
}

/// For unencrypted HTTP on the loopback; the library needs a TLS provider all the same.
fn http_client() -> Result<reqwest::Client> {
    // One that was installed before does as well.
    drop(tokio_rustls::rustls::crypto::ring::default_provider().install_default());
    Ok(reqwest::Client::builder().no_proxy().build()?)
}
