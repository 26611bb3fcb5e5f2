//! Replay: today's code against a recorded run, without doing anything. It compares what would happen with what did.
//!
//! `watch` sees what the code asks for, `judge` compares that with the ledger, `again` executes a second time under the
//! same keys, `history` is a run as a file, `folder` judges many files for a CI.

mod again;
mod dry;
mod folder;
mod history;
mod judge;
mod table;
pub(crate) mod watch;

use std::future::IntoFuture;
use std::pin::Pin;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::folder::Replays;
pub use self::history::{AskedChild, History, HistoryLine};

use super::Engine;
use crate::error::{Error, Result};
use crate::id::RunId;
use crate::rules::status::Status;

/// How one part of a run compares with what its code does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ReplayVerdict {
    /// The code does the same.
    Identical,
    /// The code does something else there.
    Changed,
    /// It is recorded, and the code does not visit it.
    Missing,
    /// The code asks for it, and it is not recorded.
    Added,
}

/// Kind of work at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ReplayKind {
    /// A step, executed or skipped.
    Step,
    /// A timer: of a sleep, or of a wait with a limit.
    Timer,
    /// A hook that the code opened.
    Hook,
    /// A child run that the code started.
    Child,
    /// A recorded value: a time, a random number, the winner of a race.
    Value,
    /// The result kept under a label.
    Once,
    /// The end of the run itself.
    Run,
}

/// One comparison of a replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayRow {
    /// Place in the run: a path, or the label of a shared result.
    pub path: String,
    /// Kind of work; if it has changed, the recorded kind.
    pub kind: ReplayKind,
    /// Recorded value; absent if nothing is recorded.
    pub original: Option<Value>,
    /// Value that the code produces now, if that is known without executing the step; absent otherwise.
    pub replayed: Option<Value>,
    /// Whether recorded and present behaviour agree.
    pub verdict: ReplayVerdict,
}

/// Differences between a recorded run and the present code.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replay {
    /// The run that was replayed.
    pub run: RunId,
    /// Name of the replayed run's workflow.
    pub workflow: String,
    /// Status of the run according to its ledger.
    pub status: Status,
    /// Number of entries in its ledger.
    pub version: u64,
    /// The run that has executed it again, if one has: see [`ReplayBegin::dry_run`].
    pub fork: Option<RunId>,
    /// All comparisons, in the order of the ledger; additions come last.
    pub rows: Vec<ReplayRow>,
}

impl Replay {
    /// Whether the code does what is recorded, and nothing else.
    pub fn is_identical(&self) -> bool {
        self.differences().next().is_none()
    }

    /// The rows that are not identical.
    pub fn differences(&self) -> impl Iterator<Item = &ReplayRow> {
        self.rows.iter().filter(|row| row.verdict != ReplayVerdict::Identical)
    }

    /// Number of rows with this verdict.
    pub fn count(&self, verdict: ReplayVerdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }
}

/// A replay that begins when it is awaited.
#[must_use = "a replay takes place when it is awaited"]
#[derive(Debug)]
pub struct ReplayBegin {
    engine: Engine,
    run: RunId,
    dry: bool,
}

impl ReplayBegin {
    /// Sets whether the replay is dry, which is the default: bodies are not called, and nothing is written.
    ///
    /// With `false` the run, which must have ended, is executed again from its beginning, as a fork with the same
    /// effect keys, so that providers recognise the repetition. A step that must not take place twice is not repeated
    /// but keeps its outcome, hooks are given the payloads of the first execution, and timers take their time. Times,
    /// random numbers and ids are new, and are not compared. A fork that waits for input that the original never got
    /// is cancelled.
    pub fn dry_run(mut self, dry: bool) -> Self {
        self.dry = dry;
        self
    }
}

impl IntoFuture for ReplayBegin {
    type Output = Result<Replay>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Replay>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let history = self.engine.export(self.run).await?;
            match self.dry {
                true => self.engine.replay_history(&history).await,
                false => again::replay(&self.engine, &history).await,
            }
        })
    }
}

impl Engine {
    /// Executes the code of a run's workflow against what the run has recorded, and tells step by step where they part.
    /// Nothing is called and nothing is written, unless [`ReplayBegin::dry_run`] says otherwise.
    ///
    /// A run that has not ended is replayed as far as its ledger goes: what comes then is its future, and no difference.
    /// A workflow that waits for something outside of its [`Ctx`](crate::Ctx) is judged where it stands still.
    ///
    /// ```
    /// use semel::{Ctx, Engine, Result};
    ///
    /// async fn double(ctx: Ctx, n: u32) -> Result<u32> {
    ///     ctx.step("double").run(async |_| Ok(n * 2)).await
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> semel::error::Result<()> {
    /// let engine = Engine::builder().store("memory:").workflow("double", double).open().await?;
    /// let run = engine.start(double, 21).await?;
    /// run.result().await?;
    /// let replay = engine.replay(run.id()).await?;
    /// assert!(replay.is_identical(), "{replay}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn replay(&self, run: RunId) -> ReplayBegin {
        ReplayBegin { engine: self.clone(), run, dry: true }
    }

    /// The same with a run that was [exported](Engine::export) from any store: this engine needs its workflow only.
    pub async fn replay_history(&self, history: &History) -> Result<Replay> {
        let recorded = history.recorded()?;
        let created = recorded.ledger.created();
        let code = self.core().code(self.workspace(), &created.workflow, &created.workflow_version).await?;
        let input = created.input.clone();
        let execution = dry::DryRun::begin(self.core(), &recorded.ledger, |run| code.begin(run, input));
        let rows = judge::judge(&recorded, &execution.play().await);
        Ok(recorded.replay(None, rows))
    }
}

/// A ledger that does not hold together, said of a run.
fn refused(run: RunId) -> impl FnOnce(crate::rules::ledger::RefusedEntry) -> Error {
    move |source| Error::Refused { run, source }
}
