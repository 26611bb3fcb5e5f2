//! How the provider treats whoever asks: slowly, sometimes with an error, sometimes with silence.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use semel::clock::Clock;

use super::books::{Applied, Ask, Books, Event, Kind, Note};
use crate::demo::dice::Dice;

/// How often what goes wrong, of a hundred tries, and how slow it all is. A key meets at most two mishaps, so that
/// patience is rewarded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Temper {
    /// Where chance begins.
    pub(crate) seed: u64,
    /// The effect takes place, the connection is dropped.
    pub(crate) dropped: u64,
    /// The effect takes place, the answer is an error.
    pub(crate) failed_after: u64,
    /// The answer is an error, the effect does not take place.
    pub(crate) failed_before: u64,
    /// The try is on its way for longer than anybody waits.
    pub(crate) stuck: u64,
    /// The longest that a try takes otherwise.
    pub(crate) slowest: Duration,
}

/// A key meets at most so many mishaps.
const MISHAPS: u64 = 2;
/// How long a stuck try is on its way, at least: longer than a step waits.
const STUCK: Duration = Duration::from_millis(1_200);

impl Temper {
    /// For one's first steps: an answer is lost now and then, and nothing takes long.
    pub(crate) fn mild() -> Self {
        let slowest = Duration::from_millis(20);
        Self { seed: 1, dropped: 20, failed_after: 10, failed_before: 10, stuck: 0, slowest }
    }

    /// For the show: half of all first tries go wrong.
    pub(crate) fn bad(seed: u64) -> Self {
        let slowest = Duration::from_millis(60);
        Self { seed, dropped: 18, failed_after: 12, failed_before: 12, stuck: 8, slowest }
    }

    /// What happens to this try at an effect, and how long it takes. Keys are others in each show, orders are not.
    fn fate(&self, kind: Kind, order: &str, nth: u64) -> (Option<Event>, Duration) {
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

/// What whoever asked is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It took place, and has this number.
    Done(u64),
    /// It came too late.
    Stale,
    /// An error, whatever took place.
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
    /// A provider with these books. What happens is told to somebody.
    pub(crate) fn new(books: Books, temper: Temper, clock: Arc<dyn Clock>, tell: fn(&Note)) -> Self {
        Self { books, temper, clock, tell }
    }

    fn note(&self, event: Event, ask: &Ask) -> io::Result<u64> {
        let note = Note { event, ask: ask.clone() };
        let nth = self.books.note(&note)?;
        (self.tell)(&note);
        Ok(nth)
    }

    /// A try at an effect.
    pub(crate) async fn effect(&self, ask: &Ask) -> io::Result<Answer> {
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

    fn answer(&self, ask: &Ask, mishap: Option<Event>) -> io::Result<Answer> {
        if mishap == Some(Event::FailedBefore) {
            self.note(Event::FailedBefore, ask)?;
            return Ok(Answer::Error);
        }
        let (applied, note) = self.books.apply(ask)?;
        (self.tell)(&note);
        let Applied::Once(number) = applied else { return Ok(Answer::Stale) };
        match mishap {
            Some(lost @ (Event::Dropped | Event::FailedAfter)) => {
                self.note(lost, ask)?;
                Ok(if lost == Event::Dropped { Answer::Silence } else { Answer::Error })
            }
            _ => Ok(Answer::Done(number)),
        }
    }

    /// What became of a try.
    pub(crate) fn find(&self, ask: &Ask) -> io::Result<Option<u64>> {
        let (found, note) = self.books.find(ask)?;
        (self.tell)(&note);
        Ok(found)
    }
}

/// Tells of what happens in the log, for a provider in the process of the engine.
pub(crate) fn log(Note { event, ask }: &Note) {
    let Ask { kind, order, attempt, .. } = ask;
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

    fn ask(attempt: u32) -> Ask {
        let (order, key) = ("7".to_owned(), "k".to_owned());
        Ask { kind: Kind::Charge, order, cents: 100, key, fence: 2, attempt }
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
        assert_eq!(desk.effect(&ask(1)).await.unwrap(), Answer::Done(1));
        assert_eq!(desk.effect(&ask(2)).await.unwrap(), Answer::Done(1), "the same key, the same charge");
    }

    #[tokio::test]
    async fn a_lost_answer_is_of_something_that_took_place() {
        for (temper, answer) in [
            (Temper { dropped: 100, ..CALM }, Answer::Silence),
            (Temper { failed_after: 100, ..CALM }, Answer::Error),
        ] {
            let desk = desk(temper);
            assert_eq!(desk.effect(&ask(1)).await.unwrap(), answer);
            assert_eq!(desk.find(&ask(1)).unwrap(), Some(1));
        }
    }

    #[tokio::test]
    async fn an_error_before_changes_nothing() {
        let desk = desk(Temper { failed_before: 100, ..CALM });
        assert_eq!(desk.effect(&ask(1)).await.unwrap(), Answer::Error);
        assert_eq!(desk.find(&ask(1)).unwrap(), None);
    }

    #[tokio::test]
    async fn patience_is_rewarded_at_the_third_try() {
        let desk = desk(Temper { dropped: 100, ..CALM });
        let mut answers = Vec::new();
        for attempt in 1..=3 {
            answers.push(desk.effect(&ask(attempt)).await.unwrap());
        }
        assert_eq!(answers, [Answer::Silence, Answer::Silence, Answer::Done(1)]);
    }

    #[test]
    fn a_stuck_try_takes_longer_than_a_step_waits_and_chance_is_fair() {
        let temper = Temper { stuck: 100, ..CALM };
        let (fate, time) = temper.fate(Kind::Charge, "7", 1);
        assert_eq!(fate, Some(Event::Stuck));
        assert!(time >= STUCK);
        let mishaps = (0..1000)
            .filter(|i| Temper::bad(1).fate(Kind::Charge, &format!("order-{i}"), 1).0.is_some())
            .count();
        assert!((400..600).contains(&mishaps), "{mishaps} of 1000, a half was meant");
    }
}
