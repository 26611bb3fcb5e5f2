//! Plain starts: looked up together, and what is new is written together.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Error as PgError, Row};
use uuid::Uuid;

use super::batch::{BatchWriter, CallKind, Done, Rows, Stamp, StatementBatch, WRITERS};
use super::lookups::{LOOKERS, Looker, Wanted};
use super::queue::BatchQueue;
use super::server::Server;
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::store::Started;
use crate::store::tx::millis;
use crate::store::verbs::{NewStart, PeekStart, StartRun};

/// How long marks are kept (`sql/marks.sql`). No write is on its way for longer than that.
const MARKS_ARE_KEPT: Duration = Duration::from_hours(1);

/// The ways of a plain start.
pub(super) struct StartQueue {
    lookups: BatchQueue<Looker>,
    starts: BatchQueue<BatchWriter<Starts>>,
}

impl StartQueue {
    pub(super) fn start(server: &Arc<Server>) -> Self {
        let lookups = BatchQueue::start(LOOKERS, || Looker::new(server));
        Self { lookups, starts: BatchQueue::start(WRITERS, || BatchWriter::new(server)) }
    }

    /// Starts a run that brings no payload along.
    pub(super) async fn begin(&self, server: &Server, verb: StartRun) -> Result<Started> {
        // A key that was drawn for this start is almost certainly free; if it is not, the index refuses it.
        let looked = match verb.start.is_keyless() && verb.start.tells_no_time() {
            true => None,
            false => Some(self.lookups.ask(Wanted::by(&verb)).await?),
        };
        let looked = match looked {
            Some(found) if found.is_found() => found,
            // Decided at the time at which its key was not in use. Of a node that is dead the batch leaves it alone.
            looked => match self.starts.ask(FreeStart::of(&verb, looked.map(|looked| looked.now))).await? {
                Done::Saved(start, (num, now)) => return Ok(start.started(num, now)),
                // The key is taken by now, or the node is dead. The verb tells which.
                Done::Left(_) => self.lookups.ask(Wanted::by(&verb)).await?,
                Done::Lost(_) => return self.find(server, verb).await,
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

    /// A start whose answer is lost is found under its key, or its outcome is unknown.
    async fn find(&self, server: &Server, verb: StartRun) -> Result<Started> {
        let (run, unknown) = (verb.start.run, |error: Error| Error::Unknown(Box::new(error)));
        let looked = self.lookups.ask(Wanted::by(&verb)).await.map_err(unknown)?;
        let started = match looked.is_found() {
            true => looked.peek(server, &PeekStart(verb)).await.map_err(unknown)?,
            false => None,
        };
        let lost = || Error::Unknown("the answer to a start is lost, and its run is not there".into());
        started.filter(|started| started.run.id() == run).ok_or_else(lost)
    }

    pub(super) async fn stop(&self, patience: Duration) {
        self.starts.stop(patience).await;
        self.lookups.stop(patience).await;
    }
}

/// A start under a key that is free.
pub(super) struct FreeStart {
    start: NewStart,
    /// When it was; if that is not known, the statement says it.
    at: Option<Time>,
    needs_mark: bool,
}

impl FreeStart {
    fn of(verb: &StartRun, at: Option<Time>) -> Self {
        let start = NewStart::of(verb, at.unwrap_or(Time(0)));
        // If a start is sent again, a key that was drawn for it finds its run, as long as the row is there. A key that the caller
        // gave may belong to another run by then, and may be free again when the lost statement arrives after all: that one
        // must have no effect any more.
        let kept = start.new.retention.history.max(start.new.retention.key);
        let needs_mark = !verb.start.is_keyless() || kept < MARKS_ARE_KEPT;
        Self { start, at, needs_mark }
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
    "smallint", "bigint", "bigint", "uuid", "integer", "bigint", "text",
];

/// Plain starts under keys that are free.
pub(super) struct Starts;

impl CallKind for Starts {
    type Call = FreeStart;
    type Batch<'a> = StartBatch<'a>;
    /// The number of the run, and the statement's time.
    type Told = (i64, Time);
    const MOST: usize = 1024;

    fn weight(start: &FreeStart) -> usize {
        start.start.text.len()
    }

    fn sql() -> Vec<String> {
        let (clock, start) = (include_str!("sql/clock.sql"), include_str!("sql/start.sql"));
        let sql = |runs: String| format!("{clock}, {}", start.replace("{runs}", &runs));
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
    needs_mark: bool,
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
    deadlines: Vec<Option<i64>>,
    entries: Vec<&'a str>,
}

impl<'a> StatementBatch<'a> for StartBatch<'a> {
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

    fn needs_mark(&self) -> bool {
        self.needs_mark
    }

    fn statement(&self) -> usize {
        if self.order.len() == 1 { ONE } else { MANY }
    }

    fn params<'p>(&'p self, stamp: &'p Stamp) -> Vec<&'p (dyn ToSql + Sync)> {
        let rows = if self.statement() == ONE { Rows::One } else { Rows::Many };
        let runs: [&(dyn ToSql + Sync); RUN.len()] = [
            rows.column(&self.ids),
            rows.column(&self.workspaces),
            rows.column(&self.workflows),
            rows.column(&self.workflow_versions),
            rows.column(&self.scopes),
            rows.column(&self.keys),
            rows.column(&self.fingerprints),
            rows.column(&self.lineages),
            rows.column(&self.keep_histories),
            rows.column(&self.keep_keys),
            rows.column(&self.created),
            rows.column(&self.statuses),
            rows.column(&self.versions),
            rows.column(&self.dues),
            rows.column(&self.nodes),
            rows.column(&self.stalls),
            rows.column(&self.deadlines),
            rows.column(&self.entries),
        ];
        [&[&stamp.now as &(dyn ToSql + Sync), &stamp.mark, &self.claimers], &runs[..]].concat()
    }

    fn done(&self, answer: &[Row]) -> Result<Vec<Option<Self::Told>>, PgError> {
        let [answer] = answer else { return Ok(Vec::new()) };
        let places: Option<Vec<i64>> = answer.try_get(0)?;
        let nums: Option<Vec<i64>> = answer.try_get(1)?;
        let now = Time(answer.try_get(2)?);
        Ok(self.made(&places.unwrap_or_default(), &nums.unwrap_or_default(), now))
    }
}

impl<'a> StartBatch<'a> {
    fn add(&mut self, FreeStart { start, at, needs_mark }: &'a FreeStart) {
        self.needs_mark |= needs_mark;
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
        self.deadlines.push(state.deadline.map(|deadline| deadline.0));
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
