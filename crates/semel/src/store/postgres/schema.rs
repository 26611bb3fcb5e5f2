//! In which schema the tables are. They have ordinary names (`runs`, `calls`), so they get a schema of their own; a store
//! that an earlier version has made elsewhere is found and stays where it is.

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error as PgError};

use super::address::{SchemaName, wrong};
use super::tls::Connector;
use crate::error::{Error, Result, Source};

/// The schema in which a store is, or will be.
pub(super) enum Schema {
    /// The one of this name, made if it is missing.
    Named(SchemaName),
    /// The one that the search path of the user leads to.
    InSearchPath,
}

/// The schema that options or URL name. Refused if both name different ones.
pub(super) fn asked(options: Option<&str>, url: Option<SchemaName>) -> Result<Option<SchemaName>> {
    let options = options.map(SchemaName::new).transpose()?;
    match (options, url) {
        (Some(one), Some(other)) if one != other => {
            Err(wrong(format!("the URL says `schema={other}` and the options say {one}: give it once")))
        }
        (one, other) => Ok(one.or(other)),
    }
}

/// Whether there is a store in the default schema, and the schema of the one in the search path.
const STORES: &str = include_str!("sql/stores.sql");

/// The schema of a store for which none is asked for: the default one, unless there is a store in the search path.
pub(super) async fn locate(config: &Config, tls: &Connector, patience: Duration) -> Result<Schema, Source> {
    let looking = async {
        let (client, connection) = config.connect(tls.clone()).await?;
        let carrying = tokio::spawn(connection);
        let found = stores(&client).await;
        drop(client);
        carrying.abort();
        Ok::<_, Source>(found?)
    };
    let default = SchemaName::default_one();
    match tokio::time::timeout(patience, looking).await?? {
        (_, None) => Ok(Schema::Named(default)),
        (_, Some(visible)) if visible == default.as_str() => Ok(Schema::Named(default)),
        (false, Some(visible)) => {
            tracing::info!(schema = visible, "the tables of an earlier version are used where they are");
            Ok(Schema::InSearchPath)
        }
        (true, Some(visible)) => Err(format!(
            "there are two stores in this database, in the schemas {visible} and {default}: say which one, with \
             `?schema={visible}` or `?schema={default}` in the URL"
        )
        .into()),
    }
}

async fn stores(client: &Client) -> Result<(bool, Option<String>), PgError> {
    let found = client.query_one(STORES, &[&SchemaName::default_one().as_str()]).await?;
    Ok((found.try_get(0)?, found.try_get(1)?))
}

/// The error of a script that makes the tables. What is in their way belongs to another program: it is not touched, and
/// the user can choose another schema.
pub(super) fn collision(error: PgError, schema: &str) -> Error {
    let is_taken = matches!(error.code(), Some(&SqlState::DUPLICATE_TABLE | &SqlState::DUPLICATE_OBJECT));
    let source: Source = match error.as_db_error() {
        Some(refused) if is_taken => format!(
            "{}, in the schema {schema}, and is not Semel's: choose another schema with `?schema=…` in the URL; without it \
             Semel takes the schema {}",
            refused.message(),
            SchemaName::default_one()
        )
        .into(),
        _ => error.into(),
    };
    Error::Open { what: "the schema of Semel".to_owned(), source }
}
