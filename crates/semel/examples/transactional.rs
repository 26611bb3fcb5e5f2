//! Money that is debited once, although the process dies between the two commits.
//!
//! `cargo run -p semel --example transactional`

use std::path::Path;

use semel::tx::{self, SqliteDb};
use semel::{Ctx, Engine, Result};

/// Whether the process dies between the two commits.
pub(crate) struct Dies(pub(crate) bool);

/// The account's rows and the step's outcome are one commit of the bank's own database.
pub(crate) async fn pay(ctx: Ctx, cents: i64) -> Result<i64> {
    let (bank, dies) = (ctx.state::<SqliteDb>(), ctx.state::<Dies>());
    ctx.tx("debit", &*bank)
        .run(async |mut tx| {
            println!("the body runs, attempt {}", tx.attempt().number());
            let left: i64 = tx
                .call(move |conn| {
                    let debit = "UPDATE account SET cents = cents - ?1 RETURNING cents";
                    Ok(conn.query_row(debit, [cents], |row| row.get(0))?)
                })
                .await?;
            let committed = tx.commit(left).await?;
            if dies.0 {
                // The bank has committed. Semel's ledger does not know yet, and never will from this process.
                println!("the process dies");
                std::process::exit(1);
            }
            Ok(committed)
        })
        .await
}

#[tokio::main]
async fn main() -> Result<()> {
    // The second process of this example: told where the files are, it dies in the middle.
    if let Some(folder) = std::env::args().nth(1) {
        return order(Path::new(&folder), Dies(true)).await.map(drop);
    }
    let folder = tempfile::tempdir()?;
    let bank = account(folder.path()).await?;

    let child = std::process::Command::new(std::env::current_exe()?).arg(folder.path()).output()?;
    print!("{}", String::from_utf8_lossy(&child.stdout));
    println!("in the bank: {} cents", balance(&bank).await?);

    // The same order again, as a caller does that got no answer. The outcome is found in the bank and adopted.
    println!("the order says: {} cents left", order(folder.path(), Dies(false)).await?);
    println!("in the bank: {} cents", balance(&bank).await?);
    Ok(())
}

/// A bank with 1000 cents in its account, and the table in which outcomes are kept.
pub(crate) async fn account(folder: &Path) -> Result<SqliteDb> {
    let bank = SqliteDb::open(folder.join("bank.db")).await?;
    tx::install(&bank).await?;
    let account = "CREATE TABLE account (cents); INSERT INTO account VALUES (1000)";
    bank.call(|conn| conn.execute_batch(account)).await?;
    Ok(bank)
}

async fn order(folder: &Path, dies: Dies) -> Result<i64> {
    let bank = SqliteDb::open(folder.join("bank.db")).await?;
    let engine = Engine::builder().store(folder.join("semel.db")).state(bank).state(dies);
    let engine = engine.workflow("pay", pay).open().await?;
    Ok(engine.start(pay, 30).key("order-7").await?.result().await?)
}

pub(crate) async fn balance(bank: &SqliteDb) -> Result<i64> {
    Ok(bank.call(|conn| conn.query_row("SELECT cents FROM account", [], |row| row.get(0))).await?)
}
