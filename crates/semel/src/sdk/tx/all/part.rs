//! One database's part of a block: its body, and how its branch is prepared.

use std::marker::PhantomData;
use std::sync::Arc;

use super::resource::{Resource, resource};
use super::{Branch, Ready, only_alone};
use crate::clock::Clock;
use crate::fail::{Fail, FailExt as _, Result, fatal};
use crate::rules::branch::BranchName;
use crate::rules::fence::{FenceMark, FenceVerdict, decide};
use crate::rules::json::Payload;
use crate::sdk::attempt::Attempt;
use crate::sdk::ctx::Boxed;
use crate::sdk::step::Step;
use crate::sdk::tx::answer::answered;
use crate::sdk::tx::gate::Gate;
use crate::sdk::tx::perform::perform;
use crate::sdk::tx::{TwoPhase, Tx, TxStep};

/// The body of a part, whatever type its result has.
pub(super) type MemberBody<'a, S> = Box<dyn FnMut(Branch<S>) -> Boxed<'a, Ready<S, ()>> + Send + 'a>;

/// An attempt at a part.
pub(super) struct Voting<'t> {
    pub(super) attempt: Attempt,
    pub(super) mark: FenceMark,
    pub(super) name: BranchName,
    /// Told just before the branch may be prepared.
    pub(super) prepares: &'t (dyn Fn() + Send + Sync),
}

/// Result of an attempt at one part.
pub(super) enum Vote {
    /// Its branch is prepared, with this outcome.
    Prepared(Payload),
    /// Its outcome was there already: another attempt was decided.
    WasThere,
    /// A later claim has been here.
    Superseded(i64),
}

/// A part whose types are not known.
pub(super) trait Member<'a>: Send {
    /// Whether its database can prepare a transaction.
    fn prepares(&self) -> bool;
    /// Its database.
    fn resource(&self) -> Result<Arc<dyn Resource>>;
    /// Runs the body and prepares the branch.
    fn vote<'s>(&'s mut self, voting: Voting<'s>) -> Boxed<'s, Vote>;
    /// Runs it as the only part, in an ordinary transaction.
    fn alone(self: Box<Self>, step: Step) -> Boxed<'a, Vec<Payload>>;
}

pub(super) struct MemberOf<'a, S: TwoPhase> {
    pub(super) source: &'a S,
    pub(super) table: String,
    pub(super) body: MemberBody<'a, S>,
}

impl<'a, S: TwoPhase> Member<'a> for MemberOf<'a, S> {
    fn prepares(&self) -> bool {
        S::PREPARES
    }

    fn resource(&self) -> Result<Arc<dyn Resource>> {
        resource(self.source, &self.table).fatal()
    }

    fn vote<'s>(&'s mut self, voting: Voting<'s>) -> Boxed<'s, Vote> {
        Box::pin(vote(self, voting))
    }

    fn alone(self: Box<Self>, step: Step) -> Boxed<'a, Vec<Payload>> {
        let Self { source, table, mut body } = *self;
        let tx = TxStep { step, source, table };
        let body = move |tx: Tx<S>| {
            let ran = body(Branch { tx, name: None });
            async move {
                let Ready { branch, outcome, .. } = ran.await?;
                branch.tx.commit(vec![outcome]).await
            }
        };
        Box::pin(perform(tx, body))
    }
}

async fn vote<S: TwoPhase>(part: &mut MemberOf<'_, S>, voting: Voting<'_>) -> Result<Vote> {
    let Voting { attempt, mark, name, prepares } = voting;
    let own = attempt.clone();
    let clock = own.clock();
    let find = S::DIALECT.find(&part.table).fatal()?;
    let put = S::DIALECT.put(&part.table).fatal()?;
    let (mut open, held) = within(clock, async {
        let mut open = part.source.begin_branch(&name).await?;
        let held = S::find(&mut open, &find, &mark.key).await?;
        Ok((open, held))
    })
    .await?;
    let fence = held.as_ref().map_or(0, |held| held.fence);
    match decide(&mark, held) {
        FenceVerdict::Run => {}
        FenceVerdict::Adopt(_) => return Ok(Vote::WasThere),
        FenceVerdict::Superseded => return Ok(Vote::Superseded(fence)),
    }
    let tx = Tx { open, attempt, mark: mark.clone(), put: String::new(), gate: Arc::new(Gate::default()) };
    let Ready { branch, outcome, .. } = (part.body)(Branch { tx, name: Some(name.clone()) }).await?;
    if branch.name.as_ref() != Some(&name) {
        return Err(fatal("the body has given back another branch than it was given"));
    }
    open = branch.tx.open;
    if within(clock, S::put(&mut open, &put, &mark, Some(outcome.text()))).await? == 0 {
        return Err(Fail::retryable("its commit was refused: another one has come before it"));
    }
    prepares();
    within(clock, S::prepare(open, &name)).await?;
    Ok(Vote::Prepared(outcome))
}

/// The result of a call to a database; an error if it has not answered for too long.
pub(super) async fn within<T>(clock: &dyn Clock, call: impl Future<Output = Result<T>>) -> Result<T> {
    answered(clock, call).await.map_err(Fail::from).flatten()
}

impl<S: TwoPhase, T> Ready<S, T> {
    /// The same, without the type of its result.
    pub(super) fn untyped(self) -> Ready<S, ()> {
        Ready { branch: self.branch, outcome: self.outcome, of: PhantomData }
    }
}

/// Refuses databases that cannot prepare, if there are several.
pub(super) fn check(parts: &[Box<dyn Member<'_> + '_>]) -> Result<()> {
    match parts {
        [] => Err(fatal("a transaction over no database at all: name one with `.on(..)`")),
        [_] => Ok(()),
        several if several.iter().all(|part| part.prepares()) => Ok(()),
        _ => Err(only_alone()),
    }
}
