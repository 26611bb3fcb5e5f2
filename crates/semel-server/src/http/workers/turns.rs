//! Turns: when something becomes due, one listening worker of the tenant is told first. If it takes the run, the
//! others have made no empty claims; if there is more, the next worker has the turn by then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use semel::id::WorkspaceId;

/// Lock of a turn: the listener that holds it is told first.
pub(super) type TurnLock = tokio::sync::Mutex<()>;

/// Turns of all tenants.
#[derive(Default)]
pub(super) struct Turns(Mutex<HashMap<WorkspaceId, Weak<TurnLock>>>);

impl Turns {
    /// The turn among the listeners of a tenant.
    pub(super) fn of(&self, workspace: WorkspaceId) -> Arc<TurnLock> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(&workspace).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(TurnLock::default());
        turns.insert(workspace, Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn listeners_of_one_tenant_share_a_turn() {
        let (turns, [ours, theirs]) = (Turns::default(), [1, 2].map(|n| WorkspaceId(Uuid::from_u128(n))));
        let (one, same, other) = (turns.of(ours), turns.of(ours), turns.of(theirs));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        drop((one, same));
        turns.of(WorkspaceId(Uuid::from_u128(3)));
        assert_eq!(turns.0.lock().unwrap().len(), 2, "what has no listener is forgotten");
    }
}
