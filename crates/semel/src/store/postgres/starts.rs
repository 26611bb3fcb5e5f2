//! Plain starts: looked up together, and what is new is written together.

use std::collections::HashSet;
use std::sync::Arc;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error as PgError, Row};
use uuid::Uuid;

use super::batch::{Batch, Done, Kind, Rows, Stamp, WRITERS, Writer};
use super::lookups::{LOOKERS, Looker, Wanted};
use super::queue::Queue;
use super::server::Server;
use crate::clock::Time;
use crate::error::Result;
use crate::store::Started;
use crate::store::tx::millis;
use crate::store::verbs::{NewStart, PeekStart, StartRun};

/// The ways of a plain start.
pub(super) struct StartQueue {
    lookups: Queue<Looker>,
    starts: Queue<Writer<Starts>>,
}

impl StartQueue {
    pub(super) fn start(server: &Arc<Server>) -> Self {
        let lookups = Queue::start(LOOKERS, || Looker::new(server));
        Self { lookups, starts: Queue::start(WRITERS, || Writer::new(server)) }
    }

    /// Starts a run that brings no payload along.
    pub(super) async fn begin(&self, server: &Server, verb: StartRun) -> Result<Started> {
        // Hardly anybody else can have the key that was drawn for this very start: the index would say so.
        let looked = match verb.start.is_keyless() && verb.start.tells_no_time() {
            true => None,
            false => Some(self.lookups.ask(Wanted::by(&verb)).await?),
        };
        let looked = match looked {
            Some(found) if found.is_found() => found,
            // Decided at the time at which its key was not in use. Of a node that is dead the batch leaves it alone.
            looked => match self.starts.ask(FreeStart::of(&verb, looked.map(|looked| looked.now))).await? {
                Done::Saved(start, (num, now)) => return Ok(start.started(num, now)),
                // By now somebody has the key, or the answer is lost and it is this very start. Either can be seen.
                Done::Left(_) => self.lookups.ask(Wanted::by(&verb)).await?,
            },
        };
        if looked.is_found() {
            let peek = PeekStart(verb);
            if let Some(started) = looked.peek(server, &peek).await? {
                return Ok(started);
            }
            return server.execute(&peek.0).await;
        }
        server.execute(&verb).await
    }

    pub(super) async fn stop(&self) {
        self.starts.stop().await;
        self.lookups.stop().await;
    }
}

/// A start under a key that is free.
pub(super) struct FreeStart {
    start: NewStart,
    /// When it was; if that is not known, the statement says it.
    at: Option<Time>,
}

impl FreeStart {
    fn of(verb: &StartRun, at: Option<Time>) -> Self {
        Self { start: NewStart::of(verb, at.unwrap_or(Time(0))), at }
    }

    fn started(mut self, num: i64, now: Time) -> Started {
        if self.at.is_none() {
            self.start.set_time(now);
        }
        self.start.started(num)
    }
}

/// The places of the statements.
const ONE: usize = 0;
const MANY: usize = 1;

/// The columns of a run.
const RUN: &[&str] = &[
    "uuid", "uuid", "text", "text", "text", "text", "bytea", "uuid", "bigint", "bigint", "bigint",
    "smallint", "bigint", "bigint", "uuid", "integer", "text",
];

/// The columns of all runs of a batch, or of the one that is named.
macro_rules! columns {
    ($batch:ident $([$one:literal])?) => {
        [
            &$batch.ids $([$one])?,
            &$batch.workspaces $([$one])?,
            &$batch.workflows $([$one])?,
            &$batch.workflow_versions $([$one])?,
            &$batch.scopes $([$one])?,
            &$batch.keys $([$one])?,
            &$batch.fingerprints $([$one])?,
            &$batch.lineages $([$one])?,
            &$batch.keep_histories $([$one])?,
            &$batch.keep_keys $([$one])?,
            &$batch.created $([$one])?,
            &$batch.statuses $([$one])?,
            &$batch.versions $([$one])?,
            &$batch.dues $([$one])?,
            &$batch.nodes $([$one])?,
            &$batch.stalls $([$one])?,
            &$batch.entries $([$one])?,
        ]
    };
}

/// Plain starts under keys that are free.
pub(super) struct Starts;

impl Kind for Starts {
    type Call = FreeStart;
    type Batch<'a> = StartBatch<'a>;
    /// The number of the run, and the statement's time.
    type Told = (i64, Time);
    const MOST: usize = 1024;

    fn sql() -> Vec<String> {
        let sql = |runs: String| include_str!("start.sql").replace("{runs}", &runs);
        vec![
            sql(format!("(SELECT o.*, 1::bigint FROM {} o)", Rows::One.of(4, RUN))),
            sql(format!("{} WITH ORDINALITY", Rows::Many.of(4, RUN))),
        ]
    }

    /// The statement joins nothing but what it was given with what it has made, and each may be long.
    const SETTINGS: &'static str = "SET enable_hashjoin = on; SET enable_nestloop = off";
}

/// The starts of one statement, column by column.
#[derive(Default)]
pub(super) struct StartBatch<'a> {
    calls: usize,
    /// Where among the calls each of them stands.
    order: Vec<usize>,
    claimers: Vec<Uuid>,
    ids: Vec<Uuid>,
    workspaces: Vec<Uuid>,
    workflows: Vec<&'a str>,
    workflow_versions: Vec<&'a str>,
    scopes: Vec<&'a str>,
    keys: Vec<&'a str>,
    fingerprints: Vec<&'a [u8]>,
    lineages: Vec<Uuid>,
    keep_histories: Vec<i64>,
    keep_keys: Vec<i64>,
    created: Vec<Option<i64>>,
    statuses: Vec<i16>,
    versions: Vec<i64>,
    dues: Vec<Option<i64>>,
    nodes: Vec<Option<Uuid>>,
    stalls: Vec<i32>,
    entries: Vec<&'a str>,
}

impl<'a> Batch<'a> for StartBatch<'a> {
    type Call = FreeStart;
    type Told = (i64, Time);

    /// In order of the keys, so that two batches wait for each other in one direction only. Of two starts with one key,
    /// or one id, only the first: the other finds what it has made.
    fn of(starts: &[&'a FreeStart]) -> Self {
        let key = |i: &usize| {
            let new = &starts[*i].start.new;
            (new.workspace, &new.scope, &new.key)
        };
        let mut order: Vec<usize> = (0..starts.len()).collect();
        order.sort_by(|a, b| key(a).cmp(&key(b)));
        order.dedup_by(|later, first| key(later) == key(first));
        let mut ids = HashSet::with_capacity(order.len());
        order.retain(|i| ids.insert(starts[*i].start.new.id));
        let mut batch = Self::default();
        for i in &order {
            batch.add(starts[*i]);
        }
        batch.claimers = batch.nodes.iter().flatten().copied().collect::<HashSet<_>>().into_iter().collect();
        Self { calls: starts.len(), order, ..batch }
    }

    /// One whose key was drawn for it is found by that key if it is sent again. Of another's key somebody else may be the
    /// owner by then, and may have let it go when the lost one arrives after all: that must not take place any more.
    fn needs_mark(&self) -> bool {
        self.created.iter().any(Option::is_some)
    }

    fn statement(&self) -> usize {
        if self.order.len() == 1 { ONE } else { MANY }
    }

    fn params<'p>(&'p self, stamp: &'p Stamp) -> Vec<&'p (dyn ToSql + Sync)> {
        let runs: [&(dyn ToSql + Sync); RUN.len()] = match self.statement() {
            ONE => columns!(self[0]),
            _ => columns!(self),
        };
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&stamp.mark, &stamp.now, &self.claimers];
        params.extend(runs);
        params
    }

    fn done(&self, answer: &[Row]) -> Result<Vec<Option<Self::Told>>, PgError> {
        let [answer] = answer else { return Ok(Vec::new()) };
        let places: Option<Vec<i64>> = answer.try_get(0)?;
        let nums: Option<Vec<i64>> = answer.try_get(1)?;
        let now = Time(answer.try_get(2)?);
        Ok(self.made(&places.unwrap_or_default(), &nums.unwrap_or_default(), now))
    }

    /// None is said to be made: whoever looks for one finds it under its key, as it is by now.
    async fn found(&self, _: &Client) -> Result<Vec<Option<Self::Told>>, PgError> {
        Ok(Vec::new())
    }
}

impl<'a> StartBatch<'a> {
    fn add(&mut self, FreeStart { start, at }: &'a FreeStart) {
        let NewStart { new, state, text, .. } = start;
        self.ids.push(new.id.0);
        self.workspaces.push(new.workspace.0);
        self.workflows.push(new.workflow.as_str());
        self.workflow_versions.push(new.workflow_version.as_str());
        self.scopes.push(new.scope.as_str());
        self.keys.push(new.key.as_str());
        self.fingerprints.push(&new.fingerprint.0);
        self.lineages.push(new.lineage.0);
        self.keep_histories.push(millis(new.retention.history));
        self.keep_keys.push(millis(new.retention.key));
        self.created.push(at.map(|at| at.0));
        self.statuses.push(state.status.code());
        self.versions.push(state.version as i64);
        self.dues.push(state.due.map(|due| due.0));
        self.nodes.push(state.node.map(|node| node.0));
        self.stalls.push(state.stalls as i32);
        self.entries.push(text);
    }

    /// Which of the calls are made, and under which numbers.
    fn made(&self, places: &[i64], nums: &[i64], now: Time) -> Vec<Option<(i64, Time)>> {
        let mut made = vec![None; self.calls];
        for (place, num) in places.iter().zip(nums) {
            let call = usize::try_from(place - 1).ok().and_then(|place| self.order.get(place));
            if let Some(call) = call {
                made[*call] = Some((*num, now));
            }
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{NodeId, RunId, WorkspaceId};
    use crate::rules::json::Payload;
    use crate::rules::key::Key;
    use crate::rules::path::Name;
    use crate::rules::start::Start;

    fn new(id: u128, key: &str, claim: Option<u128>) -> FreeStart {
        let (workflow, key) = (Name::new("order").unwrap(), Key::new(key).unwrap());
        let run = RunId(Uuid::from_u128(id));
        let mut start = Start::new(WorkspaceId::DEFAULT, run, workflow, Payload::null(), Some(key));
        start.claim = claim.map(|node| NodeId(Uuid::from_u128(node)));
        let fingerprint = start.fingerprint().unwrap();
        FreeStart::of(&StartRun { start, fingerprint }, Some(Time(5)))
    }

    #[test]
    fn a_batch_is_in_order_of_keys_and_takes_the_first_of_each_key_and_id() {
        let starts = [
            new(1, "m", Some(7)),
            new(2, "z", None),
            new(3, "m", None),
            new(4, "a", Some(7)),
            new(2, "q", None),
        ];
        let batch = StartBatch::of(&starts.each_ref());
        assert_eq!(batch.order, [3, 0, 4], "the second m and the second run 2 are left out");
        assert_eq!((&*batch.keys, &*batch.claimers), (&["a", "m", "q"][..], &[Uuid::from_u128(7)][..]));
        let at = |num| Some((num, Time(9)));
        assert_eq!(batch.made(&[3, 1], &[70, 50], Time(9)), [None, None, None, at(50), at(70)]);
        assert_eq!(batch.made(&[], &[], Time(9)), [None; 5]);
    }
}
