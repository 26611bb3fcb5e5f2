//! How much an evaluation has read and made so far.

use std::cell::Cell;

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

use crate::definitions::limits;

/// What an element counts, whatever it is: it is touched at least.
const ELEMENT: usize = 16;
/// What the call of a filter counts.
const CALL: usize = 64;

thread_local! {
    /// Work that is left for the evaluation on this thread. An evaluation never changes its thread.
    static LEFT: Cell<usize> = const { Cell::new(0) };
}

/// Begins an evaluation.
pub(super) fn begin() {
    LEFT.set(limits::WORK);
}

/// Takes work from the budget.
pub(super) fn charge(work: usize) -> Result<(), Error> {
    let left = LEFT.get().checked_sub(work);
    LEFT.set(left.unwrap_or(0));
    left.map(drop).ok_or_else(|| {
        Error::new(
            ErrorKind::OutOfFuel,
            "the expression reads or makes too much; at most 32 MiB are accepted",
        )
    })
}

/// Charges a value with everything in it.
pub(super) fn charge_all(value: &Value) -> Result<(), Error> {
    if let Some(text) = value.as_str() {
        return charge(ELEMENT + text.len());
    }
    charge(ELEMENT)?;
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            for item in value.try_iter()?.checked() {
                charge_all(&item?)?;
            }
        }
        ValueKind::Map => {
            for key in value.try_iter()?.checked() {
                let key = key?;
                charge_all(&value.get_item(&key)?)?;
                charge_all(&key)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Charges a call that looks at a value and its elements, but not into them.
pub(super) fn charge_call(value: &Value) -> Result<(), Error> {
    let elements = match value.as_str() {
        Some(text) => text.len(),
        None => value.len().unwrap_or(1).saturating_mul(ELEMENT),
    };
    charge(CALL.saturating_add(elements))
}
