//! A run as the oracle has read it from the store.

use std::collections::{BTreeMap, BTreeSet};

use semel::clock::Time;
use semel::rules::entry::{Entry, Outcome, RestartFrom};
use semel::rules::json::Payload;
use semel::rules::run::Run;
use semel::store::Numbered;

/// A run as the oracle has read it.
pub(crate) struct Seen {
    pub(crate) run: Run,
    pub(crate) entries: Vec<Numbered>,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) restarted: bool,
    /// Its latest claim.
    pub(crate) claim: u64,
    /// Steps that have a result, with the claim under which they got it.
    pub(crate) completed: BTreeMap<String, u64>,
    /// When each timer fires.
    pub(crate) timers: BTreeMap<String, Time>,
    pub(crate) fired: BTreeSet<String>,
    /// When a step may be tried again, and the claim under which that was recorded.
    pub(crate) retries: BTreeMap<String, (Time, u64)>,
    pub(crate) hooks: BTreeMap<String, String>,
    pub(crate) consumed: BTreeSet<u64>,
    /// The latest message that was consumed, by token.
    pub(crate) latest: BTreeMap<String, u64>,
    /// Number of payloads that earlier lives of the run consumed, by token; a new life begins without them.
    pub(crate) spent: BTreeMap<String, u32>,
    pub(crate) taken: BTreeMap<String, u32>,
}

impl Seen {
    pub(crate) fn created(&self) -> Option<&semel::rules::entry::Created> {
        match self.entries.first().map(|numbered| &numbered.entry) {
            Some(Entry::Created(created)) => Some(created),
            _ => None,
        }
    }

    /// Whether a client started it by its key: it is neither a child nor a fork.
    pub(crate) fn is_root(&self) -> bool {
        self.created().is_some_and(|created| created.parent.is_none() && created.forked_from.is_none())
    }

    pub(crate) fn is_fork(&self) -> bool {
        self.created().is_some_and(|created| created.forked_from.is_some())
    }

    pub(crate) fn has(&self, what: impl Fn(&Entry) -> bool) -> bool {
        self.entries.iter().any(|numbered| what(&numbered.entry))
    }

    /// The reason of the request to end, if the run has recorded one.
    pub(crate) fn asked_to_end(&self) -> Option<&String> {
        self.entries.iter().find_map(|numbered| match &numbered.entry {
            Entry::Cancelling { reason, .. } => Some(reason),
            _ => None,
        })
    }

    pub(crate) fn ended(&self) -> bool {
        self.run.status().is_terminal()
    }

    /// The result of a `run_once` since the last restart from the beginning.
    pub(crate) fn once(&self, wanted: &str) -> Option<&Payload> {
        let anew = |numbered: &&Numbered| match &numbered.entry {
            Entry::Restarted { from, .. } => *from != RestartFrom::Beginning,
            _ => true,
        };
        self.entries.iter().rev().take_while(anew).find_map(|numbered| match &numbered.entry {
            Entry::Once { label, value, .. } if label.to_string() == wanted => Some(value),
            _ => None,
        })
    }

    /// Number of lives before the current or last one.
    pub(crate) fn lives_before(&self) -> usize {
        self.outcomes.len() - usize::from(self.ended())
    }

    /// Deadline of the current life.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let limit = |numbered: &Numbered| match &numbered.entry {
            Entry::Created(created) => Some(created.deadline),
            Entry::Restarted { deadline, .. } => Some(*deadline),
            _ => None,
        };
        self.entries.iter().rev().find_map(limit).flatten()
    }

    /// Whether a timer of this name was copied from the source of the fork.
    pub(crate) fn has_inherited(&self, name: &str) -> bool {
        let set = |entry: &Entry| match entry {
            Entry::TimerSet { timer, .. } => timer.to_string().rsplit('/').next() == Some(name),
            _ => false,
        };
        let is_claim = |numbered: &&Numbered| !matches!(numbered.entry, Entry::Claimed { .. });
        self.is_fork() && self.entries.iter().take_while(is_claim).any(|numbered| set(&numbered.entry))
    }

    /// Whether the entry that is being read was copied from the source of the fork.
    pub(crate) fn inherits(&self) -> bool {
        self.is_fork() && self.claim == 0
    }
}
