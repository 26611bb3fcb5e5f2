//! What users write with: workflows, and what a workflow can do.

mod attempt;
mod child;
pub(crate) mod contain;
pub(crate) mod ctx;
pub(crate) mod fail;
mod hook;
mod once;
mod race;
mod remote;
mod step;
pub mod tx;
pub(crate) mod workflow;

pub use attempt::Attempt;
pub use child::{Child, ChildBegin};
pub use ctx::{Ctx, Doing};
pub use fail::{Fail, FailExt, Result, fatal};
pub use hook::{Hook, Owner};
pub use once::{Once, RunOnce};
pub use race::Either;
pub use remote::Remote;
pub use step::{Reconciled, Step};
pub use workflow::{Startable, Workflow, WorkflowRef};
