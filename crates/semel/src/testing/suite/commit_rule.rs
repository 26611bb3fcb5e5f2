//! Plain commits: every combination of what they depend on, on every store, against the rule.
//!
//! The SQL stores write plain commits with statements that repeat [`commit::decide`] and `state_after`. These tables tell
//! whether they repeat it truly: each row says what the rule decides, and the store must do the same.

use std::sync::Arc;
use std::time::Duration;

use super::driver::{SuiteDriver, failure};
use super::world::{World, all_at_once, payload, visit};
use crate::clock::Time;
use crate::error::Result;
use crate::rules::attention::Attention;
use crate::rules::commit::{self, Beyond, Commit, Content, Ending, Saved, Tally, Write};
use crate::rules::control::ControlAction;
use crate::rules::entry::{Entry, Message, Outcome, PauseReason, encode};
use crate::rules::run::{Parent, Retention, Run};
use crate::rules::start::Start;
use crate::rules::status::Status;
use crate::store::Store;

promises![
    a_plain_commit_alone_does_what_the_rule_says,
    plain_commits_together_do_what_the_rule_says,
    a_commit_after_a_takeover_does_what_the_rule_says,
    ends_of_children_do_what_the_rule_says,
];

/// Entries of each commit: one that every status may have, and one that leads to the new status.
const COUNT: u64 = 2;
/// The history of runs that are forgotten soon, and of runs that are never forgotten.
const HISTORIES: [Duration; 2] = [Duration::from_secs(1), Duration::MAX];

/// What the state of a run says, as far as it matters to a commit.
#[derive(Clone, Copy, Debug)]
struct Before {
    status: Status,
    ties: bool,
    /// Messages in the inbox.
    arrivals: u64,
    history: Duration,
}

/// What a commit asks for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    to: Status,
    /// Added to the version that the run has.
    version: i64,
    /// Messages that the driver has seen.
    seen: u64,
    /// Earliest time of the entry, in milliseconds from now.
    not_before: Option<u64>,
    /// Due time of the run, in milliseconds from now.
    due: Option<u64>,
}

/// A commit, and its expected outcome.
struct Expected {
    commit: Commit,
    before: Run,
    /// The run afterwards, or the code of the refusal.
    after: std::result::Result<Run, &'static str>,
    row: String,
}

fn befores(status: Status) -> Vec<Before> {
    let mut all = Vec::new();
    for ties in [false, true] {
        for arrivals in [0, 1] {
            for history in HISTORIES {
                all.push(Before { status, ties, arrivals, history });
            }
        }
    }
    all
}

fn asked(arrivals: u64) -> Vec<Asked> {
    let mut all = Vec::new();
    for to in Status::ALL {
        for version in [0, -1, 1] {
            for seen in 0..=arrivals {
                for not_before in [None, Some(0), Some(1)] {
                    let dues: &[_] = if to == Status::Waiting { &[None, Some(500)] } else { &[None] };
                    all.extend(dues.iter().map(|due| Asked { to, version, seen, not_before, due: *due }));
                }
            }
        }
    }
    all
}

/// The entry that leads to a status.
fn entry_to(status: Status) -> Entry {
    let by = "ann".to_owned();
    match status {
        Status::Pending => Entry::Resumed { by },
        Status::Running => Entry::Recorded { at: visit("second"), value: payload("2"), failed: None },
        Status::Waiting => Entry::Waiting { due: None },
        Status::Paused => Entry::Paused { reason: PauseReason::Operator { by } },
        Status::Completed => Entry::Completed { value: payload("7") },
        Status::Failed => Entry::Failed { error: failure() },
        Status::Cancelled => Entry::Cancelled { reason: "no longer wanted".to_owned(), by },
        Status::TimedOut => Entry::TimedOut { limit: Time(0) },
    }
}

/// Half of the commits ask, so that each row of the table is played both ways.
fn asks_news(run: &Run) -> bool {
    run.new.retention.history == HISTORIES[0]
}

fn commit_of(run: &Run, asked: Asked, parent: Option<Parent>, now: Time) -> Commit {
    let entries =
        [Entry::Recorded { at: visit("first"), value: payload("1"), failed: None }, entry_to(asked.to)];
    let later = |millis: u64| now.after(Duration::from_millis(millis));
    let ending = entries[1].outcome().map(|outcome| Ending { outcome, parent, retention: run.new.retention });
    let beyond = Beyond {
        workspace: Some(run.new.workspace),
        due: asked.due.map(later),
        attention: (asked.to == Status::Paused).then_some(Attention::Operator),
        not_before: asked.not_before.map(later),
        ending,
        ..Beyond::default()
    };
    Commit::new(Write {
        num: run.num,
        run: run.id(),
        new: run.new.clone(),
        fence: run.state.version,
        node: run.state.node,
        expected: run.state.version.saturating_add_signed(asked.version),
        count: COUNT,
        content: Content::Ready(encode(&entries)),
        status: asked.to,
        seen: asked.seen,
        asks_news: asks_news(run),
        tally: Tally::default(),
        beyond: Some(Box::new(beyond)),
    })
}

/// What the rule makes of a commit.
fn expect(run: &Run, commit: Commit, now: Time, row: String) -> Expected {
    let after = match commit::decide(&commit, run, now) {
        Ok(()) => Ok(Run { state: commit.state_after(run, now), ..run.clone() }),
        Err(refused) => Err(refused.code()),
    };
    Expected { commit, before: run.clone(), after, row }
}

impl World {
    /// A run in a state from which a commit may come. Its messages are wishes that it should end, which need no hook.
    async fn run_before(&self, before: Before, key: &str) -> Run {
        let retention = Retention { history: before.history, key: Duration::from_secs(1) };
        let start = Start { retention, ..self.request_for(before.status, key) };
        let mut driver = self.drive(start).await;
        if before.ties {
            driver.open(key).await;
        }
        for _ in 0..before.arrivals {
            let wish = ControlAction::RequestCancel { reason: "no longer wanted".to_owned() };
            self.control(driver.id(), wish).await.expect("an open run can be asked to end");
        }
        self.bring(&mut driver, before.status).await;
        let run = self.run(driver.id()).await;
        let tied = before.ties && !before.status.is_terminal();
        assert_eq!((run.status(), run.arrivals, run.state.ties), (before.status, before.arrivals, tied));
        run
    }

    /// Brings a run that is driven into a state.
    pub(super) async fn bring(&self, driver: &mut SuiteDriver, status: Status) {
        let pause = || self.control(driver.id(), ControlAction::Pause);
        match status {
            Status::Running => {}
            Status::Paused => drop(pause().await.expect("a running run can be paused")),
            Status::Pending => {
                pause().await.expect("a running run can be paused");
                self.control(driver.id(), ControlAction::Resume).await.expect("a paused run can be resumed");
            }
            Status::Waiting => drop(driver.wait(None).await),
            Status::Completed => drop(driver.complete("7").await),
            Status::Failed => drop(driver.fail().await),
            Status::TimedOut => drop(driver.time_out().await),
            Status::Cancelled => assert!(self.cancel(driver.id()).await),
        }
    }

    /// The table: a run of its own for each commit that is written, and one for all that are refused in a state.
    async fn table(&self) -> Vec<Expected> {
        let mut table = Vec::new();
        for before in Status::ALL.into_iter().flat_map(befores) {
            let mut spare = self.run_before(before, &table.len().to_string()).await;
            for (n, asked) in asked(before.arrivals).into_iter().enumerate() {
                let row = format!("{asked:?} of {before:?}");
                let commit = commit_of(&spare, asked, None, self.now());
                let expected = expect(&spare, commit, self.now(), row);
                if expected.after.is_ok() {
                    spare = self.run_before(before, &format!("{}-{n}", table.len())).await;
                }
                table.push(expected);
            }
        }
        let written = table.iter().filter(|expected| expected.after.is_ok()).count();
        assert!(written > 100 && table.len() - written > 1_000, "{written} of {} are written", table.len());
        table
    }

    /// Compares what the store did with what the rule says.
    async fn check(&self, expected: &Expected, saved: Result<Saved>) {
        let Expected { before, after, row, .. } = expected;
        let run = self.run(before.id()).await;
        match after {
            Ok(after) => {
                let saved = saved.unwrap_or_else(|error| panic!("{row}: refused: {error}"));
                let arrivals = asks_news(before).then_some(before.arrivals);
                let version = after.state.version;
                let written = saved.written;
                assert_eq!(saved, Saved { version, arrivals, written, ..Saved::default() }, "{row}");
                // A server elsewhere says it once for many commits.
                assert!(written.is_none_or(|at| at == self.now() && asks_news(before)), "{row}: {written:?}");
                assert_eq!(run, *after, "{row}");
                assert_eq!(self.entries(run.id()).await.len() as u64, run.state.version, "{row}");
            }
            Err(code) => {
                let refused = saved.expect_err(row);
                assert_eq!(refused.code(), *code, "{row}: {refused}");
            }
        }
    }
}

/// Sends all commits at once, so that the stores write them in batches.
async fn send_all<'a>(
    store: &Arc<dyn Store>,
    commits: impl Iterator<Item = &'a Commit>,
) -> Vec<Result<Saved>> {
    all_at_once(commits.map(|commit| store.commit(commit.clone()))).await
}

async fn a_plain_commit_alone_does_what_the_rule_says(world: World) {
    for expected in world.table().await {
        let saved = world.store().commit(expected.commit.clone()).await;
        if expected.after.is_err() {
            assert_eq!(world.run(expected.before.id()).await, expected.before, "{}", expected.row);
        }
        world.check(&expected, saved).await;
    }
}

async fn plain_commits_together_do_what_the_rule_says(world: World) {
    let table = world.table().await;
    // The refused ones first: some of them are for runs that are changed by a commit which is written.
    let (written, refused): (Vec<_>, Vec<_>) = table.into_iter().partition(|row| row.after.is_ok());
    for rows in [refused, written] {
        let answers = send_all(world.store(), rows.iter().map(|row| &row.commit)).await;
        for (expected, saved) in rows.iter().zip(answers) {
            if expected.after.is_err() {
                assert_eq!(world.run(expected.before.id()).await, expected.before, "{}", expected.row);
            }
            world.check(expected, saved).await;
        }
    }
}

/// A commit is progress: the run is no longer suspected of killing its engines.
async fn a_commit_after_a_takeover_does_what_the_rule_says(world: World) {
    for to in Status::ALL.into_iter().filter(|to| *to != Status::Pending) {
        for ties in [false, true] {
            let before = Before { status: Status::Running, ties, arrivals: 0, history: HISTORIES[0] };
            let key = format!("{to}-{ties}");
            let run = world.run_before(before, &key).await;
            world.crash().await;
            world.claim_all().await;
            let run = world.run(run.id()).await;
            assert_eq!((run.status(), run.state.stalls), (Status::Running, 1));
            let asked = Asked { to, version: 0, seen: 0, not_before: None, due: None };
            let expected = expect(&run, commit_of(&run, asked, None, world.now()), world.now(), key);
            let saved = world.store().commit(expected.commit.clone()).await;
            world.check(&expected, saved).await;
        }
    }
}

/// A child that ends, its parent, and what the parent must have afterwards.
struct ChildEnd {
    child: Expected,
    parent: Run,
    outcome: Outcome,
}

/// What else a child's end changes: nothing, a token, a grant of a `run_once` value.
#[derive(Clone, Copy, Debug)]
enum Beside {
    Nothing,
    Token,
    Once,
}

impl World {
    async fn child_end(
        &self,
        to: Status,
        version: i64,
        parent: Status,
        beside: Beside,
        history: Duration,
    ) -> ChildEnd {
        let row = format!("{to} {version} {parent} {beside:?} {history:?}");
        let key = row.replace(' ', "-");
        let retention = Retention { history, key: Duration::from_secs(1) };
        let mut driver = self.drive(Start { retention, ..self.request(&key) }).await;
        let (id, _) = driver.child("child", self.run_id()).await;
        let claimed = self.claim_all().await;
        let mut child = claimed.into_iter().find(|child| child.id() == id).expect("a child is due at once");
        match beside {
            Beside::Nothing => {}
            Beside::Token => drop(child.open(&key).await),
            Beside::Once => drop(self.grant(id, &key).await),
        }
        self.bring(&mut driver, parent).await;
        let (run, parent) = (self.run(id).await, self.run(driver.id()).await);
        let asked = Asked { to, version, seen: 0, not_before: None, due: None };
        let waits = Parent { run: parent.id(), visit: visit("child") };
        let commit = commit_of(&run, asked, Some(waits), self.now());
        let outcome = commit.outcome().expect("it ends").clone();
        ChildEnd { child: expect(&run, commit, self.now(), row), parent, outcome }
    }

    async fn check_parent(&self, end: &ChildEnd) {
        let ChildEnd { child, parent, outcome } = end;
        let (found, inbox) = (self.run(parent.id()).await, self.inbox(parent.id()).await);
        if child.after.is_err() || parent.status().is_terminal() {
            assert_eq!((&found, inbox.len()), (parent, 0), "{}: the parent hears nothing", child.row);
            return;
        }
        let mut told = Run { arrivals: parent.arrivals + 1, ..parent.clone() };
        if parent.status() == Status::Waiting {
            told.state.due = Some(self.now());
        }
        assert_eq!(found, told, "{}", child.row);
        let message =
            Message::ChildEnded { child: visit("child"), run: child.before.id(), outcome: outcome.clone() };
        let messages: Vec<_> = inbox.into_iter().map(|arrival| arrival.message).collect();
        assert_eq!(messages, [message], "{}", child.row);
    }

    /// One end for each combination.
    async fn child_ends(&self) -> Vec<ChildEnd> {
        let mut ends = Vec::new();
        for to in Status::ALL.into_iter().filter(|to| to.is_terminal()) {
            for version in [0, -1, 1] {
                for parent in [Status::Waiting, Status::Running, Status::Paused, Status::Completed] {
                    for beside in [Beside::Nothing, Beside::Token, Beside::Once] {
                        for history in HISTORIES {
                            ends.push(self.child_end(to, version, parent, beside, history).await);
                        }
                    }
                }
            }
        }
        ends
    }
}

async fn ends_of_children_do_what_the_rule_says(world: World) {
    let ends = world.child_ends().await;
    let answers = send_all(world.store(), ends.iter().map(|end| &end.child.commit)).await;
    for (end, saved) in ends.iter().zip(answers) {
        // A `run_once` value that is free again is told beside the state.
        let saved = saved.map(|saved| Saved { freed: false, ..saved });
        world.check(&end.child, saved).await;
        world.check_parent(end).await;
    }
}
