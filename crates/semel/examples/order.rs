//! An order, from the charge to the parcel: the same as `clients/typescript/examples/order.ts` and
//! `clients/python/examples/order.py`.
//!
//! `cargo run -p semel --example order`. With `SEMEL_URL=http://…` the runs are those of a server, as in the other languages;
//! without it they are in a file.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use semel::sdk::Either;
use semel::tx::{self, SqliteDb};
use semel::{Ctx, Engine, Once, Result, Retry, fatal};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    id: String,
    items: Vec<String>,
    amount: i64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Approval {
    by: String,
    ok: bool,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    charge: String,
    balance: i64,
    letter: String,
    rate: f64,
    by: String,
    left: String,
    right: String,
    total: usize,
}

/// The world outside: providers that recognise a key, as Stripe and many others do.
#[derive(Default)]
struct World {
    charges: Mutex<HashMap<String, String>>,
    letters: Mutex<HashMap<String, String>>,
}

impl World {
    fn charge(&self, cents: i64, key: &str) -> String {
        let mut charges = self.charges.lock().expect("no panics here");
        charges.entry(key.to_owned()).or_insert_with(|| format!("{cents} cents")).clone()
    }

    fn send(&self, order: &str, key: &str) -> String {
        let mut letters = self.letters.lock().expect("no panics here");
        letters.entry(key.to_owned()).or_insert_with(|| format!("letter for {order}")).clone()
    }

    fn find(&self, key: &str) -> Option<String> {
        self.letters.lock().expect("no panics here").get(key).cloned()
    }
}

async fn price(_: Ctx, sku: String) -> Result<usize> {
    Ok(sku.len() * 100)
}

async fn ship(ctx: Ctx, what: &str) -> Result<String> {
    ctx.step("ship").run(async |_| Ok(format!("{what} shipped"))).await
}

async fn order(ctx: Ctx, o: Order) -> Result<Receipt> {
    let (world, shop, amount) = (ctx.state::<World>(), ctx.state::<SqliteDb>(), o.amount);
    let charging =
        ctx.step("charge").retry(Retry::default().max_attempts(5)).timeout(Duration::from_secs(10));
    let charge = charging.run(async |attempt| Ok(world.charge(amount, attempt.key()))).await?;
    // its rows and its outcome are one COMMIT
    let debit = ctx.tx("debit", &*shop).run(async |mut tx| {
        let debited = tx.call(move |db| {
            let debit = "UPDATE account SET cents = cents - ?1 WHERE cents >= ?1 RETURNING cents";
            let mut left = db.prepare(debit)?;
            Ok(left.query_map([amount], |row| row.get(0))?.next().transpose()?)
        });
        let left: Option<i64> = debited.await?;
        tx.commit(left.ok_or_else(|| fatal("not enough money"))?).await
    });
    let balance = debit.await?;
    let letter = ctx.step("letter").reconcile(async |attempt| Ok(world.find(attempt.key())));
    let letter = letter.run(async |attempt| Ok(world.send(&o.id, attempt.key()))).await?;
    for item in &o.items {
        ctx.step("pack").key(item).run(async |_| Ok(format!("{item} packed"))).await?; // pack[ink], pack[pens]
    }
    let rate = ctx.run_once("rate", async || Ok(0.94)).scope(Once::Workspace).ttl(Duration::from_hours(1));
    let rate = rate.await?;
    let mut approval = ctx.hook::<Approval>(format!("approve-{}", o.id));
    if let Some(other) = approval.conflict().await? {
        return Err(fatal(format!("{} asks for this order already", other.run_id)));
    }
    let patience = ctx.sleep("patience", Duration::from_hours(7 * 24));
    let said = match ctx.race("gate", approval.recv(), patience).await? {
        Either::A(said) => said?,
        Either::B(_) => return Err(fatal("not approved")),
    };
    if !said.ok {
        return Err(fatal("not approved"));
    }
    let (left, right) = tokio::join!(ship(ctx.scope("left"), "ink"), ship(ctx.scope("right"), "pens"));
    let total = ctx.child(price, o.items[0].clone()).await?.result().await?;
    Ok(Receipt { charge, balance, letter, rate, by: said.by, left: left?, right: right?, total })
}

/// A shop with 5000 cents in its account, and the table in which outcomes are kept.
async fn shop(file: &std::path::Path) -> Result<SqliteDb> {
    let shop = SqliteDb::open(file).await?;
    tx::install(&shop).await?;
    let account = "CREATE TABLE IF NOT EXISTS account (cents INTEGER NOT NULL); \
         INSERT INTO account SELECT 5000 WHERE NOT EXISTS (SELECT 1 FROM account)";
    shop.call(|conn| conn.execute_batch(account)).await?;
    Ok(shop)
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("semel.db");
    let store = std::env::var("SEMEL_URL").unwrap_or_else(|_| file.to_string_lossy().into_owned());
    let shop = shop(&folder.path().join("shop.db")).await?;
    let engine = Engine::builder().store(store).state(World::default()).state(shop);
    let engine = engine.workflow("order", order).workflow("price", price).open().await?;
    let given = Order { id: "7".to_owned(), items: vec!["ink".to_owned(), "pens".to_owned()], amount: 1999 };
    let run = engine.start(order, given.clone()).key("order-7").await?;
    run.reached(semel::rules::status::Status::Waiting).await?;
    engine.deliver("approve-7", Approval { by: "Ada".to_owned(), ok: true }).id("click-1").await?;
    println!("{}", serde_json::to_string(&run.result().await?)?);
    let again = engine.start(order, given).key("order-7").await?;
    println!("{:?}", again.verdict());
    Ok(())
}
