//! Definitions of other engines, converted.

pub mod conductor;
mod yaml;
