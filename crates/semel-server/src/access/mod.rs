//! Authentication and permissions of callers. The workspace comes from the credential only.
//!
//! Workspaces, API keys and the audit are records of the store, so that all servers on it know the same ones.

pub(crate) mod audit;
mod bounds;
mod bucket;
pub(crate) mod cache;
mod caller;
mod children;
mod gate;
pub(crate) mod keys;
mod lives;
mod open_runs;
pub(crate) mod records;
pub(crate) mod sessions;
mod share;
pub(crate) mod site;
pub(crate) mod token;
pub(crate) mod workspaces;

use std::time::Duration;

use axum::http::HeaderMap;
use semel::clock::Time;
use semel::id::{ApiKeyId, WorkspaceId};

pub use bounds::Bounds;
pub(crate) use bounds::Intake;
pub use caller::Caller;
pub use children::{ChildBounds, StartsChildren};
pub(crate) use gate::admit;
pub use gate::gate;
pub(crate) use gate::{ActsOn, Concerns};
pub use keys::Keys;
pub(crate) use lives::Life;
pub(crate) use open_runs::NotAdmitted;
pub(crate) use share::Part;
pub(crate) use token::{fill, has_token, hex, unhex};

use crate::app::App;
use crate::http::Problem;

/// How callers are authenticated.
#[derive(Debug)]
pub enum Access {
    /// Every caller is the administrator of the default workspace: for local development.
    Open,
    /// By API keys, and by the root token.
    Keys(Box<Keys>),
}

impl Access {
    /// The caller of a request with these headers.
    async fn caller(&self, app: &App, headers: &HeaderMap) -> Result<Caller, Problem> {
        match self {
            Self::Open => Ok(Caller::local()),
            Self::Keys(keys) => keys.caller(&*app.store, headers, app.clock.now()).await,
        }
    }

    /// The caller of a server without authentication; none if callers need a credential.
    pub(crate) fn anyone(&self) -> Option<Caller> {
        matches!(self, Self::Open).then(Caller::local)
    }

    /// Counts a call; refused with the time to wait if the workspace has made too many.
    fn admit(&self, caller: &Caller, now: Time) -> Result<(), Duration> {
        match self {
            Self::Open => Ok(()),
            Self::Keys(keys) => keys.admit(caller, now),
        }
    }

    /// Counts the further items of a call, which has counted as one; gives how many of them may take place now.
    pub(crate) fn admit_more(&self, caller: &Caller, more: usize, now: Time) -> usize {
        match self {
            Self::Open => more,
            Self::Keys(keys) => keys.admit_more(caller, more, now),
        }
    }

    /// Counts a call through an address or a link to its workspace, whose name is given if it is known.
    pub(crate) async fn admit_public(
        &self,
        app: &App,
        (workspace, name): (WorkspaceId, Option<&str>),
    ) -> Result<(), Problem> {
        let Self::Keys(keys) = self else { return Ok(()) };
        let rate = match name {
            Some(name) => Keys::rate_of(&*app.store, name).await?,
            None => None,
        };
        keys.admit_public(workspace, rate, app.clock.now())
    }

    /// Counts a call with an address or a link that is not valid.
    pub(crate) fn admit_unknown(&self, now: Time) -> Result<(), Problem> {
        match self {
            Self::Open => Ok(()),
            Self::Keys(keys) => keys.admit_unknown(now),
        }
    }

    /// The validity of the caller's credential, for a stream that outlives its call.
    pub(crate) fn life(&self, app: &App, caller: &Caller) -> Life {
        match (self, caller.key()) {
            (Self::Keys(keys), Some(id)) => keys.life(app, id),
            _ => Life::endless(),
        }
    }

    /// Forgets what is cached of a key that has changed.
    fn forget(&self, id: ApiKeyId) {
        if let Self::Keys(keys) = self {
            keys.forget(id);
        }
    }
}
