//! Kills the components, some of them together with the server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::clock::{Clock as _, Time};
use semel::testing::Dice;

use super::components::Component;
use crate::nemesis::{Disturbance, Kill, SERVER_KILLS, Striking};
use crate::site::Site;

/// How many of a hundred kills take the server with them.
const WITH_SERVER: u64 = 30;
/// Longest time for which a server of the scripts stays away. Others come back at once: a tool of an agent is tried three times only.
const AWAY: Duration = Duration::from_millis(400);

/// Kills one component.
pub(super) struct Killer {
    pub(super) figure: &'static str,
    pub(super) component: Arc<Component>,
    /// Mean time between two kills.
    pub(super) gap: Duration,
    /// Counts the kills of the server that came with one of a component.
    pub(super) together: Arc<AtomicU64>,
    /// When the kills took place.
    pub(super) kills: Arc<Mutex<Vec<Kill>>>,
}

impl Killer {
    fn note(&self, figure: &'static str, begun: Time, site: &Site) {
        let kill = Kill { figure, begun, ended: site.clock.now() };
        self.kills.lock().expect("no holder of the lock panics").push(kill);
    }
}

impl Disturbance for Killer {
    fn gap(&self) -> Duration {
        self.gap
    }

    fn strike<'a>(&'a mut self, site: &'a Site, dice: &'a mut Dice) -> Striking<'a> {
        Box::pin(async move {
            let turn = match dice.percent(WITH_SERVER) {
                true => Some(site.servers[0].turn.lock().await),
                false => None,
            };
            let begun = site.clock.now();
            self.component.kill().await?;
            self.note(self.figure, begun, site);
            if turn.is_some() {
                let begun = site.clock.now();
                site.servers[0].kill()?;
                self.note(SERVER_KILLS, begun, site);
                self.together.fetch_add(1, Ordering::Relaxed);
            }
            if matches!(*self.component, Component::Service(_)) {
                let pause = Duration::from_millis(dice.below(AWAY.as_millis() as u64));
                site.clock.until(site.clock.now().after(pause)).await;
            }
            let server = async {
                match turn.is_some() {
                    true => site.start_server(0).await,
                    false => Ok(()),
                }
            };
            let (started, served) = tokio::join!(self.component.start(), server);
            started?;
            served?;
            Ok((self.figure, 1))
        })
    }
}
