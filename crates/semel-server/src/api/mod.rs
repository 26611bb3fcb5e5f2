//! What travels over HTTP: the members of requests and answers, shared by the server and the command line.
//!
//! Nothing here decides or stores. Names are camelCase on the wire, times are RFC 3339 in UTC, periods are written as
//! people (`90s`, `1h 30m`) or ISO 8601 (`PT90S`) have them, ids are their text. Values (`input`, `payload`, `value`) are kept
//! byte for byte.

mod access;
mod control;
mod run;
mod start;
mod step;
mod value;

pub use access::*;
pub use control::*;
pub use run::*;
pub use start::*;
pub use step::*;
pub use value::*;
