//! Plays calls on one store. All players make the same calls with the same ids, so they must get the same answers.

use std::fmt::{Debug, Write as _};
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::call::{Act, Call};
use crate::clock::Clock;
use crate::error::Result;
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::attention::Attention;
use crate::rules::claim::{Claim, Drives};
use crate::rules::commit::Commit;
use crate::rules::control::{Control, ControlAction, Fork};
use crate::rules::deliver::Deliver;
use crate::rules::entry::{Entry, Failure, FailureKind, Resolution, RestartFrom};
use crate::rules::json::Payload;
use crate::rules::key::{CallId, Key, KeyScope, Label, RecordId, Scope, Token};
use crate::rules::ledger::{Ledger, Lineage};
use crate::rules::once::{Ask, OnceAnswer, OnceCall, OnceScope};
use crate::rules::path::{Name, Path, Visit};
use crate::rules::record::{Keep, Look, LookBy};
use crate::rules::run::{Retention, Run};
use crate::rules::start::{Handover, Policy, Start};
use crate::rules::status::Status;
use crate::store::{
    Arrival, Claimed, Find, FindBy, HookOrder, HookQuery, KeyPrefix, KeyQuery, Lease, LeaseAct, Order, Part,
    Query, Started, Store, Sweep, TallyQuery,
};
use crate::testing::ManualClock;
use crate::testing::suite::World;

pub(super) const WORKSPACE: WorkspaceId = WorkspaceId::DEFAULT;
pub(super) const TOKENS: usize = 3;
const NODES: u128 = 3;
/// Few, so that pages are partial.
const LOOK_AT: usize = 3;
/// Short, so that nodes die often.
const LEASE: Duration = Duration::from_millis(100);

/// A driver: what it knows of its run.
#[derive(Clone)]
pub(super) struct PlayedDriver {
    pub(super) ledger: Ledger,
    pub(super) inbox: Vec<Arrival>,
    /// Whether another driver has taken the run since, as far as the player has seen.
    zombie: bool,
}

/// A mutating call, to be made again.
#[derive(Clone)]
enum Request {
    Start(Start),
    Commit(Commit),
    Deliver(Deliver),
    Control(Control),
    Once(OnceCall),
    Keep(Keep),
}

pub(super) struct Player {
    pub(super) store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    drawn: u128,
    /// Every id that was ever drawn for a run, whether or not the run was created.
    pub(super) runs: Vec<RunId>,
    /// The runs that were created.
    known: Vec<RunId>,
    drivers: Vec<PlayedDriver>,
    /// The latest right to settle each label, by run.
    fence: u64,
    last: Option<Request>,
}

/// The answer to a call, without the parts that may differ.
fn told<T: Debug>(answer: &Result<T>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => format!("{}: {error}", error.code()),
    }
}

fn plain(run: &mut Run) {
    run.num = 0;
}

impl Player {
    pub(super) async fn new(world: &World) -> Self {
        let (store, clock) = (world.store().clone(), world.clock().clone());
        let player = Self {
            store,
            clock,
            drawn: 0,
            runs: Vec::new(),
            known: Vec::new(),
            drivers: Vec::new(),
            fence: 1,
            last: None,
        };
        for node in 0..NODES {
            let lease = Lease { node: NodeId(Uuid::from_u128(node + 1)), act: LeaseAct::Join(LEASE * 3) };
            player.store.lease(lease).await.expect("a new node can join");
        }
        player
    }

    fn draw(&mut self) -> RunId {
        self.drawn += 1;
        let run = RunId(Uuid::from_u128((1 << 64) + self.drawn));
        self.runs.push(run);
        run
    }

    /// A run by its number in order of beginning; now and then, and if there is none yet, one that does not exist.
    fn run(&self, n: u8) -> RunId {
        match self.known.len() {
            len if len > 0 && n % 12 != 11 => self.known[usize::from(n) % len],
            _ => RunId(Uuid::from_u128(1)),
        }
    }

    pub(super) async fn play(&mut self, call: &Call) -> String {
        match call {
            Call::Start { .. } | Call::Handover { .. } => {
                let start = self.starting(call);
                self.start(start).await
            }
            Call::Claim { node, limit } => self.claim(node_id(*node), usize::from(*limit)).await,
            Call::Drive { driver, zombie, look, acts } => self.drive(*driver, *zombie, *look, acts).await,
            Call::Deliver { token, payload, id } => {
                let (token, payload, id) = (self::token(*token), value(*payload), id.map(call_id));
                self.request(Request::Deliver(Deliver { workspace: WORKSPACE, token, payload, id })).await
            }
            Call::Control { .. } | Call::Resolve { .. } | Call::Fork { .. } => {
                let control = self.controlling(call).await;
                self.request(Request::Control(control)).await
            }
            Call::Once { run, label, ask, value: v } => {
                let (run, label, fence) = (self.run(*run), self::label(*label), self.fence);
                let ttl = (*v == 0).then(|| Duration::from_millis(30));
                let ask = match ask {
                    0 | 1 => Ask::Claim,
                    2 => Ask::Settle { fence, value: value(*v), ttl },
                    _ => Ask::Release { fence },
                };
                let once = OnceCall { workspace: WORKSPACE, scope: OnceScope::Workspace, label, run, ask };
                self.request(Request::Once(once)).await
            }
            Call::Keep { id, body, expected, brief } => {
                let (body, expected) = (value(*body), expected.map(u64::from));
                let ttl = brief.then(|| Duration::from_millis(30));
                let keep = Keep { kind: workflow(0), id: record_id(*id), body, expected, ttl };
                self.request(Request::Keep(keep)).await
            }
            Call::Lease { node, act } => {
                let act = match act {
                    0 | 1 => LeaseAct::Join(LEASE),
                    2 => LeaseAct::Renew(LEASE),
                    _ => LeaseAct::Leave,
                };
                told(&self.store.lease(Lease { node: node_id(*node), act }).await)
            }
            Call::Advance { millis } => {
                self.clock.advance(Duration::from_millis(u64::from(*millis)));
                String::new()
            }
            Call::Sweep { limit } => {
                self.write_receipts().await;
                told(&self.store.sweep(Sweep { limit: usize::from(*limit) }).await)
            }
            Call::Again => match self.last.clone() {
                Some(request) => self.request(request).await,
                None => String::new(),
            },
            Call::Find { .. }
            | Call::List { .. }
            | Call::Ledger { .. }
            | Call::Receipts { .. }
            | Call::Records { .. } => self.read(call).await,
        }
    }

    fn starting(&mut self, call: &Call) -> Start {
        let run = self.draw();
        match call {
            Call::Start { key, scope, workflow, input, policy, keep, delay, claim } => Start {
                scope: [KeyScope::Workspace, KeyScope::Workflow, KeyScope::WorkflowVersion]
                    [usize::from(*scope) % 3],
                policy: policy_of(*policy),
                retention: retention(*keep),
                delay: if *delay { Duration::from_millis(20) } else { Duration::ZERO },
                claim: claim.map(node_id),
                workflow_version: version(*workflow),
                ..Start::new(WORKSPACE, run, self::workflow(*workflow), value(*input), Some(self::key(*key)))
            },
            Call::Handover { key, policy, token, payload, id } => {
                let (token, payload, id) = (self::token(*token), value(*payload), id.map(call_id));
                Start {
                    policy: policy_of(*policy),
                    deliver: Some(Handover { token, payload, id }),
                    ..Start::new(WORKSPACE, run, self::workflow(0), value(0), Some(self::key(*key)))
                }
            }
            other => unreachable!("{other:?} is no start"),
        }
    }

    async fn start(&mut self, start: Start) -> String {
        let (node, run) = (start.claim, start.run);
        self.last = Some(Request::Start(start.clone()));
        let mut started = self.store.start(start).await;
        if let Ok(Started { run: header, entries, .. }) = &started
            && header.id() == run
            && node.is_some()
            && header.state.node == node
        {
            self.take(Claimed { run: header.clone(), entries: Some(entries.clone()), inbox: Vec::new() });
        }
        if let Ok(started) = &mut started {
            if started.run.id() == run && !self.known.contains(&run) {
                self.known.push(run);
            }
            plain(&mut started.run);
        }
        told(&started)
    }

    /// Receipts are written behind, at no certain time. What a sweep forgets, and which rows a claim finds locked, must
    /// not depend on it.
    async fn write_receipts(&self) {
        drop(self.store.receipts(WORKSPACE, RunId(Uuid::nil())).await);
    }

    async fn claim(&mut self, node: NodeId, limit: usize) -> String {
        self.write_receipts().await;
        // The first node has not got the newest version.
        let known = if node == node_id(0) { 0..2 } else { 0..3 };
        let drives =
            |n: u8| Drives { workspace: WORKSPACE, workflow: workflow(n), workflow_version: version(n) };
        let workflows = known.map(drives).collect();
        let mut claimed =
            self.store.claim(Claim::new(node, workflows, limit)).await.map(|claims| claims.runs);
        for claimed in claimed.iter().flatten() {
            self.take(claimed.clone());
        }
        for claimed in claimed.iter_mut().flatten() {
            plain(&mut claimed.run);
        }
        told(&claimed)
    }

    /// Has a new driver; the driver before is a zombie now.
    fn take(&mut self, claimed: Claimed) {
        for driver in self.drivers.iter_mut().filter(|driver| driver.ledger.run().id() == claimed.run.id()) {
            driver.zombie = true;
        }
        let ledger = Ledger::read(claimed.run, claimed.entries.expect("nothing is held"))
            .expect("what is stored can be read");
        self.drivers.push(PlayedDriver { ledger, inbox: claimed.inbox, zombie: false });
    }

    async fn drive(&mut self, n: u8, zombie: bool, look: bool, acts: &[Act]) -> String {
        let alike: Vec<usize> =
            (0..self.drivers.len()).filter(|at| self.drivers[*at].zombie == zombie).collect();
        if alike.is_empty() {
            return String::new();
        }
        let at = alike[usize::from(n) % alike.len()];
        let mut driver = self.drivers[at].clone();
        let mut said = String::new();
        if look && let Ok(inbox) = self.store.inbox(WORKSPACE, driver.ledger.run().id(), 1).await {
            driver.ledger.saw_arrivals(inbox.last().map_or(0, |arrival| arrival.number));
            driver.inbox = inbox;
        }
        for act in acts {
            let child = if matches!(act, Act::Child { .. }) { self.draw() } else { driver.ledger.run().id() };
            write!(said, "{:?}; ", driver.act(act, child, self.clock.now()))
                .expect("a String takes every write");
        }
        let Some(commit) = driver.ledger.commit() else { return said };
        self.last = Some(Request::Commit(commit.clone()));
        let saved = self.store.commit(commit).await;
        match &saved {
            Ok(saved) => {
                driver.ledger.settle(&saved.settled).expect("the store's answers fit");
                assert_eq!(driver.ledger.run().state.version, saved.version, "both count alike");
                self.known.extend(saved.settled.iter().filter_map(|entry| match entry {
                    Entry::ChildStarted { run, attached: false, .. } => Some(*run),
                    _ => None,
                }));
                self.drivers[at] = driver;
            }
            // Another driver has the run: a driver would drop it here, and a zombie tries again.
            Err(crate::Error::Concurrency { .. }) => self.drivers[at].zombie = true,
            // Its content was refused: it may commit something else.
            Err(_) => {}
        }
        said + &told(&saved)
    }

    async fn controlling(&mut self, call: &Call) -> Control {
        let (run, action, id) = match call {
            Call::Control { run, action, id, .. } => (run, plain_action(*action), id),
            Call::Resolve { run, path, how } => {
                let resolution = match how {
                    0 => Resolution::Happened(value(1)),
                    1 => Resolution::DidNotHappen,
                    _ => Resolution::GiveUp(failure()),
                };
                (run, ControlAction::Resolve { step: visit(*path), resolution }, &None)
            }
            Call::Fork { run, at, fresh, key, id } => {
                let lineage = if *fresh { Lineage::Fresh } else { Lineage::Inherited };
                let fork = Fork { run: self.draw(), key: key.map(self::key), at: at.map(u64::from), lineage };
                (run, ControlAction::Fork(fork), id)
            }
            other => unreachable!("{other:?} is no action"),
        };
        let run = self.run(*run);
        let expected = match call {
            Call::Control { expected: Some(right), .. } => {
                let found = self.find(FindBy::Id(run)).await.ok().flatten();
                found.map(|(run, _)| run.state.version + u64::from(!right))
            }
            _ => None,
        };
        Control { workspace: WORKSPACE, run, action, by: "ann".to_owned(), id: id.map(call_id), expected }
    }

    async fn request(&mut self, request: Request) -> String {
        self.last = Some(request.clone());
        match request {
            Request::Start(start) => self.start(start).await,
            Request::Commit(commit) => told(&self.store.commit(commit).await),
            Request::Deliver(deliver) => told(&self.store.deliver(deliver).await),
            Request::Control(control) => {
                let mut done = self.store.control(control).await;
                if let Ok(done) = &mut done {
                    if !self.known.contains(&done.run.id()) {
                        self.known.push(done.run.id());
                    }
                    plain(&mut done.run);
                }
                told(&done)
            }
            Request::Keep(keep) => told(&self.store.keep(keep).await),
            Request::Once(once) => {
                let answer = self.store.once(once).await;
                if let Ok(OnceAnswer::Mine(fence)) = &answer {
                    self.fence = *fence;
                }
                told(&answer)
            }
        }
    }

    pub(super) async fn find(
        &self,
        by: FindBy,
    ) -> Result<Option<(Run, Option<crate::rules::entry::Outcome>)>> {
        let mut found = self.store.find(Find { workspace: WORKSPACE, by }).await;
        if let Ok(Some((run, _))) = &mut found {
            plain(run);
        }
        found
    }

    /// A query with one of the rarer filters, or none.
    fn filtered(&self, n: u8, all: Query) -> Query {
        let run = self.run(n / 8);
        match n % 8 {
            1 => Query { parent: Some(run), ..all },
            2 => Query { lineage: Some(run), ..all },
            3 => Query { node: Some(node_id(n)), ..all },
            4 => Query { attention: Some(Attention::ALL[usize::from(n / 8) % 4]), ..all },
            5 => Query { ended_since: Some(self.clock.now()), ..all },
            6 => Query { until: Some(self.clock.now()), ..all },
            7 => {
                let prefix = key(n / 8).to_string();
                Query { key_prefix: Some(KeyPrefix { scope: scope(), prefix }), ..all }
            }
            _ => all,
        }
    }

    async fn read(&mut self, call: &Call) -> String {
        match call {
            Call::Find { by, what } => {
                let by = match by {
                    0 => FindBy::Id(self.run(*what)),
                    1 => FindBy::Token(token(*what)),
                    _ => FindBy::Key(scope(), key(*what)),
                };
                told(&self.find(by).await)
            }
            Call::List { status, workflow, before, limit, filter, oldest } => {
                let all = Query::all(WORKSPACE, 1000);
                let listed = self.store.list(all.clone()).await.unwrap_or_default().runs;
                let before = before.and_then(|n| listed.get(usize::from(n))).map(Run::id);
                let status = status.map(|n| Status::ALL[usize::from(n) % Status::ALL.len()]);
                let query = Query {
                    status: status.into_iter().collect(),
                    workflow: workflow.map(self::workflow).into_iter().collect(),
                    before,
                    limit: usize::from(*limit),
                    look_at: LOOK_AT,
                    order: if *oldest { Order::Oldest } else { Order::Newest },
                    ..self.filtered(*filter, all)
                };
                let mut page = self.store.list(query).await;
                page.iter_mut().flat_map(|page| &mut page.runs).for_each(plain);
                told(&page)
            }
            Call::Ledger { run, from } => {
                let (run, from) = (self.run(*run), u64::from(*from));
                let part = Part { workspace: WORKSPACE, run, from, limit: 3, bytes: 200 };
                let part = told(&self.store.ledger_part(part).await);
                part + &told(&self.store.ledger(WORKSPACE, run, from).await)
            }
            Call::Receipts { run } => told(&self.store.receipts(WORKSPACE, self.run(*run)).await),
            Call::Records { by, after, limit, newest_first } => {
                let (after, limit) = (after.map(record_id), usize::from(*limit));
                let page = LookBy::Page { after, limit, newest_first: *newest_first };
                let by = by.map_or(page, |id| LookBy::Id(record_id(id)));
                told(&self.store.records(Look { kind: workflow(0), by }).await)
            }
            other => unreachable!("{other:?} reads nothing"),
        }
    }

    /// The answers to what operators ask: keys, hooks, numbers, versions, nodes.
    async fn questions(&self) -> Vec<String> {
        let keys = KeyPrefix { scope: scope(), prefix: String::new() };
        let mut keys =
            self.store.keys(KeyQuery { workspace: WORKSPACE, keys, after: None, limit: 1_000 }).await;
        keys.iter_mut().flat_map(|page| &mut page.runs).for_each(plain);
        let mut lines = vec![told(&keys)];
        for order in [HookOrder::Token, HookOrder::Age] {
            let query =
                HookQuery { workspace: WORKSPACE, prefix: String::new(), order, after: None, limit: 1_000 };
            let mut hooks = self.store.hooks(query).await;
            hooks.iter_mut().flat_map(|page| &mut page.hooks).for_each(|hook| plain(&mut hook.run));
            lines.push(told(&hooks));
        }
        for workflow in [None, Some(workflow(0))] {
            let query = TallyQuery { workspace: WORKSPACE, workflow, since: None, cap: 1_000 };
            lines.push(told(&self.store.tally(query).await));
        }
        lines.push(told(&self.store.versions(WORKSPACE, 1_000).await));
        lines.push(told(&self.store.nodes(WORKSPACE, 1_000).await));
        lines
    }

    /// Everything that can be read, line by line.
    pub(super) async fn look_at_everything(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for run in self.runs.clone() {
            lines.push(told(&self.find(FindBy::Id(run)).await));
            lines.push(told(&self.store.ledger(WORKSPACE, run, 0).await));
            lines.push(told(&self.store.inbox(WORKSPACE, run, 1).await));
            lines.push(told(&self.store.unconsumed(WORKSPACE, run).await));
            lines.push(told(&self.store.receipts(WORKSPACE, run).await));
        }
        for n in 0..TOKENS as u8 {
            lines.push(told(&self.find(FindBy::Token(token(n))).await));
            lines.push(told(&self.find(FindBy::Key(scope(), key(n))).await));
        }
        let listed = self.store.list(Query::all(WORKSPACE, 1_000)).await.unwrap_or_default().runs;
        lines.push(told(&self.store.glances(listed.clone()).await));
        lines.push(told(&Ok(listed.into_iter().map(|run| Run { num: 0, ..run }).collect::<Vec<_>>())));
        lines.extend(self.questions().await);
        lines.push(
            self.play(&Call::Records { by: None, after: None, limit: u8::MAX, newest_first: false }).await,
        );
        lines
    }
}

pub(super) fn scope() -> Scope {
    Scope::of(KeyScope::Workspace, &workflow(0), &workflow(0))
}

fn node_id(n: u8) -> NodeId {
    NodeId(Uuid::from_u128(u128::from(n) % NODES + 1))
}

fn workflow(n: u8) -> Name {
    Name::new(["order", "refund", "order"][usize::from(n) % 3]).expect("a plain name")
}

/// The third is a newer version of the first.
fn version(n: u8) -> Name {
    Name::new(["1", "1", "2"][usize::from(n) % 3]).expect("a plain name")
}

pub(super) fn key(n: u8) -> Key {
    Key::new(format!("key {}", n % 3)).expect("a plain key")
}

pub(super) fn token(n: u8) -> Token {
    Token::new(format!("token {}", usize::from(n) % TOKENS)).expect("a plain token")
}

fn call_id(n: u8) -> CallId {
    CallId::new(format!("call {n}")).expect("a plain id")
}

fn record_id(n: u8) -> RecordId {
    RecordId::new(format!("record {n}")).expect("a plain id")
}

pub(super) fn label(n: u8) -> Label {
    Label::new(format!("label {n}")).expect("a plain label")
}

pub(super) fn visit(n: u8) -> Visit {
    Visit::first(Path::parse(&format!("path-{n}")).expect("a plain path"))
}

pub(super) fn value(n: u8) -> Payload {
    Payload::parse(&format!("{{\"n\":{n}}}")).expect("plain JSON")
}

pub(super) fn failure() -> Failure {
    Failure::new(FailureKind::Fatal, "out of stock")
}

fn policy_of(n: u8) -> Policy {
    Policy::PRESETS[usize::from(n) % Policy::PRESETS.len()].1
}

fn retention(n: u8) -> Retention {
    let millis = Duration::from_millis;
    match n {
        0 => Retention { history: millis(20), key: millis(40) },
        1 => Retention { history: millis(40), key: millis(20) },
        2 => Retention { history: Duration::ZERO, key: Duration::MAX },
        _ => Retention::default(),
    }
}

fn plain_action(n: u8) -> ControlAction {
    match n {
        0 | 1 => ControlAction::Cancel { reason: "no longer wanted".to_owned() },
        2 => ControlAction::Pause,
        3 => ControlAction::Resume,
        4 | 5 => ControlAction::Restart(RestartFrom::Failure),
        6 => ControlAction::Restart(RestartFrom::Beginning),
        7 => ControlAction::RequestCancel { reason: "no longer wanted".to_owned() },
        _ => ControlAction::ReleaseKey,
    }
}
