//! Commit entries at an expected version, with everything that changes together with them.

use std::collections::HashSet;

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::id::RunId;
use crate::rules::commit::{Beyond, ChildStart, Commit, Content, Draft, Saved};
use crate::rules::entry::{Created, Entry, Lines, Message, encode};
use crate::rules::finish;
use crate::rules::key::Scope;
use crate::rules::path::Visit;
use crate::rules::run::{Parent, Run, State};
use crate::rules::start::{Frame, created_run};
use crate::rules::status::Status;
use crate::sabotage::{self, Bug};
use crate::store::tx::{InsertedRun, Tx, Verb, Watcher, race};

use super::read::{message_of, outcome_of};

impl Verb for Commit {
    type Answer = Saved;

    #[cfg(feature = "sqlite")]
    fn weight(&self) -> usize {
        self.text().map_or(0, str::len)
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Saved> {
        let guarded = !sabotage::commits(Bug::SkipVersionGuard);
        if let Content::Ready(text) = &self.content
            && self.is_progress()
            && guarded
        {
            // The hot path: one guarded update, one insert.
            return match tx.advance(self.num, self.expected, self.count, text).await? {
                true => Ok(Saved { version: self.expected + self.count(), ..Saved::default() }),
                false => Err(self.lost()),
            };
        }
        let found = tx.run_at(self.num).await?;
        let fits = |run: &Run| run.state.version == self.expected || !guarded;
        let mut run = found.filter(fits).ok_or_else(|| self.lost())?;
        let before = run.state.version;
        let version = before + self.count();
        let too_early = |until: &Time| *until > tx.now() && !sabotage::commits(Bug::TimersFireEarly);
        let Beyond { not_before, consumed, closed, .. } = self.beyond();
        if let Some(until) = not_before.filter(too_early) {
            return Err(Error::TooEarly { until, now: tx.now() });
        }
        if !run.status().may_become(self.status) {
            return Err(self.lost());
        }
        self.check_consumed(tx).await?;
        if !consumed.is_empty() && !sabotage::commits(Bug::ConsumedStays) {
            tx.consume_all(self.num, consumed).await?;
        }
        for token in closed {
            tx.delete_hook(run.new.workspace, token, self.num).await?;
        }
        let (text, settled) = self.settle(tx, &mut run).await?;
        if self.status == Status::Waiting && sabotage::commits(Bug::RestFreesTokens) {
            tx.delete_hooks(self.num).await?;
        }
        // With those that this very commit has made: it may open a hook and end the run at once.
        let had_ties = run.state.ties;
        run.state = self.state(&run, version, tx);
        if !tx.save_with(self.num, before, &run.state, &text).await? {
            return Err(race());
        }
        let freed = match self.outcome() {
            Some(outcome) if had_ties => super::finish::untie(tx, &run, outcome.clone()).await?,
            None => super::finish::leave_onces(tx, &run).await?,
            Some(_) => false,
        };
        Ok(Saved { version, settled, freed })
    }
}

impl Commit {
    pub(crate) fn lost(&self) -> Error {
        Error::Concurrency { run: self.run, expected: self.expected }
    }

    /// A message is consumed once: it must still be in the inbox, each of them once in this commit.
    async fn check_consumed<T: Tx>(&self, tx: &mut T) -> Result<()> {
        let consumed = &self.beyond().consumed;
        if consumed.is_empty() {
            return Ok(());
        }
        // Only these, not the whole inbox: it may be long, and is consumed one by one.
        let mut there: HashSet<u64> = tx.arrived(self.num, consumed).await?.into_iter().collect();
        match consumed.iter().find(|arrival| !there.remove(arrival)) {
            None => Ok(()),
            Some(arrival) => {
                Err(Error::Validation(format!("message {arrival} is not in the inbox of {}", self.run)))
            }
        }
    }

    fn state<T: Tx>(&self, run: &Run, version: u64, tx: &T) -> State {
        match self.status {
            Status::Running => State { version, stalls: 0, ..run.state.clone() },
            Status::Waiting => State {
                // What arrived unseen while the driver decided to wait wakes the run at once.
                due: match run.arrivals > self.seen && !sabotage::commits(Bug::RestMissesArrivals) {
                    true => Some(tx.now()),
                    false => self.beyond().due,
                },
                ..self.released(run, version)
            },
            status if status.is_terminal() => finish::ended(run, status, version, tx.now()),
            _ => self.released(run, version),
        }
    }

    fn released(&self, run: &Run, version: u64) -> State {
        State { status: self.status, version, due: None, node: None, stalls: 0, ..run.state.clone() }
    }

    /// Turns drafts into entries, and gives the text to append and what became of the drafts.
    async fn settle<T: Tx>(&self, tx: &mut T, run: &mut Run) -> Result<(String, Vec<Entry>)> {
        let drafts = match &self.content {
            Content::Ready(text) => return Ok((text.clone(), Vec::new())),
            Content::Drafts(drafts) => drafts,
        };
        let mut new = start_new_children(tx, run, drafts).await?;
        let (mut lines, mut settled) = (Lines::default(), Vec::new());
        for draft in drafts {
            let entry = match draft {
                Draft::Entries(before) => {
                    lines.extend(before);
                    continue;
                }
                Draft::OpenHook { hook, token } => {
                    let (hook, token) = (hook.clone(), token.clone());
                    match open_hook(tx, run, &token).await? {
                        None => Entry::HookOpened { hook, token },
                        Some(owner) => Entry::HookConflicted { hook, token, owner },
                    }
                }
                Draft::StartChild(start) => match new.remove(&start.run) {
                    true => {
                        let child = start.child.clone();
                        Entry::ChildStarted { child, run: start.run, attached: false }
                    }
                    false => start_child(tx, run, start).await?,
                },
            };
            lines.push(&entry);
            settled.push(entry);
        }
        Ok((lines.finish(), settled))
    }
}

/// Makes the run the owner of a token, or tells who is. A run has no conflict with itself.
async fn open_hook<T: Tx>(
    tx: &mut T,
    run: &mut Run,
    token: &crate::rules::key::Token,
) -> Result<Option<RunId>> {
    run.state.ties = true;
    if tx.insert_hook(run.new.workspace, token, run.num).await? {
        return Ok(None);
    }
    let owner = tx.hook_owner(run.new.workspace, token).await?.ok_or_else(race)?;
    Ok((owner != run.id()).then_some(owner))
}

/// Starts the children whose keys are free, all at once, and lets the run wait for their ends; gives their ids. Those that an
/// earlier life of this run has started are left to [`start_child`], and so is one that comes alone.
async fn start_new_children<T: Tx>(tx: &mut T, run: &mut Run, drafts: &[Draft]) -> Result<HashSet<RunId>> {
    let starts = drafts.iter().filter_map(|draft| match draft {
        Draft::StartChild(start) => Some(&**start),
        _ => None,
    });
    let mut starts: Vec<&ChildStart> = starts.collect();
    if starts.len() < 2 {
        return Ok(HashSet::new());
    }
    run.state.ties = true;
    let keys: Vec<_> = starts.iter().map(|start| &start.key).collect();
    let held: HashSet<_> = tx.held_keys(run.new.workspace, &Scope::children(), &keys).await?;
    starts.retain(|start| !held.contains(&start.key));
    let new: Vec<_> = starts.iter().map(|start| new_child(run, start, tx.now())).collect();
    let nums = tx.insert_runs(&new).await?;
    let watcher = |(start, num): (&&ChildStart, Option<i64>)| {
        Ok((num.ok_or_else(race)?, Watcher { num: run.num, visit: start.child.clone() }))
    };
    let watchers: Vec<_> = starts.iter().zip(nums).map(watcher).collect::<Result<_>>()?;
    tx.insert_watchers(&watchers).await?;
    Ok(starts.iter().map(|start| start.run).collect())
}

/// A child as it begins: its end is told to this run.
fn new_child(run: &Run, start: &ChildStart, now: Time) -> InsertedRun {
    let created = Created {
        workflow: start.workflow.clone(),
        workflow_version: start.workflow_version.clone(),
        input: start.input.clone(),
        key: start.key.clone(),
        scope: Scope::children(),
        lineage: start.run,
        not_before: None,
        deadline: None,
        parent: Some(Parent { run: run.id(), visit: start.child.clone() }),
        forked_from: None,
    };
    let frame = Frame {
        id: start.run,
        workspace: run.new.workspace,
        fingerprint: start.fingerprint,
        retention: start.retention,
    };
    let (new, mut state, entries) = created_run(created, &frame, now, now, None);
    state.ties = true;
    InsertedRun { new, state, text: encode(&entries) }
}

/// Starts a child, or finds the one that an earlier life of this run started; either way this run waits for its end.
async fn start_child<T: Tx>(tx: &mut T, run: &mut Run, start: &ChildStart) -> Result<Entry> {
    run.state.ties = true;
    let held = match tx.holder(run.new.workspace, &Scope::children(), &start.key).await? {
        Some(child) => revived(tx, child, run).await?,
        None => None,
    };
    let visit = start.child.clone();
    let Some(mut child) = held else {
        let InsertedRun { new, state, text } = new_child(run, start, tx.now());
        let num = tx.insert_run(&new, &state, &text).await?.ok_or_else(race)?;
        tx.insert_watcher(num, &Watcher { num: run.num, visit: visit.clone() }).await?;
        return Ok(Entry::ChildStarted { child: visit, run: start.run, attached: false });
    };
    forget_earlier_life(tx, run, &child, &visit).await?;
    match outcome_of(tx, &child).await? {
        Some(outcome) => {
            let message = Message::ChildEnded { child: visit.clone(), run: child.id(), outcome };
            run.arrivals = tx.arrive(run.num, &message).await?.unwrap_or(run.arrivals);
        }
        None => {
            tx.insert_watcher(child.num, &Watcher { num: run.num, visit: visit.clone() }).await?;
            child.state.ties = true;
            if !tx.save(child.num, child.state.version, &child.state).await? {
                return Err(race());
            }
        }
    }
    Ok(Entry::ChildStarted { child: visit, run: child.id(), attached: true })
}

/// The child of an earlier life. What failed there is tried again, as it is with steps; a cancelled one makes room.
async fn revived<T: Tx>(tx: &mut T, mut child: Run, parent: &Run) -> Result<Option<Run>> {
    match child.status() {
        Status::Failed | Status::TimedOut if !child.purged => {
            super::control::restart(tx, &mut child, &parent.id().to_string()).await?;
        }
        Status::Cancelled => {
            child.state.holds_key = false;
            if !tx.save(child.num, child.state.version, &child.state).await? {
                return Err(race());
            }
            return Ok(None);
        }
        _ => {}
    }
    Ok(Some(child))
}

/// An earlier life of the run may have asked for the same child: whoever waits twice would hear of its end twice, and
/// what it has heard may no longer be so.
async fn forget_earlier_life<T: Tx>(tx: &mut T, run: &Run, child: &Run, visit: &Visit) -> Result<()> {
    for watcher in tx.take_watchers(child.num).await? {
        if watcher.num != run.num || watcher.visit != *visit {
            tx.insert_watcher(child.num, &watcher).await?;
        }
    }
    for row in tx.inboxes(&[run.num], 1).await? {
        if matches!(message_of(&row)?, Message::ChildEnded { child, .. } if child == *visit) {
            tx.consume(run.num, row.arrival).await?;
        }
    }
    Ok(())
}
