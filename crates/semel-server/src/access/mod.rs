//! Who calls, and what they may do. The workspace comes from the credential, and from nothing else.
//!
//! Workspaces, API keys and the audit are records of the store, so that all servers on it know the same ones.

pub(crate) mod audit;
mod bounds;
mod bucket;
mod cache;
mod caller;
mod gate;
pub(crate) mod keys;
mod lives;
pub(crate) mod records;
mod share;
mod token;
pub(crate) mod workspaces;

use std::time::Duration;

use axum::http::HeaderMap;
use semel::clock::Time;
use semel::id::ApiKeyId;

pub use bounds::Bounds;
pub(crate) use bounds::Intake;
pub use caller::Caller;
pub(crate) use gate::Concerns;
pub use gate::gate;
pub use keys::Keys;
pub(crate) use lives::Life;
pub(crate) use share::Part;
pub(crate) use token::has_token;

use crate::app::App;
use crate::http::Problem;

/// How callers are known.
#[derive(Debug)]
pub enum Access {
    /// Everybody is the administrator of the default workspace: for one's own machine.
    Open,
    /// By API keys, and by the root token.
    Keys(Box<Keys>),
}

impl Access {
    /// Who makes a call with these headers.
    async fn caller(&self, app: &App, headers: &HeaderMap) -> Result<Caller, Problem> {
        match self {
            Self::Open => Ok(Caller::local()),
            Self::Keys(keys) => keys.caller(&*app.store, headers, app.clock.now()).await,
        }
    }

    /// Counts a call; or says after how long the next one may come.
    fn admit(&self, caller: &Caller, now: Time) -> Result<(), Duration> {
        match self {
            Self::Open => Ok(()),
            Self::Keys(keys) => keys.admit(caller, now),
        }
    }

    /// Counts more of what a call asks for, which has counted as one; gives how many of them may take place now.
    pub(crate) fn admit_more(&self, caller: &Caller, more: usize, now: Time) -> usize {
        match self {
            Self::Open => more,
            Self::Keys(keys) => keys.admit_more(caller, more, now),
        }
    }

    /// The validity of the caller's credential, for a stream that outlives its call.
    pub(crate) fn life(&self, app: &App, caller: &Caller) -> Life {
        match (self, caller.key()) {
            (Self::Keys(keys), Some(id)) => keys.life(app, id),
            _ => Life::endless(),
        }
    }

    /// A key has changed: what is remembered of it is not true any more.
    fn forget(&self, id: ApiKeyId) {
        if let Self::Keys(keys) = self {
            keys.forget(id);
        }
    }
}
