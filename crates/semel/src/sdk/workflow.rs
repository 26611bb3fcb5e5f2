//! Workflows: plain async functions, found again by their type or by a name.

use std::any::TypeId;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ctx::Ctx;
use super::fail::{Result, fatal};
use crate::engine::{Execution, unregistered};
use crate::error::Error;
use crate::rules::json::Payload;
use crate::rules::path::Name;
use crate::rules::queue;
use crate::rules::start::DEFAULT_VERSION;

/// What can be executed as a workflow: every `async fn(Ctx, In) -> Result<Out>`.
pub trait Workflow<In>: Send + Sync + 'static {
    /// What it gives.
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

/// What can be started: a registered workflow itself, or a [`WorkflowRef`] to one.
pub trait Startable<In> {
    /// What it gives.
    type Out: Send + 'static;
    /// Its name and version.
    #[doc(hidden)]
    fn named(&self, registry: &Registry) -> Result<(Name, Name), Error>;
}

impl<F, In, Fut, Out> Startable<In> for F
where
    F: Fn(Ctx, In) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Out>> + Send + 'static,
    Out: Send + 'static,
{
    type Out = Out;

    fn named(&self, registry: &Registry) -> Result<(Name, Name), Error> {
        let function = std::any::type_name::<F>();
        match registry.by_type.get(&TypeId::of::<F>()) {
            None => Err(unregistered(function)),
            Some(Named::As(name, version)) => Ok((name.clone(), version.clone())),
            Some(Named::Several(names)) => Err(Error::Validation(format!(
                "{function} is registered several times ({names}), and it cannot be told which one is meant: start it with \
                 `WorkflowRef::new(name)`, and `.version(..)` if that is not 1"
            ))),
        }
    }
}

/// The name of a workflow whose code is elsewhere, with the types of its input and result.
///
/// ```
/// use semel::WorkflowRef;
///
/// const TOTAL: WorkflowRef<Vec<u64>, u64> = WorkflowRef::new("total-of");
/// ```
pub struct WorkflowRef<In, Out> {
    name: &'static str,
    version: &'static str,
    types: PhantomData<fn(In) -> Out>,
}

impl<In, Out> WorkflowRef<In, Out> {
    /// A workflow by its name; its version is `1`.
    pub const fn new(name: &'static str) -> Self {
        Self { name, version: DEFAULT_VERSION, types: PhantomData }
    }

    /// Another version of it. A start of a version that is not registered in this engine is stored, and its run waits for an
    /// engine in which it is; see [`Builder::workflow_version`](crate::engine::Builder::workflow_version).
    #[must_use]
    pub const fn version(self, version: &'static str) -> Self {
        Self { name: self.name, version, types: PhantomData }
    }
}

impl<In, Out> Clone for WorkflowRef<In, Out> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<In, Out> Copy for WorkflowRef<In, Out> {}

impl<In, Out> fmt::Debug for WorkflowRef<In, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkflowRef({} {})", self.name, self.version)
    }
}

impl<In, Out: Send + 'static> Startable<In> for WorkflowRef<In, Out> {
    type Out = Out;

    fn named(&self, _: &Registry) -> Result<(Name, Name), Error> {
        Ok((Name::new(self.name)?, Name::new(self.version)?))
    }
}

type Code = Arc<dyn Fn(Ctx, Payload) -> Execution + Send + Sync>;

/// A workflow without its types.
#[derive(Clone)]
pub(crate) struct Registered(Code);

impl Registered {
    /// Begins it.
    pub(crate) fn call(&self, ctx: Ctx, input: Payload) -> Execution {
        (self.0)(ctx, input)
    }
}

/// The workflows that an engine knows.
#[derive(Default)]
pub struct Registry {
    /// Sorted, so that claims ask in the same order each time.
    by_name: BTreeMap<Name, BTreeMap<Name, Registered>>,
    by_type: HashMap<TypeId, Named>,
}

/// What a function is known as.
enum Named {
    /// This name and version.
    As(Name, Name),
    /// These: one function several times, or several function pointers, which are of one type.
    Several(String),
}

/// Reads the input. A start over HTTP without one has `{}`: a workflow that takes none, as `()` or an option, reads it
/// as `null`.
fn read_input<In: DeserializeOwned>(input: &Payload) -> serde_json::Result<In> {
    input.read().or_else(|error| match input.text() {
        "{}" => Payload::null().read().map_err(|_| error),
        _ => Err(error),
    })
}

impl Registry {
    pub(crate) fn add<W, In>(&mut self, name: Name, version: Name, workflow: W) -> Result<(), Error>
    where
        W: Workflow<In>,
        In: DeserializeOwned + Send + 'static,
        W::Out: Serialize,
    {
        if let Some(queue) = queue::queue(&name) {
            return Err(Error::Validation(format!(
                "{name} stands for the steps that wait in the queue {queue}, and is no name of a workflow: choose another"
            )));
        }
        let workflow = Arc::new(workflow);
        let code: Code = Arc::new(move |ctx, input: Payload| {
            let workflow = workflow.clone();
            Box::pin(async move {
                let input = read_input::<In>(&input);
                let input =
                    input.map_err(|e| fatal(format_args!("the input does not fit the workflow: {e}")))?;
                let output = workflow.call(ctx, input).await?;
                Payload::of(&output).map_err(|e| fatal(format_args!("the result cannot be kept: {e}")))
            })
        });
        let versions = self.by_name.entry(name.clone()).or_default();
        if versions.insert(version.clone(), Registered(code)).is_some() {
            return Err(Error::Validation(format!(
                "version {version} of the workflow {name} is registered twice"
            )));
        }
        let named = match self.by_type.remove(&TypeId::of::<W>()) {
            None => Named::As(name, version),
            Some(Named::As(other, its)) => Named::Several(format!("{other} {its}, {name} {version}")),
            Some(Named::Several(names)) => Named::Several(format!("{names}, {name} {version}")),
        };
        self.by_type.insert(TypeId::of::<W>(), named);
        Ok(())
    }

    /// The code of a version of a workflow.
    pub(crate) fn find(&self, name: &Name, version: &Name) -> Option<Registered> {
        self.by_name.get(name)?.get(version).cloned()
    }

    /// Every version of every workflow.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.by_name.iter().flat_map(|(name, versions)| versions.keys().map(move |version| (name, version)))
    }
}
