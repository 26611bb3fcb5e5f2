//! What was seen while the show went on. What is true is found out afterwards, from files and the store: see `audit`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::watch;

use crate::demo::provider::{Event, Note};

/// Something that happened.
#[derive(Clone, Debug)]
pub(super) enum ShowEvent {
    /// A start was answered with a run.
    Started { order: String, run: String, created: bool },
    /// The callers that sent an order at once have all been answered.
    Sent { order: String, copies: u64 },
    /// A start with another amount under a key in use was answered with this code, or with a run.
    Impostor { order: String, code: Option<String> },
    /// A delivery was answered.
    Delivered { order: String, absorbed: bool },
    /// A call was not answered, because the engine died meanwhile.
    CutOff { order: String },
    /// A run that had died with its engine five times was let go on.
    Resumed { order: String },
    /// An order has ended.
    Ended,
    /// Something happened at the provider.
    Provider(Note),
    /// An engine was killed.
    Killed { kill: u64, pid: u32, in_flight: u64 },
    /// The next one listens.
    Back { pid: u32, after: Duration },
    /// The show cannot go on.
    Broken(String),
}

/// What was seen so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// The runs that starts were answered with, by order.
    pub(super) runs: BTreeMap<String, BTreeSet<String>>,
    pub(super) created: u64,
    pub(super) absorbed: u64,
    /// Impostors that were answered, and how many of them were refused with `KEY_REUSED`.
    pub(super) impostors: u64,
    pub(super) refused: u64,
    pub(super) deliveries: u64,
    pub(super) deliveries_absorbed: u64,
    pub(super) cut_off: u64,
    pub(super) resumed: u64,
    pub(super) ended: u64,
    pub(super) kills: u64,
    pub(super) killed_in_flight: u64,
    pub(super) longest_gap: Duration,
    pub(super) lost: u64,
    asked: u64,
    over: u64,
    applied: u64,
}

/// What the killer goes by.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pulse {
    /// Effects of the provider so far.
    pub(super) applied: u64,
    /// Calls that the provider has not answered.
    pub(super) in_flight: u64,
    /// Whether the show is over.
    pub(super) over: bool,
}

impl Tally {
    pub(super) fn note(&mut self, seen: &ShowEvent) {
        match seen {
            ShowEvent::Started { order, run, created } => {
                self.runs.entry(order.clone()).or_default().insert(run.clone());
                *(if *created { &mut self.created } else { &mut self.absorbed }) += 1;
            }
            ShowEvent::Impostor { code, .. } => {
                self.impostors += 1;
                self.refused += u64::from(code.as_deref() == Some(semel::ErrorCode::KeyReused.as_str()));
            }
            ShowEvent::Delivered { absorbed, .. } => {
                self.deliveries += 1;
                self.deliveries_absorbed += u64::from(*absorbed);
            }
            ShowEvent::CutOff { .. } => self.cut_off += 1,
            ShowEvent::Resumed { .. } => self.resumed += 1,
            ShowEvent::Ended => self.ended += 1,
            ShowEvent::Provider(Note { event, .. }) => self.note_provider(*event),
            ShowEvent::Killed { in_flight, .. } => {
                self.kills += 1;
                self.killed_in_flight += in_flight;
            }
            ShowEvent::Back { after, .. } => self.longest_gap = self.longest_gap.max(*after),
            ShowEvent::Sent { .. } | ShowEvent::Broken(_) => {}
        }
    }

    fn note_provider(&mut self, event: Event) {
        match event {
            Event::Asked => self.asked += 1,
            Event::Over => self.over += 1,
            Event::Applied(_) => self.applied += 1,
            Event::Dropped | Event::FailedAfter => self.lost += 1,
            _ => {}
        }
    }

    /// Tells the killer.
    pub(super) fn beat(&self, pulse: &mut Pulse) {
        pulse.applied = self.applied;
        pulse.in_flight = self.asked.saturating_sub(self.over);
    }
}

/// Is over when the provider has nothing on its desk.
pub(super) async fn quiet(mut beats: watch::Receiver<Pulse>) {
    // It ends only if the show does.
    drop(beats.wait_for(|pulse| pulse.in_flight == 0).await);
}
