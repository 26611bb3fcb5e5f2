//! A consumer of the queue table, as the page of tasks describes it.

use std::future::poll_fn;

use libtest_mimic::{Failed, Trial};
use semel::tx::PgPoolOptions;
use semel::tx::tokio_postgres::{AsyncMessage, NoTls, SimpleQueryMessage};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::site::{Site, SiteKind};
use crate::world::runtime;

pub(super) fn trials() -> Vec<Trial> {
    vec![Trial::test("databases::postgres::a_consumer_is_told_of_a_message_and_takes_it_once", || {
        runtime().block_on(consumed())
    })]
}

const PAGE: &str = include_str!("../../../../../docs/tasks.md");

/// The statement of the page with which a consumer takes a row.
fn take() -> &'static str {
    let mut blocks = PAGE.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.find(|block| block.contains("SKIP LOCKED")).expect("the page has the statement")
}

/// Listens to the channel of the page; gives what is told there.
async fn listening() -> Result<mpsc::UnboundedReceiver<String>, Failed> {
    let (client, mut connection) =
        semel::tx::tokio_postgres::connect(&std::env::var("SEMEL_TEST_POSTGRES")?, NoTls).await?;
    let (told, heard) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(notification) = message
                && told.send(notification.payload().to_owned()).is_err()
            {
                return;
            }
        }
    });
    client.batch_execute("LISTEN semel_queue").await?;
    // The session lives as long as its client.
    tokio::spawn(async move {
        let _client = client;
        std::future::pending::<()>().await;
    });
    Ok(heard)
}

async fn consumed() -> Result<(), Failed> {
    let site = Site::new(SiteKind::Postgres).await;
    let mut heard = listening().await?;
    let steps = "steps:
  - {name: told, publish: {on: bank, subject: orders.paid, data: {order: o7}}}
return: '{{ steps.told.id }}'";
    let id = site.value(steps, json!({})).await;
    // Other tests publish in other schemas of the same database.
    while heard.recv().await.ok_or("the session has ended")? != id {}

    let pool = PgPoolOptions::new(&site.url).build()?;
    let (mut first, second) = (pool.get().await?, pool.get().await?);
    let work = first.transaction().await?;
    let message = ("orders.paid".to_owned(), json!({"order": "o7"}));
    assert_eq!(taken(work.simple_query(take()).await?)?, std::slice::from_ref(&message));
    assert_eq!(taken(second.simple_query(take()).await?)?, [], "a message under way is no other consumer's");
    // A consumer that dies has taken nothing.
    work.rollback().await?;
    let work = first.transaction().await?;
    assert_eq!(taken(work.simple_query(take()).await?)?, [message]);
    work.commit().await?;
    assert_eq!(taken(second.simple_query(take()).await?)?, [], "it is taken once");
    Ok(())
}

/// Subject and data of the rows that the statement gave.
fn taken(answer: Vec<SimpleQueryMessage>) -> Result<Vec<(String, Value)>, Failed> {
    let mut messages = Vec::new();
    for message in answer {
        if let SimpleQueryMessage::Row(row) = message {
            let subject = row.get(0).ok_or("it has a subject")?.to_owned();
            messages.push((subject, serde_json::from_str(row.get(1).ok_or("it has data")?)?));
        }
    }
    Ok(messages)
}
