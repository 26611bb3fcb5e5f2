//! Records of access in the store: typed bodies in, typed bodies out.

use std::time::Duration;

use semel::Error;
use semel::clock::Time;
use semel::id::WorkspaceId;
use semel::rules::json::Payload;
use semel::rules::key::RecordId;
use semel::rules::path::Name;
use semel::rules::record::{Keep, Look, LookBy, Record};
use semel::store::Store;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::api::Permission;

/// How many records one look takes.
const PAGE: usize = 500;

/// A kind of record.
pub(super) trait Kind: Serialize + DeserializeOwned {
    /// Its name in the store.
    const KIND: &'static str;
}

/// A workspace; its id among records is its name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Workspace {
    pub(crate) id: WorkspaceId,
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rate_limit: Option<u32>,
    pub(crate) created_at: Time,
}

impl Kind for Workspace {
    const KIND: &'static str = "workspace";
}

/// An API key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiKey {
    /// The SHA-256 of its secret.
    pub(super) hash: String,
    pub(crate) name: String,
    pub(crate) workspace: WorkspaceId,
    /// The name of the workspace, under which its record is found.
    pub(crate) workspace_name: String,
    pub(crate) permissions: Vec<Permission>,
    pub(crate) created_at: Time,
    /// The time from which the key is refused; absent if it has no expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revoked_at: Option<Time>,
}

impl ApiKey {
    /// Whether calls with this key are answered at this time.
    pub(super) fn is_valid(&self, now: Time) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|expiry| now < expiry)
    }
}

impl Kind for ApiKey {
    const KIND: &'static str = "api-key";
}

/// A body with the version of its record.
#[derive(Clone, Debug)]
pub(super) struct Kept<T> {
    pub(super) id: String,
    pub(super) version: u64,
    pub(super) body: T,
}

/// The record with this id.
pub(super) async fn find<T: Kind>(store: &dyn Store, id: &str) -> Result<Option<Kept<T>>, Error> {
    // What could not be kept is not there.
    let Ok(id) = RecordId::new(id) else { return Ok(None) };
    let look = Look { kind: Name::new(T::KIND)?, by: LookBy::Id(id) };
    store.records(look).await?.first().map(read).transpose()
}

/// All records of a kind.
pub(super) async fn all<T: Kind>(store: &dyn Store) -> Result<Vec<Kept<T>>, Error> {
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
pub(super) async fn keep<T: Kind>(
    store: &dyn Store,
    id: &str,
    body: &T,
    expected: u64,
    ttl: Option<Duration>,
) -> Result<Kept<T>, Error> {
    let keep = Keep {
        kind: Name::new(T::KIND)?,
        id: RecordId::new(id)?,
        body: Payload::of(body)?,
        expected: Some(expected),
        ttl,
    };
    read(&store.keep(keep).await?)
}

pub(super) fn read<T: DeserializeOwned>(record: &Record) -> Result<Kept<T>, Error> {
    let damaged = |source: serde_json::Error| Error::Corrupt {
        at: format!("{} {}", record.kind, record.id),
        source: source.into(),
    };
    let body = record.body.read().map_err(damaged)?;
    Ok(Kept { id: record.id.to_string(), version: record.version, body })
}
