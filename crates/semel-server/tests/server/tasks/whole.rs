//! The definition with which the language is shown, as it is written: every connection that it names is there.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_nats::jetstream::{self, stream::Config as StreamConfig};
use libtest_mimic::{Failed, Trial};
use semel::clock::SystemClock;
use semel::store::memory::MemoryStore;
use serde_json::json;

use super::order::OrderShop;
use super::provider::Account;
use crate::channels::sink::Sink;
use crate::databases::site::{Site, SiteKind};
use crate::world::runtime;

const WHOLE: &str = include_str!("../../definitions/right/process-order.yaml");
/// Name of the stream that takes `orders.paid`.
const STREAM: &str = "of_the_whole_order";

pub(super) fn trials() -> Vec<Trial> {
    vec![Trial::test("tasks::the_order_that_shows_the_language_does_everything_once", || {
        runtime().block_on(everything())
    })]
}

/// A connection of each database, whose address is in a file.
fn database(name: &str, kind: &str, site: &Site) -> Result<String, Failed> {
    let file = site.folder().join("url");
    std::fs::write(&file, &site.url)?;
    Ok(format!(
        "[connections.{name}]\nkind = '{kind}'\nurl = {{ file = '{}' }}\n",
        Path::new(&file).display()
    ))
}

async fn everything() -> Result<(), Failed> {
    let (bank, stock) = (Site::new(SiteKind::Postgres).await, Site::new(SiteKind::Mariadb).await);
    bank.script("UPDATE account SET cents = 200000").await;
    bank.script(
        "CREATE TABLE orders (id varchar(40) PRIMARY KEY, owner varchar(40) NOT NULL, cents bigint NOT NULL)",
    )
    .await;
    bank.script("INSERT INTO orders VALUES ('o1', 'ann', 700)").await;
    stock.script("CREATE TABLE shelf (sku varchar(40) PRIMARY KEY, n bigint NOT NULL)").await;
    stock.script("INSERT INTO shelf VALUES ('ink', 5), ('pens', 5)").await;
    let (account, sink, nats) = (Account::open(false), Sink::start(), std::env::var("SEMEL_TEST_NATS")?);
    let broker = jetstream::new(async_nats::connect(&nats).await?);
    let subjects = vec!["orders.paid".to_owned()];
    let config = StreamConfig { name: STREAM.to_owned(), subjects, ..StreamConfig::default() };
    broker.create_stream(config).await?;
    account.says(json!([[["find_customer", {"name": "ann"}], ["history", {"customer": "ann"}]], "{\"risk\":\"high\"}"]));
    let more = [
        database("bank", "postgres", &bank)?,
        database("stock", "mysql", &stock)?,
        format!(
            "[connections.model]\nkind = 'openai'\nbase = '{}'\nmodel = 'small'\nprice = {{ in = 1.0, out = 1.0 }}\n",
            account.address("model")
        ),
        format!("[connections.crm]\nkind = 'mcp'\nurl = '{}'\n", account.address("crm")),
        format!("[connections.events]\nkind = 'nats'\nurl = '{nats}'\n"),
        sink.config(""),
    ];
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
    let shop = OrderShop::of(store, account, &more.concat(), WHOLE).await;
    let input = json!({"order": "o7", "customer": "ann", "email": "ann@example.com", "cents": 150_000,
        "lines": [{"sku": "ink"}, {"sku": "pens"}]});
    let body = json!({"definitionId": "process-order@3", "input": input}).to_string();
    let run = shop.api.post("/workflow-runs", body).await.run_id();
    let (mut printed, mut approved) = (0, 0);
    let ended = loop {
        printed += shop.print("nothing").await;
        let open = shop.api.get("/approvals").await.ok();
        for approval in open["approvals"].as_array().into_iter().flatten() {
            let path = format!("/approvals/{}", approval["id"].as_str().unwrap_or_default());
            let shown = shop.api.get(&path).await.ok();
            assert_eq!((&shown["title"], &shown["content"]), (&json!("Order o7"), &json!({"risk": "high"})));
            let decision = json!({"decision": "approved"}).to_string();
            shop.api.post(&format!("{path}/decide"), decision).await.ok();
            approved += 1;
        }
        let detail = shop.api.get(&format!("/workflow-runs/{run}")).await.ok();
        if detail["endedAt"].is_string() || detail["status"] == "PAUSED" {
            break detail;
        }
    };
    assert_eq!(ended["status"], "COMPLETED", "{ended:#}");
    let charge = ended["result"]["charge"].clone();
    assert_eq!(ended["result"], json!({"charge": charge, "left": 1}));
    let done = [("/keyed/v1/charges", 1), ("/model/chat/completions", 2), ("/crm/find_customer", 1)];
    assert_eq!(shop.done(), BTreeMap::from(done.map(|(path, times)| (path.to_owned(), times))));
    assert_eq!((printed, approved), (2, 1));
    assert_eq!(bank.number("SELECT cents FROM account WHERE owner = 'ann'").await, 50_000);
    assert_eq!(stock.number("SELECT n FROM shelf WHERE sku = 'ink'").await, 4);
    let mails = sink.accepted();
    assert_eq!((mails.len(), &mails[0].to), (1, &vec!["ann@example.com".to_owned()]));
    let stream = broker.get_stream(STREAM).await?;
    let message = stream.get_raw_message(1).await?;
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&message.payload)?,
        json!({"order": "o7", "charge": charge})
    );
    assert!(stream.get_raw_message(2).await.is_err(), "one message was published");
    broker.delete_stream(STREAM).await?;
    let replay = shop.api.post(&format!("/workflow-runs/{run}/replay"), "").await.ok();
    assert_eq!(replay["identical"], true, "{replay:#}");
    Ok(())
}
