//! Rules that SQL repeats beside those of plain commits: every combination of what they depend on, on every store.
//!
//! `arrive` repeats [`Status::is_terminal`], `overdue` repeats [`deadline::is_limited`], and batches of starts repeat
//! [`is_alive`]. Each row of these tables says what the rule decides, and the store must do the same.

use std::time::Duration;

use super::driver::SuiteDriver;
use super::world::{LEASE, World, all_at_once, key};
use crate::clock::{Clock, Time};
use crate::id::NodeId;
use crate::rules::deadline::{self, GRACE};
use crate::rules::entry::{Entry, Outcome};
use crate::rules::run::Run;
use crate::rules::start::Start;
use crate::rules::status::Status;
use crate::store::LeaseAct;
use crate::store::verbs::is_alive;

promises![
    a_message_reaches_a_run_as_its_status_and_due_time_say,
    a_time_limit_ends_runs_as_their_status_says,
    a_start_is_driven_by_its_node_only_if_the_node_is_alive,
];

/// A message for a run, and the run that it must leave.
struct Sent {
    child: SuiteDriver,
    before: Run,
    row: String,
}

/// How the end of a child is written.
#[derive(Clone, Copy, Debug)]
enum EndOfChild {
    /// By the statement for many ends.
    InABatch,
    /// By the verb, because a token has to be freed as well.
    ByTheVerb,
}

impl World {
    /// A run in a status, with a child that can end.
    async fn parent(&self, status: Status, due: Option<Time>, end: EndOfChild) -> Sent {
        let row = format!("{status} {due:?} {end:?}");
        let key = row.replace(' ', "-");
        let mut parent = self.drive(self.request_for(status, &key)).await;
        let (id, _) = parent.child("child", self.run_id()).await;
        let claimed = self.claim_all().await;
        let mut child = claimed.into_iter().find(|child| child.id() == id).expect("a child is due at once");
        if matches!(end, EndOfChild::ByTheVerb) {
            child.open(&key).await;
        }
        match status {
            Status::Waiting => drop(parent.wait(due).await),
            _ => self.bring(&mut parent, status).await,
        }
        let before = self.run(parent.id()).await;
        assert_eq!(before.status(), status);
        Sent { child, before, row }
    }

    async fn check_arrival(&self, sent: &Sent) {
        let Sent { before, row, .. } = sent;
        let mut expected = before.clone();
        if !before.status().is_terminal() {
            expected.arrivals += 1;
        }
        if before.status() == Status::Waiting {
            expected.state.due = Some(before.state.due.map_or(self.now(), |due| due.min(self.now())));
        }
        let delivered = self.inbox(before.id()).await.len() as u64;
        assert_eq!(self.run(before.id()).await, expected, "{row}");
        assert_eq!(delivered, expected.arrivals, "{row}: what is counted is in the inbox");
    }
}

async fn a_message_reaches_a_run_as_its_status_and_due_time_say(world: World) {
    let mut table = Vec::new();
    for end in [EndOfChild::InABatch, EndOfChild::ByTheVerb] {
        for status in Status::ALL {
            let dues = match status {
                Status::Waiting => {
                    vec![None, Some(world.now()), Some(world.after(500)), Some(world.after(1_500))]
                }
                _ => vec![None],
            };
            for due in dues {
                table.push(world.parent(status, due, end).await);
            }
        }
    }
    // Between the due times of the waiting runs.
    world.pass(1_000);
    for sent in &mut table {
        sent.child.complete("7").await;
        world.check_arrival(sent).await;
    }
    assert_eq!(table.len(), 2 * (Status::ALL.len() + 3));
}

async fn a_time_limit_ends_runs_as_their_status_says(world: World) {
    const LIMIT: Duration = Duration::from_secs(10);
    let mut runs = Vec::new();
    for status in Status::ALL {
        for timeout in [None, Some(LIMIT)] {
            let key = format!("{status}-{timeout:?}");
            let start = match status {
                Status::TimedOut => world.request_for(status, &key),
                _ => Start { timeout, ..world.request(&key) },
            };
            let mut driver = world.drive(start).await;
            world.bring(&mut driver, status).await;
            runs.push((driver.id(), key));
        }
    }
    let moments = [LIMIT.saturating_sub(Duration::from_millis(1)), Duration::from_millis(1), GRACE];
    let mut ended = 0;
    for moment in moments {
        world.clock().advance(moment);
        let mut before = Vec::new();
        for (id, _) in &runs {
            before.push(world.run(*id).await);
        }
        world.sweep(1000).await;
        for (before, (id, key)) in before.into_iter().zip(&runs) {
            let after = world.run(*id).await;
            match deadline::decide(&before, world.now()) {
                None => assert_eq!(after.status(), before.status(), "{key}"),
                Some((entry, state)) => {
                    ended += 1;
                    assert_eq!(after.state, state, "{key}");
                    assert_eq!(world.entries(*id).await.last(), Some(&entry), "{key}");
                    assert_eq!(world.outcome(*id).await, Some(Outcome::TimedOut), "{key}");
                }
            }
        }
    }
    let limited = Status::ALL.into_iter().filter(|status| deadline::is_limited(*status));
    assert_eq!(ended, limited.count(), "each status that has a limit has ended once");
}

async fn a_start_is_driven_by_its_node_only_if_the_node_is_alive(world: World) {
    let mut nodes = Vec::new();
    // A lease that is over, one that ends at this moment, and one that does not.
    for millis in [0, 1, 2] {
        let node = NodeId(world.clock().uuid());
        let lease = LEASE + Duration::from_millis(millis);
        let until = world.lease(node, LeaseAct::Join(lease)).await.expect("a new node can join");
        nodes.push((node, Some(until)));
    }
    let left = world.node().await;
    world.lease(left, LeaseAct::Leave).await.expect("a node may leave");
    nodes.extend([(left, None), (NodeId(world.clock().uuid()), None)]);
    world.clock().advance(LEASE + Duration::from_millis(1));
    let mut starts = Vec::new();
    for (node, until) in nodes {
        let start = Start { claim: Some(node), ..world.request(&format!("of {node}")) };
        starts.push((start, is_alive(until, world.now()), node));
    }
    assert_eq!(starts.iter().filter(|(_, lives, _)| *lives).count(), 1);
    // All at once, so that the stores write them in batches; then each alone.
    let together = starts.iter().map(|(start, ..)| world.try_start(start.clone()));
    let mut started = all_at_once(together).await;
    for (start, _, node) in &starts {
        let (run, key) = (world.run_id(), key(&format!("of {node} alone")));
        started.push(world.try_start(Start { run, key, ..start.clone() }).await);
    }
    for (started, (_, lives, node)) in started.into_iter().zip(starts.iter().cycle()) {
        let run = world.run(started.expect("a start without a driver is left to others").run.id()).await;
        let driver = lives.then_some(*node);
        let expected = if *lives { Status::Running } else { Status::Pending };
        assert_eq!((run.status(), run.state.node), (expected, driver), "{node}");
        let claimed = Entry::Claimed { node: *node };
        assert_eq!(world.entries(run.id()).await.contains(&claimed), *lives, "{node}");
    }
}
