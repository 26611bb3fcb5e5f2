//! What is known of the open runs of one workspace without asking the store: its last count, what was started here
//! since, and the calls under way that may open another run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel::clock::Time;
use semel::error::Error;
use semel::id::WorkspaceId;
use semel::store::Store;
use tokio::sync::Notify;

/// Time for which a count is believed, in milliseconds, while there is room left.
const BELIEVED_MS: i64 = 5_000;
/// Time for which a count that found no room is believed, in milliseconds.
const APART_MS: i64 = 1_000;

/// Open runs of a workspace: the last count, and the changes since.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// Open runs in the store when they were counted.
    open: u64,
    /// Time of the count; none before the first one.
    at: Option<Time>,
    /// Runs opened here since. Some may have ended, or were there before the call.
    since: u64,
    /// Places of calls under way: it is not known yet whether they open a run.
    held: u64,
}

/// What is known of a workspace without counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    HasRoom,
    /// Whether there is room depends on calls under way.
    IsBusy,
    IsFull,
    Nothing,
}

impl Count {
    /// Whether another run may be opened. Only the store's own count says that none may: what was opened here since may
    /// have ended.
    fn look(&self, most: u64, now: Time) -> Known {
        let age = |at: Time| now.0.saturating_sub(at.0);
        match self.at.map(age) {
            Some(age) if self.open >= most && age < APART_MS => Known::IsFull,
            Some(age) if self.open >= most || age >= BELIEVED_MS => Known::Nothing,
            Some(_) if self.open + self.since >= most => Known::Nothing,
            Some(_) if self.open + self.since + self.held >= most => Known::IsBusy,
            Some(_) => Known::HasRoom,
            None => Known::Nothing,
        }
    }
}

/// The count of one workspace, shared by its calls.
#[derive(Debug, Default)]
pub(super) struct CountSlot {
    count: Mutex<Count>,
    /// Makes concurrent calls wait for one count.
    counting: tokio::sync::Mutex<()>,
    /// Tells calls that wait that another one has given back its room, or has used it.
    settled: Notify,
}

/// What is to be opened, and within which bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) workspace: WorkspaceId,
    /// Number of runs that are to be opened.
    pub(super) runs: u64,
    /// The bound. The last call that gets room may exceed it.
    pub(super) most: u64,
    /// To how many the store counts; not below `most`.
    pub(super) cap: u64,
}

impl CountSlot {
    /// Room for runs that are to be opened; none if there is none. Waits for calls under way if it depends on them.
    pub(super) async fn take(
        self: Arc<Self>,
        store: &dyn Store,
        now: Time,
        wish: Wish,
    ) -> Result<Option<HeldRoom>, Error> {
        loop {
            // Before the look: what is settled after it must wake this call.
            let settled = self.settled.notified();
            match self.try_take(wish, now) {
                Known::HasRoom => {
                    return Ok(Some(HeldRoom { slot: self.clone(), runs: wish.runs, is_used: true }));
                }
                Known::IsFull => return Ok(None),
                Known::IsBusy => settled.await,
                Known::Nothing => self.recount(store, now, wish).await?,
            }
        }
    }

    fn try_take(&self, wish: Wish, now: Time) -> Known {
        let mut count = self.lock();
        let known = count.look(wish.most, now);
        if known == Known::HasRoom {
            count.held += wish.runs;
        }
        known
    }

    /// Counts, unless another call has done so meanwhile.
    async fn recount(&self, store: &dyn Store, now: Time, wish: Wish) -> Result<(), Error> {
        let _alone = self.counting.lock().await;
        let before = *self.lock();
        if before.look(wish.most, now) != Known::Nothing {
            return Ok(());
        }
        let open = store.open_runs(wish.workspace, wish.cap).await?;
        let mut count = self.lock();
        // What was opened during the count may or may not be in it.
        *count = Count { open, at: Some(now), since: count.since - before.since, held: count.held };
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Count> {
        // Every change is an addition that does not panic half-way.
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Room for runs that a call may open. If the call ends without telling, they count as opened until the next count.
#[derive(Debug)]
pub(super) struct HeldRoom {
    slot: Arc<CountSlot>,
    runs: u64,
    is_used: bool,
}

impl HeldRoom {
    /// Gives the room back: the call has opened no run.
    pub(super) fn give_back(mut self) {
        self.is_used = false;
    }
}

impl Drop for HeldRoom {
    fn drop(&mut self) {
        let mut count = self.slot.lock();
        count.held -= self.runs;
        count.since += if self.is_used { self.runs } else { 0 };
        drop(count);
        self.slot.settled.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::Known::{HasRoom, IsBusy, IsFull, Nothing};
    use super::*;

    fn counted(open: u64) -> Count {
        Count { open, at: Some(Time(0)), ..Count::default() }
    }

    #[test]
    fn a_count_is_believed_for_a_while() {
        let looks = |count: Count| [0, 999, 1_000, 4_999, 5_000].map(|now| count.look(3, Time(now)));
        assert_eq!(looks(counted(2)), [HasRoom, HasRoom, HasRoom, HasRoom, Nothing]);
        assert_eq!(looks(counted(3)), [IsFull, IsFull, Nothing, Nothing, Nothing]);
        assert_eq!(Count::default().look(3, Time(0)), Nothing, "nothing was counted yet");
    }

    #[test]
    fn what_was_opened_since_leads_to_a_count_and_what_is_under_way_to_a_wait() {
        let look = |since: u64, held: u64| Count { since, held, ..counted(1) }.look(3, Time(0));
        assert_eq!([look(1, 0), look(2, 0), look(2, 1)], [HasRoom, Nothing, Nothing]);
        assert_eq!([look(0, 1), look(0, 2), look(1, 1)], [HasRoom, IsBusy, IsBusy]);
    }

    #[test]
    fn room_is_used_unless_it_is_given_back() {
        let slot = Arc::new(CountSlot::default());
        *slot.lock() = counted(0);
        let wish = Wish { workspace: WorkspaceId::DEFAULT, runs: 10, most: 11, cap: 11 };
        let take = || {
            assert_eq!(slot.try_take(wish, Time(0)), HasRoom, "the last one may exceed the bound");
            HeldRoom { slot: slot.clone(), runs: wish.runs, is_used: true }
        };
        let counts = || {
            let count = *slot.lock();
            (count.held, count.since)
        };
        take().give_back();
        assert_eq!(counts(), (0, 0));
        drop(take());
        assert_eq!(counts(), (0, 10));
    }
}
