//! Commit entries at an expected version, with everything that changes together with them.

use std::collections::HashSet;

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::id::RunId;
use crate::rules::commit::{self, Beyond, ChildStart, Commit, Content, Draft, EarlierChild, Saved};
use crate::rules::entry::{Created, Entry, Lines, Message, encode};
use crate::rules::key::Scope;
use crate::rules::path::Visit;
use crate::rules::run::{Parent, Run};
use crate::rules::start::{Frame, created_run};
use crate::store::tx::{InsertedRun, NewHook, StoreTx, Verb, Watcher, race};

use super::read::{message_of, outcome_of};

impl Verb for Commit {
    type Answer = Saved;

    #[cfg(feature = "sqlite")]
    fn weight(&self) -> usize {
        self.text().map_or(0, str::len)
    }

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Saved> {
        if let Content::Ready(text) = &self.content
            && self.is_progress()
        {
            // The hot path: one guarded update, one insert.
            return match tx.advance(self.num, self.expected, self.count, text).await? {
                true => {
                    let saved = Saved { version: self.expected + self.count(), ..Saved::default() };
                    if !self.asks_news {
                        return Ok(saved);
                    }
                    let arrivals = tx.run_at(self.num).await?.map(|run| run.arrivals);
                    Ok(Saved { arrivals, written: Some(tx.now()), ..saved })
                }
                false => Err(self.lost()),
            };
        }
        let mut run = tx.run_at(self.num).await?.ok_or_else(|| self.lost())?;
        commit::decide(self, &run, tx.now())?;
        let Beyond { consumed, closed, .. } = self.beyond();
        self.check_consumed(tx).await?;
        if !consumed.is_empty() {
            tx.consume_all(self.num, consumed).await?;
        }
        for token in closed {
            tx.delete_hook(run.new.workspace, token, self.num).await?;
        }
        let (text, settled) = self.settle(tx, &mut run).await?;
        // With those that this very commit has made: it may open a hook and end the run at once.
        let (before, had_ties) = (run.state.version, run.state.ties);
        run.state = self.state_after(&run, tx.now());
        if !tx.save_with(self.num, before, &run.state, &text).await? {
            return Err(race());
        }
        let freed = match self.outcome() {
            Some(outcome) if had_ties => super::finish::untie(tx, &run, outcome.clone()).await?,
            None => super::finish::leave_onces(tx, &run).await?,
            Some(_) => false,
        };
        let arrivals = self.asks_news.then_some(run.arrivals);
        let written = self.asks_news.then_some(tx.now());
        Ok(Saved { version: run.state.version, settled, freed, arrivals, written })
    }
}

impl Commit {
    /// A message is consumed once: it must still be in the inbox, each of them once in this commit.
    async fn check_consumed<T: StoreTx>(&self, tx: &mut T) -> Result<()> {
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

    /// Turns drafts into entries, and gives the text to append and the outcomes of the drafts.
    async fn settle<T: StoreTx>(&self, tx: &mut T, run: &mut Run) -> Result<(String, Vec<Entry>)> {
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
                    match open_hook(tx, run, &hook, &token).await? {
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
async fn open_hook<T: StoreTx>(
    tx: &mut T,
    run: &mut Run,
    visit: &Visit,
    token: &crate::rules::key::Token,
) -> Result<Option<RunId>> {
    run.state.ties = true;
    let (workspace, opened) = (run.new.workspace, tx.now());
    if tx.insert_hook(NewHook { workspace, token, num: run.num, visit: Some(visit), opened }).await? {
        return Ok(None);
    }
    let owner = tx.hook_owner(run.new.workspace, token).await?.ok_or_else(race)?;
    Ok((owner != run.id()).then_some(owner))
}

/// Starts the children whose keys are free, all at once, and lets the run wait for their ends; gives their ids. Those that an
/// earlier life of this run has started are left to [`start_child`], and so is one that comes alone.
async fn start_new_children<T: StoreTx>(
    tx: &mut T,
    run: &mut Run,
    drafts: &[Draft],
) -> Result<HashSet<RunId>> {
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
async fn start_child<T: StoreTx>(tx: &mut T, run: &mut Run, start: &ChildStart) -> Result<Entry> {
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

/// The child that the run waits for, if the one from before its restart is still there for it.
async fn revived<T: StoreTx>(tx: &mut T, mut child: Run, parent: &Run) -> Result<Option<Run>> {
    match EarlierChild::of(&child) {
        EarlierChild::Stays => Ok(Some(child)),
        EarlierChild::Restarts => {
            super::control::restart(tx, &mut child, &parent.id().to_string()).await?;
            Ok(Some(child))
        }
        EarlierChild::MakesRoom => {
            child.state.holds_key = false;
            match tx.save(child.num, child.state.version, &child.state).await? {
                true => Ok(None),
                false => Err(race()),
            }
        }
    }
}

/// Removes what the run had of this child before its restart. A second watcher would bring a second message, and a message in
/// the inbox may be outdated.
async fn forget_earlier_life<T: StoreTx>(tx: &mut T, run: &Run, child: &Run, visit: &Visit) -> Result<()> {
    for watcher in tx.take_watchers(child.num).await? {
        if watcher.num != run.num || watcher.visit != *visit {
            tx.insert_watcher(child.num, &watcher).await?;
        }
    }
    for row in tx.inboxes(&[run.num], 1, usize::MAX).await? {
        if matches!(message_of(&row)?, Message::ChildEnded { child, .. } if child == *visit) {
            tx.consume(run.num, row.arrival).await?;
        }
    }
    Ok(())
}
