//! Files and clocks of one process that fail on command: the Rust side of `faults.c`.
//!
//! [`Faults::new`] compiles the library into a folder, [`Faults::haunt`] puts it before a command, and the other methods
//! command it while that process runs. A process that is started with the same `Faults` later has the same troubles.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::SystemClock;
use semel::{Ctx, Engine};

use crate::said::PATIENCE;
use crate::starts::{Answer, Starters, assert_all_there, client, start};
use crate::victim::Victim;

/// What happens to data whose sync fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncError {
    /// It is on the disk all the same.
    Kept = 0,
    /// It is lost, and the old data is read again.
    Lost = 1,
    /// It is lost, and can still be read until the next power cut: Linux takes it for written.
    Cached = 2,
}

/// The words of the shared file; `struct control` has them in this order.
#[derive(Clone, Copy)]
enum Word {
    ErrorIn,
    ErrorKind,
    ErrorOnly,
    Room,
    ClockOffset,
    #[cfg_attr(
        not(feature = "sabotage"),
        expect(dead_code, reason = "the word stands in between all the same")
    )]
    WriteMicros,
    SyncMicros,
    Syncs,
    Errors,
    Refused,
}

const WORDS: u64 = Word::Refused as u64 + 1;

/// The faults of one folder, and of the clock of the processes that use it.
pub(crate) struct Faults {
    library: PathBuf,
    /// What is below this folder fails.
    below: PathBuf,
    control: PathBuf,
    words: fs::File,
    journal: PathBuf,
}

impl Faults {
    /// Troubles for the files in `below`. `own` is another folder, for the library and what belongs to it.
    pub(crate) fn new(own: &Path, below: &Path) -> Result<Self, Failed> {
        let (library, control) = (own.join("faults.so"), own.join("faults.control"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/proof/faults.c");
        let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        compiler
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
            .arg(&library);
        let built =
            compiler.args([source, "-ldl"]).output().map_err(|error| format!("the C compiler: {error}"))?;
        if !built.status.success() {
            return Err(String::from_utf8_lossy(&built.stderr).into());
        }
        let words = fs::OpenOptions::new().read(true).write(true).create_new(true).open(&control)?;
        words.set_len(WORDS * 8)?;
        let faults = Self {
            library,
            below: below.canonicalize()?,
            control,
            words,
            journal: own.join("faults.journal"),
        };
        faults.space(None)?;
        Ok(faults)
    }

    /// Puts the library before a command.
    pub(crate) fn haunt(&self, mut command: Command) -> Command {
        command.env("LD_PRELOAD", &self.library);
        command.env("FAULTS_CONTROL", &self.control).env("FAULTS_FOLDER", &self.below);
        command
    }

    /// The same, and notes what it writes and syncs, in order: of this process and of all that follow.
    pub(crate) fn record(&self, command: Command) -> Command {
        let mut command = self.haunt(command);
        command.env("FAULTS_JOURNAL", &self.journal);
        command
    }

    /// Where everything that is written and synced is noted, if it is recorded.
    pub(crate) fn journal(&self) -> &Path {
        &self.journal
    }

    /// The n-th sync from now fails with EIO: 1 is the next one.
    pub(crate) fn fail_sync(&self, nth: u32, error: SyncError) -> Result<(), Failed> {
        self.fail(nth, error, 0)
    }

    /// The next sync of the database itself, not of its log, fails: that of a checkpoint.
    pub(crate) fn fail_checkpoint(&self, error: SyncError) -> Result<(), Failed> {
        self.fail(1, error, 1)
    }

    fn fail(&self, nth: u32, error: SyncError, only_databases: i64) -> Result<(), Failed> {
        self.set(Word::ErrorKind, error as i64)?;
        self.set(Word::ErrorOnly, only_databases)?;
        self.set(Word::ErrorIn, nth.into())
    }

    /// Files may grow by so many bytes, then the disk is full; without a number there is no limit.
    pub(crate) fn space(&self, bytes: Option<u32>) -> Result<(), Failed> {
        self.set(Word::Room, bytes.map_or(-1, i64::from))
    }

    /// The wall clock is so far ahead, or behind.
    pub(crate) fn clock(&self, seconds: i64) -> Result<(), Failed> {
        self.set(Word::ClockOffset, seconds * 1_000_000_000)
    }

    /// Every write takes this much longer.
    #[cfg(feature = "sabotage")]
    pub(crate) fn slow_writes(&self, by: Duration) -> Result<(), Failed> {
        self.set(Word::WriteMicros, by.as_micros() as i64)
    }

    /// Every sync takes this much longer.
    pub(crate) fn slow_syncs(&self, by: Duration) -> Result<(), Failed> {
        self.set(Word::SyncMicros, by.as_micros() as i64)
    }

    /// How many syncs there have been.
    pub(crate) fn syncs(&self) -> Result<i64, Failed> {
        self.get(Word::Syncs)
    }

    /// How many of them failed on command.
    pub(crate) fn errors(&self) -> Result<i64, Failed> {
        self.get(Word::Errors)
    }

    /// How many writes were refused because the disk was full.
    pub(crate) fn refused(&self) -> Result<i64, Failed> {
        self.get(Word::Refused)
    }

    fn set(&self, word: Word, value: i64) -> Result<(), Failed> {
        Ok(self.words.write_all_at(&value.to_ne_bytes(), word as u64 * 8)?)
    }

    fn get(&self, word: Word) -> Result<i64, Failed> {
        let mut bytes = [0; 8];
        self.words.read_exact_at(&mut bytes, word as u64 * 8)?;
        Ok(i64::from_ne_bytes(bytes))
    }
}

/// A folder for a store, and troubles for it.
pub(crate) struct Haunted {
    pub(crate) faults: Faults,
    pub(crate) store: String,
    /// Removed at the end; none for a folder that was given.
    _temporary: Option<tempfile::TempDir>,
}

impl Haunted {
    /// In a folder that is removed with it.
    pub(crate) fn new() -> Result<Self, Failed> {
        let temporary = tempfile::tempdir()?;
        let haunted = Self::in_folder(temporary.path())?;
        Ok(Self { _temporary: Some(temporary), ..haunted })
    }

    /// In the given folder, which is kept.
    pub(crate) fn in_folder(folder: &Path) -> Result<Self, Failed> {
        let below = folder.join("store");
        fs::create_dir(&below)?;
        let faults = Faults::new(folder, &below)?;
        let store = format!("sqlite:{}", below.canonicalize()?.join("semel.db").display());
        Ok(Self { faults, store, _temporary: None })
    }

    /// A server in this folder.
    pub(crate) async fn serve(&self) -> Result<Victim, Failed> {
        Victim::serve(self.faults.haunt(Victim::command()), &self.store).await
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        after_a_sync_error_the_store_looks_and_goes_on,
        without_room_starts_are_refused_until_there_is_room_again,
        a_clock_that_jumps_fires_no_timer_early,
        no_start_is_answered_before_its_sync,
    ]
}

async fn no_start_is_answered_before_its_sync() -> Result<(), Failed> {
    const LONGER: Duration = Duration::from_millis(300);
    let haunted = Haunted::new()?;
    let victim = haunted.serve().await?;
    let before = haunted.faults.syncs()?;
    haunted.faults.slow_syncs(LONGER)?;
    let clock = SystemClock::new();
    let answer = start(&client(), &victim.base(), "slow").await?;
    assert!(matches!(answer, Answer::Run(..)), "{answer:?}");
    assert!(clock.elapsed() >= LONGER, "{:?}", clock.elapsed());
    assert!(haunted.faults.syncs()? > before);
    Ok(())
}

async fn after_a_sync_error_the_store_looks_and_goes_on() -> Result<(), Failed> {
    for error in [SyncError::Kept, SyncError::Lost, SyncError::Cached] {
        let haunted = Haunted::new()?;
        let victim = haunted.serve().await?;
        let mut starters = Starters::begin(&[victim.base()], 8);
        starters.more(50).await?;
        for nth in [1, 2, 3, 4, 5] {
            haunted.faults.fail_sync(nth, error)?;
            starters.more(50).await?;
        }
        assert_eq!(haunted.faults.errors()?, 5, "{error:?}");
        let started = starters.end().await?;
        assert_all_there(&victim.base(), &started).await?;
        victim.kill()?;
        let again = haunted.serve().await?;
        assert_all_there(&again.base(), &started).await?;
    }
    Ok(())
}

async fn without_room_starts_are_refused_until_there_is_room_again() -> Result<(), Failed> {
    let haunted = Haunted::new()?;
    let victim = haunted.serve().await?;
    crate::disk::fill_and_free(&victim, |full| haunted.faults.space(full.then_some(0))).await?;
    assert!(haunted.faults.refused()? > 0);
    Ok(())
}

const NAP: Duration = Duration::from_secs(2);

async fn nap(ctx: Ctx, (): ()) -> semel::Result<()> {
    ctx.sleep("nap", NAP).await
}

/// While a timer runs. The server lives under another time each time; a timer that outlives it is due by that.
async fn a_clock_that_jumps_fires_no_timer_early() -> Result<(), Failed> {
    const HOUR: i64 = 3600;
    let haunted = Haunted::new()?;
    for (at_start, later) in [(0, 48 * HOUR), (48 * HOUR, -HOUR), (-HOUR, 0)] {
        haunted.faults.clock(at_start)?;
        let victim = haunted.serve().await?;
        let engine = Engine::builder().store(victim.base()).workflow("nap", nap).open().await?;
        let clock = SystemClock::new();
        let run = engine.start(nap, ()).key(format!("from {at_start}")).await?;
        haunted.faults.clock(later)?;
        tokio::time::timeout(PATIENCE, run.result()).await.map_err(|_| "its timer does not fire")??;
        assert!(clock.elapsed() >= NAP, "{:?} after a jump by {later} s", clock.elapsed());
        engine.shutdown(Duration::from_secs(1)).await?;
        victim.kill()?;
    }
    Ok(())
}
