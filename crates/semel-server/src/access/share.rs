//! Shares: how much of something the callers of one workspace may hold at once, and how much all callers together. A
//! tenant that takes all of its own share leaves that of the others alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel::id::WorkspaceId;

/// A resource that callers share: streams, waiting calls, bytes.
#[derive(Debug)]
pub(crate) struct Share {
    /// Maximum that one workspace may hold.
    each: usize,
    /// Maximum that all workspaces may hold together.
    all: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    all: usize,
    each: HashMap<WorkspaceId, usize>,
}

/// A held part of the total; it is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Part {
    share: Arc<Share>,
    workspace: WorkspaceId,
    amount: usize,
}

impl Share {
    pub(crate) fn new(each: usize, all: usize) -> Arc<Self> {
        Arc::new(Self { each: each.min(all), all, held: Mutex::default() })
    }

    /// Maximum that one workspace may hold.
    pub(crate) fn each(&self) -> usize {
        self.each
    }

    /// A part of this size; none if the workspace, or all together, would hold too much.
    pub(crate) fn take(self: &Arc<Self>, workspace: WorkspaceId, amount: usize) -> Option<Part> {
        let mut part = Part { share: self.clone(), workspace, amount: 0 };
        part.grow(amount).then_some(part)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // Every change is two additions that do not panic half-way.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    /// Takes more; false, and nothing is taken, if that would be too much.
    pub(crate) fn grow(&mut self, amount: usize) -> bool {
        let mut held = self.share.lock();
        let own = held.each.get(&self.workspace).copied().unwrap_or(0);
        if own.saturating_add(amount) > self.share.each || held.all.saturating_add(amount) > self.share.all {
            return false;
        }
        held.all += amount;
        held.each.insert(self.workspace, own + amount);
        self.amount += amount;
        true
    }

    /// Gives some of it back.
    pub(crate) fn shrink(&mut self, amount: usize) {
        let amount = amount.min(self.amount);
        self.amount -= amount;
        let mut held = self.share.lock();
        held.all -= amount;
        let Some(own) = held.each.get_mut(&self.workspace) else { return };
        *own -= amount;
        // A workspace that holds nothing takes no memory.
        if *own == 0 {
            held.each.remove(&self.workspace);
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.shrink(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_workspace_has_its_share_and_all_have_theirs() {
        let [one, two, three] = [1, 2, 3].map(|id| WorkspaceId(Uuid::from_u128(id)));
        let share = Share::new(10, 15);
        let mut first = share.take(one, 6).unwrap();
        assert!(share.take(one, 5).is_none(), "the workspace would hold 11 of 10");
        assert!(first.grow(4) && !first.grow(1));
        let second = share.take(two, 5).unwrap();
        assert!(share.take(three, 1).is_none(), "all together would hold 16 of 15");
        drop(first);
        let third = share.take(three, 10).unwrap();
        drop((second, third));
        let held = share.lock();
        assert_eq!((held.all, held.each.len()), (0, 0));
    }

    #[test]
    fn what_is_given_back_is_free_for_others() {
        let one = WorkspaceId(Uuid::from_u128(1));
        let share = Share::new(10, 10);
        let mut part = share.take(one, 10).unwrap();
        part.shrink(4);
        assert!(share.take(one, 4).is_some() && share.take(one, 5).is_none());
        part.shrink(100);
        assert_eq!(share.lock().all, 0);
    }
}
