//! Push, use and archive. The document is written before its name, each under its guard: a push that died in between is
//! completed by the same push, and until then its document has no name.

use semel::Error;
use semel::id::WorkspaceId;
use semel::rules::json::{Json, Payload};
use semel::rules::key::RecordId;
use semel::rules::path::Name;

use super::{
    Catalog, NameRecord, NamedVersion, Pusher, Reference, StoredDefinition, VersionRecord, record_id,
};
use crate::definitions::check::Accepted;
use crate::definitions::id::DefinitionId;
use crate::definitions::limits;
use crate::records::{self, RecordKind as _};

/// How often a change of a name is repeated when it conflicts with another one. Each time another caller's change took place.
const TRIES: usize = 100;

/// A definition to push: it has passed the check.
#[derive(Debug)]
pub struct NewDefinition {
    /// What the check made of the text.
    pub accepted: Accepted,
    /// The text as it was sent.
    pub text: String,
    /// The caller, and the time of the call.
    pub pushed: Pusher,
    /// Whether it becomes the current version of its name. The first version does in any case.
    pub current: bool,
}

/// Result of a push: a new version, or one that was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushVerdict {
    /// A new version was stored.
    Created,
    /// This version had been pushed before.
    Unchanged,
}

/// The answer to a push.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// Whether the pushed version is new.
    pub verdict: PushVerdict,
    /// The version, and its name with all versions.
    pub named: NamedVersion,
    /// The version that was current before. Absent if there was none, or if it still is.
    pub previous: Option<VersionRecord>,
}

/// Why a push was refused.
#[derive(Debug)]
pub enum PushRefused {
    /// The label belongs to another version.
    Taken {
        /// The version that has the label.
        holder: VersionRecord,
        /// JSON pointers at which the documents differ.
        pointers: Vec<String>,
    },
    /// The name has too many versions.
    TooMany,
    /// The store refused the write, or cannot answer.
    Store(Error),
}

impl From<Error> for PushRefused {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// A change of a name.
#[derive(Clone, Debug)]
pub struct Changed {
    /// The name with the version that is current now.
    pub named: NamedVersion,
    /// Whether this call changed anything.
    pub changed: bool,
}

impl Catalog {
    /// Pushes a definition. Equal pushes, also at the same time, give one version.
    pub async fn push(&self, workspace: WorkspaceId, new: NewDefinition) -> Result<Pushed, PushRefused> {
        let NewDefinition { accepted, text, pushed, current } = new;
        let (id, name) = (accepted.id.clone(), accepted.definition.name.clone());
        let document = Payload::parse(&accepted.canonical).map_err(Error::from)?;
        let stored = StoredDefinition { document, text, pushed };
        let mut written = false;
        for _ in 0..TRIES {
            let found = records::find::<NameRecord>(&*self.store, &record_id(workspace, &name)).await?;
            let (before, guard) = found.map_or((None, 0), |found| (Some(found.body), found.version));
            let known = before.as_ref().and_then(|record| record.with_id(&id)).cloned();
            let verdict = known.as_ref().map_or(PushVerdict::Created, |_| PushVerdict::Unchanged);
            let version = match known {
                Some(known) => known,
                None => {
                    let label = self.label_of(workspace, before.as_ref(), &accepted).await?;
                    VersionRecord { label, id: id.clone(), pushed: stored.pushed.clone() }
                }
            };
            let after = with(before.clone(), &version, current);
            let previous = before.as_ref().filter(|before| before.current != after.current);
            let previous = previous.and_then(NameRecord::current).cloned();
            let named = NamedVersion { name: name.clone(), record: after, version };
            if before.as_ref() == Some(&named.record) {
                return Ok(Pushed { verdict, named, previous });
            }
            if !written && verdict == PushVerdict::Created {
                self.write(workspace, &id, &stored).await?;
                written = true;
            }
            match self.rename(workspace, &named, guard).await {
                Ok(()) => return Ok(Pushed { verdict, named, previous }),
                Err(Error::RecordChanged { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(busy(workspace, &name)?.into())
    }

    /// Writes the document, unless an earlier push did.
    async fn write(
        &self,
        workspace: WorkspaceId,
        id: &DefinitionId,
        stored: &StoredDefinition,
    ) -> Result<(), Error> {
        let record = record_id(workspace, id.as_str());
        match records::keep(&*self.store, &record, stored, 0, None).await {
            // The id is made of the content: whatever is there has the same.
            Ok(_) | Err(Error::RecordChanged { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The label that a version has or would get: the one that it gives itself, or the next whole number.
    pub async fn label_of(
        &self,
        workspace: WorkspaceId,
        record: Option<&NameRecord>,
        accepted: &Accepted,
    ) -> Result<String, PushRefused> {
        let label = accepted.definition.version.as_deref();
        let Some(record) = record else { return Ok(label.unwrap_or("1").to_owned()) };
        if let Some(known) = record.with_id(&accepted.id) {
            return Ok(known.label.clone());
        }
        if record.versions.len() >= limits::VERSIONS {
            return Err(PushRefused::TooMany);
        }
        let Some(label) = label else { return Ok(record.next_label()) };
        let Some(holder) = record.with_label(label) else { return Ok(label.to_owned()) };
        let other = self.stored(workspace, &holder.id).await?;
        let pointers =
            other.map_or_else(Vec::new, |other| differences(other.document.text(), &accepted.canonical));
        Err(PushRefused::Taken { holder: holder.clone(), pointers })
    }

    /// Writes a name if it is at this version.
    async fn rename(&self, workspace: WorkspaceId, named: &NamedVersion, guard: u64) -> Result<(), Error> {
        let record = record_id(workspace, &named.name);
        records::keep(&*self.store, &record, &named.record, guard, None).await.map(drop)
    }

    /// Makes a version the current one, and the name available if it was archived. None if there is no such version.
    pub async fn make_current(
        &self,
        workspace: WorkspaceId,
        name: &str,
        version: &str,
    ) -> Result<Option<Changed>, Error> {
        let change = |record: &NameRecord| {
            let found = match Reference::read(version) {
                Reference::Id(id) => record.with_id(&id),
                _ => record.with_label(version),
            };
            found.map(|found| NameRecord { current: found.id.clone(), archived: false, ..record.clone() })
        };
        self.change(workspace, name, change).await
    }

    /// Hides a name. None if there is no such name.
    pub async fn archive(&self, workspace: WorkspaceId, name: &str) -> Result<Option<Changed>, Error> {
        self.change(workspace, name, |record| Some(NameRecord { archived: true, ..record.clone() })).await
    }

    async fn change(
        &self,
        workspace: WorkspaceId,
        name: &str,
        change: impl Fn(&NameRecord) -> Option<NameRecord>,
    ) -> Result<Option<Changed>, Error> {
        for _ in 0..TRIES {
            let found = records::find::<NameRecord>(&*self.store, &record_id(workspace, name)).await?;
            let Some(found) = found else { return Ok(None) };
            let Some(record) = change(&found.body) else { return Ok(None) };
            let Some(version) = record.current().cloned() else { return Ok(None) };
            let changed = record != found.body;
            let named = NamedVersion { name: name.to_owned(), record, version };
            let written = match changed {
                true => self.rename(workspace, &named, found.version).await,
                false => Ok(()),
            };
            match written {
                Ok(()) => return Ok(Some(Changed { named, changed })),
                Err(Error::RecordChanged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(busy(workspace, name)?)
    }
}

/// The record of a name after the push of a version.
fn with(before: Option<NameRecord>, version: &VersionRecord, current: bool) -> NameRecord {
    let Some(mut record) = before else {
        let (current, versions) = (version.id.clone(), vec![version.clone()]);
        return NameRecord { current, archived: false, versions };
    };
    if record.with_id(&version.id).is_none() {
        record.versions.push(version.clone());
    }
    if current {
        record.current = version.id.clone();
        record.archived = false;
    }
    record
}

/// JSON pointers at which two documents differ.
fn differences(one: &str, other: &str) -> Vec<String> {
    match (Json::parse(one), Json::parse(other)) {
        (Ok(one), Ok(other)) => one.differences(&other),
        _ => Vec::new(),
    }
}

/// The error of a change that always came too late.
fn busy(workspace: WorkspaceId, name: &str) -> Result<Error, Error> {
    let (kind, id) = (Name::new(NameRecord::KIND)?, RecordId::new(record_id(workspace, name))?);
    Ok(Error::RecordChanged { kind, id })
}
