//! Definitions in the store: what was pushed, under which names, and what of it is in memory.
//!
//! A definition never changes, so what was read once is kept; a name does, so it is read each time.

mod memory;
mod push;
mod records;

use std::sync::Arc;

use semel::Error;
use semel::id::WorkspaceId;
use semel::store::Store;

pub use push::{Changed, NewDefinition, PushRefused, PushVerdict, Pushed};
pub use records::{NameRecord, Pusher, StoredDefinition, VersionRecord};

use self::memory::Memory;
use super::document;
use super::id::DefinitionId;
use super::language::{self, Definition};
use super::problem::Problems;
use crate::records as store_records;

/// The definitions of a store.
pub struct Catalog {
    store: Arc<dyn Store>,
    memory: Memory,
}

/// A definition that a reference leads to.
#[derive(Clone, Debug)]
pub struct FoundDefinition {
    /// Name of the definition, which its runs have as their workflow.
    pub name: String,
    /// Id of the definition, which its runs have as their workflow version.
    pub id: DefinitionId,
    /// Label of this version.
    pub label: String,
    /// Whether the name is archived: it takes no new starts.
    pub archived: bool,
    /// The definition as it was understood.
    pub definition: Arc<Definition>,
}

/// A version of a name, and all that the store knows about both.
#[derive(Clone, Debug)]
pub struct NamedVersion {
    /// Name of the definition.
    pub name: String,
    /// The record of the name, with all of its versions.
    pub record: NameRecord,
    /// The version that was asked for.
    pub version: VersionRecord,
}

/// A reference to a definition: an id, a name with a label, or a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// One definition, by its id.
    Id(DefinitionId),
    /// The version of a name that has this label.
    Labelled(String, String),
    /// The version of a name that is current at the moment.
    Current(String),
}

impl Reference {
    /// Reads a reference: an id, `name@label` or `name`.
    pub fn read(text: &str) -> Self {
        match (DefinitionId::parse(text), text.split_once('@')) {
            (Some(id), _) => Self::Id(id),
            (None, Some((name, label))) => Self::Labelled(name.to_owned(), label.to_owned()),
            (None, None) => Self::Current(text.to_owned()),
        }
    }
}

impl Catalog {
    /// The definitions of this store; nothing is read yet.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, memory: Memory::default() }
    }

    /// The definition, if it is in memory.
    pub fn known(&self, workspace: WorkspaceId, id: &str) -> Option<Arc<Definition>> {
        self.memory.get(workspace, &DefinitionId::parse(id)?)
    }

    /// The definition, from memory or from the store.
    pub async fn load(&self, workspace: WorkspaceId, id: &str) -> Result<Option<Arc<Definition>>, Error> {
        let Some(id) = DefinitionId::parse(id) else { return Ok(None) };
        if let Some(known) = self.memory.get(workspace, &id) {
            return Ok(Some(known));
        }
        let Some(stored) = self.stored(workspace, &id).await? else { return Ok(None) };
        let canonical = stored.document.text();
        let definition = Arc::new(understood(&id, canonical)?);
        self.memory.put(workspace, &id, definition.clone(), canonical.len());
        Ok(Some(definition))
    }

    /// The definition that a reference leads to. Names are read from the store each time: a push or `use` elsewhere holds at
    /// once.
    pub async fn find(
        &self,
        workspace: WorkspaceId,
        reference: &str,
    ) -> Result<Option<FoundDefinition>, Error> {
        let Some(NamedVersion { name, record, version }) = self.version(workspace, reference).await? else {
            return Ok(None);
        };
        let missing = || Error::Corrupt {
            at: format!("definition-name {workspace}/{name}"),
            source: format!("its version {} is not in the store", version.id).into(),
        };
        let definition = self.load(workspace, version.id.as_str()).await?.ok_or_else(missing)?;
        let VersionRecord { id, label, .. } = version;
        Ok(Some(FoundDefinition { name, id, label, archived: record.archived, definition }))
    }

    /// The version that a reference leads to, without its document.
    pub async fn version(
        &self,
        workspace: WorkspaceId,
        reference: &str,
    ) -> Result<Option<NamedVersion>, Error> {
        let reference = Reference::read(reference);
        let name = match &reference {
            Reference::Labelled(name, _) | Reference::Current(name) => name.clone(),
            Reference::Id(id) => match self.load(workspace, id.as_str()).await? {
                Some(definition) => definition.name.clone(),
                None => return Ok(None),
            },
        };
        let Some(record) = self.name(workspace, &name).await? else { return Ok(None) };
        let version = match &reference {
            // The document of a push that died before it was answered has no name yet.
            Reference::Id(id) => record.with_id(id),
            Reference::Labelled(_, label) => record.with_label(label),
            Reference::Current(_) => record.current(),
        };
        Ok(version.cloned().map(|version| NamedVersion { name, record, version }))
    }

    /// What is stored of a definition.
    pub async fn stored(
        &self,
        workspace: WorkspaceId,
        id: &DefinitionId,
    ) -> Result<Option<StoredDefinition>, Error> {
        let id = record_id(workspace, id.as_str());
        Ok(store_records::find::<StoredDefinition>(&*self.store, &id).await?.map(|found| found.body))
    }

    /// The record of a name.
    pub async fn name(&self, workspace: WorkspaceId, name: &str) -> Result<Option<NameRecord>, Error> {
        let id = record_id(workspace, name);
        Ok(store_records::find::<NameRecord>(&*self.store, &id).await?.map(|found| found.body))
    }

    /// A page of names in their order, and whether there may be more.
    pub async fn names(
        &self,
        workspace: WorkspaceId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<(String, NameRecord)>, bool), Error> {
        let all = record_id(workspace, "");
        let after = record_id(workspace, after.unwrap_or_default());
        let page = store_records::page::<NameRecord>(&*self.store, &after, limit).await?;
        let full = page.len() == limit;
        let mine: Vec<_> = page
            .into_iter()
            .map_while(|found| Some((found.id.strip_prefix(&all)?.to_owned(), found.body)))
            .collect();
        let more = full && mine.len() == limit;
        Ok((mine, more))
    }
}

/// Id of a record of this workspace. Neither names nor ids contain `/`.
fn record_id(workspace: WorkspaceId, name: &str) -> String {
    format!("{workspace}/{name}")
}

/// Reads the canonical document of a definition. Whether it is right is not asked again: what was accepted once is accepted by
/// every later server, and a task that this server does not have is the run's business.
fn understood(id: &DefinitionId, canonical: &str) -> Result<Definition, Error> {
    let damaged = |why: String| Error::Corrupt { at: format!("definition {id}"), source: why.into() };
    if DefinitionId::of_canonical(canonical) != *id {
        return Err(damaged("the document has another id".to_owned()));
    }
    let node = document::read_json(canonical).map_err(|problem| damaged(problem.message))?;
    language::read(&node, &mut Problems::default())
        .ok_or_else(|| damaged("the document is no definition".to_owned()))
}

#[cfg(test)]
mod tests;
