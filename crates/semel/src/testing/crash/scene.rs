//! What a script works with: the engine, the world, and time that passes when nothing else happens.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::fate::Fate;
use crate::clock::{Clock, Time};
use crate::engine::queue::Queues;
use crate::engine::{Engine, RunHandle};
use crate::error::{Error, Result};
use crate::id::RunId;
use crate::rules::entry::{Outcome, Resolution};
use crate::rules::key::Token;
use crate::rules::run::Run;
use crate::rules::status::Status;
use crate::store::{Find, FindBy, Query, Store};
use crate::testing::{LedgerView, ManualClock};

/// Rounds of all tasks without a call to the store, after which nothing moves but time.
const QUIET: u32 = 12;
/// How often time may be moved without a write before the play counts as stuck.
const STUCK: u32 = 60;
/// Step of the clock when no due time is known: bodies with a time limit and short waits need time too.
const FIRST_STEP: Duration = Duration::from_millis(10);
const LAST_STEP: Duration = Duration::from_hours(24);

/// An engine, and what is around it. The script that is given a scene plays the part of the clients: it is played from
/// its beginning after every crash, so its calls must be such as can be repeated (keys, delivery ids, call ids).
///
/// What is asked here goes to the store directly and is no part of the engine's life.
#[derive(Clone)]
pub struct Scene<W> {
    pub(super) engine: Engine,
    pub(super) world: W,
    pub(super) clock: Arc<ManualClock>,
    pub(super) store: Arc<dyn Store>,
    pub(super) fate: Arc<Fate>,
}

impl<W> fmt::Debug for Scene<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scene").field(&self.engine).finish()
    }
}

impl<W> Scene<W> {
    /// The engine that is alive now.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What survives every crash.
    pub fn world(&self) -> &W {
        &self.world
    }

    /// The clock. It moves by itself when nothing else does.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// The store without the crashes: for the test, which goes on.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The queues of that store, for workers elsewhere.
    pub fn queues(&self) -> Queues {
        Queues::new(self.store.clone(), self.clock.clone())
    }

    /// Waits until the condition is true. It should look at the scene, not from the engine: otherwise it looks as
    /// if something were moving, and time stands still.
    pub async fn until(&self, so: impl AsyncFn() -> bool) {
        while !so().await {
            tokio::task::yield_now().await;
        }
    }

    /// A run as it is now.
    pub async fn header(&self, run: RunId) -> Result<Run> {
        Ok(self.find(FindBy::Id(run)).await?.ok_or(Error::RunNotFound(run))?.0)
    }

    /// A run's state now.
    pub async fn status(&self, run: RunId) -> Result<Status> {
        Ok(self.header(run).await?.status())
    }

    /// A run's history now.
    pub async fn history(&self, run: RunId) -> Result<LedgerView> {
        Ok(LedgerView::new(self.store.ledger(self.engine.workspace(), run, 1).await?))
    }

    /// Waits until a run has a status, or has ended.
    pub async fn until_status(&self, run: RunId, status: Status) {
        let reached = |found: Status| found == status || found.is_terminal();
        self.until(async || self.status(run).await.is_ok_and(reached)).await;
    }

    /// Who owns a token now.
    pub async fn owner(&self, token: &str) -> Result<Option<RunId>> {
        Ok(self.find(FindBy::Token(Token::new(token)?)).await?.map(|(run, _)| run.id()))
    }

    async fn find(&self, by: FindBy) -> Result<Option<(Run, Option<Outcome>)>> {
        self.store.find(Find { workspace: self.engine.workspace(), by }).await
    }

    /// Delivers as soon as a run owns the token. The id makes it one delivery, however often the script is played.
    pub async fn deliver<T: Serialize>(&self, token: &str, payload: T, id: &str) -> Result<()> {
        let by = FindBy::Token(Token::new(token)?);
        loop {
            match self.engine.deliver(token, &payload).id(id).await {
                Err(Error::HookNotFound(_)) => {}
                answered => return answered.map(drop),
            }
            let open = async || matches!(self.find(by.clone()).await, Ok(Some(_)) | Err(_));
            self.until(open).await;
        }
    }

    /// Waits for the end of a run. Whenever it pauses over steps in doubt, `became` is asked for their outcomes, by the
    /// run and the path of the step.
    pub async fn settle<Out>(
        &self,
        run: &RunHandle<Out>,
        became: impl Fn(RunId, &str) -> Resolution,
    ) -> Result<Outcome> {
        loop {
            self.until_status(run.id(), Status::Paused).await;
            if self.status(run.id()).await?.is_terminal() {
                return run.outcome().await;
            }
            let doubts = self.history(run.id()).await?.in_doubt();
            if doubts.is_empty() {
                let history = self.history(run.id()).await?;
                return Err(Error::Validation(format!(
                    "{} is paused, and not over a doubt:\n{history}",
                    run.id()
                )));
            }
            for doubt in doubts {
                let path = doubt.to_string();
                run.resolve(&path, became(run.id(), &path)).await?;
            }
        }
    }

    /// The same, and gives the run's result.
    pub async fn settled<Out: DeserializeOwned>(
        &self,
        run: &RunHandle<Out>,
        became: impl Fn(RunId, &str) -> Resolution,
    ) -> Result<Out> {
        self.settle(run, became).await?;
        run.result().await
    }

    /// All runs as they are now, the oldest first.
    pub async fn runs(&self) -> Result<Vec<Run>> {
        let workspace = self.engine.workspace();
        let query = Query::all(workspace, 10_000);
        let mut runs = self.store.list(query).await?.runs;
        runs.reverse();
        Ok(runs)
    }

    /// Advances the time whenever nothing else happens. Ends when that does not help any more, and describes the state.
    pub(super) async fn pass_time(&self) -> String {
        let (mut quiet, mut calls, mut writes) = (0, self.fate.calls(), 0);
        let (mut step, mut in_vain) = (FIRST_STEP, 0);
        while in_vain < STUCK {
            tokio::task::yield_now().await;
            quiet += 1;
            // How long a user's database takes is not known: the clock waits for it.
            if self.fate.calls() != calls || self.fate.is_outside() {
                (quiet, calls) = (0, self.fate.calls());
            }
            if quiet < QUIET {
                continue;
            }
            if self.fate.writes().len() != writes {
                (step, in_vain, writes) = (FIRST_STEP, 0, self.fate.writes().len());
            }
            (quiet, in_vain) = (0, in_vain + 1);
            let to = self.next_time(self.clock.now().after(step)).await;
            self.clock.advance_to(to);
            step = (step * 2).min(LAST_STEP);
        }
        self.describe().await
    }

    /// The time at which the next run is due, at once if all of them wait. A run that is driven may have to do something
    /// at a time that only its driver knows: as long as there is one, time goes in small steps.
    async fn next_time(&self, soon: Time) -> Time {
        let (now, runs) = (self.clock.now(), self.runs().await.unwrap_or_default());
        let due = runs.iter().filter_map(|run| run.state.due).filter(|due| *due > now).min();
        match due {
            Some(due) if runs.iter().all(|run| run.status() != Status::Running) => due,
            Some(due) => due.min(soon),
            None => soon,
        }
    }

    pub(super) async fn describe(&self) -> String {
        let mut text = String::new();
        for run in self.runs().await.unwrap_or_default() {
            let (id, workflow, status) = (run.id(), &run.new.workflow, run.status());
            let history = match self.history(id).await {
                Ok(history) => history.to_string(),
                Err(error) => error.to_string(),
            };
            text.extend([format!("{id} {workflow} {status}\n"), history]);
        }
        text
    }
}
