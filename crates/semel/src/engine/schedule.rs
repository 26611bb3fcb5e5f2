//! What an engine does by itself: takes due runs, hears wake-ups, keeps its lease, sweeps.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;

use super::Core;
use super::residents::Kin;
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::id::{NodeId, RunId};
use crate::sabotage::{self, Bug};
use crate::store::{LeaseAct, Sweep, Swept, Wake};

/// Maximum number of runs that one claim takes: enough to fill a batch, and no long transaction.
const AT_ONCE: usize = 256;
/// How often an engine looks for due runs and sweeps without having been told to.
const FLOOR: Duration = Duration::from_secs(1);
/// How often every driven run looks into its inbox without having been told to.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Maximum number of runs that one pass of the sweep handles.
const SWEPT: usize = 1000;

/// Result of one pass over due runs.
enum ClaimPass {
    /// All free slots were filled, so more runs may be due now.
    MayBeMore,
    /// All due runs were claimed. The time at which the next one is due, if there is one.
    NextDue(Option<Time>),
    /// Nothing was asked for: the engine stops, drives a suspect alone, or has no free slot. A freed slot starts the next pass.
    NoSlot,
}

/// Joins the store as a new node, and starts what the engine does by itself.
pub(crate) async fn join(core: &Arc<Core>) -> Result<()> {
    let mut wakes = core.store.wakes();
    core.enter_as(NodeId(core.clock.uuid())).await?;
    // What an earlier process of this store has left is due from here on. What is past its retention can wait.
    core.adopt_orphans().await?;
    let listener = core.clone();
    core.spawn(async move {
        loop {
            match wakes.recv().await {
                Ok(wake) => listener.heed(wake),
                Err(RecvError::Lagged(_)) => listener.heed_everything(),
                Err(RecvError::Closed) => return,
            }
        }
    });
    core.spawn(core.clone().claim_for_ever());
    core.spawn(core.clone().renew_for_ever());
    core.spawn(core.clone().sweep_for_ever());
    core.spawn(core.clone().introduce_for_ever());
    Ok(())
}

impl Core {
    async fn enter_as(&self, node: NodeId) -> Result<()> {
        let (before, ttl) = (self.clock.now(), self.limits.lease);
        let until = self.lease(node, LeaseAct::Join(ttl)).await?;
        *self.node.lock().unwrap_or_else(PoisonError::into_inner) = node;
        self.learn_time(before, until, ttl);
        Ok(())
    }

    /// The end of a lease tells the store's time.
    fn learn_time(&self, before: Time, until: Time, ttl: Duration) {
        let told = until.0.saturating_sub(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
        self.store_time.learn(Time(told), before, self.clock.now());
    }

    async fn claim_for_ever(self: Arc<Self>) {
        loop {
            let next_due = match self.claim_some().await {
                Ok(ClaimPass::MayBeMore) => continue,
                Ok(ClaimPass::NextDue(next_due)) => next_due,
                Ok(ClaimPass::NoSlot) => None,
                Err(Error::Unknown(error)) => {
                    tracing::warn!(%error, "it is unknown which runs were claimed");
                    if !sabotage::commits(Bug::UnknownClaimForgotten) {
                        self.renounce().await;
                    }
                    continue;
                }
                Err(error) => {
                    tracing::warn!(%error, "no runs can be claimed; trying again");
                    self.renew.notify_one();
                    self.clock.until(self.clock.now().after(FLOOR / 10)).await;
                    continue;
                }
            };
            let floor = self.clock.now().after(FLOOR);
            let wait = next_due.map_or(floor, |due| self.local(due).min(floor));
            tokio::select! {
                // In this order, as everywhere in the engine: with the same turns it does the same (see tests/sim).
                biased;
                () = self.due.notified() => {}
                () = self.clock.until(wait) => {}
            }
        }
    }

    /// Claims as many due runs as there are free slots.
    async fn claim_some(self: &Arc<Self>) -> Result<ClaimPass> {
        if self.is_stopping() {
            return Ok(ClaimPass::NoSlot);
        }
        if self.drives_suspect() {
            // The slot that it frees is a reason to look for due runs.
            self.residents.want();
            return Ok(ClaimPass::NoSlot);
        }
        let slots = self.residents.reserve_or_wait(AT_ONCE);
        if slots == 0 {
            return Ok(ClaimPass::NoSlot);
        }
        let node = self.node();
        let mut claims = self.store.claim(self.claim(slots)).await;
        if let Ok(claims) = &mut claims
            && self.node() != node
        {
            // As another node by now, this engine has given up what it had claimed.
            claims.runs.clear();
        }
        let found = claims.as_ref().map_or(0, |claims| claims.runs.len());
        self.residents.free_many(slots - found);
        // A stop may wait for these slots.
        self.left.notify_one();
        let claims = claims?;
        if found > 0 {
            // Where something was due there may be more, which others had locked when this engine asked.
            self.residents.want();
        }
        self.note_suspect(&claims.runs);
        for claimed in claims.runs {
            self.take(claimed);
        }
        Ok(if found < slots { ClaimPass::NextDue(claims.next_due) } else { ClaimPass::MayBeMore })
    }

    async fn renew_for_ever(self: Arc<Self>) {
        let ttl = self.limits.lease;
        loop {
            let next = self.clock.now().after(ttl / 3);
            tokio::select! {
                biased;
                () = self.renew.notified() => {}
                () = self.clock.until(next) => {}
            }
            let (before, node) = (self.clock.now(), self.node());
            match self.lease(node, LeaseAct::Renew(ttl)).await {
                Ok(until) => self.learn_time(before, until, ttl),
                Err(Error::NodeLost(_)) => {
                    tracing::error!(%node, "the lease has ended; this engine goes on as another node");
                    self.renounce().await;
                }
                Err(error) => tracing::warn!(%error, "the lease cannot be renewed; trying again"),
            }
        }
    }

    /// Goes on as another node, and gives up all that it held: what it may have claimed without knowing it is due for all
    /// nodes then.
    pub(super) async fn renounce(&self) {
        let before = self.node();
        self.residents.lose_all();
        while let Err(error) = self.enter_as(NodeId(self.clock.uuid())).await {
            tracing::warn!(%error, "no new lease; trying again");
            self.clock.until(self.clock.now().after(FLOOR / 10)).await;
        }
        self.renamed.notify_one();
        if let Err(error) = self.lease(before, LeaseAct::Leave).await {
            tracing::warn!(%error, node = %before, "a lease could not be given up; it ends by itself");
        }
        if let Err(error) = self.adopt_orphans().await {
            tracing::warn!(%error, "a sweep failed; the next one is soon");
        }
        self.due.notify_one();
    }

    async fn sweep_for_ever(self: Arc<Self>) {
        let mut look = self.clock.now().after(LOOK_EVERY);
        loop {
            if self.clock.now() >= look {
                // A wake-up of another process may have been lost.
                self.heed_everything();
                look = self.clock.now().after(LOOK_EVERY);
            }
            let begun = self.clock.now();
            let pause = match self.sweep().await {
                // As long as the pass took: however much there is to forget, others have half of the store's time.
                Ok(swept) if swept.more => {
                    Duration::from_millis(self.clock.now().0.saturating_sub(begun.0).max(0) as u64)
                }
                Ok(_) => FLOOR,
                Err(error) => {
                    tracing::warn!(%error, "a sweep failed; the next one is soon");
                    FLOOR
                }
            };
            self.show_gauges().await;
            self.clock.until(self.clock.now().after(pause)).await;
        }
    }

    /// Makes all runs of dead nodes due.
    async fn adopt_orphans(&self) -> Result<()> {
        while self.sweep().await?.orphaned == SWEPT {}
        Ok(())
    }

    /// One pass of the sweep.
    async fn sweep(&self) -> Result<Swept> {
        let swept = self.store.sweep(Sweep { limit: SWEPT }).await?;
        if swept.orphaned > 0 {
            self.due.notify_one();
        }
        Ok(swept)
    }

    fn heed(self: &Arc<Self>, wake: Wake) {
        match wake {
            Wake::Due => self.due.notify_one(),
            Wake::DueIn(workspace) => {
                if self.claims_in(workspace) {
                    self.due.notify_one();
                }
            }
            Wake::All => self.heed_everything(),
            // It is of no more use here, and its driver knows.
            Wake::Paused(run) => self.residents.touch(run),
            Wake::Arrived(run) => {
                if !self.look(run) {
                    self.due.notify_one();
                }
            }
            Wake::Taken(run) => {
                self.residents.touch(run);
                if let Some(cell) = self.residents.get(run) {
                    let core = self.clone();
                    self.spawn(async move {
                        if let Err(error) = core.check_taken(&cell).await {
                            tracing::warn!(%error, run = %cell.id, "it is unknown who drives a run");
                        }
                    });
                }
            }
            Wake::Ended(run) => {
                // What rests here and has ended was ended by others.
                self.residents.evict(run);
                self.residents.ended(run);
                for kin in self.residents.kin(Kin::Run(run)) {
                    self.look(kin);
                }
            }
            Wake::Settled => {
                for kin in self.residents.kin(Kin::Once) {
                    self.look(kin);
                }
                self.due.notify_one();
            }
        }
    }

    fn heed_everything(&self) {
        for cell in self.residents.all() {
            if !self.residents.rests(&cell) {
                cell.order(|orders| orders.look = true);
            }
        }
        self.residents.all_ended();
        self.due.notify_one();
    }

    /// Lets a run that is driven here look into its inbox; false if it is not.
    fn look(&self, run: RunId) -> bool {
        let cell = self.residents.get(run).filter(|cell| !self.residents.rests(cell));
        if let Some(cell) = &cell {
            cell.order(|orders| orders.look = true);
        }
        cell.is_some()
    }

    /// Stops: see [`Engine::shutdown`](super::Engine::shutdown).
    pub(super) async fn shutdown(&self, grace: Duration) -> Result<()> {
        self.stopping.store(true, Ordering::SeqCst);
        for cell in self.residents.all() {
            cell.order(|orders| orders.stop = true);
        }
        let end = self.clock.now().after(grace);
        if !self.empty_before(end).await {
            for cell in self.residents.all() {
                cell.order(|orders| orders.stop_now = true);
            }
            // What is left waits for the store only; if that does not answer, the lease gives the runs away.
            self.empty_before(end.after(FLOOR)).await;
        }
        let left = self.lease(self.node(), LeaseAct::Leave).await;
        self.kill();
        self.take_leave().await;
        if self.owns_store {
            self.store.close().await?;
        }
        left.map(drop)
    }

    async fn empty_before(&self, end: Time) -> bool {
        loop {
            if self.residents.is_empty() {
                return true;
            }
            tokio::select! {
                biased;
                // The time first: runs that leave one after the other must not delay it.
                () = self.clock.until(end) => return self.residents.is_empty(),
                () = self.left.notified() => {}
            }
        }
    }
}
