//! Definitions that were read, bounded by their size.

use std::sync::{Arc, Mutex, PoisonError};

use semel::id::WorkspaceId;

use crate::bounded::{BoundedCache, Most};
use crate::definitions::id::{DefinitionId, IdKey};
use crate::definitions::language::Definition;

/// How much larger a definition is in memory than its document: texts are compiled, and each value knows its place.
const GROWTH: usize = 12;
/// Maximum size of all definitions in memory, by that estimate. Some thousands of usual ones fit.
const BYTES: usize = 128 * 1024 * 1024;
/// Maximum number of definitions in memory.
const ENTRIES: usize = 20_000;

/// Definitions by workspace and id, each in the group of its workspace.
type Definitions = BoundedCache<(WorkspaceId, IdKey), WorkspaceId, Option<Arc<Definition>>>;

/// Definitions in memory.
pub(super) struct Memory(Mutex<Definitions>);

impl Default for Memory {
    fn default() -> Self {
        Self(Mutex::new(BoundedCache::new(Most { entries: ENTRIES, weight: BYTES })))
    }
}

impl Memory {
    /// Uses a definition.
    pub(super) fn get(&self, workspace: WorkspaceId, id: &DefinitionId) -> Option<Arc<Definition>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (workspace, id.key());
        entries.get(&key)?;
        entries.touch(key, workspace, || None).clone()
    }

    /// Keeps a definition whose document has this size.
    pub(super) fn put(
        &self,
        workspace: WorkspaceId,
        id: &DefinitionId,
        definition: Arc<Definition>,
        bytes: usize,
    ) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (workspace, id.key());
        entries.insert(key, workspace, Some(definition));
        entries.weigh(&key, bytes.saturating_mul(GROWTH));
        entries.trim();
    }
}
