//! Turns: when something becomes due, one waiting worker of each kind is told first. If it takes the run, nobody else has
//! asked for nothing; if there is more, the next one's turn has come by then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use semel::id::WorkspaceId;
use semel::rules::path::Name;

/// A turn: whoever holds it looks, all others wait for it.
pub(super) type Turn = tokio::sync::Mutex<()>;

/// Workers that ask for the same.
type Kind = (WorkspaceId, Vec<Name>);

#[derive(Default)]
pub(super) struct Turns {
    /// Among claims that wait.
    claims: Mutex<HashMap<Kind, Weak<Turn>>>,
    /// Among listeners of the wakes.
    pub(super) listeners: Arc<Turn>,
}

impl Turns {
    /// The turn of claims that wait for the same.
    pub(super) fn of(&self, workspace: WorkspaceId, mut workflows: Vec<Name>) -> Arc<Turn> {
        workflows.sort_unstable();
        let mut turns = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = (workspace, workflows);
        if let Some(turn) = turns.get(&kind).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Turn::default());
        turns.insert(kind, Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_workflows_in_any_order_are_one_turn() {
        let (turns, name) = (Turns::default(), |text| Name::new(text).unwrap());
        let one = turns.of(WorkspaceId::DEFAULT, vec![name("a"), name("b")]);
        let same = turns.of(WorkspaceId::DEFAULT, vec![name("b"), name("a")]);
        let other = turns.of(WorkspaceId::DEFAULT, vec![name("a")]);
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        drop((one, same));
        turns.of(WorkspaceId::DEFAULT, vec![name("c")]);
        assert_eq!(turns.claims.lock().unwrap().len(), 2, "what nobody waits for is forgotten");
    }
}
