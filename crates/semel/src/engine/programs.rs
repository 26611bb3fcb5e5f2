//! What an engine can drive: programs, of which the registered functions are one kind.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use super::registry::{Registry, twice_family, twice_version};
use super::run::Cell;
use crate::error::Result;
use crate::fail::Fail;
use crate::id::WorkspaceId;
use crate::rules::family::Family;
use crate::rules::json::Payload;
use crate::rules::path::Name;
use crate::store::Answer;

/// A workflow in execution.
pub(crate) type WorkflowFuture = Pin<Box<dyn Future<Output = std::result::Result<Payload, Fail>> + Send>>;

type BeginCode = dyn Fn(Arc<Cell>, Payload) -> WorkflowFuture + Send + Sync;

/// The code of a workflow, without the types of its input and result. Clones share it.
///
/// ```
/// # use semel::{Ctx, Result};
/// # use semel::engine::Code;
/// async fn greet(_: Ctx, name: String) -> Result<String> {
///     Ok(format!("Hello, {name}!"))
/// }
/// let code = Code::of(greet);
/// ```
#[derive(Clone)]
pub struct Code(Arc<BeginCode>);

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Code")
    }
}

impl Code {
    pub(crate) fn new(begin: impl Fn(Arc<Cell>, Payload) -> WorkflowFuture + Send + Sync + 'static) -> Self {
        Self(Arc::new(begin))
    }

    /// Begins an execution.
    pub(crate) fn begin(&self, run: Arc<Cell>, input: Payload) -> WorkflowFuture {
        (self.0)(run, input)
    }
}

/// Runs that an engine drives, and the code of each: see [`Builder::programs`](super::Builder::programs).
///
/// The functions of [`Builder::workflow`](super::Builder::workflow) are one implementation. Another one hosts workflows that
/// are not known when the engine is opened: it has a family of versions, and finds the code of a run by its version.
///
/// ```
/// use semel::engine::{Code, Programs};
/// use semel::id::WorkspaceId;
/// use semel::rules::{family::Family, path::Name};
/// use semel::{Ctx, Engine, Result, WorkflowName};
///
/// async fn interpret(ctx: Ctx, input: serde_json::Value) -> Result<String> {
///     Ok(format!("{} {} with {input}", ctx.workflow(), ctx.workflow_version()))
/// }
///
/// struct Documents;
///
/// impl Programs for Documents {
///     fn families(&self) -> Vec<Family> {
///         vec![Family::new("doc1_").expect("it is a family")]
///     }
///
///     fn code(&self, _: WorkspaceId, _: &Name, version: &Name) -> Option<Code> {
///         (version.as_str() == "doc1_7f3a").then(|| Code::of(interpret))
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let engine = Engine::builder().store("memory:").programs(Documents).open().await?;
/// let run = engine.start(WorkflowName::new("order").version("doc1_7f3a"), 7).await?;
/// assert_eq!(run.result().await?, "order doc1_7f3a with 7");
/// # Ok(())
/// # }
/// ```
pub trait Programs: Send + Sync + 'static {
    /// Workflow versions, as name and version, that are driven in the engine's own workspace. It is asked once, when the
    /// engine is opened.
    fn versions(&self) -> Vec<(Name, Name)> {
        Vec::new()
    }

    /// Families of workflow versions that are driven in all workspaces. It is asked once, when the engine is opened.
    fn families(&self) -> Vec<Family> {
        Vec::new()
    }

    /// Code of a workflow version; none if these programs do not have it. The version is one of [`versions`](Self::versions)
    /// or belongs to one of [`families`](Self::families). A run of a family that has no code is paused.
    fn code(&self, workspace: WorkspaceId, workflow: &Name, version: &Name) -> Option<Code>;

    /// Code of a version of a family that [`code`](Self::code) does not have at hand but can read from elsewhere; none if it
    /// cannot exist. It is read before a run begins or goes on; a run whose code turns out to be absent is paused.
    fn load<'a>(
        &'a self,
        _workspace: WorkspaceId,
        _workflow: &'a Name,
        _version: &'a Name,
    ) -> Option<Answer<'a, Option<Code>>> {
        None
    }

    /// Version that a start of this workflow gets if it names none; none if these programs do not have the workflow.
    fn current<'a>(&'a self, _workspace: WorkspaceId, _workflow: &'a Name) -> Answer<'a, Option<Name>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// All code that an engine can drive: its registered functions, and its other programs.
pub(crate) struct Hosted {
    all: Vec<Arc<dyn Programs>>,
    /// Sorted, so that claims ask in the same order each time.
    versions: Vec<(Name, Name)>,
    families: Vec<Family>,
}

impl Hosted {
    /// Hosts functions and other programs; no version and no family may belong to two of them.
    pub(super) fn new(registry: &Arc<Registry>, programs: Vec<Arc<dyn Programs>>) -> Result<Self> {
        let functions: Arc<dyn Programs> = registry.clone();
        let all: Vec<_> = [functions].into_iter().chain(programs).collect();
        let mut versions: Vec<_> = all.iter().flat_map(|programs| programs.versions()).collect();
        let mut families: Vec<_> = all.iter().flat_map(|programs| programs.families()).collect();
        versions.sort();
        families.sort();
        if let Some([(name, version), _]) = versions.array_windows().find(|[a, b]| a == b) {
            return Err(twice_version(name, version));
        }
        if let Some([family, _]) = families.array_windows().find(|[a, b]| a == b) {
            return Err(twice_family(family));
        }
        Ok(Self { all, versions, families })
    }

    /// Workflow versions that are driven in the engine's own workspace.
    pub(super) fn versions(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.versions.iter().map(|(name, version)| (name, version))
    }

    /// Families that are driven in all workspaces.
    pub(super) fn families(&self) -> &[Family] {
        &self.families
    }

    /// Whether a version belongs to a family that is driven here.
    pub(super) fn has_family_of(&self, version: &Name) -> bool {
        !self.families.is_empty() && Family::of(version).is_some_and(|family| self.families.contains(&family))
    }

    /// Whether the code of a workflow version is at hand, or may be read from elsewhere.
    pub(super) fn may_have(&self, workspace: WorkspaceId, workflow: &Name, version: &Name) -> bool {
        let has = |programs: &Arc<dyn Programs>| {
            programs.code(workspace, workflow, version).is_some()
                || programs.load(workspace, workflow, version).is_some()
        };
        self.all.iter().any(has)
    }

    /// Reads the code of a workflow version that is not at hand.
    pub(super) async fn load(
        &self,
        workspace: WorkspaceId,
        workflow: &Name,
        version: &Name,
    ) -> Result<Option<Code>> {
        for loading in self.all.iter().filter_map(|programs| programs.load(workspace, workflow, version)) {
            if let Some(code) = loading.await? {
                return Ok(Some(code));
            }
        }
        Ok(None)
    }

    /// The code of a workflow version, if it is at hand.
    pub(super) fn code(&self, workspace: WorkspaceId, workflow: &Name, version: &Name) -> Option<Code> {
        self.all.iter().find_map(|programs| programs.code(workspace, workflow, version))
    }

    /// Version of a start that names none.
    pub(super) async fn current(&self, workspace: WorkspaceId, workflow: &Name) -> Result<Option<Name>> {
        for programs in &self.all {
            if let Some(version) = programs.current(workspace, workflow).await? {
                return Ok(Some(version));
            }
        }
        Ok(None)
    }
}
