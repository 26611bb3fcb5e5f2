//! Waiting for a database, but not for ever: a connection may die without a word.

use std::fmt;
use std::time::Duration;

use crate::clock::Clock;
use crate::fail::Fail;
use crate::rules::entry::FailureKind;

/// A database that is silent for this long is given up. This covers waiting for locks: in PostgreSQL, a transaction that
/// is about to commit and is abandoned ends before that.
const PATIENCE: Duration = Duration::from_secs(30);

/// There was no answer.
#[derive(Debug)]
pub(super) struct NoAnswer;

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the database, or the pool of its connections, has not answered for {PATIENCE:?}")
    }
}

impl From<NoAnswer> for Fail {
    fn from(silent: NoAnswer) -> Self {
        Self::new(FailureKind::Timeout, silent)
    }
}

/// The result of a call to a database.
pub(super) async fn answered<T>(clock: &dyn Clock, call: impl Future<Output = T>) -> Result<T, NoAnswer> {
    tokio::select! {
        biased;
        answer = call => Ok(answer),
        () = clock.until(clock.now().after(PATIENCE)) => Err(NoAnswer),
    }
}
