//! Waiting for a database, but not for ever: a connection may die without a word.

use std::fmt;
use std::time::Duration;

use crate::clock::Clock;
use crate::rules::entry::FailureKind;
use crate::sdk::fail::Fail;

/// Whoever says nothing for this long says nothing any more. Locks of others are waited for as well: in PostgreSQL a
/// transaction that is about to commit and is left alone ends before that.
const PATIENCE: Duration = Duration::from_secs(30);

/// There was no answer.
#[derive(Debug)]
pub(super) struct Silent;

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the database, or the pool of its connections, has not answered for {PATIENCE:?}")
    }
}

impl From<Silent> for Fail {
    fn from(silent: Silent) -> Self {
        Self::new(FailureKind::Timeout, silent)
    }
}

/// What a call to a database came to.
pub(super) async fn answered<T>(clock: &dyn Clock, call: impl Future<Output = T>) -> Result<T, Silent> {
    tokio::select! {
        biased;
        answer = call => Ok(answer),
        () = clock.until(clock.now().after(PATIENCE)) => Err(Silent),
    }
}
