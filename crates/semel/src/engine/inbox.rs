//! What has arrived for a run and is not consumed yet, sorted by who waits for it.

use std::collections::{HashMap, VecDeque};

use crate::rules::entry::{Message, Outcome};
use crate::rules::json::Payload;
use crate::rules::key::{Label, Token};
use crate::rules::path::Visit;
use crate::sabotage::{self, Bug};
use crate::store::Arrival;

/// What a wait is for, besides a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum On {
    /// A payload for a token.
    Token(Token),
    /// The end of a child.
    Child(Visit),
    /// The result of a once that another run is making.
    Once(String, Label),
}

/// A wish that the run should end.
#[derive(Debug)]
pub(crate) struct CancelWish {
    pub(crate) arrival: u64,
    pub(crate) reason: String,
    pub(crate) by: String,
}

/// The messages of one run.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// The number of the latest message that was taken in.
    seen: u64,
    /// Most runs never get any.
    kept: Option<Box<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    deliveries: HashMap<Token, VecDeque<(u64, Payload)>>,
    children: HashMap<Visit, (u64, Outcome)>,
    settled: HashMap<(String, Label), VecDeque<u64>>,
    cancels: VecDeque<CancelWish>,
    /// Releases of the key that are not recorded yet: the message, and by whom.
    releases: VecDeque<(u64, String)>,
}

impl Inbox {
    /// Takes in what has not been taken in before, and gives what it is for.
    pub(crate) fn take_in(&mut self, arrivals: Vec<Arrival>) -> Vec<On> {
        let mut on = Vec::new();
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
                Message::ChildEnded { child, outcome, .. } => {
                    kept.children.insert(child.clone(), (number, outcome));
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

    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    pub(crate) fn delivery(&mut self, token: &Token) -> Option<(u64, Payload)> {
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

    pub(crate) fn child_end(&mut self, child: &Visit) -> Option<(u64, Outcome)> {
        self.kept.as_mut()?.children.remove(child)
    }

    pub(crate) fn settled(&mut self, scope: &str, label: &Label) -> Option<u64> {
        self.kept.as_mut()?.settled.get_mut(&(scope.to_owned(), label.clone()))?.pop_front()
    }

    pub(crate) fn cancel(&mut self) -> Option<CancelWish> {
        self.kept.as_mut()?.cancels.pop_front()
    }

    pub(crate) fn release(&mut self) -> Option<(u64, String)> {
        self.kept.as_mut()?.releases.pop_front()
    }
}
