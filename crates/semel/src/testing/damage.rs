//! Random damage to valid texts: what a broken client, a cut connection or an attacker sends.

use std::cell::Cell;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

/// Texts that parsers often get wrong.
const TRICKY: &[&str] = &[
    "\u{0}",
    "\\u0000",
    "\\ud800",
    "\\udc00\\ud800",
    "\u{feff}",
    "\u{202e}",
    "\u{e9}",
    "e\u{301}",
    "\u{1f600}",
    "\"",
    "\\",
    "{",
    "}",
    "[",
    "]",
    "[[[[[[[[",
    ":",
    ",",
    "=",
    "#",
    "/",
    "//",
    "../",
    "%",
    "%00",
    "%2F",
    "%zz",
    "'",
    "`",
    "\n",
    "\r\n",
    "\t",
    " ",
    "null",
    "true",
    "NaN",
    "-0",
    "-",
    "1e400",
    "1E-400",
    "9007199254740993",
    "18446744073709551616",
    "-9223372036854775809",
    "0.1",
    "1.0",
    "00",
    "+1",
    "{\"a\":1,\"a\":2}",
    "${HOME}",
    "{{x}}",
    "\u{7f}",
    "\u{2028}",
];

/// One thing that happens to a text.
#[derive(Clone, Debug)]
enum Blow {
    Delete(Index, usize),
    Repeat(Index, usize),
    Insert(Index, Index),
    Flip(Index, u8),
    /// A part of another valid text comes here.
    Graft(Index, Index, Index, usize),
}

fn blow() -> impl Strategy<Value = Blow> {
    let at = any::<Index>;
    prop_oneof![
        1 => (at(), 1..12usize).prop_map(|(at, length)| Blow::Delete(at, length)),
        1 => (at(), 1..40usize).prop_map(|(at, length)| Blow::Repeat(at, length)),
        4 => (at(), at()).prop_map(|(at, what)| Blow::Insert(at, what)),
        1 => (at(), 1..=255u8).prop_map(|(at, bits)| Blow::Flip(at, bits)),
        1 => (at(), at(), at(), 1..60usize).prop_map(|(at, other, from, length)| Blow::Graft(at, other, from, length)),
    ]
}

impl Blow {
    fn strike(&self, bytes: &mut Vec<u8>, corpus: &[String]) {
        let place = |at: &Index, bytes: &[u8]| at.index(bytes.len() + 1);
        let part =
            |from: usize, length: usize, bytes: &[u8]| bytes[from..bytes.len().min(from + length)].to_vec();
        match self {
            Self::Delete(at, length) => {
                let from = place(at, bytes);
                bytes.drain(from..bytes.len().min(from + length));
            }
            Self::Repeat(at, length) => {
                let from = place(at, bytes);
                let again = part(from, *length, bytes);
                bytes.splice(from..from, again);
            }
            Self::Insert(at, what) => {
                let from = place(at, bytes);
                bytes.splice(from..from, what.get(TRICKY).bytes());
            }
            Self::Flip(at, bits) => {
                let from = place(at, bytes);
                if let Some(byte) = bytes.get_mut(from) {
                    *byte ^= bits;
                }
            }
            Self::Graft(at, other, from, length) => {
                let (other, here) = (other.get(corpus).as_bytes(), place(at, bytes));
                let grafted = part(from.index(other.len() + 1), *length, other);
                bytes.splice(here..here, grafted);
            }
        }
    }
}

/// One of these texts, as it is or with up to six changes.
pub fn damaged(corpus: Vec<String>) -> impl Strategy<Value = Vec<u8>> {
    assert!(!corpus.is_empty(), "there is something to damage");
    (any::<Index>(), vec(blow(), 0..=6)).prop_map(move |(which, blows)| {
        let mut bytes = which.get(&corpus).as_bytes().to_vec();
        for blow in blows {
            blow.strike(&mut bytes, &corpus);
        }
        bytes
    })
}

/// The same as text: what is no UTF-8 is replaced.
pub fn damaged_text(corpus: Vec<String>) -> impl Strategy<Value = String> {
    damaged(corpus).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// How a reader took a damaged text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The reader accepted it, and its result was checked.
    Taken,
    /// The reader refused it.
    Refused,
}

/// Plays many cases, as many as `PROPTEST_CASES` says (256 if it does not), and gives the smallest that fails. It also fails if
/// none was taken, or none refused: then the damage is too great or too small to tell anything.
pub fn play<S: Strategy>(
    cases: &S,
    test: impl Fn(S::Value) -> Result<Read, TestCaseError>,
) -> Result<(), String> {
    let config = Config { failure_persistence: None, ..Config::default() };
    let (taken, refused) = (Cell::new(0u64), Cell::new(0u64));
    let counted = |case| {
        let count = if test(case)? == Read::Taken { &taken } else { &refused };
        count.set(count.get() + 1);
        Ok(())
    };
    match TestRunner::new(config).run(cases, counted) {
        Ok(()) if taken.get() == 0 || refused.get() == 0 => {
            Err(format!("{} were taken and {} refused", taken.get(), refused.get()))
        }
        Ok(()) => Ok(()),
        Err(TestError::Fail(reason, case)) => Err(format!("{reason}\nwith {case:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// A case fails, and why.
pub fn wrong(why: impl std::fmt::Display) -> TestCaseError {
    TestCaseError::fail(why.to_string())
}
