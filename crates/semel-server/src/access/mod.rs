//! Who calls, and what they may do. The workspace comes from the credential, and from nothing else.

mod caller;

pub use caller::Caller;

/// How callers are known.
#[derive(Debug)]
pub enum Access {
    /// Everybody is the administrator of the default workspace: for one's own machine.
    Open,
}
