//! The key `store`: an address alone, or a table with the address and the settings of PostgreSQL.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use semel::clock::Clock;
use semel::store::Store;
use semel::store::postgres::{PgClock, PostgresOptions, PostgresStore};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::hidden::HIDDEN;
use super::read;

/// Where a store is, and how it is opened. The password in its address is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreAddress {
    address: String,
    schema: Option<String>,
    connections: Option<u32>,
}

/// The key `store` as a table.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct StoreTable {
    address: String,
    /// Schema of the tables in PostgreSQL. Absent: that of the address, or `semel`.
    #[serde(default)]
    schema: Option<String>,
    /// Maximum number of connections to PostgreSQL for everything but plain commits, starts and wake-ups. Absent: the
    /// library's default.
    #[serde(default, deserialize_with = "read::maybe_number")]
    connections: Option<u32>,
}

impl StoreAddress {
    /// An address as [`semel::engine::open_store`] takes it.
    pub fn new(text: impl Into<String>) -> Self {
        Self { address: text.into(), schema: None, connections: None }
    }

    /// The address itself, with its password.
    pub fn expose(&self) -> &str {
        &self.address
    }

    /// Schema of the tables in PostgreSQL, if it is set apart from the address.
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// Maximum number of connections to PostgreSQL, if it is set. Connections for plain commits, starts and wake-ups come on top:
    /// see [`PostgresOptions::connections`].
    pub fn connections(&self) -> Option<u32> {
        self.connections
    }

    fn is_postgres(&self) -> bool {
        ["postgres://", "postgresql://"].iter().any(|scheme| self.address.starts_with(scheme))
    }

    /// The folder in which it is, if it is a file.
    pub fn folder(&self) -> Option<PathBuf> {
        if self.address.contains("://") || self.address == "memory:" {
            return None;
        }
        let file = Path::new(self.address.strip_prefix("sqlite:").unwrap_or(&self.address));
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        Some(folder.unwrap_or(Path::new(".")).to_owned())
    }

    /// Refuses settings that do not fit together.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.address.starts_with("http") {
            return Err("`store` is the URL of a server: give `sqlite:path` or `postgres://…`".to_owned());
        }
        if self.connections == Some(0) {
            return Err("`store.connections` must be at least 1".to_owned());
        }
        let given = [("schema", self.schema.is_some()), ("connections", self.connections.is_some())];
        match given.iter().find(|(_, given)| *given) {
            Some((key, _)) if !self.is_postgres() => Err(format!(
                "`store.{key}` is a setting of PostgreSQL: remove it, or set `store.address` to `postgres://…`"
            )),
            _ => Ok(()),
        }
    }

    /// Opens the store. Without a clock the store uses its own: that of the machine or of the database.
    pub(crate) async fn open(&self, clock: Option<Arc<dyn Clock>>) -> semel::error::Result<Arc<dyn Store>> {
        if !self.is_postgres() {
            return semel::engine::open_store(&self.address, clock).await;
        }
        let mut options = PostgresOptions::new(self.address.clone());
        options.schema.clone_from(&self.schema);
        options.connections = self.connections.map_or(options.connections, |number| number as usize);
        options.clock = clock.map_or(PgClock::Database, PgClock::Given);
        Ok(Arc::new(PostgresStore::open(options).await?))
    }
}

impl<'de> Deserialize<'de> for StoreAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AddressOrTable;

        impl<'de> Visitor<'de> for AddressOrTable {
            type Value = StoreAddress;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the address of a store, or a table with `address`, `schema` and `connections`")
            }

            fn visit_str<E>(self, address: &str) -> Result<StoreAddress, E> {
                Ok(StoreAddress::new(address))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<StoreAddress, A::Error> {
                let table = StoreTable::deserialize(MapAccessDeserializer::new(map))?;
                let StoreTable { address, schema, connections } = table;
                Ok(StoreAddress { address, schema, connections })
            }
        }

        deserializer.deserialize_any(AddressOrTable)
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.address.split_once("://") else {
            // A file, or a mistyped address.
            return match (self.address.split_once(':'), self.address.rsplit_once('@')) {
                (Some((before, _)), Some((_, after))) => write!(f, "{before}:{HIDDEN}@{after}"),
                _ => f.write_str(&self.address),
            };
        };
        // The password may be before the host, and among the parameters.
        let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
        match rest.rsplit_once('@') {
            Some((user, place)) => {
                let user = user.split_once(':').map_or(user, |(user, _)| user);
                write!(f, "{scheme}://{user}@{place}")
            }
            None => write!(f, "{scheme}://{rest}"),
        }
    }
}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for StoreAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let address = self.to_string();
        if self.schema.is_none() && self.connections.is_none() {
            return serializer.serialize_str(&address);
        }
        let mut table = serializer.serialize_struct("store", 3)?;
        table.serialize_field("address", &address)?;
        if let Some(schema) = &self.schema {
            table.serialize_field("schema", schema)?;
        }
        if let Some(connections) = &self.connections {
            table.serialize_field("connections", connections)?;
        }
        table.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_shown_without_its_password() {
        for (address, shown) in [
            ("sqlite:semel.db", "sqlite:semel.db"),
            ("postgres://me:canary@host/db", "postgres://me@host/db"),
            ("postgres://me:ca@nary@host/db?password=canary", "postgres://me@host/db"),
            ("postgres://host/db", "postgres://host/db"),
            ("postgres:/me:canary@host/db", "postgres:(hidden)@host/db"),
            ("/home/me@corp/semel.db", "/home/me@corp/semel.db"),
        ] {
            assert_eq!(StoreAddress::new(address).to_string(), shown);
        }
    }
}
