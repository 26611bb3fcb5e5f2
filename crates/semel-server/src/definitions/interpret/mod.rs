//! The interpreter: an ordinary workflow that does what a definition says.
//!
//! It adds nothing to the engine: a task is a step, a timer, a hook or a child of the run, a block is a scope, and what is decided
//! is recorded. Whatever an execution does must be the same in every replay, so it depends on recorded values only.
//!
//! - `frame`: a list of steps in execution. `blocks`: what stands around lists. `stop`: why a list begins no further step.
//!   `transaction`: statements that take place together.
//! - `visible`: what expressions can read. `undo`: what is taken back after a failure. `broken`: failures with their step.

mod blocks;
mod broken;
mod frame;
mod open_hooks;
mod stop;
mod transaction;
mod tries;
mod undo;
mod visible;

#[cfg(test)]
pub(crate) mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use semel::engine::{Code, Programs};
use semel::error::failure_code;
use semel::id::WorkspaceId;
use semel::rules::family::Family;
use semel::rules::json::Payload;
use semel::rules::path::Name;
use semel::store::Answer;
use semel::{Ctx, Result, fatal};
use serde_json::json;

pub use open_hooks::{OpenHooks, receive, token_text};

use self::broken::Broken;
use self::frame::{Flow, Frame};
use self::undo::UndoList;
use self::visible::Visible;
use super::catalog::Catalog;
use super::expression::Data;
use super::id::FAMILY;
use super::language::Definition;
use super::limits;

/// Name under which it is recorded that the steps of a run are being undone. No step has it, because of the parentheses.
const UNDONE: &str = "(undone)";

/// The runs of definitions: an engine that hosts this drives those of all workspaces.
pub struct Interpreter {
    catalog: Arc<Catalog>,
}

impl Interpreter {
    /// Drives the definitions of this catalog.
    pub fn new(catalog: Arc<Catalog>) -> Self {
        Self { catalog }
    }
}

impl Programs for Interpreter {
    fn families(&self) -> Vec<Family> {
        vec![Family::new(FAMILY).expect("four letters or digits and an underscore")]
    }

    fn code(&self, workspace: WorkspaceId, _: &Name, version: &Name) -> Option<Code> {
        self.catalog.known(workspace, version.as_str()).map(code_of)
    }

    fn load<'a>(
        &'a self,
        workspace: WorkspaceId,
        _: &'a Name,
        version: &'a Name,
    ) -> Option<Answer<'a, Option<Code>>> {
        let ours = version.as_str().starts_with(FAMILY);
        ours.then(|| -> Answer<'a, Option<Code>> {
            Box::pin(async move { Ok(self.catalog.load(workspace, version.as_str()).await?.map(code_of)) })
        })
    }
}

/// The code of a definition.
pub fn code_of(definition: Arc<Definition>) -> Code {
    code_within(definition, limits::RUN_STEPS)
}

/// The code of a definition, with a limit on the steps of a run.
fn code_within(definition: Arc<Definition>, most_steps: u32) -> Code {
    Code::of(move |ctx, input| interpret(definition.clone(), most_steps, ctx, input))
}

/// A future of the interpreter that calls itself.
type Doing<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One execution of a definition.
struct Execution {
    hooks: OpenHooks,
    /// Steps that the run may have.
    most_steps: u32,
    /// Steps that the run may still begin.
    steps_left: AtomicU32,
}

impl Execution {
    /// Counts a step that begins.
    fn count_step(&self) -> Result<()> {
        let left = self.steps_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        left.map(drop).map_err(|_| {
            let most = self.most_steps;
            fatal(format!("a run has at most {most} steps; let a child do a part of them"))
                .with_code(failure_code::LIMIT)
        })
    }
}

async fn interpret(
    definition: Arc<Definition>,
    most_steps: u32,
    ctx: Ctx,
    input: Payload,
) -> Result<Payload> {
    if ctx.earlier::<bool>(UNDONE)?.is_some() {
        let hint = "the steps of this run were undone when it failed, so it cannot go on from there";
        return Err(fatal(format!("{hint}; start a new run under a new key")).with_code(failure_code::UNDONE));
    }
    let run =
        json!({"id": ctx.run_id().to_string(), "key": ctx.key(), "started": frame::rfc3339(ctx.started())?});
    let visible = Visible::top(Data::of_payload(&input), Data::of_json(&run));
    let hooks = OpenHooks::open(&ctx, &definition, &visible.data()).await?;
    let execution = Execution { hooks, most_steps, steps_left: AtomicU32::new(most_steps) };
    let undo = UndoList::default();
    let frame = Frame::top(&execution, ctx.clone(), visible.clone(), &undo);
    // Of a run that is rebuilt, the first step may have begun before.
    let listed = frame.list(&definition.steps, !ctx.is_replaying()).await;
    let result = match listed.end {
        Ok(Flow::Return(result)) => Ok(result),
        // Nothing around the top could stop it.
        Ok(Flow::Value(_) | Flow::Stopped) if definition.returns.is_some() => {
            definition.returns.as_ref().map_or(Ok(Payload::null()), |returns| frame.result(returns))
        }
        Ok(Flow::Value(last)) => last.payload(),
        Ok(Flow::Stopped) => Ok(Payload::null()),
        Err(broken) => Err(broken),
    };
    match result {
        Ok(result) => Ok(result),
        Err(broken) => Err(undone(&execution, &ctx, &undo, broken).await?),
    }
}

/// Undoes what has completed, and gives the failure of the run, with what could not be undone.
async fn undone<'d>(
    execution: &'d Execution,
    ctx: &Ctx,
    undo: &UndoList<'d>,
    broken: Broken,
) -> Result<semel::Fail> {
    if undo.is_empty() {
        return Ok(broken.into_fail(&[]));
    }
    // A retry of the run would go on after steps that are undone by then.
    ctx.cleanup().record(UNDONE, true).await?;
    let failures = undo.take_back(execution).await;
    Ok(broken.into_fail(&failures))
}
