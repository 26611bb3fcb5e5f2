//! [`RemoteStore`] as a [`Store`]: each method is one call, commits and starts share theirs.

use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::broadcast;

use super::RemoteStore;
use super::client::Does;
use super::wire::{
    self, ArrivedMessage, ClaimCall, ClaimedView, ClaimsView, CommitItem, ControlCall, ControlledRun,
    CountCall, DeliverCall, DeliveredPayload, FoundRun, Heartbeat, Join, Joined, Leased, NumberedEntry,
    Release, RunCall, RunPage, Served, StartItem,
};
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::id::{RunId, WorkspaceId};
use crate::rules::claim::{Claim, Drives, HeldRuns};
use crate::rules::commit::{Commit, Saved};
use crate::rules::control::{Control, Controlled};
use crate::rules::deliver::{Deliver, Delivered};
use crate::rules::entry::Outcome;
use crate::rules::once::{OnceAnswer, OnceCall};
use crate::rules::receipt::{ReceiptKind, Receipts};
use crate::rules::record::{Keep, Look, Record};
use crate::rules::run::Run;
use crate::rules::start::Start;
use crate::store::{
    Answer, Arrival, Claimed, Claims, Counts, DuplicatesPage, DuplicatesQuery, Find, Glance, HookPage,
    HookQuery, KeyPage, KeyQuery, Lease, LeaseAct, NodeFacts, Numbered, OpenVersions, Page, Query, RunCounts,
    RunTally, Started, StatsQuery, StatsSeries, Store, Sweep, Swept, TallyQuery, Wake,
};

/// How much of a ledger or an inbox travels at once.
const PAGE: usize = 8 * 1024 * 1024;
/// The longest entry or message: the longest value, and what is around it.
const LONGEST: usize = 3 * 1024 * 1024;

fn not_here() -> Error {
    Error::Validation("this is the server's own affair: open its store to see it".to_owned())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl RemoteStore {
    async fn claim_runs(&self, claim: Claim) -> Result<Claims> {
        // The server bounds the bytes of its answers.
        let Claim { node, workflows, families, limit, only, bytes: _, held } = claim;
        if let Some(family) = families.first() {
            let why =
                format!("runs of the family {family} are driven by engines that open the server's own store");
            return Err(Error::Validation(why));
        }
        let served = |Drives { workflow, workflow_version, .. }| Served { workflow, workflow_version };
        let call = ClaimCall {
            node,
            workflows: workflows.into_iter().map(served).collect(),
            limit,
            // Callers of a store learn what is due by its wake-ups.
            wait_ms: 0,
            keeps: held.is_some(),
            folded: false,
            look: false,
            run: only,
        };
        let ClaimsView { runs, next_due, now, .. } =
            self.client.call(wire::CLAIM, &call, Does::Writes).await?;
        let mut claims = Claims { runs: Vec::with_capacity(runs.len()), next_due, now };
        for claimed in runs {
            match self.complete(claimed, held.as_deref()).await {
                Ok(whole) => claims.runs.extend(whole),
                Err(Error::RunNotFound(_)) => {}
                // The run is claimed; without its ledger and inbox nothing would drive it.
                Err(error) => return Err(Error::Unknown(Box::new(error))),
            }
        }
        Ok(claims)
    }

    /// A claimed run with what did not travel along: a large ledger, or one that the server took for one that is still in
    /// memory here, and the rest of a large inbox. None if the claim is over: others have written since.
    async fn complete(&self, claimed: ClaimedView, held: Option<&dyn HeldRuns>) -> Result<Option<Claimed>> {
        let ClaimedView { run, mut entries, mut inbox, inbox_from } = claimed;
        let mut run = Run::from(run);
        let (id, before) = (run.id(), run.state.version - 1);
        let held = held.is_some_and(|held| held.holds(run.num, before));
        if entries.is_none() && !held {
            let lines = self.pages(wire::LEDGER, id, 1, |line: &NumberedEntry| line.number).await?;
            if lines.len() as u64 != run.state.version {
                return Ok(None);
            }
            entries = Some(lines.into_iter().map(|line| line.entry).collect());
        }
        if let Some(from) = inbox_from {
            inbox.extend(self.pages(wire::INBOX, id, from, |arrival: &ArrivedMessage| arrival.number).await?);
        }
        self.nodes.in_run(&mut run);
        if let Some(entries) = &mut entries {
            self.nodes.in_entries(entries);
        }
        let inbox = inbox.into_iter().map(Into::into).collect();
        Ok(Some(Claimed { run, entries, inbox }))
    }

    /// Reads the entries or messages of a run from number `from` on, page by page.
    async fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        run: RunId,
        mut from: u64,
        number: fn(&T) -> u64,
    ) -> Result<Vec<T>> {
        let mut all = Vec::new();
        loop {
            let call = RunCall { run, from, max_bytes: Some(PAGE) };
            let (page, bytes) = self.client.call_sized::<Vec<T>>(path, &call, Does::Reads).await?;
            let last = page.last().map(number);
            all.extend(page);
            match last {
                // The next one might not have fitted.
                Some(last) if bytes + LONGEST > PAGE => from = last + 1,
                _ => return Ok(all),
            }
        }
    }

    async fn start_run(&self, start: Start) -> Result<Started> {
        let mut started = Started::from(self.starts.ask(&StartItem::from(start)).await?);
        self.nodes.in_run(&mut started.run);
        self.nodes.in_entries(&mut started.entries);
        if let Some(node) = started.delivered.as_mut().and_then(|delivered| delivered.node.as_mut()) {
            self.nodes.own(node);
        }
        Ok(started)
    }

    async fn lease_node(&self, lease: Lease) -> Result<Time> {
        let Lease { node, act } = lease;
        match act {
            LeaseAct::Join(ttl) | LeaseAct::Enroll(ttl) => {
                let join = Join { node, name: self.name.clone(), serves: Vec::new(), lease_ms: millis(ttl) };
                let joined: Joined = self.client.call(wire::WORKERS, &join, Does::Writes).await?;
                self.nodes.learn(joined.node, node);
                Ok(joined.until)
            }
            LeaseAct::Renew(ttl) => {
                // An engine takes no steps of queues.
                let beat =
                    Heartbeat { node, lease_ms: millis(ttl), steps: Some(Vec::new()), runs: Vec::new() };
                let leased: Leased = self.client.call(wire::HEARTBEAT, &beat, Does::Writes).await?;
                Ok(leased.until)
            }
            LeaseAct::Leave => {
                let leased: Leased = self.client.call(wire::RELEASE, &Release { node }, Does::Writes).await?;
                self.nodes.forget(node);
                Ok(leased.until)
            }
        }
    }

    async fn find_run(&self, find: Find) -> Result<Option<(Run, Option<Outcome>)>> {
        let found: Option<FoundRun> = self.client.call(wire::FIND, &find, Does::Reads).await?;
        Ok(found.map(|FoundRun { run, outcome }| {
            let mut run = Run::from(run);
            self.nodes.in_run(&mut run);
            (run, outcome)
        }))
    }
}

impl Store for RemoteStore {
    fn start(&self, start: Start) -> Answer<'_, Started> {
        Box::pin(self.start_run(start))
    }

    /// Refused: a server looks for due runs on behalf of its callers.
    fn dues(&self, _: Vec<Drives>) -> Answer<'_, Vec<Option<Time>>> {
        Box::pin(async { Err(not_here()) })
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Claims> {
        Box::pin(self.claim_runs(claim))
    }

    fn commit(&self, commit: Commit) -> Answer<'_, Saved> {
        // A driver's ledger cuts what would be too large for one request into several commits.
        match CommitItem::of(&commit) {
            Ok(item) => {
                let (saving, asks_news) = (self.commits.ask(&item), commit.asks_news);
                Box::pin(async move {
                    let saved = Saved::from(saving.await?);
                    Ok(Saved { arrivals: saved.arrivals.filter(|_| asks_news), ..saved })
                })
            }
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn deliver(&self, deliver: Deliver) -> Answer<'_, Delivered> {
        Box::pin(async move {
            let call = DeliverCall::from(deliver);
            let delivered: DeliveredPayload = self.client.call(wire::DELIVER, &call, Does::Writes).await?;
            let mut delivered = Delivered::from(delivered);
            if let Some(node) = &mut delivered.node {
                self.nodes.own(node);
            }
            Ok(delivered)
        })
    }

    fn control(&self, control: Control) -> Answer<'_, Controlled> {
        Box::pin(async move {
            let call = ControlCall::of(control, self.nodes.all());
            let controlled: ControlledRun = self.client.call(wire::CONTROL, &call, Does::Writes).await?;
            let mut controlled = Controlled::from(controlled);
            self.nodes.in_run(&mut controlled.run);
            Ok(controlled)
        })
    }

    fn once(&self, once: OnceCall) -> Answer<'_, OnceAnswer> {
        Box::pin(async move { self.client.call(wire::ONCE, &once, Does::Writes).await })
    }

    fn lease(&self, lease: Lease) -> Answer<'_, Time> {
        Box::pin(self.lease_node(lease))
    }

    /// Refused: records are the server's own.
    fn keep(&self, _: Keep) -> Answer<'_, Record> {
        Box::pin(async { Err(not_here()) })
    }

    /// Nothing: the server sweeps.
    fn sweep(&self, _: Sweep) -> Answer<'_, Swept> {
        Box::pin(async { Ok(Swept::default()) })
    }

    fn find(&self, find: Find) -> Answer<'_, Option<(Run, Option<Outcome>)>> {
        Box::pin(self.find_run(find))
    }

    fn list(&self, mut query: Query) -> Answer<'_, Page> {
        query.node = query.node.map(|node| self.nodes.servers(node));
        Box::pin(async move {
            let page: RunPage = self.client.call(wire::LIST, &query, Does::Reads).await?;
            let mut page = Page::from(page);
            for run in &mut page.runs {
                self.nodes.in_run(run);
            }
            Ok(page)
        })
    }

    /// Refused: keys are listed by the server's own interface.
    fn keys(&self, _: KeyQuery) -> Answer<'_, KeyPage> {
        Box::pin(async { Err(not_here()) })
    }

    /// Refused: pages are made by the server.
    fn glances(&self, _: Vec<Run>) -> Answer<'_, Vec<Glance>> {
        Box::pin(async { Err(not_here()) })
    }

    /// Refused: hooks are listed by the server's own interface.
    fn hooks(&self, _: HookQuery) -> Answer<'_, HookPage> {
        Box::pin(async { Err(not_here()) })
    }

    /// Refused: a server counts for its own interface.
    fn tally(&self, _: TallyQuery) -> Answer<'_, RunTally> {
        Box::pin(async { Err(not_here()) })
    }

    /// Refused: a server counts for its own interface.
    fn versions(&self, _: WorkspaceId, _: usize) -> Answer<'_, OpenVersions> {
        Box::pin(async { Err(not_here()) })
    }

    /// Refused: nodes are listed by the server's own interface.
    fn nodes(&self, _: WorkspaceId, _: usize) -> Answer<'_, Vec<NodeFacts>> {
        Box::pin(async { Err(not_here()) })
    }

    fn ledger(&self, _: WorkspaceId, run: RunId, from: u64) -> Answer<'_, Vec<Numbered>> {
        Box::pin(async move {
            let lines = self.pages(wire::LEDGER, run, from, |line: &NumberedEntry| line.number).await?;
            let mut lines: Vec<Numbered> = lines.into_iter().map(Into::into).collect();
            self.nodes.in_ledger(&mut lines);
            Ok(lines)
        })
    }

    fn inbox(&self, _: WorkspaceId, run: RunId, from: u64) -> Answer<'_, Vec<Arrival>> {
        Box::pin(async move {
            let messages =
                self.pages(wire::INBOX, run, from, |arrival: &ArrivedMessage| arrival.number).await?;
            Ok(messages.into_iter().map(Into::into).collect())
        })
    }

    fn receipts(&self, _: WorkspaceId, run: RunId) -> Answer<'_, Vec<(ReceiptKind, Receipts)>> {
        Box::pin(async move { self.client.call(wire::RECEIPTS, &RunCall::all(run), Does::Reads).await })
    }

    /// Refused: a worker lists nothing.
    fn duplicates(&self, _: DuplicatesQuery) -> Answer<'_, DuplicatesPage> {
        Box::pin(async { Err(not_here()) })
    }

    /// Refused: the figures are the server's.
    fn stats(&self, _: StatsQuery) -> Answer<'_, StatsSeries> {
        Box::pin(async { Err(not_here()) })
    }

    /// Refused: records are the server's own.
    fn records(&self, _: Look) -> Answer<'_, Vec<Record>> {
        Box::pin(async { Err(not_here()) })
    }

    /// Refused: a worker's key is for one workspace.
    fn counts(&self, _: u64) -> Answer<'_, Counts> {
        Box::pin(async { Err(not_here()) })
    }

    fn counts_in(&self, _: WorkspaceId, cap: u64) -> Answer<'_, RunCounts> {
        Box::pin(async move { self.client.call(wire::COUNTS, &CountCall { cap }, Does::Reads).await })
    }

    /// Refused: the server bounds its workspaces.
    fn open_runs(&self, _: WorkspaceId, _: u64) -> Answer<'_, u64> {
        Box::pin(async { Err(not_here()) })
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.wakes.subscribe()
    }

    /// Listens no more. What was asked is still answered.
    fn close(&self) -> Answer<'_, ()> {
        self.listener.end();
        Box::pin(async { Ok(()) })
    }
}
