//! The process that is killed: an engine whose effects are the parent's to count.

use std::collections::HashMap;
use std::io::{BufRead as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use libtest_mimic::Failed;
use semel::rules::entry::{Outcome, PauseReason};
use semel::rules::ledger::{Ledger, VisitRecord};
use semel::rules::run::Run;
use semel::rules::status::Status;
use semel::rules::step::StepState;
use semel::store::postgres::{PostgresOptions, PostgresStore};
use semel::store::sqlite::{SqliteOptions, SqliteStore};
use semel::store::{Query, Store};
use semel::{Attempt, Ctx, Engine, Limits, Once, Result, fatal};
use tokio::sync::{mpsc, oneshot};

/// How often paused runs are looked after.
const ROUND: Duration = Duration::from_millis(100);

/// The way to the parent: a line out, its answer in.
#[derive(Clone, Default)]
struct ParentWire(Arc<Lines>);

#[derive(Default)]
struct Lines {
    last: AtomicU64,
    open: Mutex<HashMap<u64, oneshot::Sender<Option<u64>>>>,
}

impl ParentWire {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Option<u64>>>> {
        self.0.open.lock().expect("no thread panics while it holds the lock")
    }

    fn say(line: &str) {
        // Shorter than a pipe's buffer: it comes whole or not at all, also if the process is killed meanwhile.
        std::io::stdout().lock().write_all(format!("{line}\n").as_bytes()).expect("the parent reads");
    }

    /// Asks the parent, which may refuse.
    async fn ask(&self, what: &str, about: &str) -> Result<u64> {
        let id = self.0.last.fetch_add(1, Ordering::SeqCst);
        let (answer, answered) = oneshot::channel();
        self.open().insert(id, answer);
        Self::say(&format!("{what} {id} {about}"));
        answered.await?.ok_or_else(|| fatal("refused: a later fence has been seen"))
    }

    fn answer(&self, id: u64, value: Option<u64>) {
        if let Some(open) = self.open().remove(&id) {
            // The caller may have been dropped meanwhile.
            let _ = open.send(value);
        }
    }

    async fn effect(&self, order: u64, name: &str, attempt: &Attempt) -> Result<u64> {
        self.ask("effect", &format!("{order} {name} {} {}", attempt.fence(), attempt.key())).await
    }
}

async fn parcel(ctx: Ctx, order: u64) -> Result<u64> {
    let wire = ctx.state::<ParentWire>();
    ctx.step("label").run(async |attempt| wire.effect(order, "label", &attempt).await).await?;
    Ok(order + 1)
}

async fn order(ctx: Ctx, order: u64) -> Result<(u64, u64)> {
    let wire = ctx.state::<ParentWire>();
    ctx.step("charge").run(async |attempt| wire.effect(order, "charge", &attempt).await).await?;
    ctx.step("letter")
        .at_most_once()
        .run(async |attempt| wire.effect(order, "letter", &attempt).await)
        .await?;
    // Some naps are worth a rest, some are not.
    ctx.sleep("nap", Duration::from_millis(5 + order % 4 * 15)).await?;
    let word: u64 = ctx.hook(format!("go:{order}")).recv().await?;
    let find = async |attempt: Attempt| {
        let about = format!("{order} ship {} {}", attempt.fence(), attempt.key());
        Ok((wire.ask("look", &about).await? > 0).then_some(order))
    };
    let ship = ctx.step("ship").reconcile(find);
    ship.run(async |attempt| wire.effect(order, "ship", &attempt).await.map(|_| order)).await?;
    let parcel = ctx.child(parcel, order).await?.result().await?;
    let label = format!("rate-{}", order % 16);
    let ask = async || wire.ask("rate", &label).await;
    let rate = ctx.run_once(label.clone(), ask).scope(Once::Workspace).await?;
    Ok((word + parcel - order - 1, rate))
}

/// Drives orders until it is killed. `place` is a file, or a URL and a schema.
pub(crate) async fn work(place: &str) -> Result<(), Failed> {
    let store: Arc<dyn Store> = match place.split_once(' ') {
        None => Arc::new(SqliteStore::open(SqliteOptions::new(place)).await?),
        Some((url, schema)) => {
            let schema = Some(schema.to_owned());
            Arc::new(PostgresStore::open(PostgresOptions { schema, ..PostgresOptions::new(url) }).await?)
        }
    };
    let wire = ParentWire::default();
    let limits = Limits { lease: Duration::from_secs(1), ..Limits::default() };
    let builder = Engine::builder().store(store).state(wire.clone()).limits(limits);
    let engine = builder.workflow("order", order).workflow("parcel", parcel).open().await?;
    tokio::spawn(operate(engine.clone(), wire.clone()));
    let mut heard = listen();
    while let Some(line) = heard.recv().await {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["start", order] => drop(tokio::spawn(begin(engine.clone(), order.parse()?))),
            ["ok", id, value] => wire.answer(id.parse()?, Some(value.parse()?)),
            ["no", id] => wire.answer(id.parse()?, None),
            _ => return Err(format!("{line:?} is no word of the parent").into()),
        }
    }
    Ok(())
}

/// The parent's lines.
fn listen() -> mpsc::UnboundedReceiver<String> {
    let (hear, heard) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if hear.send(line).is_err() {
                return;
            }
        }
    });
    heard
}

/// Starts an order, which may be there already, and says how it ends.
async fn begin(engine: Engine, number: u64) {
    let mut pace = tokio::time::interval(ROUND);
    let run = loop {
        pace.tick().await;
        let start = engine.start(order, number).key(format!("order-{number}"));
        match start.deliver(format!("go:{number}"), number).delivery_id(format!("go-{number}")).await {
            Ok(run) => break run,
            Err(error) => ParentWire::say(&format!("note a start of {number} is answered with {error}")),
        }
    };
    ParentWire::say(&format!("started {number} {}", run.id()));
    loop {
        pace.tick().await;
        match run.outcome().await {
            Ok(Outcome::Completed(value)) => {
                return ParentWire::say(&format!("ended {number} {}", value.text()));
            }
            Ok(other) => return ParentWire::say(&format!("wrong {number} {other:?}")),
            Err(error) => ParentWire::say(&format!("note the end of {number} is answered with {error}")),
        }
    }
}

/// Does what a person would do about paused runs: asks the provider, and resolves the doubts.
async fn operate(engine: Engine, wire: ParentWire) {
    let mut rounds = tokio::time::interval(ROUND);
    loop {
        rounds.tick().await;
        for run in engine.store().list(paused(&engine)).await.unwrap_or_default() {
            if let Err(error) = settle(&engine, &wire, run).await {
                ParentWire::say(&format!("note a paused run is answered with {error:?}"));
            }
        }
    }
}

fn paused(engine: &Engine) -> Query {
    Query { status: vec![Status::Paused], ..Query::all(engine.workspace(), 1000) }
}

async fn settle(engine: &Engine, wire: &ParentWire, run: Run) -> Result<()> {
    let handle = engine.run(run.id()).by("operator");
    let entries = handle.ledger().await?.into_iter().map(|numbered| numbered.entry);
    let ledger = Ledger::read(run, entries)?;
    match ledger.pause() {
        Some(PauseReason::Poisoned) => {
            ParentWire::say("poisoned");
            handle.resume().await?;
        }
        Some(PauseReason::Diverged(why)) => {
            ParentWire::say(&format!("wrong {} diverged: {why}", ledger.run().id()));
        }
        Some(PauseReason::Operator { by }) => {
            ParentWire::say(&format!("wrong {} paused by {by}", ledger.run().id()));
        }
        Some(PauseReason::InDoubt) => {
            let doubtful =
                |record: &VisitRecord| matches!(record, VisitRecord::Step(StepState::InDoubt { .. }));
            let order: u64 = ledger.created().input.read()?;
            for (visit, _) in ledger.records().filter(|(_, record)| doubtful(record)) {
                let (version, key) = (ledger.run().state.version, ledger.effect_key(visit, ""));
                let happened = wire.ask("doubt", &format!("{order} {visit} {version} {key}")).await? > 0;
                match happened {
                    true => handle.happened(&visit.to_string(), &order).await?,
                    false => handle.did_not_happen(&visit.to_string()).await?,
                };
            }
        }
        None => {}
    }
    Ok(())
}
