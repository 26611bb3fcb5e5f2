//! The functions that are registered in an engine, and the names by which workflows are started.

use std::any::TypeId;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::marker::PhantomData;

use super::programs::{Code, Programs};
use crate::error::{Error, Result};
use crate::id::WorkspaceId;
use crate::rules::family::Family;
use crate::rules::path::Name;
use crate::rules::queue;
use crate::rules::start::DEFAULT_VERSION;

/// The functions that are registered in an engine, by name and by type.
#[derive(Default)]
pub struct Registry {
    by_name: BTreeMap<Name, BTreeMap<Name, Code>>,
    by_type: HashMap<TypeId, Named>,
    families: BTreeMap<Family, Code>,
}

/// Name under which a registered function can be started.
enum Named {
    /// Registered once: its name and version.
    As(Name, Name),
    /// Registered several times, or one of several function pointers, which have one type: the names, for the error
    /// message.
    Several(String),
}

impl Registry {
    /// Registers a workflow version whose function is of this type.
    pub(crate) fn add(&mut self, function: TypeId, name: Name, version: Name, code: Code) -> Result<()> {
        if let Some(queue) = queue::queue(&name) {
            return Err(Error::Validation(format!(
                "{name} is the name of the queue {queue} of remote steps, and cannot be the name of a workflow: choose another"
            )));
        }
        let versions = self.by_name.entry(name.clone()).or_default();
        if versions.insert(version.clone(), code).is_some() {
            return Err(twice_version(&name, &version));
        }
        let named = match self.by_type.remove(&function) {
            None => Named::As(name, version),
            Some(Named::As(other, its)) => Named::Several(format!("{other} {its}, {name} {version}")),
            Some(Named::Several(names)) => Named::Several(format!("{names}, {name} {version}")),
        };
        self.by_type.insert(function, named);
        Ok(())
    }

    /// Registers the program of a family of workflow versions.
    pub(crate) fn add_family(&mut self, family: Family, program: Code) -> Result<()> {
        match self.families.contains_key(&family) {
            true => Err(twice_family(&family)),
            false => {
                self.families.insert(family, program);
                Ok(())
            }
        }
    }

    /// Name and version under which a function of this type is registered; `function` is its name for an error.
    pub(crate) fn named(&self, of: TypeId, function: &str) -> Result<(Name, Name)> {
        match self.by_type.get(&of) {
            None => Err(Error::Validation(format!(
                "{function} is not registered in this engine: add `.workflow(name, function)` to its builder"
            ))),
            Some(Named::As(name, version)) => Ok((name.clone(), version.clone())),
            Some(Named::Several(names)) => Err(Error::Validation(format!(
                "{function} is registered several times ({names}), and it cannot be told which one is meant: start it with \
                 `WorkflowRef::new(name)`, and `.version(..)` if that is not 1"
            ))),
        }
    }
}

impl Programs for Registry {
    fn versions(&self) -> Vec<(Name, Name)> {
        let versions =
            self.by_name.iter().flat_map(|(name, versions)| versions.keys().map(move |v| (name, v)));
        versions.map(|(name, version)| (name.clone(), version.clone())).collect()
    }

    fn families(&self) -> Vec<Family> {
        self.families.keys().cloned().collect()
    }

    fn code(&self, _: WorkspaceId, workflow: &Name, version: &Name) -> Option<Code> {
        let function = self.by_name.get(workflow).and_then(|versions| versions.get(version));
        let program = || match self.families.is_empty() {
            true => None,
            false => self.families.get(&Family::of(version)?),
        };
        function.or_else(program).cloned()
    }
}

/// A workflow that can be started: a registered function, a [`WorkflowRef`] or a [`WorkflowName`].
pub trait Startable<In> {
    /// Type of the workflow's result.
    type Out: Send + 'static;
    /// Its name and version.
    #[doc(hidden)]
    fn named(&self, registry: &Registry) -> Result<(Name, Name)>;
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

    fn named(&self, _: &Registry) -> Result<(Name, Name)> {
        Ok((Name::new(self.name)?, Name::new(self.version)?))
    }
}

/// A workflow that is named, and not given as a function: what can be started where its code is not.
pub trait ByName<In>: Startable<In> {}

impl<In, Out: Send + 'static> ByName<In> for WorkflowRef<In, Out> {}

impl<In> ByName<In> for WorkflowName {}

/// A workflow by a name that is known at run time only. Its input and result are JSON.
///
/// ```
/// # use semel::{Ctx, Engine, Result, WorkflowName};
/// # async fn double(_: Ctx, n: u64) -> Result<u64> { Ok(2 * n) }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # let engine = Engine::builder().store("memory:").workflow("double", double).open().await?;
/// let name = String::from("double");
/// let run = engine.start(WorkflowName::new(name), 21).await?;
/// assert_eq!(run.result().await?, 42);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowName {
    name: String,
    version: String,
}

impl WorkflowName {
    /// Version 1 of a workflow. [`Engine::current_version`](super::Engine::current_version) tells which version a hosted
    /// workflow has.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), version: DEFAULT_VERSION.to_owned() }
    }

    /// The same workflow in another version.
    #[must_use]
    pub fn version(self, version: impl Into<String>) -> Self {
        Self { version: version.into(), ..self }
    }
}

impl<In> Startable<In> for WorkflowName {
    type Out = serde_json::Value;

    fn named(&self, _: &Registry) -> Result<(Name, Name)> {
        Ok((Name::new(&self.name)?, Name::new(&self.version)?))
    }
}

pub(super) fn twice_version(name: &Name, version: &Name) -> Error {
    Error::Validation(format!("version {version} of the workflow {name} is registered twice"))
}

pub(super) fn twice_family(family: &Family) -> Error {
    Error::Validation(format!("the family {family} is registered twice"))
}
