//! Replay: the code of today against what was recorded, without doing anything. What would happen, beside what did.
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

use serde::Serialize;
use serde_json::Value;

pub use self::folder::Replays;
pub use self::history::{AskedChild, History, Line};

use super::Engine;
use crate::error::{Error, Result};
use crate::id::RunId;
use crate::rules::status::Status;

/// How one thing that a run did compares with what its code does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The code does the same.
    Identical,
    /// The code does something else there.
    Changed,
    /// It is recorded, and the code does not come by.
    Missing,
    /// The code asks for it, and it is not recorded.
    Added,
}

/// What kind of thing stands at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A step, or one that was skipped.
    Step,
    /// A timer: of a sleep, or of a wait with a limit.
    Timer,
    /// A hook.
    Hook,
    /// A child.
    Child,
    /// A recorded value: a time, a random number, the winner of a race.
    Value,
    /// The result kept under a label.
    Once,
    /// How the run itself ended.
    Run,
}

/// One thing that was compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Where in the run: a path, or the label of a once.
    pub path: String,
    /// What it is; of something that has changed, what it was.
    pub kind: Kind,
    /// What is recorded.
    pub original: Option<Value>,
    /// What the code makes of it now, as far as that is known without doing it.
    pub replayed: Option<Value>,
    /// How they compare.
    pub verdict: Verdict,
}

/// What a replay has found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replay {
    /// The run that was replayed.
    pub run: RunId,
    /// Its workflow.
    pub workflow: String,
    /// Its state, as its ledger tells.
    pub status: Status,
    /// How many entries its ledger had.
    pub version: u64,
    /// The run that has executed it again, if one has: see [`ReplayBegin::dry_run`].
    pub fork: Option<RunId>,
    /// Everything that was compared, in the order of the ledger; what is not in it comes last.
    pub rows: Vec<Row>,
}

impl Replay {
    /// Whether the code does what is recorded, and nothing else.
    pub fn is_identical(&self) -> bool {
        self.differences().next().is_none()
    }

    /// What is not as it was.
    pub fn differences(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.verdict != Verdict::Identical)
    }

    /// How many rows have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }
}

/// A replay that has not begun. It does when it is awaited.
#[must_use = "a replay takes place when it is awaited"]
#[derive(Debug)]
pub struct ReplayBegin {
    engine: Engine,
    run: RunId,
    dry: bool,
}

impl ReplayBegin {
    /// Whether nothing is done, which is what happens if nothing is said: bodies are not called, nothing is written.
    ///
    /// With `false` the run, which must have ended, is executed again from its beginning, as a fork with the same effect
    /// keys: whoever was given a key can tell the repetition. A step that may not take place twice is not repeated but
    /// keeps its outcome, hooks are given the payloads of the first time, and timers take their time. Times, random
    /// numbers and ids are new, and are not compared. A fork that waits for what the original never got is cancelled.
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

    /// The same with a run that was [exported](Engine::export), from whatever store: this engine needs its workflow only.
    pub async fn replay_history(&self, history: &History) -> Result<Replay> {
        let recorded = history.recorded()?;
        let created = recorded.ledger.created();
        let code = self.core().code(&created.workflow, &created.workflow_version)?;
        let input = created.input.clone();
        let execution = dry::Execution::begin(self.core(), &recorded.ledger, |ctx| code.call(ctx, input));
        let rows = judge::judge(&recorded, &execution.play().await);
        Ok(recorded.replay(None, rows))
    }
}

/// A ledger that does not hold together, said of a run.
fn refused(run: RunId) -> impl FnOnce(crate::rules::ledger::Refused) -> Error {
    move |source| Error::Refused { run, source }
}
