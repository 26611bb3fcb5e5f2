//! Power loss: whatever was acknowledged before the power went is there when it is back.
//!
//! A real server works under load, and every write and sync of its files is noted ([`Faults`]). Its callers note, for
//! every answer, how long the journal was when they had it. Afterwards the power is cut at many places of the journal: for
//! each, a disk is made that the cut could have left ([`Disk`]), opened, checked as a whole, and searched for everything
//! that was acknowledged by then.
//!
//! `SEMEL_POWER_CUTS` says how often the power is cut (0: before and after every sync), `SEMEL_POWER_SEED` what is drawn.

#[cfg(feature = "sabotage")]
mod sabotage;

use std::collections::HashMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::id::RunId;
use semel::rules::archive::{ArchiveLine, Checker};
use semel::rules::status::Status;
use semel::store::Store as _;
use semel::store::sqlite::{SqliteOptions, SqliteStore};
use semel::testing::Dice;
use semel::{Ctx, Engine};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::faults::{Faults, Haunted, SyncError};
use crate::image::{Disk, Fate};
use crate::journal::{Call, Journal};
use crate::victim::Victim;

/// Orders that are on their way at the same time.
const ORDERS: usize = 12;
/// With it, an answer that comes before its sync is certainly noted before it too.
const SYNC: Duration = Duration::from_millis(2);
/// So many findings are shown; all are counted.
const SHOWN: usize = 20;
/// After so many cuts the command line checks what is left as well.
const BY_COMMAND: usize = 20;
/// No life takes that long.
const LONGEST: Duration = Duration::from_mins(5);
/// Cuts in `make check`.
const CUTS: usize = 240;

/// Something that must be there: in this run there is this text. All is noted of which there was an answer.
#[derive(Clone)]
struct Acknowledged {
    /// How long the journal was when the answer was there.
    at: u64,
    run: RunId,
    text: String,
    place: Place,
}

/// Where the text of an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the ledger; what is still in the inbox is not there yet.
    Ledger,
    /// There, or in the inbox.
    Anywhere,
}

/// What a run is found to hold.
struct Held {
    ledger: String,
    inbox: String,
}

impl Held {
    fn has(&self, text: &str, place: Place) -> bool {
        self.ledger.contains(text) || (place == Place::Anywhere && self.inbox.contains(text))
    }
}

/// What the callers have noted.
struct Notes {
    journal: PathBuf,
    all: Mutex<Vec<Acknowledged>>,
    more: Notify,
}

impl Notes {
    fn note(&self, run: RunId, text: impl Into<String>, place: Place) {
        let at = fs::metadata(&self.journal).expect("the server has begun it").len();
        let acknowledged = Acknowledged { at, run, text: text.into(), place };
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(acknowledged);
        self.more.notify_one();
    }

    fn count(&self) -> usize {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

fn token(number: u64) -> String {
    format!("paid:{number}")
}

/// Before each effect everything recorded earlier is durable: so its body is an answer.
async fn order(ctx: Ctx, number: u64) -> semel::Result<String> {
    let (notes, run) = (ctx.state::<Arc<Notes>>(), ctx.run_id());
    let packed = ctx.step("pack").run(async |_| Ok(format!("packed {number}"))).await?;
    let mut paid = ctx.hook::<String>(token(number));
    let note = async |text: &str| {
        notes.note(run, text, Place::Ledger);
        Ok(())
    };
    ctx.step("ask").run(async |_| note(&packed).await).await?;
    let paid = paid.recv().await?;
    ctx.step("ship").run(async |_| note(&paid).await).await?;
    Ok(format!("sent {number}"))
}

/// One order after the other, until the server is gone.
async fn orders(engine: Engine, notes: Arc<Notes>, numbers: Arc<AtomicU64>) -> semel::Result<()> {
    loop {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let run = engine.start(order, number).key(number.to_string()).await?;
        notes.note(run.id(), "", Place::Ledger);
        run.reached(Status::Waiting).await?;
        let payment = format!("payment {number}");
        engine.deliver(token(number), payment.clone()).await?;
        notes.note(run.id(), payment, Place::Anywhere);
        let sent: String = run.result().await?;
        notes.note(run.id(), sent, Place::Ledger);
    }
}

/// A server's life, which ends by a kill when its callers have had so many answers.
#[derive(Clone, Copy)]
struct Life {
    answers: usize,
    /// From time to time a sync fails.
    errors: Option<SyncError>,
    /// The first sync of each checkpoint fails, if there is time for some answers between two of them.
    checkpoints: Option<SyncError>,
}

impl Life {
    const fn of(answers: usize) -> Self {
        Self { answers, errors: None, checkpoints: None }
    }

    const fn with_errors(self, error: SyncError) -> Self {
        Self { errors: Some(error), ..self }
    }

    const fn with_failed_checkpoints(self, error: SyncError) -> Self {
        Self { checkpoints: Some(error), ..self }
    }

    /// Lets the next error come.
    fn err(&self, faults: &Faults, answers: usize) -> Result<(), Failed> {
        if let Some(error) = self.errors {
            faults.fail_sync(1 + answers as u32 % 3, error)?;
        }
        self.checkpoints.map_or(Ok(()), |error| faults.fail_checkpoint(error))
    }

    /// Lets its callers have their answers, and its errors come.
    async fn live(
        &self,
        faults: &Faults,
        notes: &Notes,
        victim: &mut Victim,
        callers: &mut JoinSet<semel::Result<()>>,
        call: impl Fn(&mut JoinSet<semel::Result<()>>),
    ) -> Result<(), Failed> {
        (0..ORDERS).for_each(|_| call(callers));
        let (enough, mut next_error) = (notes.count() + self.answers, notes.count());
        while notes.count() < enough {
            if notes.count() >= next_error {
                self.err(faults, notes.count())?;
                next_error = notes.count() + 40;
            }
            tokio::select! {
                () = notes.more.notified() => {}
                Some(ended) = callers.join_next() => {
                    let ended = ended?;
                    // A call that fails because of a sync error is given up; another caller goes on, if there is a server.
                    if self.errors.is_none() || !victim.lives()? {
                        return Err(format!("{ended:?}: {}", victim.said().text()).into());
                    }
                    call(callers);
                }
            }
        }
        Ok(())
    }
}

/// What a server has written, and what its callers know of.
struct Recording {
    journal: Journal,
    acknowledged: Vec<Acknowledged>,
}

/// Records the lives of a server, one after the other on the same disk; `sabotage` names a bug that it is to commit.
async fn record(lives: &[Life], sabotage: Option<&str>) -> Result<Recording, Failed> {
    let haunted = Haunted::new()?;
    haunted.faults.slow_syncs(SYNC)?;
    let journal = haunted.faults.journal().to_owned();
    let notes = Arc::new(Notes { journal, all: Mutex::default(), more: Notify::new() });
    let numbers = Arc::new(AtomicU64::new(1));
    for life in lives {
        let mut command = haunted.faults.record(Victim::command());
        command.envs(sabotage.map(|bug| ("SEMEL_SABOTAGE", bug)));
        let mut victim = Victim::serve(command, &haunted.store).await?;
        let engine = Engine::builder().store(victim.base()).state(notes.clone()).workflow("order", order);
        let engine = engine.open().await?;
        let mut callers = JoinSet::new();
        let call = |callers: &mut JoinSet<_>| {
            callers.spawn(orders(engine.clone(), notes.clone(), numbers.clone()));
        };
        let answered = life.live(&haunted.faults, &notes, &mut victim, &mut callers, call);
        match tokio::time::timeout(LONGEST, answered).await {
            Ok(answered) => answered?,
            Err(_) => return Err(format!("a life does not end: {}", victim.said().text()).into()),
        }
        victim.kill()?;
        callers.shutdown().await;
        // It cannot say good-bye to a server that is gone.
        drop(engine.shutdown(Duration::ZERO).await);
    }
    let acknowledged = notes.all.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(Recording { journal: Journal::read(haunted.faults.journal())?, acknowledged })
}

/// Where the power is cut: places in the journal, in order.
fn cuts(journal: &Journal, dice: &mut Dice, count: usize) -> Vec<u64> {
    let (mut all, mut at_syncs) = (Vec::new(), Vec::new());
    for noted in journal.calls() {
        if let Call::Synced { .. } | Call::FolderSynced { .. } = noted.call {
            at_syncs.extend([noted.from, noted.to]);
        }
        all.push(noted.to);
    }
    if count > 0 {
        // One half anywhere, the other one at syncs.
        let mut some = |places: &[u64]| -> Vec<u64> {
            (0..count.div_ceil(2)).map(|_| places[dice.below(places.len() as u64) as usize]).collect()
        };
        at_syncs = [some(&all), some(&at_syncs)].concat();
    }
    at_syncs.sort_unstable();
    at_syncs
}

/// What was found by all cuts.
#[derive(Default)]
struct Findings {
    cuts: usize,
    /// What was wrong, and after how many cuts it was found.
    wrong: Vec<(usize, String)>,
}

impl Recording {
    /// Cuts the power at all these places, in two threads; with `until_wrong` only until something is found.
    fn examine(&self, places: &[u64], seed: u64, until_wrong: bool) -> Result<Findings, Failed> {
        let (done, found) = (AtomicUsize::new(0), Mutex::new(Findings::default()));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|half| {
                    let mine: Vec<_> = places.iter().copied().skip(half).step_by(2).collect();
                    let (done, found) = (&done, &found);
                    scope
                        .spawn(move || self.examine_some(&mine, seed + half as u64, until_wrong, done, found))
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread has panicked")?)
        })?;
        let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        found.cuts = done.into_inner();
        Ok(found)
    }

    fn examine_some(
        &self,
        places: &[u64],
        seed: u64,
        until_wrong: bool,
        done: &AtomicUsize,
        found: &Mutex<Findings>,
    ) -> Result<(), Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut disk, mut calls, mut dice) =
            (Disk::default(), self.journal.calls().peekable(), Dice::new(seed));
        for place in places {
            while let Some(noted) = calls.next_if(|noted| noted.to <= *place) {
                disk.play(&noted);
            }
            let fate = Fate::draw(&mut dice);
            let image = folder()?;
            disk.cut(fate, &mut dice, image.path())?;
            let cuts = done.fetch_add(1, Ordering::Relaxed) + 1;
            let by_command =
                if cuts.is_multiple_of(BY_COMMAND) { check_by_command(image.path()) } else { Ok(()) };
            let checked =
                by_command.and_then(|()| runtime.block_on(check(image.path(), self.acknowledged_by(*place))));
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(wrong) = checked {
                let wrong =
                    format!("the power was cut at {place} of the journal, {fate:?}: {}", text(&wrong));
                found.wrong.push((cuts, wrong));
            }
            if until_wrong && !found.wrong.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn acknowledged_by(&self, place: u64) -> impl Iterator<Item = &Acknowledged> {
        self.acknowledged.iter().filter(move |acknowledged| acknowledged.at <= place)
    }
}

fn text(failed: &Failed) -> &str {
    failed.message().unwrap_or_default()
}

/// In memory, where there is such a place: hundreds of disks are made, and none must last.
fn folder() -> Result<TempDir, Failed> {
    Ok(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?)
}

/// Checks the store by command, as after a power failure.
fn check_by_command(image: &Path) -> Result<(), Failed> {
    let file = image.join("semel.db");
    if !file.exists() {
        return Ok(());
    }
    let ended = Victim::command().args(["store", "check", "--store"]).arg(file).output()?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(format!("semel store check: {}", String::from_utf8_lossy(&ended.stderr)).into()),
    }
}

/// Opens what the cut has left: it is sound, and everything that was acknowledged is there.
async fn check(image: &Path, acknowledged: impl Iterator<Item = &Acknowledged>) -> Result<(), Failed> {
    let store = SqliteStore::open(SqliteOptions::new(image.join("semel.db"))).await?;
    let archive = store.archive().ok_or("a store has an archive")?;
    let mut wrong = archive.sound().await?;
    let (mut checker, mut runs) = (Checker::default(), HashMap::new());
    let mut each = |line: ArchiveLine| {
        wrong.extend(checker.check(&line).iter().map(ToString::to_string));
        if let ArchiveLine::Run(run) = line {
            let ledger = run.commits.into_iter().map(|commit| commit.entries).collect();
            let inbox = run.inbox.into_iter().map(|message| message.message).collect();
            runs.insert(run.id, Held { ledger, inbox });
        }
        ControlFlow::Continue(())
    };
    archive.export(None, &mut each).await?;
    store.close().await?;
    for Acknowledged { run, text, at, place } in acknowledged {
        if !runs.get(run).is_some_and(|run: &Held| run.has(text, *place)) {
            wrong.push(format!("{run} {text:?} was acknowledged at {at}, and is gone"));
        }
    }
    match wrong.first() {
        None => Ok(()),
        Some(first) => Err(format!("{first} (and {} more)", wrong.len() - 1).into()),
    }
}

fn setting(name: &str, default: u64) -> Result<u64, Failed> {
    Ok(std::env::var(name).map_or(Ok(default), |value| value.parse())?)
}

pub(crate) fn trials() -> Vec<Trial> {
    let trials = crate::trials![what_was_acknowledged_survives_a_power_cut_anywhere];
    #[cfg(feature = "sabotage")]
    let trials = trials.into_iter().chain(sabotage::trials()).collect();
    trials
}

async fn what_was_acknowledged_survives_a_power_cut_anywhere() -> Result<(), Failed> {
    let (count, seed) = (setting("SEMEL_POWER_CUTS", CUTS as u64)?, setting("SEMEL_POWER_SEED", 1)?);
    let lives = [
        Life::of(600),
        Life::of(600).with_failed_checkpoints(SyncError::Cached),
        Life::of(300).with_errors(SyncError::Cached),
        Life::of(300).with_errors(SyncError::Lost),
        Life::of(100).with_errors(SyncError::Kept),
    ];
    let recording = record(&lives, None).await?;
    let places = cuts(&recording.journal, &mut Dice::new(seed), count as usize);
    let found = recording.examine(&places, seed, false)?;
    println!(
        "{} power cuts, {} answers, {} wrong",
        found.cuts,
        recording.acknowledged.len(),
        found.wrong.len()
    );
    let shown: Vec<_> = found.wrong.iter().take(SHOWN).map(|(_, wrong)| wrong.as_str()).collect();
    if shown.is_empty() { Ok(()) } else { Err(shown.join("\n").into()) }
}
