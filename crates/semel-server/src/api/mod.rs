//! Types of requests and answers over HTTP, shared by the server and the command line.
//!
//! This module decides and stores nothing. Names are camelCase on the wire. Times are RFC 3339 in UTC. Periods are
//! written like `90s` or `1h 30m`, or as ISO 8601 (`PT90S`). Ids are strings. Values (`input`, `payload`, `value`)
//! are kept byte for byte.

mod access;
mod address;
mod approval;
mod control;
mod cost;
mod definition;
mod duplicate;
mod question;
mod replay;
mod run;
mod span;
mod start;
mod stats;
mod step;
mod value;

pub use access::*;
pub use address::*;
pub use approval::*;
pub use control::*;
pub use cost::*;
pub use definition::*;
pub use duplicate::*;
pub use question::*;
pub use replay::*;
pub use run::*;
pub use span::*;
pub use start::*;
pub use stats::*;
pub use step::*;
pub use value::*;
