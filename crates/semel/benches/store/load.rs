//! The loads: callers that each await their answer before they ask again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel::clock::{Clock, SystemClock};
use semel::error::Result;
use semel::id::{NodeId, RunId, WorkspaceId};
use semel::rules::entry::{Class, Entry};
use semel::rules::json::Payload;
use semel::rules::key::Key;
use semel::rules::ledger::Ledger;
use semel::rules::path::{Name, Path, Visit};
use semel::rules::start::Start;
use semel::store::{Lease, LeaseAct, Store};
use tokio::task::JoinSet;

use crate::report::Rate;
use crate::turns::under_load;

/// A store under load.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<SystemClock>,
    pub(crate) node: NodeId,
    result: Payload,
}

impl Load {
    pub(crate) async fn new(store: Arc<dyn Store>) -> Result<Self> {
        let clock = Arc::new(SystemClock::new());
        let node = NodeId(clock.uuid());
        store.lease(Lease { node, act: LeaseAct::Join(Duration::from_hours(24)) }).await?;
        let result = Payload::parse(r#"{"charge":"ch_0123456789"}"#)?;
        Ok(Self { store, clock, node, result })
    }

    pub(crate) fn request(&self, key: Option<&str>) -> Result<Start> {
        let key = key.map(Key::new).transpose()?;
        let input = Payload::parse(r#"{"order":4711,"cents":1999}"#)?;
        let run = RunId(self.clock.uuid());
        Ok(Start::new(WorkspaceId::DEFAULT, run, Name::new("order")?, input, key))
    }

    /// A new run that this process drives, as its ledger.
    async fn driven(&self) -> Result<Ledger> {
        let start = Start { claim: Some(self.node), ..self.request(None)? };
        let started = self.store.start(start).await?;
        Ok(Ledger::read(started.run, started.entries).expect("the store keeps what the rules accepted"))
    }

    /// `callers` runs commit one step after the other for a while.
    pub(crate) async fn commits(&self, callers: usize, time: Duration) -> Result<Rate> {
        let mut starting = JoinSet::new();
        for _ in 0..callers {
            let load = self.clone();
            starting.spawn(async move { load.driven().await });
        }
        let runs = starting.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
        let mut runs = runs.into_iter();
        under_load(callers, time, |_, mut turns| {
            let (load, mut run) = (self.clone(), runs.next().expect("one for each caller"));
            async move {
                let mut n = 0;
                while turns.begin() {
                    n += 1;
                    load.step(&mut run, n).await?;
                    turns.end();
                }
                Ok(turns)
            }
        })
        .await
    }

    /// One step: its start and its result in one commit.
    async fn step(&self, run: &mut Ledger, n: usize) -> Result<()> {
        let step = Visit::first(Path::of(&Name::new(&format!("step-{n}"))?));
        let value = self.result.clone();
        run.record(Entry::step_started(step.clone(), 1, Class::Keyed)).expect("a new step");
        run.record(Entry::StepCompleted { step, value }).expect("a started step");
        self.store.commit(run.commit().expect("two entries")).await.map(drop)
    }

    /// Whole runs of five steps, until the ledgers have this number of entries more.
    pub(crate) async fn whole_runs(&self, callers: usize, entries: u64) -> Result<()> {
        const STEPS: usize = 5;
        let done = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..callers {
            let (load, done) = (self.clone(), done.clone());
            tasks.spawn(async move {
                while done.load(Ordering::Relaxed) < entries {
                    let mut run = load.driven().await?;
                    for n in 1..=STEPS {
                        load.step(&mut run, n).await?;
                    }
                    run.record(Entry::Completed { value: Payload::null() }).expect("a running run");
                    load.store.commit(run.commit().expect("one entry")).await?;
                    done.fetch_add(run.run().state.version, Ordering::Relaxed);
                }
                Ok::<_, semel::Error>(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.expect("a caller does not panic")?;
        }
        Ok(())
    }

    /// `callers` tasks start runs for a while, each under a new key, or all under `keys` keys that are in use.
    pub(crate) async fn starts(&self, callers: usize, keys: Option<usize>, time: Duration) -> Result<Rate> {
        for n in 0..keys.unwrap_or(0) {
            self.store.start(self.request(Some(&format!("known-{n}")))?).await?;
        }
        under_load(callers, time, |mut n, mut turns| {
            let load = self.clone();
            async move {
                while turns.begin() {
                    n += 1;
                    let key = keys.map(|keys| format!("known-{}", n % keys));
                    let started = load.store.start(load.request(key.as_deref())?).await?;
                    turns.end();
                    assert_eq!(
                        started.created(),
                        keys.is_none(),
                        "a duplicate creates nothing, a new key creates"
                    );
                }
                Ok(turns)
            }
        })
        .await
    }

    /// Many equal starts at once; how many runs they made.
    pub(crate) async fn equal_starts(&self, callers: usize, starts: usize) -> Result<usize> {
        let key = self.clock.uuid().to_string();
        let mut tasks = JoinSet::new();
        for _ in 0..callers {
            let (load, key) = (self.clone(), key.clone());
            tasks.spawn(async move {
                let mut runs = Vec::new();
                for _ in 0..starts / callers {
                    let started = load.store.start(load.request(Some(&key))?).await?;
                    runs.push((started.run.id(), started.created()));
                }
                Ok::<_, semel::Error>(runs)
            });
        }
        let mut all = Vec::new();
        while let Some(runs) = tasks.join_next().await {
            all.extend(runs.expect("a caller does not panic")?);
        }
        let distinct: std::collections::HashSet<_> = all.iter().map(|(run, _)| *run).collect();
        let created = all.iter().filter(|(_, created)| *created).count();
        assert_eq!(distinct.len(), created, "every start answers with a run that one of them created");
        Ok(created)
    }
}
