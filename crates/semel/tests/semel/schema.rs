//! In which schema of a PostgreSQL database a store is.

use libtest_mimic::{Failed, Trial};
use semel::store::Store as _;
use semel::store::postgres::{PostgresOptions, PostgresStore};
use tokio_postgres::{Client, NoTls};

use crate::sqlite::{run, start};

type Test = Result<(), Failed>;

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn() -> Test| Trial::test(format!("schema::{name}"), test);
    vec![
        trial("a_fresh_database_gets_a_schema_for_its_store", || run(fresh())),
        trial("a_store_of_an_earlier_version_is_used_where_it_is", || run(earlier())),
        trial("two_schemas_are_two_stores", || run(two_stores())),
        trial("a_table_of_another_program_is_named_and_not_touched", || run(collision())),
        trial("of_two_stores_one_must_be_chosen", || run(ambiguous())),
    ]
}

/// A database of its own.
struct Database {
    url: String,
}

impl Database {
    async fn new(name: &str) -> Result<Self, Failed> {
        let url = std::env::var("SEMEL_TEST_POSTGRES")?;
        let name = format!("schema_{}_{name}", std::process::id());
        let (before, _) = url.rsplit_once('/').ok_or("the URL names a database")?;
        client(&url).await?.batch_execute(&format!("CREATE DATABASE {name}")).await?;
        Ok(Self { url: format!("{before}/{name}") })
    }

    async fn open(&self, parameters: &str) -> semel::error::Result<PostgresStore> {
        PostgresStore::open(PostgresOptions::new(format!("{}{parameters}", self.url))).await
    }

    async fn refused(&self, parameters: &str) -> Result<String, Failed> {
        Ok(self.open(parameters).await.err().ok_or("it opens")?.to_string())
    }

    /// Opens a store, starts a run, and closes it again. Whether the run is new.
    async fn starts(&self, parameters: &str, key: &str) -> Result<bool, Failed> {
        let store = self.open(parameters).await?;
        let started = start(&store, key, None).await?;
        store.close().await?;
        Ok(started.created())
    }

    /// The schemas that have a table `runs`.
    async fn schemas(&self) -> Result<Vec<String>, Failed> {
        let tables = "SELECT schemaname::text FROM pg_tables WHERE tablename = 'runs' ORDER BY 1";
        let rows = client(&self.url).await?.query(tables, &[]).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }
}

async fn client(url: &str) -> Result<Client, Failed> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn fresh() -> Test {
    let database = Database::new("fresh").await?;
    assert!(database.starts("", "one").await?);
    assert!(!database.starts("", "one").await?, "it is found again");
    assert!(!database.starts("?schema=semel", "one").await?, "also by its name");
    assert_eq!(database.schemas().await?, ["semel"]);
    Ok(())
}

async fn earlier() -> Test {
    let database = Database::new("earlier").await?;
    // As it was made before there was a default.
    assert!(database.starts("?schema=public", "one").await?);
    assert!(!database.starts("", "one").await?);
    assert_eq!(database.schemas().await?, ["public"]);
    Ok(())
}

async fn two_stores() -> Test {
    let database = Database::new("two").await?;
    assert!(database.starts("?schema=one", "key").await?);
    assert!(database.starts("?schema=other", "key").await?);
    assert!(!database.starts("?schema=one", "key").await?);
    assert_eq!(database.schemas().await?, ["one", "other"]);
    let options = PostgresOptions::new(format!("{}?schema=one", database.url));
    let both = PostgresOptions { schema: Some("other".to_owned()), ..options };
    let refused = PostgresStore::open(both).await.err().ok_or("it opens")?.to_string();
    assert!(refused.contains("give it once"), "{refused}");
    Ok(())
}

async fn collision() -> Test {
    let database = Database::new("taken").await?;
    client(&database.url).await?.batch_execute("CREATE TABLE runs (theirs text)").await?;
    let refused = database.refused("?schema=public").await?;
    assert!(refused.contains("\"runs\"") && refused.contains("choose another schema"), "{refused}");
    assert!(database.starts("", "one").await?, "a schema of its own is not in the way");
    assert_eq!(database.schemas().await?, ["public", "semel"]);
    Ok(())
}

async fn ambiguous() -> Test {
    let database = Database::new("both").await?;
    assert!(database.starts("?schema=semel", "one").await?);
    assert!(database.starts("?schema=public", "one").await?);
    let refused = database.refused("").await?;
    assert!(refused.contains("`?schema=public` or `?schema=semel`"), "{refused}");
    Ok(())
}
