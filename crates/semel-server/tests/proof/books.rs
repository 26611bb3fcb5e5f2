//! What the recorder knows: every call, its result, and which attempts are refused from now on.

use std::collections::HashMap;

use semel::clock::Time;
use serde::{Deserialize, Serialize};

use crate::outside::Ask;
use crate::program::Kind;
use crate::rows::Row;

/// How a call is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mode {
    Ok,
    Slow,
    ApplyThenDrop,
    ApplyThenError,
    ErrorBefore,
    /// Takes longer than the caller will wait, and applies at the end.
    Hang,
}

/// One call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    #[serde(flatten)]
    pub(crate) ask: Ask,
    pub(crate) mode: Mode,
    /// When it came.
    pub(crate) came: Time,
    /// The number it was answered with, if it got so far.
    pub(crate) number: Option<u64>,
    /// Whether it changed something.
    pub(crate) applied: bool,
    /// Whether it came from a superseded attempt.
    pub(crate) refused: bool,
}

/// All that the recorder knows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Books {
    pub(crate) calls: Vec<Call>,
    /// The rows of transactional steps, read when they are asked for.
    pub(crate) rows: Vec<Row>,
    pub(crate) looks: u64,
    #[serde(skip)]
    applied: HashMap<String, u64>,
    /// Keys of effects that a look-up has reported as absent, and the last attempt that must not apply them any more.
    #[serde(skip)]
    closed: HashMap<String, (u64, u32)>,
    #[serde(skip)]
    last: u64,
    #[serde(skip)]
    rates: u64,
}

impl Books {
    /// Notes that a call has come; gives its place.
    pub(crate) fn come(&mut self, ask: Ask, mode: Mode, came: Time) -> usize {
        self.calls.push(Call { ask, mode, came, number: None, applied: false, refused: false });
        self.calls.len() - 1
    }

    /// Applies a call and gives its number; none if a look-up has reported that it would not happen.
    pub(crate) fn apply(&mut self, call: usize) -> Option<u64> {
        let call = &mut self.calls[call];
        let (key, this) = (call.ask.key.clone(), (call.ask.fence, call.ask.attempt));
        if self.closed.get(&key).is_some_and(|last| this <= *last) {
            call.refused = true;
            return None;
        }
        let known = self.applied.get(&key).copied().filter(|_| call.ask.kind == Kind::Keyed);
        let number = known.unwrap_or_else(|| {
            self.last += 1;
            call.applied = true;
            self.last
        });
        call.number = Some(number);
        // Later calls get the answer of the first.
        self.applied.entry(key).or_insert(number);
        Some(number)
    }

    /// Whether an effect has taken place. If it has not, no try up to this one may do it from now on.
    pub(crate) fn look(&mut self, ask: &Ask) -> Option<u64> {
        self.looks += 1;
        let found = self.applied.get(&ask.key).copied();
        if found.is_none() {
            let last = self.closed.entry(ask.key.clone()).or_default();
            *last = (*last).max((ask.fence, ask.attempt));
        }
        found
    }

    pub(crate) fn rate(&mut self) -> u64 {
        self.rates += 1;
        self.rates
    }
}
