//! Who calls, and what they may do. The workspace comes from the credential, and from nothing else.

mod caller;

pub use caller::Caller;

use crate::config::Secret;

/// How callers are known.
#[derive(Debug)]
pub enum Access {
    /// Everybody is the administrator of the default workspace: for one's own machine.
    Open,
    /// By API keys, and by the root token.
    Keys {
        /// The root token.
        root: Option<Secret>,
    },
}
