//! What has arrived for a run and is not consumed yet, sorted by who waits for it.

use std::collections::{HashMap, VecDeque};

use crate::id::RunId;
use crate::rules::entry::{Message, Outcome};
use crate::rules::json::Payload;
use crate::rules::key::{Label, Token};
use crate::rules::path::Visit;
use crate::sabotage::{self, Bug};
use crate::store::Arrival;

/// The input that a durable wait is for, beside a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) enum On {
    /// A payload for a token.
    Token(Token),
    /// The end of a child.
    Child(Visit),
    /// The result under a label that another run is making.
    Once(String, Label),
}

/// A wish that the run should end.
#[derive(Debug)]
pub(in crate::engine) struct CancelWish {
    pub(in crate::engine) arrival: u64,
    pub(in crate::engine) reason: String,
    pub(in crate::engine) by: String,
}

/// The messages of one run.
#[derive(Debug, Default)]
pub(in crate::engine) struct Inbox {
    /// The number of the latest message that was taken in.
    seen: u64,
    /// Most runs never get any.
    kept: Option<Box<UnreadMessages>>,
}

/// Which messages about children count.
#[derive(Debug, Default)]
struct Children {
    ended: HashMap<Visit, (u64, RunId, Outcome)>,
    /// Children that an earlier life of the run had asked for, and that the store has just attached anew: what was read
    /// about them before may be gone. They are read again.
    stale: Vec<Visit>,
    /// Up to which number everything was read before the store attached them: what it says anew comes after that.
    before: u64,
    /// Those of them that the reading under way is for.
    reading: Vec<Visit>,
}

#[derive(Debug, Default)]
struct UnreadMessages {
    deliveries: HashMap<Token, VecDeque<(u64, Payload)>>,
    children: Children,
    settled: HashMap<(String, Label), VecDeque<u64>>,
    cancels: VecDeque<CancelWish>,
    /// Releases of the key that are not recorded yet: the message, and by whom.
    releases: VecDeque<(u64, String)>,
}

impl Inbox {
    /// Takes in what has not been taken in before, and gives what it is for.
    pub(in crate::engine) fn take_in(&mut self, arrivals: Vec<Arrival>) -> Vec<On> {
        let mut on = self.take_in_again(&arrivals);
        for Arrival { number, message, .. } in arrivals {
            // Messages that an unfinished commit consumes are still in the store.
            if number <= self.seen {
                continue;
            }
            self.seen = number;
            let kept = self.kept.get_or_insert_default();
            match message {
                Message::Delivery { token, payload } => {
                    kept.deliveries.entry(token.clone()).or_default().push_back((number, payload));
                    on.push(On::Token(token));
                }
                Message::ChildEnded { child, run, outcome } => {
                    kept.children.ended.insert(child.clone(), (number, run, outcome));
                    on.push(On::Child(child));
                }
                Message::OnceSettled { scope, label } => {
                    kept.settled.entry((scope.clone(), label.clone())).or_default().push_back(number);
                    on.push(On::Once(scope, label));
                }
                Message::KeyReleased { by } => kept.releases.push_back((number, by)),
                wish @ (Message::CancelRequested { .. } | Message::ParentCancelled { .. }) => {
                    let wish =
                        wish.wishes_end().map(|(reason, by)| CancelWish { arrival: number, reason, by });
                    kept.cancels.extend(wish);
                }
            }
        }
        on
    }

    /// Takes in what the store says now about children that were attached anew; it replaces what was read before.
    fn take_in_again(&mut self, arrivals: &[Arrival]) -> Vec<On> {
        let Some(children) = self.kept.as_mut().map(|kept| &mut kept.children) else { return Vec::new() };
        let again = std::mem::take(&mut children.reading);
        for child in &again {
            let last = arrivals.iter().rev().find_map(|arrival| match &arrival.message {
                Message::ChildEnded { child: of, run, outcome } if of == child => {
                    Some((arrival.number, *run, outcome.clone()))
                }
                _ => None,
            });
            match last {
                Some(ended) => drop(children.ended.insert(child.clone(), ended)),
                None => drop(children.ended.remove(child)),
            }
        }
        again.into_iter().map(On::Child).collect()
    }

    pub(in crate::engine) fn seen(&self) -> u64 {
        self.seen
    }

    pub(in crate::engine) fn delivery(&mut self, token: &Token) -> Option<(u64, Payload)> {
        let deliveries = &mut self.kept.as_mut()?.deliveries;
        let waiting = deliveries.get_mut(token)?;
        let first = match sabotage::commits(Bug::LastDeliveryFirst) {
            true => waiting.pop_back(),
            false => waiting.pop_front(),
        };
        if waiting.is_empty() {
            deliveries.remove(token);
        }
        first
    }

    /// The end of a child. What an earlier life of the run had to say about another run at this place does not count.
    pub(in crate::engine) fn child_end(&mut self, child: &Visit, run: RunId) -> Option<(u64, Outcome)> {
        let children = &mut self.kept.as_mut()?.children;
        if children.stale.contains(child) || children.reading.contains(child) {
            return None;
        }
        let (arrival, _, outcome) = children.ended.remove(child).filter(|(_, ended, _)| *ended == run)?;
        Some((arrival, outcome))
    }

    /// The store has attached a child that an earlier life had asked for, by a commit that was made when `seen` messages
    /// had been read. It has taken back what it had said about the child's end, and says it anew if it is still so.
    pub(in crate::engine) fn attached(&mut self, child: &Visit, seen: u64) {
        let children = &mut self.kept.get_or_insert_default().children;
        children.before = if children.stale.is_empty() { seen } else { children.before.min(seen) };
        children.stale.push(child.clone());
    }

    /// A reading begins. Gives from which number on.
    pub(in crate::engine) fn read_from(&mut self) -> u64 {
        if let Some(kept) = &mut self.kept
            && !kept.children.stale.is_empty()
        {
            let stale = std::mem::take(&mut kept.children.stale);
            kept.children.reading.extend(stale);
            // The store may have said it anew under a number that was read already.
            return self.seen.min(kept.children.before) + 1;
        }
        self.seen + 1
    }

    /// The reading has failed.
    pub(in crate::engine) fn unread(&mut self) {
        if let Some(kept) = &mut self.kept {
            let reading = std::mem::take(&mut kept.children.reading);
            kept.children.stale.extend(reading);
        }
    }

    /// A claim has brought the whole inbox along.
    pub(in crate::engine) fn take_in_all(&mut self, arrivals: Vec<Arrival>) -> Vec<On> {
        self.read_from();
        self.take_in(arrivals)
    }

    pub(in crate::engine) fn settled(&mut self, scope: &str, label: &Label) -> Option<u64> {
        self.kept.as_mut()?.settled.get_mut(&(scope.to_owned(), label.clone()))?.pop_front()
    }

    pub(in crate::engine) fn cancel(&mut self) -> Option<CancelWish> {
        self.kept.as_mut()?.cancels.pop_front()
    }

    pub(in crate::engine) fn release(&mut self) -> Option<(u64, String)> {
        self.kept.as_mut()?.releases.pop_front()
    }
}
