//! The load: the same three calls for every run, on a server or on a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel::clock::{Clock as _, SystemClock};
use semel::id::{RunId, WorkspaceId};
use semel::rules::control::{Control, ControlAction};
use semel::rules::json::Payload;
use semel::rules::key::Key;
use semel::rules::path::Name;
use semel::rules::run::Retention;
use semel::rules::start::Start;
use semel::store::Store;

use super::Phase;
use crate::api::{CancelRun, ControlAnswer, Period, RetentionView, StartAnswer, StartRun};
use crate::cli::client::{ApiCall, Client, drawn};
use crate::cli::exit::{Done, Exit, Failure};
use crate::cli::output::progress;

/// How long the runs of a load are kept.
const KEPT: Duration = Duration::from_mins(1);

/// The system under load.
pub(super) trait Load: Send + Sync + 'static {
    /// Starts a run; returns its id, and whether it is new.
    fn start(&self, key: &str) -> impl Future<Output = Done<(String, bool)>> + Send;
    /// Cancels a run; returns whether this call did it.
    fn cancel(&self, run: &str) -> impl Future<Output = Done<bool>> + Send;
}

/// Load on a server.
pub(super) struct OnServer {
    client: Client,
    workflow: String,
}

impl OnServer {
    pub(super) fn new(client: Client, workflow: &str) -> Self {
        Self { client, workflow: workflow.to_owned() }
    }
}

impl Load for OnServer {
    async fn start(&self, key: &str) -> Done<(String, bool)> {
        let kept = || Some(Period(format!("{}s", KEPT.as_secs())));
        let start = StartRun {
            workflow: Some(self.workflow.clone()),
            idempotency_key: Some(key.to_owned()),
            retention: Some(RetentionView { history: kept(), key: kept() }),
            ..StartRun::default()
        };
        let answer = self.client.call(&ApiCall::post(["workflow-runs"], Some(key), &start)).await?;
        let started: StartAnswer = answer.read()?;
        Ok((started.run.id, started.created && !answer.replayed))
    }

    async fn cancel(&self, run: &str) -> Done<bool> {
        let body = CancelRun { reason: Some("the end of a benchmark".to_owned()), ..CancelRun::default() };
        let answer = self.client.call(&ApiCall::post(["workflow-runs", run, "cancel"], None, &body)).await?;
        Ok(answer.read::<ControlAnswer>()?.changed)
    }
}

/// Load on a store.
pub(super) struct OnStore {
    store: Arc<dyn Store>,
    workflow: Name,
    clock: SystemClock,
}

impl OnStore {
    pub(super) fn new(store: Arc<dyn Store>, workflow: &str) -> Done<Self> {
        let workflow = Name::new(workflow).map_err(semel::Error::from)?;
        Ok(Self { store, workflow, clock: SystemClock::new() })
    }
}

impl Load for OnStore {
    async fn start(&self, key: &str) -> Done<(String, bool)> {
        let key = Key::new(key).map_err(semel::Error::from)?;
        let run = RunId(self.clock.uuid());
        let input = Payload::null();
        let mut start = Start::new(WorkspaceId::DEFAULT, run, self.workflow.clone(), input, Some(key));
        start.retention = Retention { history: KEPT, key: KEPT };
        let started = self.store.start(start).await?;
        Ok((started.run.id().to_string(), started.created()))
    }

    async fn cancel(&self, run: &str) -> Done<bool> {
        let control = Control {
            workspace: WorkspaceId::DEFAULT,
            run: run.parse().map_err(semel::Error::from)?,
            action: ControlAction::Cancel { reason: "the end of a benchmark".to_owned() },
            by: "bench".to_owned(),
            id: None,
            expected: None,
        };
        Ok(self.store.control(control).await?.changed)
    }
}

/// Plays all three phases. Started runs are cancelled even if a phase fails.
pub(super) async fn play<L: Load>(load: Arc<L>, runs: u64, callers: u64) -> Done<Vec<Phase>> {
    let keys: Arc<Vec<String>> = {
        let prefix = drawn();
        Arc::new((0..runs).map(|n| format!("{prefix}-{n}")).collect())
    };
    let started =
        phase("starts", &load, &keys, callers, async |load: &L, key: &String| load.start(key).await);
    let (starts, found) = started.await?;
    let found = Arc::new(found);
    let duplicates = phase("duplicates", &load, &keys, callers, async |load: &L, key: &String| {
        load.start(key).await.map(|(run, new)| (run, !new))
    });
    let duplicates = duplicates.await;
    let cancels = phase("cancels", &load, &found, callers, async |load: &L, run: &String| {
        Ok((String::new(), load.cancel(run).await?))
    });
    let (cancels, _) = cancels.await?;
    Ok(vec![starts, duplicates?.0, cancels])
}

/// Makes one call per item, with a bounded number of concurrent calls.
async fn phase<L, F>(
    name: &'static str,
    load: &Arc<L>,
    items: &Arc<Vec<String>>,
    callers: u64,
    call: F,
) -> Done<(Phase, Vec<String>)>
where
    L: Load,
    F: AsyncFn(&L, &String) -> Done<(String, bool)>,
{
    let (next, clock, bar) =
        (AtomicU64::new(0), SystemClock::new(), progress(Some(items.len() as u64), name));
    let caller = async || {
        let mut made = Vec::new();
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            let begun = clock.elapsed();
            let (run, expected) = call(load, item).await?;
            made.push((clock.elapsed().saturating_sub(begun), run, expected));
            bar.inc(1);
        }
        Ok::<_, Failure>(made)
    };
    let all = futures_util::future::join_all((0..callers.min(items.len() as u64)).map(|_| caller())).await;
    let took = clock.elapsed();
    bar.finish_and_clear();
    let (mut each, mut runs, mut odd) = (Vec::new(), Vec::new(), 0);
    for made in all {
        for (took, run, expected) in made? {
            each.push(took);
            runs.push(run);
            odd += u64::from(!expected);
        }
    }
    if each.len() != items.len() {
        return Err(Failure::new(Exit::Failed, format!("{name}: {} of {} calls", each.len(), items.len())));
    }
    each.sort_unstable();
    Ok((Phase { name, calls: each.len() as u32, odd, took, each }, runs))
}
