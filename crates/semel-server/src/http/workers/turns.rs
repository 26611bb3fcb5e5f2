//! Turns: when something becomes due, one waiting worker of each kind is told first. If it takes the run, nobody else has
//! asked for nothing; if there is more, the next one's turn has come by then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use semel::rules::claim::Drives;

/// A turn: whoever holds it looks, all others wait for it.
pub(super) type Turn = tokio::sync::Mutex<()>;

/// Workers that ask for the same.
type Kind = Vec<Drives>;

#[derive(Default)]
pub(super) struct Turns {
    /// Among claims that wait.
    claims: Mutex<HashMap<Kind, Weak<Turn>>>,
    /// Among listeners of the wakes.
    pub(super) listeners: Arc<Turn>,
}

impl Turns {
    /// The turn of claims that wait for the same.
    pub(super) fn of(&self, mut kind: Kind) -> Arc<Turn> {
        kind.sort_unstable();
        let mut turns = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
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
    use semel::id::WorkspaceId;
    use semel::rules::path::Name;

    use super::*;

    fn drives(workflow: &str, version: &str) -> Drives {
        let [workflow, workflow_version] = [workflow, version].map(|text| Name::new(text).unwrap());
        Drives { workspace: WorkspaceId::DEFAULT, workflow, workflow_version }
    }

    #[test]
    fn the_same_workflows_in_any_order_are_one_turn() {
        let turns = Turns::default();
        let one = turns.of(vec![drives("a", "1"), drives("b", "1")]);
        let same = turns.of(vec![drives("b", "1"), drives("a", "1")]);
        let fewer = turns.of(vec![drives("a", "1")]);
        let newer = turns.of(vec![drives("a", "2")]);
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &fewer) && !Arc::ptr_eq(&fewer, &newer));
        drop((one, same, newer));
        turns.of(vec![drives("c", "1")]);
        assert_eq!(turns.claims.lock().unwrap().len(), 2, "what nobody waits for is forgotten");
    }
}
