//! Workflows: plain async functions, which a builder registers and a start finds again by their type.

use std::any::TypeId;
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ctx::Ctx;
use crate::engine::{Builder, Code, Registry, Startable};
use crate::error::Error;
use crate::fail::{Result, fatal};
use crate::rules::family::Family;
use crate::rules::json::Payload;
use crate::rules::path::Name;
use crate::rules::start::DEFAULT_VERSION;

/// A function that can be executed as a workflow: every `async fn(Ctx, In) -> Result<Out>`.
pub trait Workflow<In>: Send + Sync + 'static {
    /// Type of the result.
    type Out;
    /// Begins it.
    fn call(&self, ctx: Ctx, input: In) -> Pin<Box<dyn Future<Output = Result<Self::Out>> + Send>>;
}

impl<F, In, Fut, Out> Workflow<In> for F
where
    F: Fn(Ctx, In) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Out>> + Send + 'static,
{
    type Out = Out;

    fn call(&self, ctx: Ctx, input: In) -> Pin<Box<dyn Future<Output = Result<Out>> + Send>> {
        Box::pin(self(ctx, input))
    }
}

impl<F, In, Fut, Out> Startable<In> for F
where
    F: Fn(Ctx, In) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Out>> + Send + 'static,
    Out: Send + 'static,
{
    type Out = Out;

    fn named(&self, registry: &Registry) -> Result<(Name, Name), Error> {
        registry.named(TypeId::of::<F>(), std::any::type_name::<F>())
    }
}

impl Code {
    /// The code of a workflow function.
    pub fn of<W, In>(workflow: W) -> Self
    where
        W: Workflow<In>,
        In: DeserializeOwned + Send + 'static,
        W::Out: Serialize,
    {
        let workflow = Arc::new(workflow);
        Self::new(move |run, input: Payload| {
            let workflow = workflow.clone();
            let ctx = Ctx::new(run);
            Box::pin(async move {
                let input = read_input::<In>(&input);
                let input =
                    input.map_err(|e| fatal(format_args!("the input does not fit the workflow: {e}")))?;
                let output = workflow.call(ctx, input).await?;
                Payload::of(&output).map_err(|e| fatal(format_args!("the result cannot be kept: {e}")))
            })
        })
    }
}

/// Reads the input. A start over HTTP without one has `{}`: a workflow that takes none, as `()` or an option, reads it
/// as `null`.
fn read_input<In: DeserializeOwned>(input: &Payload) -> serde_json::Result<In> {
    input.read().or_else(|error| match input.text() {
        "{}" => Payload::null().read().map_err(|_| error),
        _ => Err(error),
    })
}

impl Builder {
    /// A workflow: a plain `async fn(Ctx, In) -> Result<Out>`, and the name under which its runs are known. Its version
    /// is `1`.
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Result};
    /// async fn greet(_: Ctx, name: String) -> Result<String> {
    ///     Ok(format!("Hello, {name}!"))
    /// }
    /// let builder = Engine::builder().workflow("greet", greet);
    /// ```
    pub fn workflow<W, In>(self, name: &str, workflow: W) -> Self
    where
        W: Workflow<In>,
        In: DeserializeOwned + Send + 'static,
        W::Out: Serialize,
    {
        self.workflow_version(name, DEFAULT_VERSION, workflow)
    }

    /// Registers a version of a workflow. A run that is started by its function gets the version of that function;
    /// one that is started by a [`WorkflowRef`](crate::WorkflowRef) gets the version that this names. The run keeps
    /// that version to its end, and any engine that has it registered may execute it; as long as there is none, the run
    /// waits in the store.
    ///
    /// To let new code go on with the runs of an old version, register it under that version too:
    /// `.workflow_version("order", "2", order).workflow_version("order", "1", order)`. Such a function is started by a
    /// `WorkflowRef`, which says under which version.
    pub fn workflow_version<W, In>(self, name: &str, version: &str, workflow: W) -> Self
    where
        W: Workflow<In>,
        In: DeserializeOwned + Send + 'static,
        W::Out: Serialize,
    {
        self.register(|registry| {
            registry.add(TypeId::of::<W>(), Name::new(name)?, Name::new(version)?, Code::of(workflow))
        })
    }

    /// Registers the program of a family: all workflow versions that begin with this prefix, of all workflows and in all
    /// workspaces. The prefix has four lower-case letters or digits and an underscore. The program finds out by
    /// [`Ctx::workspace`](crate::Ctx::workspace), [`Ctx::workflow`](crate::Ctx::workflow) and
    /// [`Ctx::workflow_version`](crate::Ctx::workflow_version) what it is to do, so an engine can host workflows that are
    /// not known when it is opened. A claim costs the same for ten thousand of them as for one.
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Result, WorkflowName};
    /// async fn interpret(ctx: Ctx, input: serde_json::Value) -> Result<String> {
    ///     Ok(format!("{} {} with {input}", ctx.workflow(), ctx.workflow_version()))
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let engine = Engine::builder().store("memory:").family("doc1_", interpret).open().await?;
    /// let run = engine.start(WorkflowName::new("order").version("doc1_7f3a"), 7).await?;
    /// assert_eq!(run.result().await?, "order doc1_7f3a with 7");
    /// # Ok(())
    /// # }
    /// ```
    pub fn family<W, In>(self, prefix: &str, program: W) -> Self
    where
        W: Workflow<In>,
        In: DeserializeOwned + Send + 'static,
        W::Out: Serialize,
    {
        self.register(|registry| {
            let family = Family::new(prefix).map_err(|error| Error::Validation(error.to_string()))?;
            registry.add_family(family, Code::of(program))
        })
    }
}
