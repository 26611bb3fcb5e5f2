//! Records of the store with typed bodies: how they are found, listed and written under the guard of their version. What is kept
//! in them is said by the modules that use them.

use std::time::Duration;

use semel::Error;
use semel::id::WorkspaceId;
use semel::rules::json::Payload;
use semel::rules::key::RecordId;
use semel::rules::path::Name;
use semel::rules::record::{Keep, Look, LookBy, Record};
use semel::store::Store;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// How many records are read at a time.
const PAGE: usize = 500;

/// A kind of record.
pub(crate) trait RecordKind: Serialize + DeserializeOwned {
    /// Its name in the store.
    const KIND: &'static str;
}

/// A body with the version of its record.
#[derive(Clone, Debug)]
pub(crate) struct Versioned<T> {
    pub(crate) id: String,
    pub(crate) version: u64,
    pub(crate) body: T,
}

/// The record with this id.
pub(crate) async fn find<T: RecordKind>(store: &dyn Store, id: &str) -> Result<Option<Versioned<T>>, Error> {
    // An id that could not be stored does not exist.
    let Ok(id) = RecordId::new(id) else { return Ok(None) };
    let look = Look { kind: Name::new(T::KIND)?, by: LookBy::Id(id) };
    store.records(look).await?.first().map(read).transpose()
}

/// A page of the records of a kind, in the order of their ids.
pub(crate) async fn page<T: RecordKind>(
    store: &dyn Store,
    after: &str,
    limit: usize,
) -> Result<Vec<Versioned<T>>, Error> {
    let by = LookBy::Page { after: Some(RecordId::new(after)?), limit, newest_first: false };
    let page = store.records(Look { kind: Name::new(T::KIND)?, by }).await?;
    page.iter().map(read).collect()
}

/// All records of a kind.
pub(crate) async fn all<T: RecordKind>(store: &dyn Store) -> Result<Vec<Versioned<T>>, Error> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let by = LookBy::Page { after, limit: PAGE, newest_first: false };
        let page = store.records(Look { kind: Name::new(T::KIND)?, by }).await?;
        after = page.last().map(|record| record.id.clone());
        let full = page.len() == PAGE;
        for record in &page {
            all.push(read(record)?);
        }
        if !full {
            return Ok(all);
        }
    }
}

/// Writes a record if it is at the expected version; 0 if there must be none.
pub(crate) async fn keep<T: RecordKind>(
    store: &dyn Store,
    id: &str,
    body: &T,
    expected: u64,
    ttl: Option<Duration>,
) -> Result<Versioned<T>, Error> {
    let keep = Keep {
        kind: Name::new(T::KIND)?,
        id: RecordId::new(id)?,
        body: Payload::of(body)?,
        expected: Some(expected),
        ttl,
    };
    read(&store.keep(keep).await?)
}

/// The body of a record.
pub(crate) fn read<T: DeserializeOwned>(record: &Record) -> Result<Versioned<T>, Error> {
    let damaged = |source: serde_json::Error| Error::Corrupt {
        at: format!("{} {}", record.kind, record.id),
        source: source.into(),
    };
    let body = record.body.read().map_err(damaged)?;
    Ok(Versioned { id: record.id.to_string(), version: record.version, body })
}

/// An entry of an index by workspace: the id of the record is that of another, and its body says nothing.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct IndexEntry {}

/// A list of the ids of a workspace's records of one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Index {
    /// First part of the name of its kind; the workspace is the second.
    pub(crate) name: &'static str,
    pub(crate) workspace: WorkspaceId,
}

impl Index {
    fn kind(self) -> Result<Name, Error> {
        Ok(Name::new(&format!("{}-{}", self.name, self.workspace))?)
    }

    /// Adds an id, or extends the time for which it is listed.
    pub(crate) async fn add(self, store: &dyn Store, id: &str, ttl: Duration) -> Result<(), Error> {
        self.write(store, id, ttl).await
    }

    /// Removes an id. One that is not listed is no error.
    pub(crate) async fn remove(self, store: &dyn Store, id: &str) -> Result<(), Error> {
        self.write(store, id, Duration::ZERO).await
    }

    async fn write(self, store: &dyn Store, id: &str, ttl: Duration) -> Result<(), Error> {
        let (kind, id, body) = (self.kind()?, RecordId::new(id)?, Payload::of(&IndexEntry {})?);
        store.keep(Keep { kind, id, body, expected: None, ttl: Some(ttl) }).await.map(drop)
    }

    /// A page of ids, the oldest first, and the cursor of the next page if there may be one.
    pub(crate) async fn page(
        self,
        store: &dyn Store,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<String>, Option<String>), Error> {
        let after = after.map(RecordId::new).transpose()?;
        let by = LookBy::Page { after, limit, newest_first: false };
        let page = store.records(Look { kind: self.kind()?, by }).await?;
        let ids: Vec<_> = page.iter().map(|record| record.id.to_string()).collect();
        let next = ids.last().filter(|_| ids.len() == limit).cloned();
        Ok((ids, next))
    }
}
