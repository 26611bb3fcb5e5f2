//! Engines that are killed again and again: no effect is lost, and none is done twice that must not be.
//!
//! `SEMEL_KILLS` says how often; `make kill` is the long version.

mod recorder;
pub(crate) mod worker;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::{Clock as _, SystemClock};

use self::recorder::Recorder;
use crate::processes::{PLACE, ROLE};

/// Nothing takes this long, on the slowest machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// Runs per kill, and words to the parent per run.
const RUNS: u64 = 20;
const WORDS: u64 = 7;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("kill::an_engine_on_sqlite_loses_nothing_and_repeats_nothing", on_sqlite),
        Trial::test("kill::two_engines_on_postgres_lose_nothing_and_repeat_nothing", on_postgres),
    ]
}

fn on_sqlite() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    Siege::new(&folder.path().join("semel.db").display().to_string(), 1)?.run("one engine on SQLite")
}

fn on_postgres() -> Result<(), Failed> {
    let url = std::env::var("SEMEL_TEST_POSTGRES")?;
    let place = format!("{url} kill_{}", std::process::id());
    Siege::new(&place, 2)?.run("two engines on one PostgreSQL")
}

/// A process at work. Its life tells its words from those of its successor.
struct KilledWorker {
    child: Child,
    life: usize,
    input: ChildStdin,
    /// What it was asked to start and has not said the end of.
    orders: Vec<u64>,
}

/// One line from a worker, or the end of its output.
struct Word {
    life: usize,
    line: Option<String>,
}

struct Siege {
    place: String,
    kills: u64,
    lives: usize,
    workers: Vec<KilledWorker>,
    tell: Sender<Word>,
    told: Receiver<Word>,
    recorder: Recorder,
    random: u64,
}

impl Siege {
    fn new(place: &str, workers: usize) -> Result<Self, Failed> {
        let kills = std::env::var("SEMEL_KILLS").map_or(Ok(10), |kills| kills.parse())?;
        let (tell, told) = channel();
        let place = place.to_owned();
        let (recorder, random) = (Recorder::default(), 0x5eed);
        let mut all = Self { place, kills, lives: 0, workers: Vec::new(), tell, told, recorder, random };
        for _ in 0..workers {
            let worker = all.spawn()?;
            all.workers.push(worker);
        }
        Ok(all)
    }

    fn spawn(&mut self) -> Result<KilledWorker, Failed> {
        self.lives += 1;
        let (life, tell) = (self.lives, self.tell.clone());
        let mut command = Command::new(std::env::current_exe()?);
        command.env(ROLE, "engine").env(PLACE, &self.place).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (input, output) = (child.stdin.take().ok_or("a pipe")?, child.stdout.take().ok_or("a pipe")?);
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok).map(Some);
            for line in lines.chain([None]) {
                if tell.send(Word { life, line }).is_err() {
                    return;
                }
            }
        });
        Ok(KilledWorker { child, life, input, orders: Vec::new() })
    }

    /// The next pseudo-random number below a bound: the same in every run of the test.
    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    fn run(mut self, name: &str) -> Result<(), Failed> {
        let (clock, orders) = (SystemClock::new(), self.kills * RUNS);
        let begin = clock.now();
        for kill in 0..self.kills {
            for order in kill * RUNS..(kill + 1) * RUNS {
                self.start(order);
            }
            // Sometimes at once, sometimes when nearly all is done.
            for _ in 0..=self.below(RUNS * WORDS) {
                if self.recorder.ended.len() as u64 == (kill + 1) * RUNS {
                    break;
                }
                self.hear()?;
            }
            self.kill()?;
        }
        while (self.recorder.ended.len() as u64) < orders {
            self.hear()?;
        }
        for worker in &mut self.workers {
            worker.child.kill()?;
            worker.child.wait()?;
        }
        self.recorder.check(orders);
        let Recorder { doubts, poisoned, zombies, .. } = self.recorder;
        println!(
            "{name}: {} kills, {orders} runs, {} effects asked for, {doubts} doubts settled, {poisoned} runs resumed, \
             {zombies} zombies refused, {} ms",
            self.kills,
            self.recorder.calls(),
            clock.now().0 - begin.0,
        );
        Ok(())
    }

    /// Asks some worker to start an order; a duplicate goes to some worker now and then.
    fn start(&mut self, order: u64) {
        for _ in 0..=u64::from(self.below(8) == 0) {
            let worker = self.below(self.workers.len() as u64) as usize;
            let worker = &mut self.workers[worker];
            worker.orders.push(order);
            worker.say(&format!("start {order}"));
        }
    }

    /// Hears the next word, and answers it. Gives the life that has said its last.
    fn hear(&mut self) -> Result<Option<usize>, Failed> {
        let Word { life, line } = self.told.recv_timeout(PATIENCE).map_err(|_| {
            let Recorder { ended, notes, .. } = &self.recorder;
            let last = &notes[notes.len().saturating_sub(5)..];
            format!("nothing moves; {} runs have ended; last notes {last:?}", ended.len())
        })?;
        let Some(line) = line else {
            let alive = self.workers.iter().any(|worker| worker.life == life);
            return if alive { Err("an engine has ended by itself".into()) } else { Ok(Some(life)) };
        };
        let answer = self.recorder.hear(&line)?;
        if let (Some(answer), Some(worker)) =
            (answer, self.workers.iter_mut().find(|worker| worker.life == life))
        {
            worker.say(&answer);
        }
        Ok(None)
    }

    /// Kills some worker, hears what it had said, and lets another take its place.
    fn kill(&mut self) -> Result<(), Failed> {
        let unlucky = self.below(self.workers.len() as u64) as usize;
        let mut dead = self.workers.swap_remove(unlucky);
        dead.child.kill()?;
        dead.child.wait()?;
        while self.hear()? != Some(dead.life) {}
        let mut worker = self.spawn()?;
        for order in dead.orders {
            if !self.recorder.ended.contains_key(&order) {
                worker.orders.push(order);
                worker.say(&format!("start {order}"));
            }
        }
        self.workers.push(worker);
        Ok(())
    }
}

impl Drop for Siege {
    /// A test that fails leaves no process behind.
    fn drop(&mut self) {
        for worker in &mut self.workers {
            drop(worker.child.kill());
            drop(worker.child.wait());
        }
    }
}

impl KilledWorker {
    fn say(&mut self, line: &str) {
        // If it is dead that is noticed elsewhere.
        drop(writeln!(self.input, "{line}"));
    }
}
