//! Definitions: workflows as documents, run by the server itself.
//!
//! - [`document`]: YAML or JSON becomes one tree of values with their places. [`problem`]: what is wrong, and where.
//! - [`expression`]: what stands between `{{` and `}}`. [`template`]: values that have such holes.
//! - [`shape`]: what a value may look like, for the check and for editors. [`language`]: a definition as it was understood.
//! - [`check`]: all problems of a document at once. [`id`]: its id. [`limits`]: how large things may be.
//! - [`outside`]: what a definition names outside of itself. [`graph`]: steps as nodes and edges. [`editor`]: the JSON Schema for editors. [`import`]: definitions of other engines.
//!
//! All of these are pure: no IO, no clock, no async. What a task is, is said in [`crate::tasks`].
//!
//! - [`interpret`]: the workflow that executes a definition.
//! - [`catalog`]: definitions in the store, and those in memory. This part has IO.

pub mod catalog;
pub mod check;
pub mod document;
pub mod duration;
pub mod editor;
pub mod expression;
pub mod graph;
pub mod id;
pub mod import;
pub mod interpret;
pub mod language;
pub mod limits;
pub mod outside;
pub mod problem;
pub mod schema;
pub mod shape;
pub mod template;
