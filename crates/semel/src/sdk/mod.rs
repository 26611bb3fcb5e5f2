//! What users write with: workflows, and what a workflow can do.

mod attempt;
mod child;
pub(crate) mod contain;
pub(crate) mod ctx;
mod hook;
mod once;
mod profiled;
mod race;
mod recorded;
mod remote;
mod step;
pub mod tx;
pub(crate) mod workflow;

pub use attempt::{Attempt, Outside};
pub use child::{Child, ChildBegin};
pub use ctx::{Ctx, Doing};
pub use hook::{Hook, Owner};
pub use once::{Once, RunOnce};
pub use profiled::Profiled;
pub use race::Either;
pub use remote::RemoteBegin;
pub use step::{Reconciled, Step};
pub use workflow::Workflow;

pub use crate::engine::{ByName, Startable, WorkflowName, WorkflowRef};
pub use crate::fail::{Fail, FailExt, Result, fatal};
