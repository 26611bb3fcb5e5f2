//! Approvals: questions to people that runs wait for, in the tasks `approval` and `human`.
//!
//! - [`Approval`] is the record of one question, and the truth about its decision. Whatever decides or closes it does so at the
//!   version it has seen, so the first one wins.
//! - [`Approvals`] opens, decides, closes and lists them.
//! - `link` signs links with which a person decides without an API key.
//!
//! What a caller may do is decided by the routes.

mod desk;
pub(crate) mod link;
mod record;

pub use desk::{Approvals, DecisionVerdict};
pub use record::{Approval, ApprovalEnd, Decided, Settled};

/// How hook tokens of approvals begin. Only the routes of approvals deliver to them, because they check roles and forms.
const TOKEN: &str = "@approval/";

/// Whether a token is that of an approval, so that nothing else may deliver to it.
pub(crate) fn is_token(token: &str) -> bool {
    token.starts_with(TOKEN)
}

/// The hook token of an approval.
pub(crate) fn token_of(random: impl std::fmt::Display) -> String {
    format!("{TOKEN}{random}")
}
