//! The demo's show: callers that repeat their calls, a provider that loses answers, an engine that is killed again and again, and
//! an audit of the results.
//!
//! `plan` draws the orders, `crowd` the callers, `troupe` the processes, `killer` what kills them, `tally` what was seen,
//! `view` shows the progress, `audit` checks the promises at the end, `report` prints the result.

mod audit;
mod crowd;
mod folder;
mod killer;
mod plan;
mod report;
mod tally;
mod troupe;
mod view;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt as _, join};
use semel::clock::{Clock, SystemClock, Time};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

pub use self::plan::Plan;
pub use self::report::{Promise, Report};
pub use self::view::View;

use self::crowd::CrowdCaller;
use self::folder::Folder;
use self::killer::Killer;
use self::tally::{Pulse, ShowEvent, Tally};
use self::troupe::Process;
use super::DemoError;

/// How long calls that are still on their way may arrive after all orders have ended: they must change nothing.
const AFTERMATH: Duration = Duration::from_secs(5);

/// Plays the show and gives its report.
pub async fn play(plan: &Plan, view: View) -> Result<Report, DemoError> {
    // Before there is anything that would be left behind.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(DemoError::io("no signals"))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(DemoError::io("no signals"))?;
    // Dropping these ends their processes first, then removes the folder.
    tokio::select! {
        performed = perform(plan, view) => performed,
        _ = interrupt.recv() => Err(DemoError::Stopped),
        _ = terminate.recv() => Err(DemoError::Stopped),
    }
}

async fn perform(plan: &Plan, view: View) -> Result<Report, DemoError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let folder = Folder::make(clock.uuid(), plan.keep)?;
    let (tell, seen) = mpsc::unbounded_channel();
    let provider = troupe::provider(&folder, plan.seed, tell.clone()).await?;
    let killer = Killer::begin(plan, &folder, provider.address(), tell.clone(), clock.clone()).await?;
    let (pulse, beats) = watch::channel(Pulse::default());
    let stage = Stage { began: clock.now(), clock, tally: Tally::default(), view, seen, pulse };
    stage.view.welcome(plan, &killer.url());
    let caller = CrowdCaller::new(killer.addresses(), tell, stage.clock.clone())?;
    stage.play(plan, &folder, provider, (killer, beats), &caller).await
}

/// The running parts of the show.
struct Stage {
    clock: Arc<dyn Clock>,
    began: Time,
    tally: Tally,
    view: View,
    seen: mpsc::UnboundedReceiver<ShowEvent>,
    pulse: watch::Sender<Pulse>,
}

impl Stage {
    async fn play(
        mut self,
        plan: &Plan,
        folder: &Folder,
        provider: Process,
        (mut killer, beats): (Killer, watch::Receiver<Pulse>),
        caller: &CrowdCaller,
    ) -> Result<Report, DemoError> {
        let mut crowd = JoinSet::new();
        for customer in plan.customers() {
            crowd.spawn(caller.clone().order(customer));
        }
        let pulse = self.pulse.clone();
        let orders = async {
            while crowd.join_next().await.is_some() {}
            pulse.send_modify(|pulse| pulse.over = true);
        };
        let killing = killer.kill(plan, beats);
        if self.watch(join(orders, killing).map(|_| ()), plan.patience()).await? {
            self.watch(tally::quiet(pulse.subscribe()), AFTERMATH).await?;
        }
        crowd.abort_all();
        let time = self.elapsed();
        killer.end().await?;
        provider.end().await?;
        while let Ok(event) = self.seen.try_recv() {
            self.tally.note(&event);
        }
        self.view.end();
        audit::audit(plan, folder, &self.tally, time).await
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.clock.now().0.abs_diff(self.began.0))
    }

    /// Shows what happens until something is over; false if it is not in time.
    async fn watch(&mut self, over: impl Future<Output = ()>, patience: Duration) -> Result<bool, DemoError> {
        let mut over = pin!(over);
        let mut late = self.clock.until(self.clock.now().after(patience));
        loop {
            tokio::select! {
                biased;
                Some(event) = self.seen.recv() => {
                    if let ShowEvent::Broken(why) = event {
                        return Err(DemoError::Process(why));
                    }
                    self.tally.note(&event);
                    self.view.show(self.elapsed(), &event, &self.tally);
                    self.pulse.send_modify(|pulse| self.tally.beat(pulse));
                }
                () = over.as_mut() => return Ok(true),
                () = late.as_mut() => return Ok(false),
            }
        }
    }
}
