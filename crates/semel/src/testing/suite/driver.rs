//! A driver as small as can be: a ledger, what is in its inbox, and a store to commit to.

use std::sync::Arc;

use super::world::{WORKSPACE, name, payload, token, visit};
use crate::clock::Time;
use crate::error::Result;
use crate::id::RunId;
use crate::rules::commit::{Commit, Saved};
use crate::rules::entry::{Class, Entry, Failure, FailureKind, Message, Outcome, PauseReason};
use crate::rules::json::Payload;
use crate::rules::ledger::{HookState, Ledger, VisitRecord};
use crate::store::{Arrival, Claimed, Store};

/// Drives one claimed run. A clone is a zombie: it believes that it drives the run too.
#[derive(Clone)]
pub(super) struct SuiteDriver {
    store: Arc<dyn Store>,
    pub(super) ledger: Ledger,
    pub(super) inbox: Vec<Arrival>,
}

impl SuiteDriver {
    pub(super) fn new(store: Arc<dyn Store>, claimed: Claimed) -> Self {
        let ledger = Ledger::read(claimed.run, claimed.entries.expect("nothing is held"))
            .expect("what is stored can be read");
        Self { store, ledger, inbox: claimed.inbox }
    }

    pub(super) fn id(&self) -> RunId {
        self.ledger.run().id()
    }

    pub(super) fn version(&self) -> u64 {
        self.ledger.run().state.version
    }

    pub(super) fn record(&mut self, entry: Entry) -> &mut Self {
        self.ledger.record(entry).expect("cases record what fits");
        self
    }

    /// What is recorded, as a commit.
    pub(super) fn prepare(&mut self) -> Commit {
        self.ledger.commit().expect("something was recorded")
    }

    pub(super) async fn commit(&mut self) -> Result<Saved> {
        let commit = self.prepare();
        let saved = self.store.commit(commit).await?;
        self.ledger.settle(&saved.settled).expect("the store's answers fit");
        assert_eq!(saved.version, self.version(), "the ledger and the store count alike");
        Ok(saved)
    }

    pub(super) async fn save(&mut self) -> Saved {
        self.commit().await.expect("the run is ours")
    }

    /// Reads the inbox again.
    pub(super) async fn look(&mut self) -> &mut Self {
        self.inbox = self.store.inbox(WORKSPACE, self.id(), 1).await.expect("the run exists");
        let seen = self.inbox.last().map_or(0, |arrival| arrival.number);
        self.ledger.saw_arrivals(seen);
        self
    }

    // Steps

    pub(super) fn begin(&mut self, path: &str, class: Class) -> &mut Self {
        self.record(Entry::step_started(visit(path), 1, class))
    }

    pub(super) fn done(&mut self, path: &str, value: &str) -> &mut Self {
        self.record(Entry::StepCompleted { step: visit(path), value: payload(value) })
    }

    /// A whole step, committed.
    pub(super) async fn step(&mut self, path: &str) -> Result<Saved> {
        self.begin(path, Class::Keyed).done(path, "1").commit().await
    }

    /// A step whose effect may have taken place, and the pause over it.
    pub(super) async fn doubt(&mut self, path: &str) -> Saved {
        self.begin(path, Class::AtMostOnce).doubt_again(path).await
    }

    /// Says so of a step that has begun.
    pub(super) async fn doubt_again(&mut self, path: &str) -> Saved {
        self.record(Entry::StepInDoubt { step: visit(path), reason: "no answer".to_owned() });
        self.record(Entry::Paused { reason: PauseReason::InDoubt }).save().await
    }

    // Hooks

    /// Opens a hook at a path named like its token; gives the owner of the token if another run owns it.
    pub(super) async fn open(&mut self, text: &str) -> Option<RunId> {
        self.ledger.open_hook(visit(text), token(text)).expect("the path is free");
        self.save().await;
        match self.ledger.record_at(&visit(text)) {
            Some(VisitRecord::Hook { state: HookState::Open(_), .. }) => None,
            Some(VisitRecord::Hook { state: HookState::Conflicted(owner), .. }) => Some(*owner),
            other => panic!("the hook is open or in conflict, not {other:?}"),
        }
    }

    /// Records all deliveries in the inbox that are for a hook; what they were.
    pub(super) fn receive(&mut self, text: &str) -> Vec<String> {
        let mut received = Vec::new();
        for Arrival { number, message, .. } in self.inbox.clone() {
            if let Message::Delivery { token: to, payload } = message
                && to == token(text)
            {
                received.push(payload.text().to_owned());
                self.record(Entry::HookReceived { hook: visit(text), arrival: number, payload });
            }
        }
        received
    }

    pub(super) async fn close(&mut self, text: &str) -> Saved {
        self.record(Entry::HookClosed { hook: visit(text) }).save().await
    }

    // Children

    /// Asks for a child under an id with the next commit.
    pub(super) fn ask_for_child(&mut self, path: &str, run: RunId) {
        let (workflow, version, input) = (name("order"), name("1"), Payload::null());
        self.ledger.start_child(visit(path), run, workflow, version, input).expect("the path is free");
    }

    /// Starts a child under an id, or finds the one there is; its id, and whether it was there.
    pub(super) async fn child(&mut self, path: &str, run: RunId) -> (RunId, bool) {
        self.ask_for_child(path, run);
        match self.save().await.settled.as_slice() {
            [Entry::ChildStarted { run, attached, .. }] => (*run, *attached),
            other => panic!("one child was asked for, got {other:?}"),
        }
    }

    /// Records the end of a child that is in the inbox.
    pub(super) fn child_ended(&mut self, path: &str) -> Outcome {
        let found = self.inbox.iter().find_map(|arrival| match &arrival.message {
            Message::ChildEnded { child, outcome, .. } if *child == visit(path) => {
                Some((arrival.number, outcome.clone()))
            }
            _ => None,
        });
        let (arrival, outcome) = found.expect("the child's end is in the inbox");
        self.record(Entry::ChildFinished { child: visit(path), arrival, outcome: outcome.clone() });
        outcome
    }

    // Waiting and ending

    pub(super) async fn wait(&mut self, due: Option<Time>) -> Saved {
        self.record(Entry::Waiting { due }).save().await
    }

    pub(super) async fn complete(&mut self, value: &str) -> Saved {
        self.record(Entry::Completed { value: payload(value) }).save().await
    }

    pub(super) async fn fail(&mut self) -> Saved {
        self.record(Entry::Failed { error: failure() }).save().await
    }

    pub(super) async fn time_out(&mut self) -> Saved {
        let limit = self.ledger.deadline().expect("a run with a limit");
        self.record(Entry::TimedOut { limit }).save().await
    }
}

pub(super) fn failure() -> Failure {
    Failure::new(FailureKind::Fatal, "out of stock")
}
