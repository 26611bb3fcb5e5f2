//! The nemesis: each kind of disturbance has its own stream of moments, drawn from the seed.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libtest_mimic::Failed;
use semel::clock::{Clock as _, Time};
use semel::testing::Dice;
use tokio::task::JoinSet;

use crate::api::Question;
use crate::site::{LEASE, Site, Slot};
use crate::trap::Trap;

/// How long a worker that was stopped may take until it works again.
const WAKING: Duration = Duration::from_secs(6);
/// How long a trap stays set.
const AMBUSH: Duration = Duration::from_millis(400);

/// How often each blow falls: the mean time between two of them; never, if that is nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    pub(crate) server_kills: Duration,
    pub(crate) worker_kills: Duration,
    pub(crate) zombies: Duration,
    /// Servers that are stopped for a while: what was asked of them is done late.
    pub(crate) freezes: Duration,
}

/// Something else that disturbs: a database, a disk, a network. Each has a stream of its own.
pub(crate) trait Disturbance: Send {
    /// The mean time between two blows.
    fn gap(&self) -> Duration;
    /// Strikes once, and puts back what it has broken; gives how often that counts, and as what.
    fn strike<'a>(&'a mut self, site: &'a Site, dice: &'a mut Dice) -> Striking<'a>;
}

/// A blow that is under way.
pub(crate) type Striking<'a> = Pin<Box<dyn Future<Output = Result<(&'static str, u64), Failed>> + Send + 'a>>;

/// The figure that counts the kills of servers.
pub(crate) const SERVER_KILLS: &str = "server kills";

/// A kill, at some time between these two.
#[derive(Clone, Debug)]
pub(crate) struct Kill {
    /// The figure that counts it.
    pub(crate) figure: &'static str,
    pub(crate) begun: Time,
    pub(crate) ended: Time,
}

/// How often each blow fell.
#[derive(Default)]
pub(crate) struct Blows {
    pub(crate) server_kills: AtomicU64,
    /// Of these, at the moment of an answer.
    pub(crate) ambushes: AtomicU64,
    pub(crate) worker_kills: AtomicU64,
    /// Workers that woke up and found that their lease had ended.
    pub(crate) zombies: AtomicU64,
    pub(crate) freezes: AtomicU64,
    /// Other disturbances, by their names.
    pub(crate) others: Mutex<Vec<(&'static str, u64)>>,
    /// When servers were killed, by this and by other disturbances that are given this list.
    pub(crate) kills: Arc<Mutex<Vec<Kill>>>,
}

/// Disturbs servers, workers, databases and lines.
pub(crate) struct Nemesis {
    site: Arc<Site>,
    seed: u64,
    pace: Pace,
    trap: Arc<Trap>,
    pub(crate) blows: Blows,
    over: AtomicBool,
}

type Streams = JoinSet<Result<(), Failed>>;

impl Nemesis {
    pub(crate) fn new(site: Arc<Site>, seed: u64, pace: Pace, trap: Arc<Trap>) -> Self {
        Self { site, seed, pace, trap, blows: Blows::default(), over: AtomicBool::new(false) }
    }

    /// No more blows.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// All streams; each ends when the last process it struck stands again.
    pub(crate) fn begin(self: &Arc<Self>, others: Vec<Box<dyn Disturbance>>) -> Streams {
        let mut streams = JoinSet::new();
        let Pace { server_kills, worker_kills, zombies, freezes } = self.pace;
        if !server_kills.is_zero() {
            streams.spawn(self.clone().kill_servers(server_kills));
        }
        if !worker_kills.is_zero() {
            streams.spawn(self.clone().kill_workers(worker_kills));
        }
        if !zombies.is_zero() {
            streams.spawn(self.clone().make_zombies(zombies));
        }
        if !freezes.is_zero() {
            streams.spawn(self.clone().freeze_servers(freezes));
        }
        for (number, other) in others.into_iter().enumerate() {
            streams.spawn(self.clone().disturb(number, other));
        }
        streams
    }

    fn dice(&self, stream: &str) -> Dice {
        Dice::named(self.seed, &format!("{} {stream}", self.site.layout.name))
    }

    fn in_(&self, duration: Duration) -> Time {
        self.site.clock.now().after(duration)
    }

    /// Waits for the next blow, between none and twice the mean; false if there is to be none.
    async fn next(&self, dice: &mut Dice, gap: Duration) -> bool {
        let pause = Duration::from_millis(dice.below(gap.as_millis() as u64 * 2));
        let until = self.in_(pause);
        while self.site.clock.now() < until && !self.over.load(Ordering::SeqCst) {
            self.site.clock.until(until.min(self.in_(AMBUSH))).await;
        }
        !self.over.load(Ordering::SeqCst)
    }

    async fn kill_servers(self: Arc<Self>, gap: Duration) -> Result<(), Failed> {
        let mut dice = self.dice(SERVER_KILLS);
        while self.next(&mut dice, gap).await {
            let (server, slot) = some(&self.site.servers, &mut dice);
            let _turn = slot.turn.lock().await;
            let begun = self.site.clock.now();
            let mut ambushed = false;
            if dice.percent(60) {
                self.trap.set(server);
                ambushed = tokio::select! {
                    () = self.trap.sprung() => true,
                    () = self.site.clock.until(self.in_(AMBUSH)) => self.trap.take().await,
                };
            }
            if !ambushed {
                slot.kill()?;
            }
            if slot.process().is_some() {
                return Err(format!("server {server} could not be killed").into());
            }
            let kill = Kill { figure: SERVER_KILLS, begun, ended: self.site.clock.now() };
            self.blows.kills.lock().expect("no holder of the lock panics").push(kill);
            self.blows.ambushes.fetch_add(u64::from(ambushed), Ordering::Relaxed);
            self.blows.server_kills.fetch_add(1, Ordering::Relaxed);
            self.site.clock.until(self.in_(Duration::from_millis(dice.below(200)))).await;
            self.site.start_server(server).await?;
        }
        Ok(())
    }

    async fn kill_workers(self: Arc<Self>, gap: Duration) -> Result<(), Failed> {
        let mut dice = self.dice("worker kills");
        while self.next(&mut dice, gap).await {
            let (worker, slot) = some(&self.site.workers, &mut dice);
            let _turn = slot.turn.lock().await;
            slot.kill()?;
            self.blows.worker_kills.fetch_add(1, Ordering::Relaxed);
            self.site.clock.until(self.in_(Duration::from_millis(dice.below(300)))).await;
            self.site.start_worker(worker)?;
        }
        Ok(())
    }

    async fn make_zombies(self: Arc<Self>, gap: Duration) -> Result<(), Failed> {
        let mut dice = self.dice("zombies");
        while self.next(&mut dice, gap).await {
            let (_, slot) = some(&self.site.workers, &mut dice);
            let _turn = slot.turn.lock().await;
            let Some(process) = slot.process() else { continue };
            let known = self.is_known(process.pid()).await?;
            process.signal("STOP")?;
            let time = LEASE.mul_f64(1.3) + Duration::from_millis(dice.below(800));
            self.site.clock.until(self.in_(time)).await;
            let lost = known && !self.is_known(process.pid()).await?;
            process.signal("CONT")?;
            // It counts only if it had a lease, has lost it while it was stopped, and wakes up.
            let end = self.in_(WAKING);
            while lost && self.site.clock.now() < end {
                if self.is_known(process.pid()).await? {
                    self.blows.zombies.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                self.site.clock.until(self.in_(Duration::from_millis(50))).await;
            }
        }
        Ok(())
    }

    /// Whether the servers believe in the engine of a worker: its name is that of its process.
    async fn is_known(&self, pid: u32) -> Result<bool, Failed> {
        let name = format!("pid-{pid}");
        let list = self.site.api.ask(&Question::get(0, "/workers")).await?;
        Ok(list.body["workers"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|worker| worker["name"] == name.as_str()))
    }

    async fn freeze_servers(self: Arc<Self>, gap: Duration) -> Result<(), Failed> {
        let mut dice = self.dice("freezes");
        while self.next(&mut dice, gap).await {
            let (_, slot) = some(&self.site.servers, &mut dice);
            let _turn = slot.turn.lock().await;
            let Some(process) = slot.process() else { continue };
            process.signal("STOP")?;
            self.site.clock.until(self.in_(Duration::from_millis(dice.between(200, 2500)))).await;
            process.signal("CONT")?;
            self.blows.freezes.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn disturb(self: Arc<Self>, number: usize, mut other: Box<dyn Disturbance>) -> Result<(), Failed> {
        let (mut dice, gap) = (self.dice(&format!("disturbance {number}")), other.gap());
        while self.next(&mut dice, gap).await {
            let blow = other.strike(&self.site, &mut dice).await?;
            self.blows.others.lock().expect("no holder of the lock panics").push(blow);
        }
        Ok(())
    }
}

fn some<'a>(slots: &'a [Slot], dice: &mut Dice) -> (usize, &'a Slot) {
    let number = dice.below(slots.len() as u64) as usize;
    (number, &slots[number])
}
