//! Races: the first of several, recorded.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Weak;
use std::task::Poll;

use super::ctx::{Ctx, read};
use crate::engine::run::{Addition, Requested};
use crate::fail::{Result, fatal};
use crate::rules::entry::Entry;
use crate::rules::json::Payload;
use crate::rules::path::Visit;
use crate::rules::race::{BranchPoll, RaceRound, fits, winner};
use crate::sabotage::{self, Bug};

/// The value of the branch that won a race of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first branch won.
    A(A),
    /// The second branch won.
    B(B),
}

pub(super) async fn race<A, B>(ctx: &Ctx, name: &str, a: A, b: B) -> Result<Either<A::Output, B::Output>>
where
    A: Future<Output: Send> + Send,
    B: Future<Output: Send> + Send,
{
    let at = ctx.visit(name, None, false)?;
    let recorded = recorded_winner(ctx, &at, 2).await?;
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut first, mut second) = (None, None);
    let mut heard = [Vec::new(), Vec::new()];
    let won = poll_fn(|cx| {
        let mut round = Round::new(ctx, recorded);
        round.poll(a.as_mut(), &mut first, &mut heard[0], cx);
        round.poll(b.as_mut(), &mut second, &mut heard[1], cx);
        let ready = [first.is_some(), second.is_some()];
        winner(recorded, &ready).map_or(Poll::Pending, Poll::Ready)
    })
    .await;
    record(ctx, at, recorded, won, failure_in(&heard[won])).await?;
    let lost = || fatal("the recorded winner of a race has no result");
    if won == 0 { first.map(Either::A).ok_or_else(lost) } else { second.map(Either::B).ok_or_else(lost) }
}

pub(super) async fn race_all<F>(ctx: &Ctx, name: &str, all: Vec<F>) -> Result<(usize, F::Output)>
where
    F: Future<Output: Send> + Send,
{
    let at = ctx.visit(name, None, false)?;
    if all.is_empty() {
        return Err(fatal(format_args!("the race {at} has no branches")));
    }
    let recorded = recorded_winner(ctx, &at, all.len()).await?;
    let mut all: Vec<_> = all.into_iter().map(|future| (Box::pin(future), None, Vec::new())).collect();
    let won = poll_fn(|cx| {
        let mut round = Round::new(ctx, recorded);
        for (future, output, heard) in &mut all {
            round.poll(future.as_mut(), output, heard, cx);
        }
        let ready: Vec<bool> = all.iter().map(|(_, output, _)| output.is_some()).collect();
        winner(recorded, &ready).map_or(Poll::Pending, Poll::Ready)
    })
    .await;
    record(ctx, at, recorded, won, failure_in(&all[won].2)).await?;
    let output = all.get_mut(won).and_then(|(_, output, _)| output.take());
    output.map(|output| (won, output)).ok_or_else(|| fatal("the recorded winner of a race has no result"))
}

/// One round of polling the branches of a race.
struct Round<'a> {
    ctx: &'a Ctx,
    recorded: Option<usize>,
    is_decided: bool,
    /// Position of the future that is polled next, in the order of the arguments.
    place: usize,
}

impl<'a> Round<'a> {
    fn new(ctx: &'a Ctx, recorded: Option<usize>) -> Self {
        Self { ctx, recorded, is_decided: recorded.is_some(), place: 0 }
    }

    fn poll<F: Future>(
        &mut self,
        future: Pin<&mut F>,
        output: &mut Option<F::Output>,
        heard: &mut Vec<Weak<Visit>>,
        cx: &mut std::task::Context<'_>,
    ) {
        let (recorded, is_decided) = (self.recorded, self.is_decided);
        let how = RaceRound { recorded, is_decided, is_replaying: self.ctx.is_replaying() };
        let how = how.poll(self.place, output.is_some());
        self.place += 1;
        if how == BranchPoll::Skip {
            return;
        }
        let _held = (how == BranchPoll::Held).then(|| self.ctx.cell.hold());
        let before = self.ctx.cell.heard();
        let polled = future.poll(cx);
        heard.retain(|failure| failure.strong_count() > 0);
        heard.extend(self.ctx.cell.heard_since(before));
        if let Poll::Ready(ready) = polled {
            *output = Some(ready);
            self.is_decided = true;
        }
    }
}

/// The first of the recorded failures that a winner was given and still holds: it has failed by it. What it has handled is
/// gone by now.
fn failure_in(heard: &[Weak<Visit>]) -> Option<Visit> {
    heard.iter().find_map(Weak::upgrade).map(|failure| (*failure).clone())
}

/// Position of the winner among the futures of a race, if it is recorded.
async fn recorded_winner(ctx: &Ctx, at: &Visit, runners: usize) -> Result<Option<usize>> {
    ctx.cell.asks(at, || Requested::Race(runners));
    let recorded: Option<usize> = ctx.value_at(at).map(|value| read(at, &value)).transpose()?;
    if let Some(winner) = recorded.filter(|_| !fits(recorded, runners)) {
        let why =
            format!("`{at}` was won by number {}, and has {runners} in the code", winner.saturating_add(1));
        ctx.cell.diverge(why);
        return std::future::pending().await;
    }
    Ok(recorded)
}

async fn record(
    ctx: &Ctx,
    at: Visit,
    recorded: Option<usize>,
    won: usize,
    failed: Option<Visit>,
) -> Result<()> {
    if recorded.is_none() && !sabotage::commits(Bug::RaceIsNotRecorded) {
        let value = Payload::of(&won).map_err(fatal)?;
        let recorded = Entry::Recorded { at: at.clone(), value, failed };
        ctx.cell.add(&at, || Ok((Addition::Entry(recorded), ()))).await?;
    }
    Ok(())
}
