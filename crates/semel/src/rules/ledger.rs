//! The fold of a run's entries: the state that they add up to, and which entry may come next.
//!
//! The same function reads old entries and checks new ones, so everything that is written can be read.

mod apply;
mod bounds;
mod inherit;
mod part;
mod record;
mod refused;
mod slim;
#[cfg(test)]
mod tests;
mod visits;

use std::collections::{HashMap, HashSet, VecDeque};

pub use bounds::LedgerBounds;
pub use record::{HookState, VisitRecord};
pub use refused::RefusedEntry;
use serde::{Deserialize, Serialize};
use slim::Settled;
use visits::Visits;

use super::commit::{Beyond, ChildStart, Commit, Content, Draft, Ending, Tally, Write};
use super::entry::{Created, Entry, Lines, Outcome, PauseReason};
use super::json::Payload;
use super::key::{EffectKey, Fingerprint, Key, Label, Token};
use super::path::{Name, Visit};
use super::run::{Retention, Run};
use super::status::Status;
use super::step::StepState;
use crate::clock::Time;
use crate::id::RunId;
use crate::map::{Map, make_room};
use crate::sabotage::{self, Bug};

/// Whether a fork has the effect keys of the run it was forked from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum Lineage {
    /// The same effect keys: effects that the run has made are not made again by the fork.
    #[default]
    Inherited,
    /// Effect keys of its own.
    Fresh,
}

/// A run's header and the fold of its ledger, with the entries that are not committed yet.
#[derive(Clone, Debug)]
pub struct Ledger {
    run: Run,
    /// Id of the run. Copied from the shared header, which is a pointer away, because every commit needs it.
    id: RunId,
    created: Option<Box<Created>>,
    /// The record of each visit; none where the execution is at work and has recorded nothing yet.
    records: Map<Visit, Option<VisitRecord>>,
    /// Steps in doubt: a run must not complete over one.
    doubts: usize,
    /// Time by which the run must have ended.
    deadline: Option<Time>,
    /// Number of claims, and the run's version at the latest one.
    claims: (u32, u64),
    outcome: Option<Outcome>,
    /// Approximate size of the fold in bytes.
    weight: usize,
    pending: PendingCommit,
    /// Whether an execution records here, whose commits may be cut into parts.
    cuts: bool,
    /// Apart: where thousands of runs take turns, what each of them touches counts.
    seldom: Option<Box<RareFacts>>,
}

/// Parts of the fold that most runs never need.
#[derive(Clone, Debug, Default)]
struct RareFacts {
    once: HashMap<(String, Label), Payload>,
    /// Number of hooks that hold each token: it is freed with the last of them.
    tokens: HashMap<Token, usize>,
    /// Steps whose effect must not simply be tried again: no restart or fork forgets them.
    intents: HashSet<Visit>,
    /// Visits that a restart or a fork has kept: the code that goes on need not visit them again.
    carried: HashSet<Visit>,
    /// Reason and name of the caller, if the run was asked to end.
    cancelling: Option<(String, String)>,
    /// Visit of the latest outcome, if a restart or a fork may lose it. None once another outcome has followed.
    fleeting: Option<Visit>,
    /// Races that a restart or a fork may have to decide anew, and what decided them.
    races: HashMap<Visit, Decider>,
    pause: Option<PauseReason>,
    visits: Visits,
    /// Set in a ledger that keeps no values: see [`Ledger::slim`].
    settled: Option<Settled>,
    /// Commits that are full, and the versions at which they begin.
    parts: VecDeque<(u64, PendingCommit)>,
}

/// The fact that decided a race, if a restart or a fork may take it back.
#[derive(Clone, Debug)]
enum Decider {
    /// The run had been asked to end: the winner may only have been the first to learn of it.
    Cancelling,
    /// The outcome at this visit: a failure, a conflict, or the end of a child.
    Outcome(Visit),
}

impl RareFacts {
    /// The fact that decides a race now, if it may be taken back.
    fn decider(&self) -> Option<Decider> {
        match self.cancelling {
            Some(_) => Some(Decider::Cancelling),
            None => self.fleeting.clone().map(Decider::Outcome),
        }
    }

    fn hold(&mut self, token: &Token) {
        *self.tokens.entry(token.clone()).or_insert(0) += 1;
    }

    /// One hook releases the token. True if it was the last one that held it.
    fn let_go(&mut self, token: &Token) -> bool {
        let holders = self.tokens.get_mut(token).expect("a hook holds its token");
        *holders -= 1;
        let last = *holders == 0;
        if last {
            self.tokens.remove(token);
        }
        last
    }
}

/// Content of the next commit.
#[derive(Clone, Debug, Default)]
struct PendingCommit {
    /// What comes before the lines: up to the last draft that the store settles.
    drafts: Vec<Draft>,
    lines: Lines,
    count: u64,
    tally: Tally,
    beyond: Option<Box<Beyond>>,
    /// Total size of the inputs of its children, in bytes.
    inputs: usize,
}

impl PendingCommit {
    fn beyond(&mut self) -> &mut Beyond {
        self.beyond.get_or_insert_default()
    }
}

impl Ledger {
    /// Folds what the store keeps of a run. `run` is its header; the entries are all of its ledger.
    pub fn read(run: Run, entries: impl IntoIterator<Item = Entry>) -> Result<Self, RefusedEntry> {
        let mut ledger = Self::empty(run);
        for entry in entries {
            ledger.apply(&entry)?;
        }
        if ledger.created.is_none() {
            return Err(RefusedEntry::Beginning);
        }
        ledger.pending = PendingCommit::default();
        Ok(ledger)
    }

    fn empty(mut run: Run) -> Self {
        run.state.version = 0;
        run.state.status = Status::Pending;
        run.state.node = None;
        Self {
            id: run.id(),
            run,
            created: None,
            records: Map::default(),
            doubts: 0,
            deadline: None,
            claims: (0, 0),
            outcome: None,
            weight: 0,
            pending: PendingCommit::default(),
            cuts: false,
            seldom: None,
        }
    }

    /// The run's header as the entries, committed or not, leave it.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The first entry of the run: workflow, input, limits.
    pub fn created(&self) -> &Created {
        self.created.as_deref().expect("a ledger that was read begins with `created`")
    }

    /// The record at a visit. None if nothing is recorded there.
    pub fn record_at(&self, visit: &Visit) -> Option<&VisitRecord> {
        self.records.get(visit)?.as_ref()
    }

    /// Everything that stands at some visit.
    pub fn records(&self) -> impl Iterator<Item = (&Visit, &VisitRecord)> {
        self.records.iter().filter_map(|(visit, record)| Some((visit, record.as_ref()?)))
    }

    /// Whether the record at this visit is from before a restart, or from the run it was forked from.
    pub fn is_carried(&self, visit: &Visit) -> bool {
        self.seldom.as_ref().is_some_and(|seldom| seldom.carried.contains(visit))
    }

    /// Whether a hook was closed before a restart, or in the run it was forked from: then it may be opened again,
    /// because a branch that lost there may go on here.
    pub(crate) fn may_reopen(&self, hook: &Visit) -> bool {
        matches!(self.record_at(hook), Some(VisitRecord::Hook { state: HookState::Closed(_), .. }))
            && self.is_carried(hook)
    }

    /// The result kept under a label: of this run (with an empty scope), or shared with other runs.
    pub fn once(&self, scope: &str, label: &Label) -> Option<&Payload> {
        self.seldom.as_ref()?.once.get(&(scope.to_owned(), label.clone()))
    }

    /// All results kept under labels: scope, label and value.
    pub fn once_values(&self) -> impl Iterator<Item = (&str, &Label, &Payload)> {
        let all = self.seldom.iter().flat_map(|seldom| &seldom.once);
        all.map(|((scope, label), value)| (&**scope, label, value))
    }

    /// Time by which the run must have ended, if it has a limit.
    pub fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// Version of the run's latest claim, which user code gets as its fence.
    pub fn fence(&self) -> u64 {
        self.claims.1
    }

    /// Number of times that the run was claimed.
    pub fn claims(&self) -> u32 {
        self.claims.0
    }

    /// Reason and name of the caller, if the run was asked to end.
    pub fn cancelling(&self) -> Option<(&str, &str)> {
        let (reason, by) = self.seldom.as_ref()?.cancelling.as_ref()?;
        Some((reason, by))
    }

    /// Approximate size of the fold in memory, in bytes.
    pub fn weight(&self) -> usize {
        self.slim_weight().unwrap_or(self.weight)
    }

    /// Takes in a claim that the store has written, so that what is in memory can go on.
    pub fn claimed(&mut self, run: Run) -> Result<(), RefusedEntry> {
        let node =
            run.state.node.ok_or(RefusedEntry::Status { from: run.status(), entry: "claimed".into() })?;
        self.apply(&Entry::Claimed { node })?;
        let version = self.run.state.version;
        self.run = run;
        self.run.state.version = version;
        Ok(())
    }

    /// Outcome of the run, if it has ended.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// Whether a step of the run is in doubt.
    pub fn is_in_doubt(&self) -> bool {
        self.doubts > 0
    }

    /// The steps in doubt, in order of their paths.
    pub fn doubts(&self) -> Vec<Visit> {
        if self.doubts == 0 {
            return Vec::new();
        }
        let doubtful = |(_, record): &(&Visit, &VisitRecord)| {
            matches!(record, VisitRecord::Step(StepState::InDoubt { .. }))
        };
        let mut doubts: Vec<Visit> = self.records().filter(doubtful).map(|(at, _)| at.clone()).collect();
        doubts.sort_unstable();
        doubts
    }

    /// Effects that must not simply be tried again, and that have begun without an end: in order of their paths.
    pub fn begun(&self) -> Vec<Visit> {
        let hidden = |visit: &&Visit| {
            matches!(self.record_at(visit), Some(VisitRecord::Step(StepState::Started { .. })))
        };
        let intents = self.seldom.iter().flat_map(|seldom| &seldom.intents);
        let mut begun: Vec<Visit> = intents.filter(hidden).cloned().collect();
        begun.sort_unstable();
        begun
    }

    /// Reason of the pause, if the run is paused.
    pub fn pause(&self) -> Option<&PauseReason> {
        self.seldom.as_ref()?.pause.as_ref()
    }

    /// The effect key of a visit in this run's lineage.
    pub fn effect_key(&self, visit: &Visit, label: &str) -> EffectKey {
        EffectKey::of(self.run.new.workspace, self.run.new.lineage, visit, label)
    }

    /// Takes one more entry into the next commit, or refuses it and changes nothing.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "an entry is handed over; callers do not need it afterwards"
    )]
    pub fn record(&mut self, entry: Entry) -> Result<(), RefusedEntry> {
        if entry.is_the_stores() {
            return Err(RefusedEntry::Stores(entry.kind().into()));
        }
        if matches!(entry, Entry::TimedOut { limit } if self.deadline != Some(limit)) {
            return Err(RefusedEntry::Limit { limit: self.deadline });
        }
        self.part();
        self.apply(&entry)?;
        self.pending.lines.push(&entry);
        self.pending.tally.count(&entry);
        self.pending.count += 1;
        Ok(())
    }

    /// Asks for a token with the next commit; [`Ledger::settle`] brings the answer.
    pub fn open_hook(&mut self, hook: Visit, token: Token) -> Result<(), RefusedEntry> {
        self.running("hookOpened")?;
        self.part();
        // A hook from before a restart keeps what it had received.
        let carried = self.is_carried(&hook);
        let received = match self.records.get_mut(&hook) {
            Some(Some(VisitRecord::Hook { state: HookState::Released(all), .. })) => std::mem::take(all),
            Some(Some(VisitRecord::Hook { state: HookState::Closed(all), .. })) if carried => {
                std::mem::take(all)
            }
            _ => {
                self.vacant(&hook, "hookOpened")?;
                Vec::new()
            }
        };
        self.put(&hook, VisitRecord::Hook { token: token.clone(), state: HookState::Opening(received) });
        self.seldom.get_or_insert_default().hold(&token);
        self.draft(Draft::OpenHook { hook, token });
        Ok(())
    }

    /// Asks for a child with the next commit; [`Ledger::settle`] takes the answer.
    pub fn start_child(
        &mut self,
        child: Visit,
        run: RunId,
        workflow: Name,
        version: Name,
        input: Payload,
    ) -> Result<(), RefusedEntry> {
        self.running("childStarted")?;
        self.part();
        self.vacant(&child, "childStarted")?;
        let key = match sabotage::commits(Bug::ChildKeyIsNew) {
            true => run.to_string(),
            false => self.effect_key(&child, "").to_string(),
        };
        let key = Key::new(key).expect("34 plain characters");
        let fingerprint =
            Fingerprint::of_start(&workflow, &input, &[]).expect("a payload was checked when it was made");
        self.put(&child, VisitRecord::Child { run: None, outcome: None });
        let retention: Retention = self.run.new.retention;
        let start = ChildStart {
            child,
            run,
            workflow,
            workflow_version: version,
            input,
            key,
            fingerprint,
            retention,
        };
        self.pending.inputs += start.input.text().len();
        self.draft(Draft::StartChild(Box::new(start)));
        Ok(())
    }

    /// Everything recorded since the last commit, as one commit; none if nothing was recorded. If an execution has
    /// recorded very much at once, this is the first part: ask again when it is saved.
    pub fn commit(&mut self) -> Option<Commit> {
        if let Some((expected, part)) = self.seldom.as_mut().and_then(|seldom| seldom.parts.pop_front()) {
            return Some(self.commit_of(part, expected, Status::Running));
        }
        if self.pending.count == 0 {
            return None;
        }
        if let Some(outcome) = self.outcome.clone() {
            let (parent, retention) = (self.created().parent.clone(), self.run.new.retention);
            self.pending.beyond().ending = Some(Ending { outcome, parent, retention });
        }
        let pending = std::mem::take(&mut self.pending);
        let expected = self.run.state.version - pending.count;
        Some(self.commit_of(pending, expected, self.run.status()))
    }

    fn commit_of(&self, pending: PendingCommit, expected: u64, status: Status) -> Commit {
        let PendingCommit { mut drafts, lines, count, tally, mut beyond, .. } = pending;
        if beyond.is_some() || !drafts.is_empty() {
            beyond.get_or_insert_default().workspace = Some(self.run.new.workspace);
        }
        let content = if drafts.is_empty() {
            Content::Ready(lines.finish())
        } else {
            drafts.push(Draft::Entries(lines));
            Content::Drafts(drafts)
        };
        let (num, run, seen) = (self.run.num, self.id, self.run.arrivals);
        // A part is committed before the entry that releases the run, which may be recorded by now.
        let driver = |beyond: &Option<Box<Beyond>>| beyond.as_ref().and_then(|beyond| beyond.driver);
        let node = self.run.state.node.or_else(|| driver(&beyond)).or_else(|| driver(&self.pending.beyond));
        Commit::new(Write {
            num,
            run,
            new: self.run.new.clone(),
            fence: self.fence(),
            node,
            expected,
            count,
            content,
            status,
            seen,
            asks_news: false,
            tally,
            beyond,
        })
    }

    /// Takes in what the store made of the drafts of a saved commit.
    pub fn settle(&mut self, settled: &[Entry]) -> Result<(), RefusedEntry> {
        for entry in settled {
            // Counted when the draft was made.
            self.run.state.version -= 1;
            self.apply(entry)?;
        }
        Ok(())
    }

    /// Notes that the driver has seen this many arrivals of its inbox.
    pub fn saw_arrivals(&mut self, arrivals: u64) {
        self.run.arrivals = self.run.arrivals.max(arrivals);
    }

    fn draft(&mut self, draft: Draft) {
        let before = std::mem::take(&mut self.pending.lines);
        self.pending.drafts.extend([Draft::Entries(before), draft]);
        self.pending.count += 1;
        self.run.state.version += 1;
    }

    fn put(&mut self, visit: &Visit, record: VisitRecord) {
        make_room(&mut self.records);
        self.records.insert(visit.clone(), Some(record));
    }
}

impl Entry {
    /// Whether only the store may write it, because it records a change outside the ledger: a claim, a token, a run,
    /// an operator's action.
    fn is_the_stores(&self) -> bool {
        matches!(
            self,
            Self::Created(_)
                | Self::Claimed { .. }
                | Self::HookOpened { .. }
                | Self::HookConflicted { .. }
                | Self::ChildStarted { .. }
                | Self::Resumed { .. }
                | Self::Restarted { .. }
                | Self::KeyReleased { arrival: None, .. }
        )
    }

    /// The visit that the entry is about; none if it is about the whole run.
    pub fn visit(&self) -> Option<&Visit> {
        match self {
            Self::StepStarted { step, .. }
            | Self::StepCompleted { step, .. }
            | Self::StepFailed { step, .. }
            | Self::StepSkipped { step, .. }
            | Self::StepInDoubt { step, .. }
            | Self::StepResolved { step, .. } => Some(step),
            Self::TimerSet { timer, .. } | Self::TimerFired { timer } => Some(timer),
            Self::HookOpened { hook, .. }
            | Self::HookConflicted { hook, .. }
            | Self::HookReceived { hook, .. }
            | Self::HookClosed { hook } => Some(hook),
            Self::ChildStarted { child, .. } | Self::ChildFinished { child, .. } => Some(child),
            Self::Recorded { at, .. } => Some(at),
            _ => None,
        }
    }
}
