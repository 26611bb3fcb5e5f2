//! Kills the engine while it works, and starts the next.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use semel::clock::Clock;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::folder::Folder;
use super::plan::Plan;
use super::tally::{Pulse, Seen};
use super::troupe::{self, Process};
use crate::demo::Error;
use crate::demo::dice::Dice;

/// A kill comes at most so long after a moment at which the provider is at work.
const SOON: u64 = 60;
/// What the provider does for an order: a charge, a letter, a receipt.
const EFFECTS: u64 = 3;

/// The engine, and whoever kills it.
pub(super) struct Killer {
    engine: Option<Process>,
    folder: PathBuf,
    provider: SocketAddr,
    address: watch::Sender<SocketAddr>,
    tell: UnboundedSender<Seen>,
    clock: Arc<dyn Clock>,
    dice: Dice,
}

impl Killer {
    /// Starts the first engine.
    pub(super) async fn begin(
        plan: &Plan,
        folder: &Folder,
        provider: SocketAddr,
        tell: UnboundedSender<Seen>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        let (folder, dice) = (folder.path().to_owned(), Dice::new(plan.seed, "kills"));
        let engine = troupe::engine(&folder, provider, None).await?;
        let address = watch::Sender::new(engine.address());
        Ok(Self { engine: Some(engine), folder, provider, address, tell, clock, dice })
    }

    /// Where the engine is found.
    pub(super) fn addresses(&self) -> watch::Receiver<SocketAddr> {
        self.address.subscribe()
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", *self.address.borrow())
    }

    /// Kills as often as planned, spread over the work, each time when effects are under way. Ends early if all is over.
    pub(super) async fn kill(&mut self, plan: &Plan, beats: watch::Receiver<Pulse>) {
        if let Err(error) = self.kill_all(plan, beats).await {
            self.say(Seen::Broken(error.to_string()));
        }
    }

    async fn kill_all(&mut self, plan: &Plan, mut beats: watch::Receiver<Pulse>) -> Result<(), Error> {
        let (kills, effects) = (u64::from(plan.kills), u64::from(plan.orders) * EFFECTS);
        for kill in 1..=kills {
            let goal = kill * effects / (kills + 1);
            let busy = |pulse: &Pulse| pulse.over || (pulse.applied >= goal && pulse.in_flight > 0);
            let over = beats.wait_for(busy).await.is_ok_and(|pulse| pulse.over);
            if over {
                return Ok(());
            }
            let pause = Duration::from_millis(self.dice.below(SOON));
            self.clock.until(self.clock.now().after(pause)).await;
            let in_flight = beats.borrow().in_flight;
            self.kill_once(kill, in_flight).await?;
        }
        Ok(())
    }

    async fn kill_once(&mut self, kill: u64, in_flight: u64) -> Result<(), Error> {
        let Some(engine) = self.engine.take() else { return Ok(()) };
        let (address, pid) = (engine.address(), engine.pid());
        engine.kill().await?;
        let killed = self.clock.now();
        self.say(Seen::Killed { kill, pid, in_flight });
        let engine = troupe::engine(&self.folder, self.provider, Some(address)).await?;
        let after = Duration::from_millis(self.clock.now().0.abs_diff(killed.0));
        self.say(Seen::Back { pid: engine.pid(), after });
        self.address.send_replace(engine.address());
        self.engine = Some(engine);
        Ok(())
    }

    fn say(&self, seen: Seen) {
        // Nobody listens any more once the show is over.
        drop(self.tell.send(seen));
    }

    /// Lets the last engine come to its end.
    pub(super) async fn end(mut self) -> Result<(), Error> {
        match self.engine.take() {
            Some(engine) => engine.end().await,
            None => Ok(()),
        }
    }
}
