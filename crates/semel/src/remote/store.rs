//! [`Remote`] as a [`Store`]: each method is one call, commits and starts share theirs.

use std::time::Duration;

use tokio::sync::broadcast;

use super::Remote;
use super::client::Does;
use super::wire::{
    self, ClaimCall, CommitItem, Found, Heartbeat, Join, Joined, Leased, Release, RunCall, Served,
};
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::id::{RunId, WorkspaceId};
use crate::rules::claim::{Claim, Drives};
use crate::rules::commit::{Commit, Saved};
use crate::rules::control::{Control, Controlled};
use crate::rules::deliver::{Deliver, Delivered};
use crate::rules::entry::Outcome;
use crate::rules::once::{Once, OnceAnswer};
use crate::rules::receipt::{ReceiptKind, Receipts};
use crate::rules::record::{Keep, Look, Record};
use crate::rules::run::Run;
use crate::rules::start::Start;
use crate::store::{
    Answer, Arrival, Claims, Find, Lease, LeaseAct, Numbered, Query, Started, Store, Sweep, Swept, Wake,
};

fn not_here() -> Error {
    Error::Validation("records are the server's own: open its store to see them".to_owned())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Remote {
    async fn claim_runs(&self, claim: Claim) -> Result<Claims> {
        let Claim { node, workflows, limit, held } = claim;
        let served = |Drives { workflow, workflow_version, .. }| Served { workflow, workflow_version };
        let call = ClaimCall {
            node,
            workflows: workflows.into_iter().map(served).collect(),
            limit,
            // Whoever asks through a store hears of what is due by its wakes.
            wait_ms: 0,
            keeps: held.is_some(),
        };
        let mut claims: Claims = self.client.call(wire::CLAIM, &call, Does::Writes).await?;
        for claimed in &mut claims.runs {
            let (run, num, before) = (claimed.run.id(), claimed.run.num, claimed.run.state.version - 1);
            let held = held.as_ref().is_some_and(|held| held.holds(num, before));
            if claimed.entries.is_none() && !held {
                claimed.entries = Some(self.read(run).await?);
            }
            self.nodes.in_run(&mut claimed.run);
            if let Some(entries) = &mut claimed.entries {
                self.nodes.in_entries(entries);
            }
        }
        Ok(claims)
    }

    /// A ledger that the server took for one that is still in memory here.
    async fn read(&self, run: RunId) -> Result<Vec<crate::rules::entry::Entry>> {
        let call = RunCall { run, from: 1 };
        let lines: Result<Vec<Numbered>> = self.client.call(wire::LEDGER, &call, Does::Reads).await;
        // The run is claimed; without its ledger nobody would drive it.
        let lines = lines.map_err(|error| crate::Error::Unknown(Box::new(error)))?;
        Ok(lines.into_iter().map(|line| line.entry).collect())
    }

    async fn start_run(&self, start: Start) -> Result<Started> {
        let mut started = self.starts.ask(&start).await?;
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
                let beat = Heartbeat { node, lease_ms: millis(ttl) };
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
        let found: Option<Found> = self.client.call(wire::FIND, &find, Does::Reads).await?;
        Ok(found.map(|mut found| {
            self.nodes.in_run(&mut found.run);
            (found.run, found.outcome)
        }))
    }
}

impl Store for Remote {
    fn start(&self, start: Start) -> Answer<'_, Started> {
        Box::pin(self.start_run(start))
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Claims> {
        Box::pin(self.claim_runs(claim))
    }

    fn commit(&self, commit: Commit) -> Answer<'_, Saved> {
        let asked = CommitItem::of(&commit).map(|item| self.commits.ask(&item));
        Box::pin(async move { asked?.await })
    }

    fn deliver(&self, deliver: Deliver) -> Answer<'_, Delivered> {
        Box::pin(async move {
            let mut delivered: Delivered = self.client.call(wire::DELIVER, &deliver, Does::Writes).await?;
            if let Some(node) = &mut delivered.node {
                self.nodes.own(node);
            }
            Ok(delivered)
        })
    }

    fn control(&self, control: Control) -> Answer<'_, Controlled> {
        Box::pin(async move {
            let mut controlled: Controlled = self.client.call(wire::CONTROL, &control, Does::Writes).await?;
            self.nodes.in_run(&mut controlled.run);
            Ok(controlled)
        })
    }

    fn once(&self, once: Once) -> Answer<'_, OnceAnswer> {
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

    fn list(&self, query: Query) -> Answer<'_, Vec<Run>> {
        Box::pin(async move {
            let mut runs: Vec<Run> = self.client.call(wire::LIST, &query, Does::Reads).await?;
            for run in &mut runs {
                self.nodes.in_run(run);
            }
            Ok(runs)
        })
    }

    fn ledger(&self, _: WorkspaceId, run: RunId, from: u64) -> Answer<'_, Vec<Numbered>> {
        Box::pin(async move {
            let call = RunCall { run, from };
            let mut lines: Vec<Numbered> = self.client.call(wire::LEDGER, &call, Does::Reads).await?;
            self.nodes.in_ledger(&mut lines);
            Ok(lines)
        })
    }

    fn inbox(&self, _: WorkspaceId, run: RunId, from: u64) -> Answer<'_, Vec<Arrival>> {
        Box::pin(async move { self.client.call(wire::INBOX, &RunCall { run, from }, Does::Reads).await })
    }

    fn receipts(&self, _: WorkspaceId, run: RunId) -> Answer<'_, Vec<(ReceiptKind, Receipts)>> {
        Box::pin(
            async move { self.client.call(wire::RECEIPTS, &RunCall { run, from: 1 }, Does::Reads).await },
        )
    }

    /// Refused: records are the server's own.
    fn records(&self, _: Look) -> Answer<'_, Vec<Record>> {
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
