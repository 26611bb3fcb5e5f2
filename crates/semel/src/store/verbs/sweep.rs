//! The periodic pass: runs of dead nodes become due, what is overdue ends, what is past its retention is forgotten.

use std::collections::HashMap;

use super::deadline::EndedRun;
use crate::clock::Time;
use crate::error::Result;
use crate::id::NodeId;
use crate::rules::claim::{self, Hands};
use crate::rules::finish::{Purge, purge};
use crate::rules::json::Payload;
use crate::rules::node::{EngineRecord, LostNode, WorkerNode};
use crate::rules::path::Name;
use crate::rules::record::Record;
use crate::rules::stats::StatsSpan;
use crate::store::stats::minute_of;
use crate::store::tx::{DeadNode, Driven, SetFree, StoreTx, Verb};
use crate::store::{Sweep, Swept};

/// How many rows of histories one pass deletes, for each run that it may handle. Other writes wait as long as a pass takes: it
/// must not depend on how long the ledgers are.
const ROWS_EACH: usize = 4;

impl Verb for Sweep {
    /// Also the runs that were ended because their time was up.
    type Answer = (Swept, Vec<EndedRun>);

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<(Swept, Vec<EndedRun>)> {
        // With a limit of zero the sweep would never end.
        let limit = self.limit.max(1);
        let mut swept = Swept::default();
        swept.orphaned = free_orphans(tx, limit).await?;
        swept.more = swept.orphaned == limit;
        let ended = super::deadline::end_overdue(tx, limit).await?;
        swept.timed_out = ended.len();
        swept.more |= ended.len() == limit;
        forget(tx, limit, &mut swept).await?;
        swept.once = tx.delete_expired_once(limit).await?;
        swept.records = tx.delete_expired_records(limit).await?;
        // Those that are left wait for a later pass: nothing depends on when they go.
        for span in StatsSpan::ALL {
            let before = Time(tx.now().0.saturating_sub(span.kept().as_millis() as i64));
            swept.stats += tx.delete_stats(span, minute_of(before), limit).await?;
        }
        swept.more |= swept.once == limit || swept.records == limit;
        Ok((swept, ended))
    }
}

/// Makes up to `limit` runs of dead nodes due, and forgets the nodes that have none left. How many runs there were.
async fn free_orphans<T: StoreTx>(tx: &mut T, limit: usize) -> Result<usize> {
    let dead = tx.dead_nodes().await?;
    for node in dead.iter().filter(|node| node.is_new) {
        // Dead from here on, also for itself: it must not renew a lease whose runs are being given away.
        tx.put_lease(node.id, None).await?;
    }
    let ids: Vec<NodeId> = dead.iter().map(|node| node.id).collect();
    let orphans = tx.driven(&ids, limit).await?;
    let more = orphans.len() == limit;
    let due = tx.now();
    let free = |run: &Driven, stalls: u32| SetFree { num: run.num, due, stalls };
    let blame = Blame::of(&dead, &orphans, more);
    let freed: Vec<SetFree> = orphans.iter().map(|run| free(run, blame.stalls(run))).collect();
    tx.set_free(&freed).await?;
    for node in dead.into_iter().filter(|_| !more) {
        tx.delete_node(node.id).await?;
        forget_node(tx, node).await?;
    }
    Ok(freed.len())
}

/// Removes what is said of a node; of one that did not leave in good order, it is remembered for a while. The same pass
/// deletes what has expired.
async fn forget_node<T: StoreTx>(tx: &mut T, DeadNode { id, departed, .. }: DeadNode) -> Result<()> {
    let now = tx.now();
    // What a newer Semel has written may not be readable: then nothing is remembered of it.
    let engine = take_record(tx, EngineRecord::kind(), id).await?;
    let engine = engine.and_then(|body| body.read().ok()).map(|engine| LostNode::engine(engine, now));
    let worker = take_record(tx, WorkerNode::kind(), id).await?;
    let worker = worker.and_then(|body| body.read().ok()).map(|worker| LostNode::worker(worker, now));
    let Some(lost) = engine.or(worker).filter(|_| !departed) else { return Ok(()) };
    let (kind, id) = (LostNode::kind(), EngineRecord::id(id));
    let before = tx.record(&kind, &id).await?.map(|record| record.version);
    let (version, expires) = (before.unwrap_or_default() + 1, Some(now.after(LostNode::KEPT)));
    tx.put_record(&Record { kind, id, version, body: Payload::of(&lost)?, at: now, expires }, before).await?;
    Ok(())
}

/// Lets the record of a node expire; gives its body.
async fn take_record<T: StoreTx>(tx: &mut T, kind: Name, node: NodeId) -> Result<Option<Payload>> {
    let Some(record) = tx.record(&kind, &EngineRecord::id(node)).await? else { return Ok(None) };
    let (found, now, body) = (record.version, tx.now(), record.body.clone());
    let gone = Record { version: found + 1, at: now, expires: Some(now), ..record };
    tx.put_record(&gone, Some(found)).await?;
    Ok(Some(body))
}

/// Runs that each dead node drove when it died, to find out which runs kill nodes. None for a node that left in order.
struct Blame(HashMap<NodeId, Option<Hands>>);

impl Blame {
    fn of(dead: &[DeadNode], orphans: &[Driven], more: bool) -> Self {
        // Of a node whose runs come in several portions, at least one is not seen here.
        let unseen = |node: &DeadNode| usize::from(more || !node.is_new);
        let empty = |node: &DeadNode| Hands { runs: unseen(node), suspects: 0 };
        let mut hands: HashMap<_, _> =
            dead.iter().map(|node| (node.id, (!node.departed).then(|| empty(node)))).collect();
        for run in orphans {
            if let Some(Some(hands)) = hands.get_mut(&run.node) {
                hands.runs += 1;
                hands.suspects += usize::from(run.stalls >= claim::SUSPECT);
            }
        }
        Self(hands)
    }

    fn stalls(&self, run: &Driven) -> u32 {
        match self.0.get(&run.node).copied().flatten() {
            Some(hands) => claim::blamed(run.stalls, hands),
            None => run.stalls,
        }
    }
}

/// Forgets what is past its retention, up to a number of runs and of rows.
async fn forget<T: StoreTx>(tx: &mut T, limit: usize, swept: &mut Swept) -> Result<()> {
    let mut rows = limit.saturating_mul(ROWS_EACH);
    let purgeable = tx.purgeable(limit).await?;
    swept.more |= purgeable.len() == limit;
    for run in purgeable {
        let what = purge(&run, tx.now());
        if what == Purge::Keep {
            continue;
        }
        // The header is a row as well. If not all of the history is gone, the run is there in the next pass.
        let gone = if rows == 0 { 0 } else { tx.forget(&run, what, rows).await? };
        if gone == rows {
            swept.more = true;
            return Ok(());
        }
        rows = rows.saturating_sub(gone + 1);
        match what {
            Purge::History(_) => swept.histories += 1,
            Purge::Run => swept.runs += 1,
            Purge::Keep => {}
        }
    }
    Ok(())
}
