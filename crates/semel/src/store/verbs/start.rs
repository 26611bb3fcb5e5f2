//! Start a run, or find the one that the key stands for; and hand over a payload with it.

#[cfg(any(feature = "sqlite", feature = "postgres"))]
use std::sync::Arc;

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::rules::control;
use crate::rules::deliver::{Deliver, Delivered};
use crate::rules::entry::{Entry, Outcome, encode};
use crate::rules::key::{self, Fingerprint};
use crate::rules::run::{NewRun, Run, State};
use crate::rules::start::{self, Decision, Handover, Start, Verdict};
use crate::rules::status::Status;
use crate::sabotage::{self, Bug};
use crate::store::Started;
use crate::store::tx::{Tx, Verb, race};

use super::lease::is_alive;
use super::read::{entries_of, outcome_of};

/// A start with its fingerprint, which is computed outside of the transaction.
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
    pub(crate) state: State,
    pub(crate) entries: Vec<Entry>,
    pub(crate) text: String,
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl NewStart {
    /// The node that wants it is taken to be alive: whoever inserts it has to make sure.
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

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Option<Started>> {
        let StartRun { start, fingerprint } = &self.0;
        if start.deliver.is_some() {
            return Ok(None);
        }
        let holder = tx.holder(start.workspace, &start.key_scope(), &start.key).await?;
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

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Started> {
        let start = &self.start;
        if let Some(started) = self.repeated(tx).await? {
            return Ok(started);
        }
        // A key that was drawn for this very start is hardly held by anybody else; the index would say so.
        let trusts = start.is_keyless() || sabotage::commits(Bug::ReadThenInsert);
        if trusts
            && start.deliver.is_none()
            && let Some(started) = self.create(tx, Verdict::Created, None).await?
        {
            return Ok(started);
        }
        let holder = tx.holder(start.workspace, &start.key_scope(), &start.key).await?;
        let owner = match &start.deliver {
            Some(handover) => tx.hook(start.workspace, &handover.token).await?,
            None => None,
        };
        let decision = start::decide(start, self.fingerprint, holder.as_ref(), tx.now());
        match (decision, holder) {
            (Decision::Reject, Some(holder)) => Err(duplicate(&holder)),
            (Decision::Refuse, Some(holder)) => Err(reused(tx, start, &holder).await?),
            (Decision::Attach(verdict), Some(holder)) => self.attach(tx, holder, owner, verdict).await,
            (Decision::Restart, Some(holder)) => self.restart(tx, holder, owner).await,
            // Somebody else owns the token: the payload is for them, and no run is started beside them.
            (Decision::Create, None) if owner.is_some() => self.hand_to(tx, owner.expect("just seen")).await,
            (Decision::Replace, Some(holder)) if owner.as_ref().is_some_and(|o| o.num != holder.num) => {
                self.hand_to(tx, owner.expect("just seen")).await
            }
            (Decision::Replace, Some(holder)) => match tx.run(start.run).await? {
                Some(run) => self.made_before(tx, run).await,
                None => self.replace(tx, holder).await,
            },
            (_, _) => match self.create(tx, Verdict::Created, None).await? {
                Some(started) => Ok(started),
                None => {
                    let run = tx.run(start.run).await?.ok_or_else(race)?;
                    self.made_before(tx, run).await
                }
            },
        }
    }
}

impl StartRun {
    pub(crate) fn of(start: Start) -> Result<Self> {
        start.policy.check()?;
        let fingerprint = start.fingerprint()?;
        Ok(Self { start, fingerprint })
    }

    /// Whether hardly anybody else can have asked for the same, and nothing comes with it: if the index has nothing against
    /// it, all that is left is to insert the run.
    #[cfg(feature = "sqlite")]
    pub(crate) fn is_plain(&self) -> bool {
        self.start.is_keyless() && self.start.deliver.is_none()
    }

    /// The run as it is made now; `lease` is that of the node which wants it.
    fn made(&self, lease: Option<Time>, now: Time) -> (NewRun, State, Vec<Entry>) {
        // A dead node's runs are given away once: one that it took now would stay its for ever.
        let claim = self.start.claim.filter(|_| is_alive(lease, now));
        start::create(&self.start, claim, self.fingerprint, now)
    }

    /// The answer to a start whose delivery was accepted before: the run that got it.
    async fn repeated<T: Tx>(&self, tx: &mut T) -> Result<Option<Started>> {
        let Some(handover) = &self.start.deliver else { return Ok(None) };
        let deliver = Deliver::of(&self.start, handover);
        let Some(past) = super::deliver::past_call(tx, &deliver).await? else { return Ok(None) };
        let Some(run) = tx.run(past.run).await? else { return Ok(None) };
        let verdict = match run.status() {
            _ if run.id() == self.start.run => Verdict::Created,
            Status::Completed => Verdict::Replayed,
            _ => Verdict::Attached,
        };
        let delivered = Some(super::deliver::absorbed(&past));
        Ok(Some(Started { delivered, ..answer(tx, run, verdict).await? }))
    }

    /// The answer to a start whose run exists and has lost the key since: its answer was lost on the way, and it is no
    /// news that could take the key back.
    async fn made_before<T: Tx>(&self, tx: &mut T, run: Run) -> Result<Started> {
        let Start { workspace, key, .. } = &self.start;
        let same = run.new.workspace == *workspace && run.new.key == *key;
        if !same || run.new.scope != self.start.key_scope() {
            return Err(Error::Validation(format!("{} is taken; draw another id", self.start.run)));
        }
        answer(tx, run, Verdict::Created).await
    }

    /// Makes the run; nothing if its key or its id is taken.
    async fn create<T: Tx>(
        &self,
        tx: &mut T,
        verdict: Verdict,
        superseded: Option<Run>,
    ) -> Result<Option<Started>> {
        let lease = match self.start.claim {
            Some(node) => tx.lease(node).await?,
            None => None,
        };
        let (new, state, entries) = self.made(lease, tx.now());
        let Some(mut run) = insert(tx, new, state, &entries).await? else { return Ok(None) };
        let delivered = match &self.start.deliver {
            Some(handover) => self.reserve(tx, &mut run, handover).await?,
            None => None,
        };
        let superseded = superseded.map(|old| old.id());
        Ok(Some(Started { verdict, delivered, superseded, ..Started::of_new(run, entries) }))
    }

    /// Takes the key from a run that has ended or is cancelled for it, and starts a new one under it.
    async fn replace<T: Tx>(&self, tx: &mut T, mut holder: Run) -> Result<Started> {
        let open = !holder.status().is_terminal();
        let expected = holder.state.version;
        if open && !sabotage::commits(Bug::SupersededGoesOn) {
            let action = control::Action::Cancel { reason: format!("superseded by {}", self.start.run) };
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
        let verdict = if open { Verdict::Superseded } else { Verdict::Created };
        self.create(tx, verdict, open.then_some(holder)).await?.ok_or_else(race)
    }

    async fn attach<T: Tx>(
        &self,
        tx: &mut T,
        mut holder: Run,
        owner: Option<Run>,
        verdict: Verdict,
    ) -> Result<Started> {
        let delivered = match (&self.start.deliver, owner) {
            (None, _) => None,
            (Some(handover), Some(owner)) => {
                let delivered = self.hand_over(tx, handover, owner).await?;
                holder = tx.run_at(holder.num).await?.ok_or_else(race)?;
                Some(delivered)
            }
            (Some(handover), None) => self.reserve(tx, &mut holder, handover).await?,
        };
        Ok(Started { delivered, ..answer(tx, holder, verdict).await? })
    }

    async fn hand_to<T: Tx>(&self, tx: &mut T, owner: Run) -> Result<Started> {
        let handover = self.start.deliver.as_ref().expect("an owner was looked for because of it");
        let num = owner.num;
        let delivered = Some(self.hand_over(tx, handover, owner).await?);
        let owner = tx.run_at(num).await?.ok_or_else(race)?;
        Ok(Started { delivered, ..answer(tx, owner, Verdict::Attached).await? })
    }

    async fn hand_over<T: Tx>(&self, tx: &mut T, handover: &Handover, owner: Run) -> Result<Delivered> {
        super::deliver::accept(tx, &Deliver::of(&self.start, handover), owner).await
    }

    /// Gives the token to a run that has not opened it yet, and puts the payload into its inbox. Nothing if the run has
    /// ended: then nobody will ever take the payload, and the answer says so.
    async fn reserve<T: Tx>(
        &self,
        tx: &mut T,
        run: &mut Run,
        handover: &Handover,
    ) -> Result<Option<Delivered>> {
        if run.status().is_terminal() {
            return Ok(None);
        }
        if !tx.insert_hook(run.new.workspace, &handover.token, run.num).await? {
            return Err(race());
        }
        run.state.ties = true;
        if !tx.save(run.num, run.state.version, &run.state).await? {
            return Err(race());
        }
        if sabotage::commits(Bug::StartForgetsDelivery) {
            return Ok(Some(Delivered { run: run.id(), arrival: 1, node: None, absorbed: false }));
        }
        let delivered = self.hand_over(tx, handover, run.clone()).await?;
        // The payload may have woken it.
        *run = tx.run_at(run.num).await?.ok_or_else(race)?;
        Ok(Some(delivered))
    }

    async fn restart<T: Tx>(&self, tx: &mut T, mut holder: Run, owner: Option<Run>) -> Result<Started> {
        super::control::restart(tx, &mut holder, "start").await?;
        self.attach(tx, holder, owner, Verdict::Restarted).await
    }
}

/// Writes a run's new state and the entries that led to it.
pub(super) async fn append_at<T: Tx>(tx: &mut T, run: &Run, expected: u64, entries: &[Entry]) -> Result<()> {
    match tx.save_with(run.num, expected, &run.state, &encode(entries)).await? {
        true => Ok(()),
        false => Err(race()),
    }
}

/// Inserts a run with its first entries; none if its key or its id is taken.
pub(super) async fn insert<T: Tx>(
    tx: &mut T,
    new: NewRun,
    state: State,
    entries: &[Entry],
) -> Result<Option<Run>> {
    let Some(num) = tx.insert_run(&new, &state, &encode(entries)).await? else { return Ok(None) };
    Ok(Some(Run { num, new: new.into(), state, arrivals: 0, purged: false }))
}

async fn answer<T: Tx>(tx: &mut T, run: Run, verdict: Verdict) -> Result<Started> {
    let outcome: Option<Outcome> = outcome_of(tx, &run).await?;
    let mut entries = Vec::new();
    if verdict == Verdict::Created {
        for row in tx.ledgers(&[run.num], 0).await? {
            entries.extend(entries_of(&row)?);
        }
    }
    Ok(Started { run, verdict, outcome, delivered: None, superseded: None, entries })
}

fn duplicate(holder: &Run) -> Error {
    Error::DuplicateRun { owner: holder.id(), status: holder.status() }
}

async fn reused<T: Tx>(tx: &mut T, start: &Start, holder: &Run) -> Result<Error> {
    let first = tx.ledger_first(holder.num).await?.as_ref().map(entries_of).transpose()?;
    let pointers = match first.as_deref().and_then(<[Entry]>::first) {
        Some(Entry::Created(created)) => {
            let (before, now) = ((&created.workflow, &created.input), (&start.workflow, &start.input));
            key::differences(before, now, &start.excluded)?
        }
        // The history is forgotten and only the hash of the input is left: it differs, nobody can say where.
        _ => Vec::new(),
    };
    Ok(Error::KeyReused { owner: holder.id(), pointers })
}
