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
use super::tally::{Pulse, ShowEvent};
use super::troupe::{self, Process};
use crate::demo::DemoError;
use crate::demo::dice::Dice;

/// The longest time between a call to the provider and the kill that it triggers.
const SOON: u64 = 60;
/// What the provider does for an order: a charge, a letter, a receipt.
const EFFECTS: u64 = 3;

/// The engine process, and the schedule of its kills.
pub(super) struct Killer {
    engine: Option<Process>,
    folder: PathBuf,
    provider: SocketAddr,
    address: watch::Sender<SocketAddr>,
    tell: UnboundedSender<ShowEvent>,
    clock: Arc<dyn Clock>,
    dice: Dice,
}

impl Killer {
    /// Starts the first engine.
    pub(super) async fn begin(
        plan: &Plan,
        folder: &Folder,
        provider: SocketAddr,
        tell: UnboundedSender<ShowEvent>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, DemoError> {
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

    /// Kills as often as planned, spread over the work, each time while effects are under way. Ends early if all orders have
    /// ended.
    pub(super) async fn kill(&mut self, plan: &Plan, beats: watch::Receiver<Pulse>) {
        if let Err(error) = self.kill_all(plan, beats).await {
            self.say(ShowEvent::Broken(error.to_string()));
        }
    }

    async fn kill_all(&mut self, plan: &Plan, mut beats: watch::Receiver<Pulse>) -> Result<(), DemoError> {
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

    async fn kill_once(&mut self, kill: u64, in_flight: u64) -> Result<(), DemoError> {
        let Some(engine) = self.engine.take() else { return Ok(()) };
        let (address, pid) = (engine.address(), engine.pid());
        engine.kill().await?;
        let killed = self.clock.now();
        self.say(ShowEvent::Killed { kill, pid, in_flight });
        let engine = troupe::engine(&self.folder, self.provider, Some(address)).await?;
        let after = Duration::from_millis(self.clock.now().0.abs_diff(killed.0));
        self.say(ShowEvent::Back { pid: engine.pid(), after });
        self.address.send_replace(engine.address());
        self.engine = Some(engine);
        Ok(())
    }

    fn say(&self, seen: ShowEvent) {
        // The receiver is gone once the demo is over.
        drop(self.tell.send(seen));
    }

    /// Waits for the last engine to end.
    pub(super) async fn end(mut self) -> Result<(), DemoError> {
        match self.engine.take() {
            Some(engine) => engine.end().await,
            None => Ok(()),
        }
    }
}
