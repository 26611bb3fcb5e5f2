//! What is done to databases, disks, clocks and networks while everything runs. Each blow puts back what it has broken.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Failed;
use semel::clock::Clock as _;
use semel::testing::Dice;
use tokio::sync::Mutex;

use crate::cluster::Cluster;
use crate::disk::{FULL, SmallDisk};
use crate::faults::{Haunted, SyncError};
use crate::nemesis::{Disturbance, Striking};
use crate::proxy::{Cut, Proxy};
use crate::site::Site;

async fn pause(site: &Site, millis: u64) {
    site.clock.until(site.clock.now().after(Duration::from_millis(millis))).await;
}

/// PostgreSQL is killed and restarted; every fourth time its standby takes over, and gets a standby of its own.
pub(crate) struct Database {
    pub(crate) cluster: Arc<Mutex<Cluster>>,
    /// The way to it.
    pub(crate) line: Arc<Proxy>,
    pub(crate) blows: u64,
}

impl Disturbance for Database {
    fn gap(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn strike<'a>(&'a mut self, site: &'a Site, dice: &'a mut Dice) -> Striking<'a> {
        Box::pin(async move {
            self.blows += 1;
            let mut cluster = self.cluster.lock().await;
            if !self.blows.is_multiple_of(4) {
                cluster.kill()?;
                pause(site, dice.below(500)).await;
                cluster.restart().await?;
                return Ok(("postgres kills", 1));
            }
            self.line.retarget(cluster.fail_over().await?);
            self.line.cut(if dice.percent(50) { Cut::Reset } else { Cut::Close });
            pause(site, dice.below(2000)).await;
            cluster.replicate().await?;
            Ok(("failovers", 1))
        })
    }
}

/// Connections are cut, delayed, or swallow what is said on them: those to the servers, and perhaps one to a database.
pub(crate) struct Network {
    pub(crate) database: Option<Arc<Proxy>>,
}

impl Disturbance for Network {
    fn gap(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn strike<'a>(&'a mut self, site: &'a Site, dice: &'a mut Dice) -> Striking<'a> {
        Box::pin(async move {
            let lines: Vec<&Arc<Proxy>> = site.lines.iter().chain(&self.database).collect();
            let line = lines[dice.below(lines.len() as u64) as usize];
            // A line without connections has none to disturb.
            let struck = u64::from(line.is_used());
            match dice.below(4) {
                0 => line.cut(Cut::Close),
                1 => line.cut(Cut::Reset),
                2 => {
                    line.delay(Duration::from_millis(dice.between(20, 150)));
                    pause(site, dice.between(500, 2000)).await;
                    line.pass();
                    return Ok(("delays", struck));
                }
                _ => {
                    // Half-open: no side hears that the other is gone. Some are told by a reset, the others find out.
                    line.silence();
                    pause(site, dice.between(500, 3000)).await;
                    line.pass();
                    if dice.percent(50) {
                        line.cut(Cut::Reset);
                    }
                    return Ok(("silences", struck));
                }
            }
            Ok(("cuts", struck))
        })
    }
}

/// A sync of the store's files fails.
pub(crate) struct SyncErrors(pub(crate) Arc<Haunted>);

impl Disturbance for SyncErrors {
    fn gap(&self) -> Duration {
        Duration::from_millis(1500)
    }

    fn strike<'a>(&'a mut self, site: &'a Site, dice: &'a mut Dice) -> Striking<'a> {
        Box::pin(async move {
            let kind = [SyncError::Kept, SyncError::Lost, SyncError::Cached][dice.below(3) as usize];
            let before = self.0.faults.errors()?;
            self.0.faults.fail_sync(dice.between(1, 6) as u32, kind)?;
            // It counts if it came; there is not always something to sync.
            pause(site, 500).await;
            Ok(("fsync errors", self.0.faults.errors()?.abs_diff(before)))
        })
    }
}

/// There is no room on the disk for a while. It counts if a call was refused.
pub(crate) enum FullDisk {
    /// Its files may not grow.
    Haunted(Arc<Haunted>),
    /// It really is full.
    Small(Arc<SmallDisk>),
}

impl Disturbance for FullDisk {
    fn gap(&self) -> Duration {
        Duration::from_secs(4)
    }

    fn strike<'a>(&'a mut self, site: &'a Site, dice: &'a mut Dice) -> Striking<'a> {
        Box::pin(async move {
            let time = dice.between(500, 2500);
            match self {
                Self::Haunted(haunted) => {
                    let before = haunted.faults.refused()?;
                    haunted.faults.space(Some(0))?;
                    pause(site, time).await;
                    haunted.faults.space(None)?;
                    Ok(("disk full", u64::from(haunted.faults.refused()? > before)))
                }
                Self::Small(disk) => {
                    let before = site.server_lines(FULL)?;
                    disk.fill()?;
                    pause(site, time).await;
                    disk.free()?;
                    Ok(("disk full", u64::from(site.server_lines(FULL)? > before)))
                }
            }
        })
    }
}

/// The wall clock of a server is set while it runs. (Not while it is down: then it is another time for it.)
pub(crate) struct ClockJumps(pub(crate) Arc<Haunted>);

impl Disturbance for ClockJumps {
    fn gap(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn strike<'a>(&'a mut self, site: &'a Site, dice: &'a mut Dice) -> Striking<'a> {
        Box::pin(async move {
            let hours = [-48, -1, 1, 48][dice.below(4) as usize];
            let _turn = site.servers[0].turn.lock().await;
            self.0.faults.clock(hours * 3600)?;
            pause(site, dice.between(200, 1500)).await;
            self.0.faults.clock(0)?;
            Ok(("clock jumps", 1))
        })
    }
}

/// A new cluster in a folder, the way to it, and its address by that way.
pub(crate) async fn database(folder: &Path) -> Result<(Arc<Mutex<Cluster>>, Arc<Proxy>, String), Failed> {
    let cluster = Cluster::start_in(folder).await?;
    let line = Arc::new(Proxy::to(cluster.address()).await?);
    let url = Cluster::url(line.address());
    Ok((Arc::new(Mutex::new(cluster)), line, url))
}
