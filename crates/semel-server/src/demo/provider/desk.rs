//! How the provider answers: slowly, sometimes with an error, sometimes not at all.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use semel::clock::Clock;

use super::books::{Applied, Books, EffectKind, EffectRequest, Event, Note};
use crate::demo::dice::Dice;

/// How many of a hundred calls fail in which way, and how slow calls are. A key has at most two failures, so that retries
/// succeed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Temper {
    /// Seed of the random choices.
    pub(crate) seed: u64,
    /// The effect takes place, the connection is dropped.
    pub(crate) dropped: u64,
    /// The effect takes place, the answer is an error.
    pub(crate) failed_after: u64,
    /// The answer is an error, the effect does not take place.
    pub(crate) failed_before: u64,
    /// The call is on its way for longer than its caller waits.
    pub(crate) stuck: u64,
    /// The longest time that other calls take.
    pub(crate) slowest: Duration,
}

/// The highest number of failures of one key.
const MISHAPS: u64 = 2;
/// The shortest delay of a stuck call: longer than a step waits.
const STUCK: Duration = Duration::from_millis(1_200);

impl Temper {
    /// For `semel dev`: an answer is lost now and then, and no call takes long.
    pub(crate) fn mild() -> Self {
        let slowest = Duration::from_millis(20);
        Self { seed: 1, dropped: 20, failed_after: 10, failed_before: 10, stuck: 0, slowest }
    }

    /// For the demo: half of all first attempts fail.
    pub(crate) fn bad(seed: u64) -> Self {
        let slowest = Duration::from_millis(60);
        Self { seed, dropped: 18, failed_after: 12, failed_before: 12, stuck: 8, slowest }
    }

    /// What happens to this call, and how long it takes. Drawn by order, because effect keys differ from demo to demo.
    fn fate(&self, kind: EffectKind, order: &str, nth: u64) -> (Option<Event>, Duration) {
        let mut dice = Dice::new(self.seed, &format!("{} {order} {nth}", kind.name()));
        let share = Duration::from_millis(dice.below(self.slowest.as_millis() as u64 + 1));
        let mut left = dice.below(100);
        let mut falls = |share: u64| match left.checked_sub(share) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        };
        let mishap = match nth {
            nth if nth > MISHAPS => None,
            _ if falls(self.dropped) => Some(Event::Dropped),
            _ if falls(self.failed_after) => Some(Event::FailedAfter),
            _ if falls(self.failed_before) => Some(Event::FailedBefore),
            _ if falls(self.stuck) => Some(Event::Stuck),
            _ => None,
        };
        let time = if mishap == Some(Event::Stuck) { STUCK + share } else { share };
        (mishap, time)
    }
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProviderAnswer {
    /// It took place, and has this number.
    Done(u64),
    /// It came too late.
    Stale,
    /// An error, whether or not the effect took place.
    Error,
    /// Nothing: the connection is dropped.
    Silence,
}

/// The provider.
pub(crate) struct Desk {
    books: Books,
    temper: Temper,
    clock: Arc<dyn Clock>,
    tell: fn(&Note),
}

impl Desk {
    /// A provider with these books. Events go to `tell`.
    pub(crate) fn new(books: Books, temper: Temper, clock: Arc<dyn Clock>, tell: fn(&Note)) -> Self {
        Self { books, temper, clock, tell }
    }

    fn note(&self, event: Event, ask: &EffectRequest) -> io::Result<u64> {
        let note = Note { event, ask: ask.clone() };
        let nth = self.books.note(&note)?;
        (self.tell)(&note);
        Ok(nth)
    }

    /// Handles an attempt at an effect.
    pub(crate) async fn effect(&self, ask: &EffectRequest) -> io::Result<ProviderAnswer> {
        let nth = self.note(Event::Asked, ask)?;
        let (mishap, time) = self.temper.fate(ask.kind, &ask.order, nth);
        if mishap == Some(Event::Stuck) {
            self.note(Event::Stuck, ask)?;
        }
        self.clock.until(self.clock.now().after(time)).await;
        let answer = self.answer(ask, mishap);
        self.note(Event::Over, ask)?;
        answer
    }

    fn answer(&self, ask: &EffectRequest, mishap: Option<Event>) -> io::Result<ProviderAnswer> {
        if mishap == Some(Event::FailedBefore) {
            self.note(Event::FailedBefore, ask)?;
            return Ok(ProviderAnswer::Error);
        }
        let (applied, note) = self.books.apply(ask)?;
        (self.tell)(&note);
        let Applied::Once(number) = applied else { return Ok(ProviderAnswer::Stale) };
        match mishap {
            Some(lost @ (Event::Dropped | Event::FailedAfter)) => {
                self.note(lost, ask)?;
                Ok(if lost == Event::Dropped { ProviderAnswer::Silence } else { ProviderAnswer::Error })
            }
            _ => Ok(ProviderAnswer::Done(number)),
        }
    }

    /// Handles a look-up.
    pub(crate) fn find(&self, ask: &EffectRequest) -> io::Result<Option<u64>> {
        let (found, note) = self.books.find(ask)?;
        (self.tell)(&note);
        Ok(found)
    }
}

/// Logs what happens, for a provider in the process of the engine.
pub(crate) fn log(Note { event, ask }: &Note) {
    let EffectRequest { kind, order, attempt, .. } = ask;
    let kind = kind.name();
    match event {
        Event::Applied(number) => tracing::info!(order, attempt, number, "provider: {kind} done"),
        Event::Repeated(number) => {
            tracing::info!(order, attempt, number, "provider: {kind} was done under this key, same answer");
        }
        Event::Dropped | Event::FailedAfter => {
            tracing::warn!(order, attempt, "provider: {kind} done, and the answer is lost on purpose");
        }
        Event::FailedBefore => tracing::warn!(order, attempt, "provider: {kind} refused, on purpose"),
        Event::LookedUp(found) => {
            tracing::info!(order, attempt, found = found.is_some(), "provider: {kind} looked up");
        }
        Event::Stale => tracing::info!(order, attempt, "provider: {kind} came too late, refused"),
        Event::Stuck => tracing::warn!(order, attempt, "provider: {kind} is stuck on its way, on purpose"),
        Event::Asked | Event::Over => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel::clock::SystemClock;

    fn desk(temper: Temper) -> Desk {
        Desk::new(Books::default(), temper, Arc::new(SystemClock::new()), |_| {})
    }

    fn ask(attempt: u32) -> EffectRequest {
        let (order, key) = ("7".to_owned(), "k".to_owned());
        EffectRequest { kind: EffectKind::Charge, order, cents: 100, key, fence: 2, attempt }
    }

    const CALM: Temper = Temper {
        seed: 1,
        dropped: 0,
        failed_after: 0,
        failed_before: 0,
        stuck: 0,
        slowest: Duration::from_millis(1),
    };

    #[tokio::test]
    async fn on_a_good_day_it_answers() {
        let desk = desk(CALM);
        assert_eq!(desk.effect(&ask(1)).await.unwrap(), ProviderAnswer::Done(1));
        assert_eq!(
            desk.effect(&ask(2)).await.unwrap(),
            ProviderAnswer::Done(1),
            "the same key, the same charge"
        );
    }

    #[tokio::test]
    async fn a_lost_answer_is_of_something_that_took_place() {
        for (temper, answer) in [
            (Temper { dropped: 100, ..CALM }, ProviderAnswer::Silence),
            (Temper { failed_after: 100, ..CALM }, ProviderAnswer::Error),
        ] {
            let desk = desk(temper);
            assert_eq!(desk.effect(&ask(1)).await.unwrap(), answer);
            assert_eq!(desk.find(&ask(1)).unwrap(), Some(1));
        }
    }

    #[tokio::test]
    async fn an_error_before_changes_nothing() {
        let desk = desk(Temper { failed_before: 100, ..CALM });
        assert_eq!(desk.effect(&ask(1)).await.unwrap(), ProviderAnswer::Error);
        assert_eq!(desk.find(&ask(1)).unwrap(), None);
    }

    #[tokio::test]
    async fn patience_is_rewarded_at_the_third_try() {
        let desk = desk(Temper { dropped: 100, ..CALM });
        let mut answers = Vec::new();
        for attempt in 1..=3 {
            answers.push(desk.effect(&ask(attempt)).await.unwrap());
        }
        assert_eq!(answers, [ProviderAnswer::Silence, ProviderAnswer::Silence, ProviderAnswer::Done(1)]);
    }

    #[test]
    fn a_stuck_try_takes_longer_than_a_step_waits_and_chance_is_fair() {
        let temper = Temper { stuck: 100, ..CALM };
        let (fate, time) = temper.fate(EffectKind::Charge, "7", 1);
        assert_eq!(fate, Some(Event::Stuck));
        assert!(time >= STUCK);
        let mishaps = (0..1000)
            .filter(|i| Temper::bad(1).fate(EffectKind::Charge, &format!("order-{i}"), 1).0.is_some())
            .count();
        assert!((400..600).contains(&mishaps), "{mishaps} of 1000, a half was meant");
    }
}
