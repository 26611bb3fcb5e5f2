//! What a case is given: a store, its clock, and short ways to say common things.

use std::sync::Arc;
use std::time::Duration;

use super::driver::SuiteDriver;
use super::{Home, Stores};
use crate::clock::{Clock, Time};
use crate::error::{Error, Result};
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::claim::{Claim, Drives};
use crate::rules::control::{Control, ControlAction, Controlled};
use crate::rules::deliver::{Deliver, Delivered};
use crate::rules::entry::{Entry, Outcome};
use crate::rules::json::Payload;
use crate::rules::key::{CallId, Key, Label, Scope, Token};
use crate::rules::once::{Ask, OnceAnswer, OnceCall, OnceScope};
use crate::rules::path::{Name, Path, Visit};
use crate::rules::receipt::ReceiptKind;
use crate::rules::run::Run;
use crate::rules::start::{DEFAULT_VERSION, Start};
use crate::rules::status::Status;
use crate::store::{Arrival, Claimed, Find, FindBy, Lease, LeaseAct, Query, Started, Store, Sweep, Swept};
use crate::testing::ManualClock;

/// How long the nodes of cases live without a renewal.
pub(super) const LEASE: Duration = Duration::from_secs(10);
/// The workflow of cases.
pub(super) const ORDER: &str = "order";
/// The tenant of cases.
pub(super) const WORKSPACE: WorkspaceId = WorkspaceId::DEFAULT;
/// Another tenant.
pub(super) const STRANGER: WorkspaceId = WorkspaceId(uuid::Uuid::from_u128(77));

/// A fresh store and its clock, for one case.
pub struct World {
    home: Box<dyn Home>,
    store: Option<Arc<dyn Store>>,
    clock: Arc<ManualClock>,
}

impl World {
    /// Makes a store of this kind. The clock shows some time in 2023.
    pub async fn new(stores: &dyn Stores) -> Result<Self> {
        let clock = Arc::new(ManualClock::new(Time(1_700_000_000_000), 0));
        let home = stores.fresh(clock.clone()).await?;
        Self::at(home, clock).await
    }

    /// On data of any kind.
    pub(super) async fn at(home: Box<dyn Home>, clock: Arc<ManualClock>) -> Result<Self> {
        let store = Some(home.open().await?);
        Ok(Self { home, store, clock })
    }

    /// The store under test, while it is open.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.store.as_ref().expect("the store is open between two calls")
    }

    /// The clock that the store reads; tests set it.
    pub fn clock(&self) -> &Arc<ManualClock> {
        &self.clock
    }

    /// Closes the store and opens the same data again.
    pub async fn reopen(&mut self) {
        let store = self.store.take().expect("the store is open between two calls");
        store.close().await.expect("a store can be closed");
        drop(store);
        self.store = Some(self.home.open().await.expect("what was closed can be opened"));
    }

    /// Another instance on the same data, where there can be one.
    pub async fn second(&self) -> Option<Arc<dyn Store>> {
        self.home.second().await.expect("a second instance can be opened")
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// The time this many milliseconds from now.
    pub(super) fn after(&self, millis: u64) -> Time {
        self.now().after(Duration::from_millis(millis))
    }

    pub(super) fn pass(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    // Starting

    pub(super) fn run_id(&self) -> RunId {
        RunId(self.clock.uuid())
    }

    /// A start of `order` with the input `{"n":1}`.
    pub(super) fn request(&self, key: &str) -> Start {
        Start::new(WORKSPACE, self.run_id(), name(ORDER), payload(r#"{"n":1}"#), Some(self::key(key)))
    }

    /// The same, of a run that is to end like this: if by its time limit, that is now.
    pub(super) fn request_for(&self, status: Status, key: &str) -> Start {
        let timeout = (status == Status::TimedOut).then_some(Duration::ZERO);
        Start { timeout, ..self.request(key) }
    }

    pub(super) async fn try_start(&self, start: Start) -> Result<Started> {
        self.store().start(start).await
    }

    pub(super) async fn start(&self, key: &str) -> Started {
        self.begin(self.request(key)).await
    }

    pub(super) async fn begin(&self, start: Start) -> Started {
        self.try_start(start).await.expect("nothing speaks against this start")
    }

    /// Starts a run that a new node drives at once.
    pub(super) async fn driven(&self, key: &str) -> SuiteDriver {
        self.drive(self.request(key)).await
    }

    /// The same for any start.
    pub(super) async fn drive(&self, mut start: Start) -> SuiteDriver {
        start.claim = Some(self.node().await);
        let started = self.begin(start).await;
        assert!(started.created(), "{started:?}");
        let (run, inbox) = (started.run.clone(), self.inbox(started.run.id()).await);
        let entries = self.entries(run.id()).await;
        SuiteDriver::new(self.store().clone(), Claimed { run, entries: Some(entries), inbox })
    }

    /// A run that is in some state.
    pub(super) async fn run_that_is(&self, status: Status, key: &str) -> RunId {
        if status == Status::Pending {
            return self.start(key).await.run.id();
        }
        let mut driver = self.drive(self.request_for(status, key)).await;
        match status {
            Status::Waiting => drop(driver.wait(None).await),
            Status::Paused => drop(self.control(driver.id(), ControlAction::Pause).await),
            Status::Cancelled => drop(self.cancel(driver.id()).await),
            Status::Completed => drop(driver.complete("7").await),
            Status::Failed => drop(driver.fail().await),
            Status::TimedOut => drop(driver.time_out().await),
            Status::Pending | Status::Running => {}
        }
        assert_eq!(self.run(driver.id()).await.status(), status);
        driver.id()
    }

    // Nodes and claims

    /// A new node with a lease.
    pub(super) async fn node(&self) -> NodeId {
        let node = NodeId(self.clock.uuid());
        self.lease(node, LeaseAct::Join(LEASE)).await.expect("a new node can join");
        node
    }

    pub(super) async fn lease(&self, node: NodeId, act: LeaseAct) -> Result<Time> {
        self.store().lease(Lease { node, act }).await
    }

    pub(super) async fn try_claim(&self, node: NodeId, limit: usize) -> Result<Vec<Claimed>> {
        self.store().claim(Claim::new(node, vec![orders()], limit)).await.map(|claims| claims.runs)
    }

    /// Claims all that is due, with a new node.
    pub(super) async fn claim_all(&self) -> Vec<SuiteDriver> {
        let node = self.node().await;
        let claimed = self.try_claim(node, 1000).await.expect("a live node can claim");
        claimed.into_iter().map(|claimed| SuiteDriver::new(self.store().clone(), claimed)).collect()
    }

    /// Claims the one run that is due.
    pub(super) async fn claim_one(&self) -> SuiteDriver {
        let mut all = self.claim_all().await;
        assert_eq!(all.len(), 1, "one run is due");
        all.remove(0)
    }

    /// Lets every lease end and sweeps, so that all driven runs are due again.
    pub(super) async fn crash(&self) {
        self.clock.advance(LEASE);
        self.sweep(1000).await;
    }

    pub(super) async fn sweep(&self, limit: usize) -> Swept {
        self.store().sweep(Sweep { limit }).await.expect("a sweep is always possible")
    }

    // Deliveries, operators, once

    pub(super) fn delivery(token: &str, json: &str) -> Deliver {
        Deliver { workspace: WORKSPACE, token: self::token(token), payload: payload(json), id: None }
    }

    pub(super) async fn try_deliver(&self, deliver: Deliver) -> Result<Delivered> {
        self.store().deliver(deliver).await
    }

    pub(super) async fn deliver(&self, token: &str, json: &str) -> Delivered {
        self.try_deliver(Self::delivery(token, json)).await.expect("the token has an owner")
    }

    /// Delivers under an id.
    pub(super) async fn deliver_as(&self, id: &str, token: &str, json: &str) -> Result<Delivered> {
        self.try_deliver(Deliver { id: Some(call(id)), ..Self::delivery(token, json) }).await
    }

    pub(super) fn action(run: RunId, action: ControlAction) -> Control {
        Control { workspace: WORKSPACE, run, action, by: "ann".to_owned(), id: None, expected: None }
    }

    pub(super) async fn try_control(&self, control: Control) -> Result<Controlled> {
        self.store().control(control).await
    }

    pub(super) async fn control(&self, run: RunId, action: ControlAction) -> Result<Controlled> {
        self.try_control(Self::action(run, action)).await
    }

    pub(super) async fn control_as(&self, id: &str, run: RunId, action: ControlAction) -> Result<Controlled> {
        self.try_control(Control { id: Some(call(id)), ..Self::action(run, action) }).await
    }

    /// Cancels; whether this call did it.
    pub(super) async fn cancel(&self, run: RunId) -> bool {
        let cancel = ControlAction::Cancel { reason: "no longer wanted".to_owned() };
        self.control(run, cancel).await.expect("every run can be asked to cancel").changed
    }

    /// Asks about the workspace-wide label.
    pub(super) async fn once(&self, run: RunId, label: &str, ask: Ask) -> Result<OnceAnswer> {
        let (scope, label) = (OnceScope::Workspace, self::label(label));
        self.store().once(OnceCall { workspace: WORKSPACE, scope, label, run, ask }).await
    }

    /// Claims a label that must be free; the fence.
    pub(super) async fn grant(&self, run: RunId, label: &str) -> u64 {
        match self.once(run, label, Ask::Claim).await {
            Ok(OnceAnswer::Mine(fence)) => fence,
            other => panic!("expected the right to run the body, got {other:?}"),
        }
    }

    // Looking

    pub(super) async fn find(&self, by: FindBy) -> Option<Run> {
        let find = Find { workspace: WORKSPACE, by };
        self.store().find(find).await.expect("a look-up is always possible").map(|(run, _)| run)
    }

    pub(super) async fn run(&self, id: RunId) -> Run {
        self.find(FindBy::Id(id)).await.unwrap_or_else(|| panic!("{id} exists"))
    }

    pub(super) async fn owner_of(&self, token: &str) -> Option<RunId> {
        self.find(FindBy::Token(self::token(token))).await.map(|run| run.id())
    }

    pub(super) async fn holder_of(&self, key: &str) -> Option<RunId> {
        let scope = Scope::of(crate::rules::key::KeyScope::Workspace, &name(ORDER), &name("1"));
        self.find(FindBy::Key(scope, self::key(key))).await.map(|run| run.id())
    }

    pub(super) async fn outcome(&self, id: RunId) -> Option<Outcome> {
        let find = Find { workspace: WORKSPACE, by: FindBy::Id(id) };
        self.store().find(find).await.expect("a look-up is always possible").and_then(|(_, outcome)| outcome)
    }

    pub(super) async fn entries(&self, id: RunId) -> Vec<Entry> {
        let ledger = self.store().ledger(WORKSPACE, id, 1).await.expect("the run exists");
        assert!(ledger.iter().zip(1..).all(|(line, n)| line.number == n), "numbered from 1: {ledger:?}");
        ledger.into_iter().map(|line| line.entry).collect()
    }

    pub(super) async fn kinds(&self, id: RunId) -> Vec<&'static str> {
        self.entries(id).await.iter().map(Entry::kind).collect()
    }

    pub(super) async fn inbox(&self, id: RunId) -> Vec<Arrival> {
        self.store().inbox(WORKSPACE, id, 1).await.expect("the run exists")
    }

    /// How many calls of a kind were absorbed on a run.
    pub(super) async fn absorbed(&self, id: RunId, kind: ReceiptKind) -> u64 {
        absorbed(self.store(), id, kind).await
    }

    pub(super) async fn list(&self) -> Vec<Run> {
        self.store().list(all(WORKSPACE)).await.expect("a listing is always possible").runs
    }
}

impl World {
    /// Closes the store and throws its data away. A case that fails leaves them, to be looked at.
    pub async fn discard(mut self) {
        if let Some(store) = self.store.take() {
            store.close().await.expect("a store can be closed");
        }
        self.home.discard().await.expect("data can be thrown away");
    }
}

/// How many calls of a kind were absorbed on a run, as this instance has it.
pub(super) async fn absorbed(store: &Arc<dyn Store>, id: RunId, kind: ReceiptKind) -> u64 {
    let receipts = store.receipts(WORKSPACE, id).await.expect("the run exists");
    receipts.iter().find(|(found, _)| *found == kind).map_or(0, |(_, receipts)| receipts.count)
}

/// All runs of a workspace.
pub(super) fn all(workspace: WorkspaceId) -> Query {
    Query::all(workspace, 10_000)
}

/// The error of a call that must be refused.
pub(super) fn refused<T: std::fmt::Debug>(answer: Result<T>) -> Error {
    answer.expect_err("this call must be refused")
}

/// The code of that error.
pub(super) fn code<T: std::fmt::Debug>(answer: Result<T>) -> &'static str {
    refused(answer).code()
}

/// What a driver of the cases' workflow asks for.
pub(super) fn orders() -> Drives {
    drives(WORKSPACE, ORDER, DEFAULT_VERSION)
}

pub(super) fn drives(workspace: WorkspaceId, workflow: &str, version: &str) -> Drives {
    Drives { workspace, workflow: name(workflow), workflow_version: name(version) }
}

pub(super) fn name(text: &str) -> Name {
    Name::new(text).expect("cases use proper names")
}

pub(super) fn payload(json: &str) -> Payload {
    Payload::parse(json).expect("cases use proper JSON")
}

pub(super) fn visit(text: &str) -> Visit {
    Visit::first(Path::parse(text).expect("cases use proper paths"))
}

pub(super) fn key(text: &str) -> Key {
    Key::new(text).expect("cases use proper keys")
}

pub(super) fn token(text: &str) -> Token {
    Token::new(text).expect("cases use proper tokens")
}

pub(super) fn call(text: &str) -> CallId {
    CallId::new(text).expect("cases use proper call ids")
}

pub(super) fn label(text: &str) -> Label {
    Label::new(text).expect("cases use proper labels")
}

/// The answers to calls that are sent at once.
pub(super) async fn all_at_once<T>(calls: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut sent: Vec<_> = calls.map(Box::pin).collect();
    let mut answers: Vec<Option<T>> = sent.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (answer, call) in answers.iter_mut().zip(&mut sent).filter(|(answer, _)| answer.is_none()) {
            if let std::task::Poll::Ready(answered) = call.as_mut().poll(context) {
                *answer = Some(answered);
            }
        }
        let done = answers.iter().all(Option::is_some);
        if done { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}
