//! Start a run, or find the owner of its key; and hand over a payload with it.

#[cfg(any(feature = "sqlite", feature = "postgres"))]
use std::sync::Arc;

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::id::RunId;
use crate::rules::control;
use crate::rules::deadline;
use crate::rules::deliver::{CameTo, Deliver, Delivered, PastCall};
use crate::rules::entry::{Entry, Outcome, encode};
use crate::rules::key::{self, Fingerprint, Token};
use crate::rules::run::{NewRun, Run, RunState};
use crate::rules::start::{self, Decision, Handover, Start, StartVerdict};
use crate::rules::status::Status;
use crate::store::Started;
use crate::store::tx::{NewHook, StoreTx, Verb, race};

use super::deadline::SeenRun;
use super::deliver::{self, Remembered};
use super::lease::is_alive;
use super::read::{entries_of, outcome_of};

/// A start, with its fingerprint. That is computed outside of the transaction, because inputs may be large.
#[derive(Clone, Debug)]
pub(crate) struct StartRun {
    pub(crate) start: Start,
    pub(crate) fingerprint: Fingerprint,
}

/// A run as it will be if nothing is in its way, with the text of its first entries: made where the start is asked for,
/// so that all that is left to the transaction is to insert it.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
#[derive(Debug)]
pub(crate) struct NewStart {
    pub(crate) new: Arc<NewRun>,
    pub(crate) state: RunState,
    pub(crate) entries: Vec<Entry>,
    pub(crate) text: String,
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl NewStart {
    /// The node that is to drive it is taken to be alive. The backend checks that when it inserts the run.
    pub(crate) fn of(verb: &StartRun, now: Time) -> Self {
        let (new, state, entries) = start::create(&verb.start, verb.start.claim, verb.fingerprint, now);
        let text = encode(&entries);
        Self { new: new.into(), state, entries, text }
    }

    /// Sets when it was made. For what [tells no time](Start::tells_no_time): the text of its entries stays as it is.
    #[cfg(feature = "postgres")]
    pub(crate) fn set_time(&mut self, now: Time) {
        Arc::make_mut(&mut self.new).created = now;
        self.state.due = self.state.due.map(|_| now);
    }

    /// The answer, once it is inserted.
    pub(crate) fn started(self, num: i64) -> Started {
        let run = Run { num, new: self.new, state: self.state, arrivals: 0, purged: false };
        Started::of_new(run, self.entries)
    }
}

/// The same start, as far as it needs no write: almost every duplicate. Gives nothing if a write is needed.
#[derive(Clone, Debug)]
pub(crate) struct PeekStart(pub(crate) StartRun);

impl Verb for PeekStart {
    type Answer = Option<Started>;
    const READS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<Started>> {
        let StartRun { start, fingerprint } = &self.0;
        if start.deliver.is_some() {
            return Ok(None);
        }
        let holder = tx.holder(start.workspace, &start.key_scope(), &start.key).await?;
        if holder.as_ref().is_some_and(|holder| deadline::decide(holder, tx.now()).is_some()) {
            return Ok(None);
        }
        match (start::decide(start, *fingerprint, holder.as_ref(), tx.now()), holder) {
            (Decision::Attach(verdict), Some(holder)) => answer(tx, holder, verdict).await.map(Some),
            (Decision::Reject, Some(holder)) => Err(duplicate(&holder)),
            (Decision::Refuse, Some(holder)) => Err(reused(tx, start, &holder).await?),
            _ => Ok(None),
        }
    }
}

impl Verb for StartRun {
    type Answer = Started;

    #[cfg(feature = "sqlite")]
    fn weight(&self) -> usize {
        self.start.input.text().len()
    }

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Started> {
        let start = &self.start;
        if start.deliver.is_some()
            && let Some(run) = tx.run(start.run).await?
        {
            return self.made_before(tx, run).await;
        }
        // A key that was drawn for this start is almost certainly free; if it is not, the index refuses it.
        if start.is_keyless()
            && start.deliver.is_none()
            && let Some(started) = self.create(tx, StartVerdict::Created, None, None).await?
        {
            return Ok(started);
        }
        let holder = tx.holder(start.workspace, &start.key_scope(), &start.key).await?;
        let holder = holder.map(|run| SeenRun::at(run, tx.now()));
        let owner = match &start.deliver {
            Some(handover) => tx.hook(start.workspace, &handover.token).await?,
            None => None,
        };
        // The tokens of a holder whose time is up go with its end.
        let overdue = holder.as_ref().and_then(SeenRun::overdue);
        let owner = owner.filter(|owner| overdue != Some(owner.id()));
        // Key and policy first: only then it is known what a repetition of this start would be answered.
        let seen = holder.as_ref().map(|holder| &holder.run);
        let decision = start::decide(start, self.fingerprint, seen, tx.now());
        match (decision, holder) {
            (Decision::Reject, Some(holder)) => Err(duplicate(&holder.run)),
            (Decision::Refuse, Some(holder)) => Err(reused(tx, start, &holder.run).await?),
            (Decision::Attach(verdict), Some(holder)) => self.attach(tx, holder, owner, verdict).await,
            (Decision::Restart, Some(holder)) => self.restart(tx, holder, owner).await,
            (_, holder) => self.make(tx, holder, owner).await,
        }
    }
}

impl StartRun {
    pub(crate) fn of(start: Start) -> Result<Self> {
        start.check()?;
        let fingerprint = start.fingerprint()?;
        Ok(Self { start, fingerprint })
    }

    /// Whether the key was drawn for this start, and no delivery comes with it: then all that is left is to insert the run, if
    /// the index allows it.
    #[cfg(feature = "sqlite")]
    pub(crate) fn is_plain(&self) -> bool {
        self.start.is_keyless() && self.start.deliver.is_none()
    }

    /// The run as it is made now; `lease` is that of the node which wants it.
    fn made(&self, lease: Option<Time>, now: Time) -> (NewRun, RunState, Vec<Entry>) {
        // A dead node's runs are given away once: one that it took now would stay its for ever.
        let claim = self.start.claim.filter(|_| is_alive(lease, now));
        start::create(&self.start, claim, self.fingerprint, now)
    }

    /// The answer to a start whose run exists: its answer was lost on the way. The run may have lost the key since, and
    /// this is no news that could take it back.
    async fn made_before<T: StoreTx>(&self, tx: &mut T, run: Run) -> Result<Started> {
        let Start { workspace, key, .. } = &self.start;
        let same = run.new.workspace == *workspace && run.new.key == *key;
        if !same || run.new.scope != self.start.key_scope() {
            return Err(Error::Validation(format!("{} is taken; draw another id", self.start.run)));
        }
        if run.new.fingerprint != self.fingerprint {
            return Err(reused(tx, &self.start, &run).await?);
        }
        let delivered = match &self.start.deliver {
            None => None,
            Some(handover) => {
                let came_to = CameTo::Holder(run.id());
                self.handed_over(tx, handover, came_to).await?.1.as_ref().map(deliver::absorbed)
            }
        };
        Ok(Started { delivered, ..answer(tx, run, StartVerdict::Created).await? })
    }

    /// Finds the run that holds the key.
    async fn attach<T: StoreTx>(
        &self,
        tx: &mut T,
        holder: SeenRun,
        owner: Option<Run>,
        verdict: StartVerdict,
    ) -> Result<Started> {
        let target = owner.as_ref().or(Some(&holder.run).filter(|run| !run.status().is_terminal()));
        let handing = self.plan(tx, holder.run.id(), target.map(Run::id), holder.overdue()).await?;
        if let (Some(target), Some(Handing::New(..))) = (target, &handing) {
            deliver::check_room(tx, target).await?;
        }
        let holder = holder.settle(tx).await?;
        found(tx, holder, owner, handing, verdict).await
    }

    /// Restarts the run that holds the key. A full inbox does not keep it from that: a restart is rare.
    async fn restart<T: StoreTx>(&self, tx: &mut T, holder: SeenRun, owner: Option<Run>) -> Result<Started> {
        let id = holder.run.id();
        let target = owner.as_ref().map_or(id, Run::id);
        let handing = self.plan(tx, id, Some(target), holder.overdue()).await?;
        let mut holder = holder.settle(tx).await?;
        super::control::restart(tx, &mut holder, "start").await?;
        found(tx, holder, owner, handing, StartVerdict::Restarted).await
    }

    /// Makes a run under a key that is free, or is taken from its holder; unless the payload is for another run.
    async fn make<T: StoreTx>(
        &self,
        tx: &mut T,
        holder: Option<SeenRun>,
        owner: Option<Run>,
    ) -> Result<Started> {
        let seen = holder.as_ref().map(|holder| &holder.run);
        if let Some(handover) = &self.start.deliver
            && let Some(started) = self.hand_to_other(tx, handover, seen, owner).await?
        {
            return Ok(started);
        }
        let made = self.start.run;
        let handing = self.plan(tx, made, Some(made), seen.map(Run::id)).await?;
        match holder {
            Some(holder) => match tx.run(made).await? {
                Some(run) => self.made_before(tx, run).await,
                None => {
                    let holder = holder.settle(tx).await?;
                    self.replace(tx, holder, handing).await
                }
            },
            None => match self.create(tx, StartVerdict::Created, None, handing).await? {
                Some(started) => Ok(started),
                None => {
                    let run = tx.run(made).await?.ok_or_else(race)?;
                    self.made_before(tx, run).await
                }
            },
        }
    }

    /// Makes the run; nothing if its key or its id is taken.
    async fn create<T: StoreTx>(
        &self,
        tx: &mut T,
        verdict: StartVerdict,
        superseded: Option<Run>,
        handing: Option<Handing>,
    ) -> Result<Option<Started>> {
        let lease = match self.start.claim {
            Some(node) => tx.lease(node).await?,
            None => None,
        };
        let (new, state, entries) = self.made(lease, tx.now());
        let Some(mut run) = insert(tx, new, state, &entries).await? else { return Ok(None) };
        let delivered = hand_over(tx, &mut run, None, handing).await?;
        let superseded = superseded.map(|old| old.id());
        Ok(Some(Started { verdict, delivered, superseded, ..Started::of_new(run, entries) }))
    }

    /// Takes the key from a run that has ended or is cancelled for it, and starts a new one under it.
    async fn replace<T: StoreTx>(
        &self,
        tx: &mut T,
        mut holder: Run,
        handing: Option<Handing>,
    ) -> Result<Started> {
        let open = !holder.status().is_terminal();
        let expected = holder.state.version;
        if open {
            let action =
                control::ControlAction::Cancel { reason: format!("superseded by {}", self.start.run) };
            let moved = control::decide(&holder, &action, "start", tx.now())?;
            let (entry, state) = moved.expect("an open run can be cancelled");
            holder.state = state;
            holder.state.holds_key = false;
            super::finish::end_run(tx, &mut holder, expected, &[entry]).await?;
        } else {
            holder.state.holds_key = false;
            if !tx.save(holder.num, expected, &holder.state).await? {
                return Err(race());
            }
        }
        let verdict = if open { StartVerdict::Superseded } else { StartVerdict::Created };
        self.create(tx, verdict, open.then_some(holder), handing).await?.ok_or_else(race)
    }

    /// Looks for the delivery of an equal request that found the same run. Also gives the id under which such a
    /// delivery is remembered.
    async fn handed_over<T: StoreTx>(
        &self,
        tx: &mut T,
        handover: &Handover,
        came_to: CameTo,
    ) -> Result<(Remembered, Option<PastCall>)> {
        let id = self.start.handover_id(handover, came_to)?;
        let deliver = Deliver::of(&self.start, handover);
        let past = deliver::accepted(tx, &deliver, Start::HANDOVER_SCOPE, &id).await?;
        let replaces = past.as_ref().map(|past| past.run);
        Ok((Remembered { scope: Start::HANDOVER_SCOPE.to_owned(), id, replaces }, past))
    }

    /// The answer of a start that makes no run, because its payload is another run's: of the one that got it by the same
    /// request before, or of the owner of the token.
    async fn hand_to_other<T: StoreTx>(
        &self,
        tx: &mut T,
        handover: &Handover,
        holder: Option<&Run>,
        owner: Option<Run>,
    ) -> Result<Option<Started>> {
        let (remembered, past) = self.handed_over(tx, handover, CameTo::NoRun(holder.map(Run::id))).await?;
        if let Some(past) = past
            && let Some(run) = tx.run(past.run).await?
            && self.start.is_answered_by(run.status())
        {
            return handed_to(tx, run, deliver::absorbed(&past)).await.map(Some);
        }
        // The holder of the key makes room for the new run, and its token goes with the key.
        let other = |owner: &Run| holder.is_none_or(|holder| holder.num != owner.num);
        let Some(owner) = owner.filter(other) else { return Ok(None) };
        let deliver = Deliver::of(&self.start, handover);
        let past = deliver::past(tx, &deliver).await?;
        if let Some(past) = past.as_ref().filter(|past| past.is_kept(Some(owner.id())))
            && let Some(run) = tx.run(past.call.run).await?
        {
            let delivered = past.absorbed(&deliver)?;
            return handed_to(tx, run, delivered).await.map(Some);
        }
        deliver::check_room(tx, &owner).await?;
        let num = owner.num;
        let mut ids = Remembered::of(&deliver, past.as_ref());
        ids.push(remembered);
        let delivered = deliver::accept(tx, &deliver, owner, &ids).await?;
        let owner = tx.run_at(num).await?.ok_or_else(race)?;
        handed_to(tx, owner, delivered).await.map(Some)
    }

    /// Decides whether the payload is delivered or absorbed, before anything is written. `holder` is the run that owns the key in the
    /// end, `target` the one that would get the payload, `ending` the one that ends before: it makes room, or its time is up.
    async fn plan<T: StoreTx>(
        &self,
        tx: &mut T,
        holder: RunId,
        target: Option<RunId>,
        ending: Option<RunId>,
    ) -> Result<Option<Handing>> {
        let Some(handover) = &self.start.deliver else { return Ok(None) };
        let (remembered, past) = self.handed_over(tx, handover, CameTo::Holder(holder)).await?;
        if let Some(past) = past {
            return Ok(Some(Handing::Absorbed(deliver::absorbed(&past))));
        }
        let deliver = Deliver::of(&self.start, handover);
        let mut past = deliver::past(tx, &deliver).await?;
        if let Some(past) = &mut past {
            past.has_ended |= ending == Some(past.call.run);
        }
        if let Some(past) = past.as_ref().filter(|past| past.is_kept(target)) {
            return past.absorbed(&deliver).map(Handing::Absorbed).map(Some);
        }
        let mut ids = Remembered::of(&deliver, past.as_ref());
        ids.push(remembered);
        Ok(Some(Handing::New(deliver, ids)))
    }
}

/// Decision about the payload that comes with a start.
enum Handing {
    /// The payload was delivered before, and is not delivered again.
    Absorbed(Delivered),
    /// It is delivered, and remembered under these ids.
    New(Deliver, Vec<Remembered>),
}

/// The answer of a start that has found a run.
async fn found<T: StoreTx>(
    tx: &mut T,
    mut holder: Run,
    owner: Option<Run>,
    handing: Option<Handing>,
    verdict: StartVerdict,
) -> Result<Started> {
    let delivered = hand_over(tx, &mut holder, owner, handing).await?;
    Ok(Started { delivered, ..answer(tx, holder, verdict).await? })
}

/// The answer of a start whose payload is another run's.
async fn handed_to<T: StoreTx>(tx: &mut T, run: Run, delivered: Delivered) -> Result<Started> {
    let replayed = delivered.absorbed && run.status() == Status::Completed;
    let verdict = if replayed { StartVerdict::Replayed } else { StartVerdict::Attached };
    Ok(Started { delivered: Some(delivered), ..answer(tx, run, verdict).await? })
}

/// Does what was planned about the payload: the owner of the token gets it or, if there is none, the run of this start.
/// Nothing comes of it if that has ended: no run will ever take the payload, and the answer says so.
async fn hand_over<T: StoreTx>(
    tx: &mut T,
    run: &mut Run,
    owner: Option<Run>,
    handing: Option<Handing>,
) -> Result<Option<Delivered>> {
    let (deliver, ids) = match handing {
        None => return Ok(None),
        Some(Handing::Absorbed(delivered)) => return Ok(Some(delivered)),
        Some(Handing::New(deliver, ids)) => (deliver, ids),
    };
    let target = match owner {
        Some(owner) => owner,
        None if run.status().is_terminal() => return Ok(None),
        None => {
            reserve(tx, run, &deliver.token).await?;
            run.clone()
        }
    };
    let delivered = deliver::accept(tx, &deliver, target, &ids).await?;
    // The payload may have woken it.
    *run = tx.run_at(run.num).await?.ok_or_else(race)?;
    Ok(Some(delivered))
}

/// Gives a token to a run that has not opened it yet.
async fn reserve<T: StoreTx>(tx: &mut T, run: &mut Run, token: &Token) -> Result<()> {
    let (workspace, opened) = (run.new.workspace, tx.now());
    let hook = NewHook { workspace, token, num: run.num, visit: None, opened };
    if !tx.insert_hook(hook).await? {
        return Err(race());
    }
    run.state.ties = true;
    match tx.save(run.num, run.state.version, &run.state).await? {
        true => Ok(()),
        false => Err(race()),
    }
}

/// Writes a run's new state and the entries that led to it.
pub(super) async fn append_at<T: StoreTx>(
    tx: &mut T,
    run: &Run,
    expected: u64,
    entries: &[Entry],
) -> Result<()> {
    match tx.save_with(run.num, expected, &run.state, &encode(entries)).await? {
        true => Ok(()),
        false => Err(race()),
    }
}

/// Inserts a run with its first entries; none if its key or its id is taken.
pub(super) async fn insert<T: StoreTx>(
    tx: &mut T,
    new: NewRun,
    state: RunState,
    entries: &[Entry],
) -> Result<Option<Run>> {
    let Some(num) = tx.insert_run(&new, &state, &encode(entries)).await? else { return Ok(None) };
    Ok(Some(Run { num, new: new.into(), state, arrivals: 0, purged: false }))
}

async fn answer<T: StoreTx>(tx: &mut T, run: Run, verdict: StartVerdict) -> Result<Started> {
    let outcome: Option<Outcome> = outcome_of(tx, &run).await?;
    let mut entries = Vec::new();
    if verdict == StartVerdict::Created {
        for row in tx.ledgers(&[run.num], 0).await? {
            entries.extend(entries_of(&row)?);
        }
    }
    Ok(Started { run, verdict, outcome, delivered: None, superseded: None, entries })
}

fn duplicate(holder: &Run) -> Error {
    Error::DuplicateRun { owner: holder.id(), status: holder.status() }
}

async fn reused<T: StoreTx>(tx: &mut T, start: &Start, holder: &Run) -> Result<Error> {
    let first = tx.ledger_first(holder.num).await?.as_ref().map(entries_of).transpose()?;
    let pointers = match first.as_deref().and_then(<[Entry]>::first) {
        Some(Entry::Created(created)) => {
            let (before, now) = ((&created.workflow, &created.input), (&start.workflow, &start.input));
            key::differences(before, now, &start.excluded)?
        }
        // The history is forgotten and only the hash of the input is left: it differs, but the places are not known.
        _ => Vec::new(),
    };
    Ok(Error::KeyReused { owner: holder.id(), pointers })
}
