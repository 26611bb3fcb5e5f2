//! A branch of a definition's transaction that an administrator rolls back after the decision: what the server shows, and how it is settled.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use semel::Engine;
use semel::clock::SystemClock;
use semel::store::memory::MemoryStore;
use semel::tx::{Dialect, PgPoolOptions, TwoPhase as _};
use semel_server::app::App;
use semel_server::definitions::catalog::Catalog;
use semel_server::definitions::interpret::Interpreter;
use serde_json::json;

use super::DEBIT;
use super::site::{Site, SiteKind, open};
use crate::cli::say;
use crate::overtaken::{HeldLine, HeldPart, Hold, Route};
use crate::world::{Api, runtime};

pub(super) fn trials() -> Vec<Trial> {
    vec![Trial::test(
        "databases::several::a_branch_that_was_rolled_back_by_hand_is_shown_and_settled",
        || runtime().block_on(by_hand()),
    )]
}

/// A server that drives definitions, with these databases.
async fn driven(sites: &[(&str, &Site)]) -> Result<(Api, Engine), Failed> {
    let (clock, connections) = (Arc::new(SystemClock::new()), Arc::new(open(sites, "")?));
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let catalog = Arc::new(Catalog::new(store.clone()));
    let engine = Engine::builder()
        .store(store.clone() as Arc<dyn semel::store::Store>)
        .shared_state(connections.clone())
        .shared_state(catalog.clone())
        .programs(Interpreter::new(catalog.clone()));
    let engine = engine.open().await?;
    let connections = Some(connections);
    let app = App { engine: Some(engine.clone()), connections, catalog, ..App::open(store, clock) };
    Ok((Api::serve_app(app).await, engine))
}

async fn by_hand() -> Result<(), Failed> {
    let (bank, stock) = (Site::new(SiteKind::Postgres).await, Site::new(SiteKind::Mariadb).await);
    let line = HeldLine::to(bank.host(), Hold { marker: "COMMIT PREPARED", part: HeldPart::Request }).await;
    let (api, _engine) = driven(&[("bank", &bank.by(&line, Route::Held)), ("stock", &stock)]).await?;
    let definition = format!(
        "semel: 1
name: books
steps:
  - name: book
    transaction:
      - {{name: debit, sql: {{on: bank, run: '{DEBIT}', args: {{cents: 10, who: ann}}, expect: 1}}}}
      - {{name: reserve, sql: {{on: stock, run: '{DEBIT}', args: {{cents: 3, who: ben}}, expect: 1}}}}
return: ['{{{{ steps.book.debit.affected }}}}', '{{{{ steps.book.reserve.affected }}}}']"
    );
    api.post("/workflow-definitions", definition).await.ok();
    let run = api.post("/workflow-runs", json!({"definitionId": "books"}).to_string()).await.run_id();

    line.met().await;
    let pool = PgPoolOptions::new(&bank.url).build()?;
    let branches = pool.prepared().await.map_err(|fail| fail.to_string())?;
    let branch = branches.into_iter().find(|branch| branch.run == run).ok_or("it is prepared")?;
    bank.script(&Dialect::Postgres.rollback_branch(&branch)).await;
    line.let_go().await;

    let paused = api.reached(&run, "PAUSED").await;
    assert!(paused.to_string().contains(&branch.to_string()), "the branch is named: {paused:#}");
    let cents = async |site: &Site, who: &str| {
        site.number(&format!("SELECT cents FROM account WHERE owner = '{who}'")).await
    };
    assert_eq!((cents(&bank, "ann").await, cents(&stock, "ben").await), (1000, 997));
    // What is missing is run again, and only that.
    let url = api.url().to_owned();
    let resolve = ["step", "resolve", &run, "book", "--did-not-happen", "--url", &url].map(str::to_owned);
    let said = tokio::task::spawn_blocking(move || say(&resolve.each_ref().map(String::as_str)));
    said.await?.ends(0);
    let ended = api.ended(&run).await;
    assert_eq!((&ended["status"], &ended["result"]), (&json!("COMPLETED"), &json!([1, 1])), "{ended:#}");
    assert_eq!((cents(&bank, "ann").await, cents(&stock, "ben").await), (990, 997));
    Ok(())
}
