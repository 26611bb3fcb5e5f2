//! Calls to the provider and its effects: in memory, and line by line in a file that only the provider writes.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// What a provider does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EffectKind {
    /// Takes money, once per key.
    Charge,
    /// Prints a letter, as often as it is asked to.
    Letter,
    /// Issues a receipt, once per key.
    Receipt,
}

impl EffectKind {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Charge => "charge",
            Self::Letter => "letter",
            Self::Receipt => "receipt",
        }
    }
}

/// One attempt at an effect, as the provider receives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EffectRequest {
    pub(crate) kind: EffectKind,
    pub(crate) order: String,
    pub(crate) cents: u64,
    /// The effect key.
    pub(crate) key: String,
    /// Fence of the claim and number of the attempt: later attempts have higher ones.
    pub(crate) fence: u64,
    pub(crate) attempt: u32,
}

/// What happened at the provider: a line of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Event {
    /// A call has arrived.
    Asked,
    /// It took place, and has this number.
    Applied(u64),
    /// It had taken place before.
    Repeated(u64),
    /// It came too late: a later attempt or a look-up has arrived before it.
    Stale,
    /// A look-up of its outcome.
    LookedUp(Option<u64>),
    /// It took place, and the connection is dropped instead of an answer.
    Dropped,
    /// It took place, and the answer is an error.
    FailedAfter,
    /// It did not take place, and the answer is an error.
    FailedBefore,
    /// It is stuck on its way, and comes late.
    Stuck,
    /// The caller was answered, or its connection was dropped.
    Over,
}

/// An event and what it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) event: Event,
    #[serde(flatten)]
    pub(crate) ask: EffectRequest,
}

/// What the provider knows. Without a file it is gone with the process.
#[derive(Default)]
pub(crate) struct Books(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    file: Option<File>,
    /// What took place, by key: its numbers.
    applied: HashMap<String, Vec<u64>>,
    /// The highest fence that was seen, by key.
    fences: HashMap<String, u64>,
    /// Attempts up to this one are refused, by key.
    closed: HashMap<String, (u64, u32)>,
    /// How many attempts have arrived, by key.
    tries: HashMap<String, u64>,
    last: u64,
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// It took place, now or before, and has this number.
    Once(u64),
    /// It came too late.
    Stale,
}

impl Books {
    /// Opens the file, and goes on from what is in it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut inner = Inner::default();
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        // A line that the power cut off half-way was never answered.
        file.set_len(whole_lines(path)?)?;
        for note in notes(path)? {
            inner.heed(&note);
        }
        inner.file = Some(file);
        Ok(Self(Mutex::new(inner)))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes an event to the file; gives the attempt's number among those under its key, from 1.
    pub(crate) fn note(&self, note: &Note) -> io::Result<u64> {
        let mut inner = self.lock();
        inner.write(note)?;
        Ok(inner.tries.get(&note.ask.key).copied().unwrap_or(0))
    }

    /// Applies an effect, unless it has taken place or the attempt is too late.
    pub(crate) fn apply(&self, ask: &EffectRequest) -> io::Result<(Applied, Note)> {
        let mut inner = self.lock();
        let event = inner.judge(ask);
        let note = Note { event, ask: ask.clone() };
        inner.write(&note)?;
        let applied = match event {
            Event::Applied(number) | Event::Repeated(number) => Applied::Once(number),
            _ => Applied::Stale,
        };
        Ok((applied, note))
    }

    /// Looks an effect up. From here on, this attempt and those before it are refused, so that the
    /// answer stays true.
    pub(crate) fn find(&self, ask: &EffectRequest) -> io::Result<(Option<u64>, Note)> {
        let mut inner = self.lock();
        let found = inner.applied.get(&ask.key).and_then(|numbers| numbers.first().copied());
        let note = Note { event: Event::LookedUp(found), ask: ask.clone() };
        inner.write(&note)?;
        Ok((found, note))
    }
}

impl Inner {
    fn judge(&self, ask: &EffectRequest) -> Event {
        let outrun = self.fences.get(&ask.key).is_some_and(|seen| ask.fence < *seen);
        let shut = self.closed.get(&ask.key).is_some_and(|closed| (ask.fence, ask.attempt) <= *closed);
        let done = self.applied.get(&ask.key).and_then(|numbers| numbers.first());
        match done {
            _ if outrun || shut => Event::Stale,
            // A repeated letter is printed again: callers of this provider must look up first.
            Some(number) if ask.kind != EffectKind::Letter => Event::Repeated(*number),
            _ => Event::Applied(self.last + 1),
        }
    }

    fn write(&mut self, note: &Note) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            let mut line = serde_json::to_vec(note)?;
            line.push(b'\n');
            file.write_all(&line)?;
        }
        self.heed(note);
        Ok(())
    }

    /// Applies a line to the memory, when it is written and when it is read.
    fn heed(&mut self, Note { event, ask }: &Note) {
        let key = || ask.key.clone();
        match event {
            Event::Asked => *self.tries.entry(key()).or_default() += 1,
            Event::Applied(number) => {
                self.applied.entry(key()).or_default().push(*number);
                self.last = self.last.max(*number);
            }
            Event::LookedUp(_) => {
                let closed = self.closed.entry(key()).or_default();
                *closed = (*closed).max((ask.fence, ask.attempt));
            }
            _ => {}
        }
        if !matches!(event, Event::Asked) {
            let seen = self.fences.entry(key()).or_default();
            *seen = (*seen).max(ask.fence);
        }
    }
}

/// Length of the file up to the end of its last complete line.
fn whole_lines(path: &Path) -> io::Result<u64> {
    let mut reader = BufReader::new(File::open(path)?);
    let (mut whole, mut line) = (0, Vec::new());
    while reader.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
        whole += line.len() as u64;
        line.clear();
    }
    Ok(whole)
}

/// The lines of a provider's file.
pub(crate) fn notes(path: &Path) -> io::Result<Vec<Note>> {
    let lines = BufReader::new(File::open(path)?).lines();
    lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(kind: EffectKind, fence: u64, attempt: u32) -> EffectRequest {
        let (order, key) = ("7".to_owned(), format!("key of {}", kind.name()));
        EffectRequest { kind, order, cents: 100, key, fence, attempt }
    }

    fn apply(books: &Books, kind: EffectKind, fence: u64, attempt: u32) -> Event {
        books.apply(&ask(kind, fence, attempt)).expect("the file can be written").1.event
    }

    #[test]
    fn a_key_is_charged_once() {
        let books = Books::default();
        assert_eq!(apply(&books, EffectKind::Charge, 2, 1), Event::Applied(1));
        assert_eq!(apply(&books, EffectKind::Charge, 2, 2), Event::Repeated(1));
        assert_eq!(apply(&books, EffectKind::Receipt, 0, 1), Event::Applied(2));
    }

    #[test]
    fn a_call_of_a_dead_engine_that_comes_after_its_successor_is_stale() {
        let books = Books::default();
        assert_eq!(apply(&books, EffectKind::Charge, 5, 1), Event::Applied(1));
        assert_eq!(apply(&books, EffectKind::Charge, 2, 1), Event::Stale);
    }

    #[test]
    fn letters_are_printed_as_often_as_asked_for() {
        let books = Books::default();
        assert_eq!(apply(&books, EffectKind::Letter, 2, 1), Event::Applied(1));
        assert_eq!(apply(&books, EffectKind::Letter, 2, 2), Event::Applied(2), "not looked up before");
    }

    #[test]
    fn a_look_up_shuts_out_what_it_has_answered_for() {
        let books = Books::default();
        let found = books.find(&ask(EffectKind::Letter, 2, 1)).expect("the file can be written").0;
        assert_eq!(found, None);
        assert_eq!(apply(&books, EffectKind::Letter, 2, 1), Event::Stale, "it was on its way meanwhile");
        assert_eq!(apply(&books, EffectKind::Letter, 2, 2), Event::Applied(1));
        let found = books.find(&ask(EffectKind::Letter, 2, 2)).expect("the file can be written").0;
        assert_eq!(found, Some(1));
    }

    #[test]
    fn the_file_brings_everything_back_but_half_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("provider.jsonl");
        let books = Books::open(&path).unwrap();
        apply(&books, EffectKind::Charge, 5, 1);
        drop(books);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"event\":\"app").unwrap();
        let books = Books::open(&path).unwrap();
        assert_eq!(apply(&books, EffectKind::Charge, 5, 1), Event::Repeated(1));
        assert_eq!(apply(&books, EffectKind::Charge, 4, 1), Event::Stale);
        assert_eq!(notes(&path).unwrap().len(), 3);
    }
}
