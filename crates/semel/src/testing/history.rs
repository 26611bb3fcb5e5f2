//! A run's ledger, with the questions that tests ask of it.

use std::fmt;

use crate::engine::RunHandle;
use crate::error::Result;
use crate::rules::entry::{Entry, PauseReason};
use crate::rules::path::Visit;
use crate::store::Numbered;

/// The ledger of a run. Printed, it has one line per entry, for messages of failed tests.
#[derive(Clone, PartialEq, Eq)]
pub struct LedgerView(Vec<Numbered>);

/// Reads the history of a run.
///
/// ```
/// use semel::testing::history;
/// use semel::{Ctx, Engine, Result};
///
/// async fn order(ctx: Ctx, (): ()) -> Result<()> {
///     ctx.step("charge").run(async |_| Ok(())).await?;
///     ctx.step("ship").run(async |_| Ok(())).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> semel::Result<(), semel::Error> {
/// let engine = Engine::builder().store("memory:").workflow("order", order).open().await?;
/// let run = engine.start(order, ()).await?;
/// run.result().await?;
/// let history = history(&run).await?;
/// assert!(history.completed("charge"), "{history}");
/// assert_eq!(history.attempts("charge"), 1, "{history}");
/// history.assert_order(&["charge", "ship"]);
/// # Ok(())
/// # }
/// ```
pub async fn history<Out>(run: &RunHandle<Out>) -> Result<LedgerView> {
    Ok(LedgerView(run.ledger().await?))
}

impl LedgerView {
    pub(super) fn new(entries: Vec<Numbered>) -> Self {
        Self(entries)
    }

    /// The entries, the first first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter().map(|numbered| &numbered.entry)
    }

    /// The kinds of the entries, as they are written.
    pub fn kinds(&self) -> Vec<&'static str> {
        self.entries().map(Entry::kind).collect()
    }

    /// How many entries are of a kind.
    pub fn count(&self, kind: &str) -> usize {
        self.entries().filter(|entry| entry.kind() == kind).count()
    }

    fn at<'a>(&'a self, path: &str) -> impl Iterator<Item = &'a Entry> {
        let visit = Visit::parse(path).unwrap_or_else(|| panic!("{path:?} is no path of a step"));
        self.entries().filter(move |entry| entry.visit() == Some(&visit))
    }

    /// Whether the step at a path has its result: recorded by the run, or given by an operator.
    pub fn completed(&self, path: &str) -> bool {
        self.at(path).any(|entry| match entry {
            Entry::StepCompleted { .. } => true,
            Entry::StepResolved { resolution, .. } => {
                matches!(resolution, crate::rules::entry::Resolution::Happened(_))
            }
            _ => false,
        })
    }

    /// How many attempts at a step are recorded. A crash hides the attempt that it ends, unless its beginning was made
    /// durable first.
    pub fn attempts(&self, path: &str) -> usize {
        self.at(path).filter(|entry| matches!(entry, Entry::StepStarted { .. })).count()
    }

    /// The steps that are in doubt.
    pub fn in_doubt(&self) -> Vec<Visit> {
        let mut doubts = Vec::new();
        for entry in self.entries() {
            match entry {
                Entry::StepInDoubt { step, .. } => doubts.push(step.clone()),
                Entry::StepResolved { step, .. } => doubts.retain(|doubt| doubt != step),
                _ => {}
            }
        }
        doubts
    }

    /// Why it was paused last.
    pub fn pause(&self) -> Option<&PauseReason> {
        fn reason(entry: &Entry) -> Option<&PauseReason> {
            match entry {
                Entry::Paused { reason } => Some(reason),
                _ => None,
            }
        }
        self.entries().filter_map(reason).last()
    }

    /// Whether the outcomes of these steps are there, and in this order.
    pub fn order(&self, paths: &[&str]) -> bool {
        let settled = |entry: &Entry| match entry {
            Entry::StepCompleted { step, .. } | Entry::StepFailed { step, retry_at: None, .. } => {
                Some(step.to_string())
            }
            _ => None,
        };
        let mut outcomes = self.entries().filter_map(settled);
        paths.iter().all(|path| outcomes.any(|outcome| outcome == *path))
    }

    /// The same, as an assertion that prints the history.
    ///
    /// # Panics
    /// If it is not so.
    #[track_caller]
    pub fn assert_order(&self, paths: &[&str]) {
        assert!(self.order(paths), "not in this order: {paths:?}\n{self}");
    }

    /// Asserts that the step at a path has its result.
    ///
    /// # Panics
    /// If it has not; the message has the whole history.
    #[track_caller]
    pub fn assert_completed(&self, path: &str) {
        assert!(self.completed(path), "{path} has no result\n{self}");
    }

    /// Asserts how many attempts at a step are recorded.
    ///
    /// # Panics
    /// If it is another number; the message has the whole history.
    #[track_caller]
    pub fn assert_attempts(&self, path: &str, attempts: usize) {
        let found = self.attempts(path);
        assert!(found == attempts, "{path} has {found} attempts, not {attempts}\n{self}");
    }
}

impl fmt::Display for LedgerView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Numbered { number, at, entry } in &self.0 {
            let text = serde_json::to_string(entry).map_err(|_| fmt::Error)?;
            writeln!(f, "{number:>4} {:>10} {text}", at.0)?;
        }
        Ok(())
    }
}

impl fmt::Debug for LedgerView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
