//! The order workflow that newcomers meet first, and the show around it.

use semel::engine::Builder;

/// Adds the workflows that `semel dev` offers without any code.
pub fn workflows(builder: Builder) -> Builder {
    builder
}
