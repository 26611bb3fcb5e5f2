//! The oracle reads everything that is written to the store and checks it against the promises. It does not repeat the rules:
//! nothing here decides what the engine or the store should do next.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;
use std::time::Duration;

use semel::clock::Time;
use semel::error::Result;
use semel::id::{NodeId, RunId, WorkspaceId};
use semel::rules::deliver::{Deliver, Delivered};
use semel::rules::entry::{Class, Entry, Outcome, Resolution, RestartFrom};
use semel::rules::json::Payload;
use semel::rules::run::Run;
use semel::rules::status::Status;
use semel::store::{Lease, LeaseAct, Numbered, Query, Store};

use crate::blame::Blame;
use crate::outside::{Begun, Provider};
use crate::programs::Nap;
use crate::stage::{Scene, Stage};

/// Maximum number of bodies that a node may begin under one claim before it learns that the run has ended: one per branch.
const UNAWARE: u32 = 8;

/// Milliseconds after the deadline of a run by which its driver or a sweep must have ended it.
const ENDS_WITHIN: i64 = 5_000;

/// Pause of a step before it is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Milliseconds after a run's deadline, by its node's view of the time, from which no body of it may begin.
const AWARE_AFTER: i64 = 50;

#[derive(Default)]
pub(crate) struct Oracle {
    pub(crate) runs: BTreeMap<RunId, Seen>,
    /// The owner of each token and its hooks, according to the ledgers.
    pub(crate) tokens: Tokens,
    /// Shared results of `run_once`, by scope and label.
    onces: BTreeMap<(String, String), String>,
    /// The end of the lease of each node.
    leases: BTreeMap<NodeId, Time>,
    /// Children that were open when their parent was cancelled.
    pub(crate) bereaved: BTreeSet<RunId>,
    /// The node to which the store gave a run, by run and version of the claim.
    claims: BTreeMap<(RunId, u64), NodeId>,
    /// When a node learnt that it has a claim, by run, version, node and life.
    in_hand: BTreeMap<(RunId, u64, usize, u32), u64>,
    /// The run and arrival that the store answered to a delivery, by token and id.
    accepted: BTreeMap<(String, String), (RunId, u64)>,
    /// What was delivered, by run and arrival: token and payload.
    pub(crate) payloads: Payloads,
    /// The highest fence that a node had for a run, by run, node and life.
    fences: BTreeMap<(RunId, usize, u32), u64>,
    /// Number of bodies that began under a claim after the end of the run.
    unaware: BTreeMap<(RunId, u64), u32>,
    /// Cancels that took effect and were answered.
    pub(crate) won: Vec<Won>,
    /// Runs that execute the body of a label and have neither ended nor rested since, by label.
    makers: BTreeSet<(String, RunId)>,
    /// The result of a label that the code of a run was given by the node that drives it.
    pub(crate) heard: BTreeMap<(RunId, String), String>,
    /// When the code first asked for a wait, by run and name.
    naps: BTreeMap<(RunId, String), Time>,
    /// Claims that a node knows to have lost, by run, version, node and life.
    lost: BTreeSet<(RunId, u64, usize, u32)>,
    /// The runs that are to blame for deaths of nodes.
    pub(crate) blame: Blame,
    /// Milliseconds by which a node's view of the store's time may be late, by node and life: the best of its measurements.
    lags: BTreeMap<(usize, u32), i64>,
}

/// A cancel that was sent to a node and took effect.
pub(crate) struct Won {
    pub(crate) run: RunId,
    pub(crate) node: usize,
    pub(crate) life: u32,
    /// Its position in the sequence of all events.
    pub(crate) asked: u64,
}

/// A run as the oracle has read it.
pub(crate) struct Seen {
    pub(crate) run: Run,
    pub(crate) entries: Vec<Numbered>,
    pub(crate) outcomes: Vec<Outcome>,
    restarted: bool,
    /// Its latest claim.
    pub(crate) claim: u64,
    /// Steps that have a result, with the claim under which they got it.
    completed: BTreeMap<String, u64>,
    /// When each timer fires.
    timers: BTreeMap<String, Time>,
    fired: BTreeSet<String>,
    /// When a step may be tried again, and the claim under which that was recorded.
    retries: BTreeMap<String, (Time, u64)>,
    hooks: BTreeMap<String, String>,
    consumed: BTreeSet<u64>,
    /// The latest message that was consumed, by token.
    latest: BTreeMap<String, u64>,
    /// Number of payloads that earlier lives of the run consumed, by token; a new life begins without them.
    pub(crate) spent: BTreeMap<String, u32>,
    taken: BTreeMap<String, u32>,
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
    fn deadline(&self) -> Option<Time> {
        let limit = |numbered: &Numbered| match &numbered.entry {
            Entry::Created(created) => Some(created.deadline),
            Entry::Restarted { deadline, .. } => Some(*deadline),
            _ => None,
        };
        self.entries.iter().rev().find_map(limit).flatten()
    }

    /// Whether a timer of this name was copied from the source of the fork.
    fn has_inherited(&self, name: &str) -> bool {
        let set = |entry: &Entry| match entry {
            Entry::TimerSet { timer, .. } => timer.to_string().rsplit('/').next() == Some(name),
            _ => false,
        };
        let is_claim = |numbered: &&Numbered| !matches!(numbered.entry, Entry::Claimed { .. });
        self.is_fork() && self.entries.iter().take_while(is_claim).any(|numbered| set(&numbered.entry))
    }

    /// Whether the entry that is being read was copied from the source of the fork.
    fn inherits(&self) -> bool {
        self.is_fork() && self.claim == 0
    }
}

pub(crate) fn everything() -> Query {
    Query::all(WorkspaceId::DEFAULT, 10_000)
}

/// Reads all that is new in the store.
pub(crate) async fn look(stage: &Stage, store: &dyn Store) {
    if let Err(error) = see(stage, store).await {
        stage.lock().violate("the store cannot be read", error.to_string());
    }
}

async fn see(stage: &Stage, store: &dyn Store) -> Result<()> {
    for run in store.list(everything()).await?.into_iter().rev() {
        let known = stage.lock().oracle.runs.get(&run.id()).map_or(0, |seen| seen.entries.len() as u64);
        let fresh = match run.state.version == known {
            true => Vec::new(),
            false => store.ledger(run.new.workspace, run.id(), known + 1).await?,
        };
        stage.lock().saw(run, known, fresh);
    }
    Ok(())
}

impl Scene {
    fn saw(&mut self, run: Run, known: u64, fresh: Vec<Numbered>) {
        let id = run.id();
        if run.state.version < known {
            self.violate("version", format!("{id} was at version {known} and is at {}", run.state.version));
        }
        if known + fresh.len() as u64 != run.state.version {
            let message = format!(
                "{id} is at version {}, and has {known} and {} entries",
                run.state.version,
                fresh.len()
            );
            self.violate("version", message);
        }
        let seen = self.oracle.runs.entry(id).or_insert_with(|| Seen {
            run: run.clone(),
            entries: Vec::new(),
            outcomes: Vec::new(),
            restarted: false,
            claim: 0,
            completed: BTreeMap::new(),
            timers: BTreeMap::new(),
            fired: BTreeSet::new(),
            retries: BTreeMap::new(),
            hooks: BTreeMap::new(),
            consumed: BTreeSet::new(),
            latest: BTreeMap::new(),
            spent: BTreeMap::new(),
            taken: BTreeMap::new(),
        });
        if fresh.is_empty() && seen.run.status() != run.status() && known > 0 {
            let message = format!("{id} was {} and is {}, without an entry", seen.run.status(), run.status());
            self.violate("terminal", message);
        }
        let mut ended = self.oracle.runs[&id].ended() && known > 0;
        for numbered in fresh {
            // A step in doubt may be resolved after the end, which does not change.
            let late = matches!(
                numbered.entry,
                Entry::Restarted { .. } | Entry::KeyReleased { .. } | Entry::StepResolved { .. }
            );
            if ended && !late {
                let message = format!("{id} had ended, and then got {:?}", numbered.entry);
                self.violate("terminal", message);
            }
            ended = match &numbered.entry {
                Entry::Restarted { .. } => false,
                entry => ended || entry.outcome().is_some(),
            };
            self.saw_entry(id, numbered);
        }
        if let Some(seen) = self.oracle.runs.get_mut(&id) {
            seen.run = run;
        }
        if known == 0 {
            self.saw_new(id);
        }
    }

    fn saw_new(&mut self, id: RunId) {
        let seen = &self.oracle.runs[&id];
        let kind = match seen.created() {
            Some(created) if created.forked_from.is_some() => "forks",
            Some(created) if created.parent.is_some() => "children",
            _ => "runs",
        };
        let same_key = |other: &&Seen| {
            // A run that was restarted after it lost its key has no key.
            let keyless = other.restarted && !other.run.state.holds_key;
            let (this, other_new) = (&seen.run.new, &other.run.new);
            (&this.key, &this.scope) == (&other_new.key, &other_new.scope) && !other.ended() && !keyless
        };
        let open: Vec<_> = self.oracle.runs.values().filter(same_key).map(|seen| seen.run.id()).collect();
        if open.len() > 1 {
            self.violate("two runs of one key", format!("{open:?} are open at once"));
        }
        self.figures.count(kind);
    }

    fn saw_entry(&mut self, id: RunId, numbered: Numbered) {
        let oracle = &mut self.oracle;
        let seen = oracle.runs.get_mut(&id).expect("it is being looked at");
        let (at, number) = (numbered.at, numbered.number);
        let mut wrong = None;
        if number != seen.entries.len() as u64 + 1 {
            wrong = Some(("version", format!("{id} has entry {number} after {}", seen.entries.len())));
        }
        match &numbered.entry {
            Entry::Claimed { .. } => {
                let driver = seen.entries.iter().rev().map(|n| &n.entry).find_map(driver_after);
                if let Some(Driver::Node(before)) = driver {
                    self.figures.count("takeovers");
                    if oracle.leases.get(&before).is_some_and(|until| *until > at) {
                        wrong = Some(("claim", format!("{id} was taken from {before}, which is alive")));
                    }
                }
                if !matches!(seen.entries.last().map(|last| &last.entry), Some(Entry::Waiting { .. })) {
                    // The run did not rest: results that its former driver could not record are lost.
                    oracle.heard.retain(|(run, label), _| *run != id || seen.once(label).is_some());
                }
                seen.claim = number;
            }
            Entry::TimerSet { timer, at } => {
                seen.timers.insert(timer.to_string(), *at);
            }
            Entry::TimerFired { timer } => wrong = wrong.or(saw_firing(id, seen, &timer.to_string(), at)),
            Entry::TimedOut { limit } if at < *limit => {
                wrong = Some(("timer", format!("{id} timed out at {at}, and had time until {limit}")));
            }
            Entry::StepFailed { step, attempt, retry_at: Some(again), .. } if !seen.inherits() => {
                let path = step.to_string();
                let tried = |begun: &&Begun| {
                    (begun.run, begun.number, begun.fence, &begun.path) == (id, *attempt, seen.claim, &path)
                };
                let tried = self.provider.begun.iter().rev().find(tried);
                if tried.is_some_and(|begun| *again < begun.at.after(RETRY_PAUSE)) {
                    wrong =
                        Some(("retry too early", format!("{path} of {id} is to be tried again at {again}")));
                }
                seen.retries.insert(path, (*again, seen.claim));
            }
            Entry::StepCompleted { step, .. } => {
                seen.completed.insert(step.to_string(), seen.claim);
            }
            entry @ (Entry::HookOpened { .. } | Entry::HookClosed { .. } | Entry::HookReceived { .. })
                if !seen.inherits() =>
            {
                wrong = wrong.or(saw_hook(id, seen, &mut oracle.tokens, &oracle.payloads, entry));
            }
            Entry::Once { label, scope, value, .. } if !scope.is_empty() => {
                let place = (scope.clone(), label.to_string());
                let kept = oracle.onces.entry(place).or_insert_with(|| value.text().to_owned());
                if kept != value.text() {
                    wrong = Some(("once", format!("{id} has {} for {label}, others {kept}", value.text())));
                }
            }
            Entry::Paused { reason } => wrong = wrong.or(oracle.blame.saw_pause(id, seen, reason)),
            Entry::Restarted { from, .. } => {
                if !matches!(seen.outcomes.last(), Some(Outcome::Failed(_) | Outcome::TimedOut)) {
                    wrong = Some(("restart", format!("{id} was restarted after {:?}", seen.outcomes.last())));
                }
                seen.restarted = true;
                seen.retries.clear();
                seen.hooks.clear();
                if *from == RestartFrom::Beginning {
                    seen.completed.clear();
                    seen.timers.clear();
                    seen.fired.clear();
                    oracle.naps.retain(|(run, _), _| *run != id);
                    for (token, taken) in std::mem::take(&mut seen.taken) {
                        *seen.spent.entry(token).or_default() += taken;
                    }
                }
                self.figures.count("restarts");
            }
            _ => {}
        }
        if let Some(outcome) = numbered.entry.outcome() {
            seen.outcomes.push(outcome);
            oracle.tokens.retain(|_, (owner, _)| *owner != id);
        }
        // A node may still execute the run without knowing that it has ended, or rests.
        let makes_on = match &numbered.entry {
            Entry::Waiting { due } => due.is_some_and(|due| due <= at),
            Entry::Paused { .. } => false,
            entry => entry.outcome().is_none(),
        };
        oracle.makers.retain(|(_, maker)| makes_on || *maker != id);
        let cancelled = matches!(numbered.entry, Entry::Cancelled { .. });
        seen.entries.push(numbered);
        if cancelled {
            let child = |seen: &&Seen| seen.run.new.parent == Some(id) && !seen.ended();
            oracle.bereaved.extend(oracle.runs.values().filter(child).map(|seen| seen.run.id()));
        }
        if let Some((kind, message)) = wrong {
            self.violate(kind, message);
        }
    }

    /// The store has given a run to a node.
    pub(crate) fn was_claimed(&mut self, run: &Run, node: NodeId) {
        let (id, version) = (run.id(), run.state.version);
        let holder = *self.oracle.claims.entry((id, version)).or_insert(node);
        if holder != node {
            self.violate("claim", format!("version {version} of {id} was given to {holder} and to {node}"));
        }
    }

    /// The store has answered a call about a lease.
    pub(crate) fn was_leased(&mut self, lease: Lease, until: Time) {
        match lease.act {
            LeaseAct::Leave => drop(self.oracle.leases.remove(&lease.node)),
            _ => drop(self.oracle.leases.insert(lease.node, until)),
        }
    }

    /// A sweep has changed nothing: then no run is open that should have ended before.
    pub(crate) fn had_nothing_to_sweep(&mut self) {
        let latest = Time(self.now.0 - ENDS_WITHIN);
        let is_overdue = |seen: &&Seen| {
            let may_end = matches!(seen.run.status(), Status::Pending | Status::Running | Status::Waiting);
            may_end && seen.deadline().is_some_and(|limit| limit < latest)
        };
        let overdue = self.oracle.runs.values().find(is_overdue).map(|seen| seen.run.id());
        if let Some(id) = overdue {
            self.violate("overdue", format!("the time of {id} is up, and a sweep does not end it"));
        }
    }

    /// A node has learnt the end of its lease, and so the time of the store.
    pub(crate) fn heard_time(&mut self, node: usize, life: u32, told: Time) {
        let lag = self.now.0 - told.0;
        let best = self.oracle.lags.entry((node, life)).or_insert(lag);
        *best = (*best).min(lag);
    }

    /// Whether a node, in this life, drives the run.
    fn drives(&self, run: RunId, node: usize, life: u32) -> bool {
        let oracle = &self.oracle;
        let in_hand = |seen: &Seen| oracle.in_hand.contains_key(&(run, seen.claim, node, life));
        oracle.runs.get(&run).is_some_and(|seen| !seen.ended() && in_hand(seen))
    }

    /// The body of a `run_once` begins. A node that does not know that it has lost its run may still begin one.
    pub(crate) fn makes_once(&mut self, run: RunId, label: &str, node: usize, life: u32) {
        self.note(|| format!("node {node}: {label} of {run} is being made"));
        self.provider.onces.push((run, node));
        self.provider.expectant.drain(..).for_each(Waker::wake);
        if !self.drives(run, node, life) {
            return;
        }
        self.executes(run, self.oracle.runs[&run].claim, node, life);
        if self.oracle.runs[&run].once(label).is_some() {
            self.violate("once again", format!("{run} has {label}, and makes it again"));
        }
        // A label whose scope is the run is unique within the run only.
        let shared = !label.contains('/');
        let other = self.oracle.makers.iter().find(|(of, maker)| shared && of == label && *maker != run);
        if let Some((_, other)) = other.cloned() {
            self.violate("once at once", format!("{other} is making {label}, and so is {run}"));
        }
        self.oracle.makers.insert((label.to_owned(), run));
    }

    /// The code of a run was given the result of a `run_once`.
    pub(crate) fn has_once(&mut self, (run, node, life): (RunId, usize, u32), label: &str, result: &str) {
        if self.drives(run, node, life) {
            self.oracle.heard.insert((run, label.to_owned()), result.to_owned());
        }
    }

    /// The code of a run asks for a wait; returns when it first did.
    pub(crate) fn sleeps(&mut self, (run, name, _): Nap<'_>) -> Time {
        self.oracle.naps.entry((run, name.to_owned())).or_insert(self.now);
        self.now
    }

    /// The code continues after a wait. In a replay the wait was asked for earlier; a node that has lost its run to a restart knows
    /// only its own waits.
    pub(crate) fn slept(&mut self, nap: Nap<'_>, asked: Time) {
        let (run, name, time) = nap;
        let first = self.oracle.naps.get(&(run, name.to_owned())).copied().unwrap_or(asked).min(asked);
        let name = name.rsplit('/').next().unwrap_or_default();
        let inherited = self.oracle.runs.get(&run).is_some_and(|seen| seen.has_inherited(name));
        if self.now < first.after(time) && !inherited {
            let message = format!("{nap:?} began at {first} and was over at {}", self.now);
            self.violate("sleep too short", message);
        }
    }

    /// A node has learnt that it has a run.
    pub(crate) fn has_in_hand(&mut self, run: &Run, node: usize, life: u32) {
        let number = self.next_number();
        // The first time: the answer to a start may tell the same later.
        self.oracle.in_hand.entry((run.id(), run.state.version, node, life)).or_insert(number);
    }

    /// A node has learnt that its commit at a version was refused. If the run has ended or was claimed since, it is no
    /// longer the node's; if not, the commit may have been there already, and only its answer was lost.
    pub(crate) fn heard_of_loss(&mut self, run: RunId, expected: u64, node: usize, life: u32) {
        let Some(seen) = self.oracle.runs.get(&run) else { return };
        let is_claim = |numbered: &Numbered| matches!(numbered.entry, Entry::Claimed { .. });
        let (before, since) = seen.entries.split_at(seen.entries.len().min(expected as usize));
        let claim = before.iter().rposition(is_claim).map_or(0, |place| place as u64 + 1);
        if seen.ended() || since.iter().any(is_claim) {
            self.oracle.lost.insert((run, claim, node, life));
        }
    }

    /// The store has answered a delivery.
    pub(crate) fn was_delivered(&mut self, asked: &Deliver, delivered: &Result<Delivered>) {
        let token = asked.token.to_string();
        match delivered {
            Ok(delivered) => {
                let (to, id) =
                    ((delivered.run, delivered.arrival), asked.id.as_ref().map(ToString::to_string));
                let call = (token.clone(), id.unwrap_or_default());
                let before = self.oracle.accepted.insert(call, to).unwrap_or(to);
                // The id is free for the next owner of the token once the first owner has ended.
                let ended = self.oracle.runs.get(&before.0).is_none_or(Seen::ended);
                if before != to && (before.0 == to.0 || delivered.absorbed || !ended) {
                    self.violate("delivery", format!("{asked:?} went to {before:?}, and then to {to:?}"));
                }
                if delivered.absorbed {
                    self.figures.count("deliveries absorbed");
                } else {
                    self.figures.count("deliveries");
                    self.oracle.payloads.insert(to, (token, asked.payload.text().to_owned()));
                }
            }
            Err(semel::Error::HookNotFound(_)) => {
                if let Some((owner, _)) = self.oracle.tokens.get(&token) {
                    let message = format!("{token} is open in {owner}, and was not found");
                    self.violate("token", message);
                }
            }
            Err(_) => {}
        }
    }

    /// The body of a step begins.
    pub(crate) fn begins(&mut self, begun: Begun) {
        let Begun { run, path, number, fence, node, life, .. } = &begun;
        self.note(|| format!("node {node}: {path} of {run} begins, try {number}, fence {fence}"));
        let mut wrong = Vec::new();
        let oracle = &mut self.oracle;
        let highest = oracle.fences.entry((*run, *node, *life)).or_default();
        if fence < highest {
            wrong.push(("fence", format!("{path} of {run} has fence {fence} after {highest}")));
        }
        *highest = (*highest).max(*fence);
        if let Some(seen) = oracle.runs.get(run) {
            let claimed = (*fence as usize).checked_sub(1).and_then(|place| seen.entries.get(place));
            if !claimed.is_some_and(|numbered| matches!(numbered.entry, Entry::Claimed { .. })) {
                wrong.push(("fence", format!("{path} of {run} has fence {fence}, which is no claim")));
            }
            if seen.completed.get(path).is_some_and(|claim| fence >= claim) {
                wrong.push(("called again", format!("{path} of {run} has its result, and is called again")));
            }
            if seen.retries.get(path).is_some_and(|(at, claim)| fence >= claim && self.now < *at) {
                wrong.push(("timer", format!("{path} of {run} is tried again too early")));
            }
            if begun.class == Class::Reconcile && !oracle.has_asked(seen, &begun, &self.provider) {
                wrong.push(("not asked", format!("{path} of {run} begins again without a look-up")));
            }
            let lag = oracle.lags.get(&(*node, *life)).copied().unwrap_or(0);
            if let Some(limit) = seen.deadline()
                && self.now.0 - lag > limit.0 + AWARE_AFTER
            {
                wrong.push((
                    "after the deadline",
                    format!("{path} of {run} begins, which had time until {limit}"),
                ));
            }
            if seen.ended() {
                let unaware = oracle.unaware.entry((*run, *fence)).or_default();
                *unaware += 1;
                if *unaware > UNAWARE {
                    wrong.push(("after the end", format!("{run} has ended, and its steps go on beginning")));
                }
            }
            if oracle.lost.contains(&(*run, *fence, *node, *life)) {
                wrong.push((
                    "lost owner",
                    format!("{path} of {run} begins on a node that knows it has lost it"),
                ));
            }
            let in_hand = oracle.in_hand.get(&(*run, *fence, *node, *life));
            let after = |won: &Won| {
                (won.run, won.node, won.life) == (*run, *node, *life)
                    && in_hand.is_some_and(|number| *number < won.asked)
            };
            if oracle.won.iter().any(after) {
                wrong.push((
                    "after a won cancel",
                    format!("{path} of {run} begins on the node that cancelled it"),
                ));
            }
        } else {
            wrong.push(("start", format!("{path} begins in {run}, which is not in the store")));
        }
        self.executes(begun.run, begun.fence, begun.node, begun.life);
        self.provider.begun.push(begun);
        self.provider.expectant.drain(..).for_each(Waker::wake);
        for (kind, message) in wrong {
            self.violate(kind, message);
        }
    }
}

impl Oracle {
    /// Whether a step with a look-up may begin: its owner has looked up each earlier try that it can know of, or an operator has
    /// said that the try had no effect.
    fn has_asked(&self, seen: &Seen, begun: &Begun, provider: &Provider) -> bool {
        let place = (begun.run, begun.fence, begun.node, begun.life);
        let in_hand = self.in_hand.get(&place).copied().unwrap_or(0);
        let told = provider.told.get(&(begun.key.clone(), begun.node, begun.life));
        let asked = told.is_some_and(|told| *told > in_hand);
        let denied = |after: u64| {
            seen.entries.iter().any(|numbered| match &numbered.entry {
                Entry::StepResolved { step, resolution: Resolution::DidNotHappen, .. } => {
                    step.to_string() == begun.path && numbered.number > after
                }
                _ => false,
            })
        };
        let known = |tried: &&Begun| {
            let earlier = tried.run != begun.run || tried.fence < begun.fence;
            tried.key == begun.key && earlier && tried.order < in_hand
        };
        let fence = |tried: &Begun| if tried.run == begun.run { tried.fence } else { 0 };
        asked || provider.begun.iter().filter(known).all(|tried| denied(fence(tried)))
    }
}

/// Checks the firing of a timer; returns what is wrong.
fn saw_firing(id: RunId, seen: &mut Seen, timer: &str, at: Time) -> Option<(&'static str, String)> {
    let inherits = seen.inherits();
    let Some(due) = seen.timers.get(timer) else {
        return Some(("timer was not set", format!("{timer} of {id} fired, and was never set")));
    };
    if at < *due && !inherits {
        return Some(("timer", format!("{timer} of {id} fired at {at}, due at {due}")));
    }
    let again = !seen.fired.insert(timer.to_owned());
    again.then(|| ("timer fired twice", format!("{timer} of {id} fired again at {at}")))
}

type Tokens = BTreeMap<String, (RunId, BTreeSet<String>)>;
type Payloads = BTreeMap<(RunId, u64), (String, String)>;

/// Records an entry about a hook; returns what is wrong.
fn saw_hook(
    id: RunId,
    seen: &mut Seen,
    tokens: &mut Tokens,
    payloads: &Payloads,
    entry: &Entry,
) -> Option<(&'static str, String)> {
    match entry {
        Entry::HookOpened { hook, token } => {
            let owner = tokens.entry(token.to_string()).or_insert_with(|| (id, BTreeSet::new()));
            owner.1.insert(hook.to_string());
            seen.hooks.insert(hook.to_string(), token.to_string());
            (owner.0 != id).then(|| ("token", format!("{token} belongs to {}, and {id} opened it", owner.0)))
        }
        Entry::HookClosed { hook } => {
            let token = seen.hooks.remove(&hook.to_string()).unwrap_or_default();
            if let Some((_, hooks)) = tokens.get_mut(&token) {
                hooks.remove(&hook.to_string());
                if hooks.is_empty() {
                    tokens.remove(&token);
                }
            }
            None
        }
        Entry::HookReceived { hook, arrival, payload } => {
            let token = seen.hooks.get(&hook.to_string()).cloned().unwrap_or_default();
            *seen.taken.entry(token.clone()).or_default() += 1;
            let before = seen.latest.insert(token.clone(), *arrival);
            if !seen.consumed.insert(*arrival) {
                return Some(("delivery", format!("{id} took message {arrival} twice")));
            }
            if before.is_some_and(|before| before >= *arrival) {
                return Some(("order", format!("{id} took message {arrival} of {token} out of order")));
            }
            let waits = |(number, (of, _)): &(u64, &(String, String))| {
                *of == token && *number < *arrival && !seen.consumed.contains(number)
            };
            let earlier = payloads.range((id, 0)..(id, *arrival)).map(|((_, number), what)| (*number, what));
            if let Some((number, _)) = earlier.clone().find(waits) {
                return Some(("skipped", format!("{id} took message {arrival} of {token} before {number}")));
            }
            let delivered = payloads.get(&(id, *arrival));
            let as_delivered = delivered == Some(&(token.clone(), payload.text().to_owned()));
            let message = || format!("{id} got {} as message {arrival} for {token}", payload.text());
            (!as_delivered).then(|| ("delivery", message()))
        }
        _ => None,
    }
}

/// The node that drives a run.
enum Driver {
    NoNode,
    Node(NodeId),
}

/// The driver of a run after this entry; none if the entry does not tell.
fn driver_after(entry: &Entry) -> Option<Driver> {
    match entry {
        Entry::Claimed { node } => Some(Driver::Node(*node)),
        Entry::Created(_)
        | Entry::Waiting { .. }
        | Entry::Paused { .. }
        | Entry::Resumed { .. }
        | Entry::Restarted { .. }
        | Entry::StepResolved { .. } => Some(Driver::NoNode),
        _ => None,
    }
}
