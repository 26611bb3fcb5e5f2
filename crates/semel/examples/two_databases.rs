//! A transfer between two databases of different makers: both commit, or neither.
//!
//! It wants a PostgreSQL with `max_prepared_transactions` above 0, and a MariaDB or MySQL, in which it makes tables:
//!
//! `ACCOUNTS_URL=postgres://… JOURNAL_URL=mysql://… cargo run -p semel --features postgres,sqlx-mysql --example two_databases`

use semel::tx::deadpool_postgres::Pool;
use semel::tx::sqlx::{self, MySqlPool};
use semel::tx::{self, PgPoolOptions, TxSource as _};
use semel::{Ctx, Engine, Result, fatal};

/// The two databases.
struct Banks {
    accounts: Pool,
    journal: MySqlPool,
}

/// Takes money from an account in the one database, and writes an entry in the other.
async fn transfer(ctx: Ctx, cents: i64) -> Result<(i64, u64)> {
    let banks = ctx.state::<Banks>();
    ctx.tx_all("book")
        .on(&banks.accounts, async |tx| {
            let debit = "UPDATE example_account SET cents = cents - $1 RETURNING cents";
            let left: i64 = tx.query_one(debit, &[&cents]).await?.try_get(0)?;
            tx.ready(left)
        })
        .on(&banks.journal, async |mut tx| {
            if cents > 500 {
                return Err(fatal("no more than 500 in one entry"));
            }
            let note = sqlx::query("INSERT INTO example_entry (cents) VALUES (?)").bind(cents);
            let entry = note.execute(&mut *tx).await?.last_insert_id();
            tx.ready(entry)
        })
        .run()
        .await
}

#[tokio::main]
async fn main() -> Result<()> {
    let accounts = PgPoolOptions::new(std::env::var("ACCOUNTS_URL")?).build()?;
    let journal = MySqlPool::connect(&std::env::var("JOURNAL_URL")?).await?;
    tx::install(&accounts).await?;
    tx::install(&journal).await?;
    let account = "DROP TABLE IF EXISTS example_account; CREATE TABLE example_account (cents bigint); INSERT INTO example_account VALUES (1000)";
    accounts.script(account).await?;
    let entry = "DROP TABLE IF EXISTS example_entry; CREATE TABLE example_entry (n bigint AUTO_INCREMENT PRIMARY KEY, cents bigint)";
    journal.script(entry).await?;

    let banks = Banks { accounts, journal };
    let engine =
        Engine::builder().store("memory:").state(banks).workflow("transfer", transfer).open().await?;
    let (left, entry) = engine.start(transfer, 30).key("transfer-1").await?.result().await?;
    println!("transfer-1    {left} cents left, entry {entry}");

    // The second database refuses when the first one is ready: nothing is left of either.
    let refused = engine.start(transfer, 600).key("transfer-2").await?.result().await;
    println!("transfer-2    {}", refused.expect_err("it is too much"));

    let banks = engine.state::<Banks>().expect("given above");
    let left: i64 =
        banks.accounts.get().await?.query_one("SELECT cents FROM example_account", &[]).await?.try_get(0)?;
    let entries: i64 =
        sqlx::query_scalar("SELECT count(*) FROM example_entry").fetch_one(&banks.journal).await?;
    println!("in the banks  {left} cents, entries: {entries}");
    Ok(())
}
