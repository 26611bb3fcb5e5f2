//! `child`: another definition, or a workflow in code, as a step.

use std::sync::Arc;

use semel::error::Error;
use semel::remote::wire::LimitReached;
use semel::rules::entry::Outcome;
use semel::rules::start::default_version;
use semel::{Ctx, Fail, Result, WorkflowName, fatal};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::{Checks, Executing, Kind, TaskCall, TaskEnd, without_effect};
use crate::access::{ChildBounds, StartsChildren};
use crate::definitions::catalog::Catalog;
use crate::definitions::shape::{Field, Shape};
use crate::definitions::template::Template;

pub(super) static KIND: Kind = Kind {
    name: "child",
    about: "Runs another definition or workflow. Its value is the child's result; its failure fails the step.",
    args: Shape::Object(&[
        Field::required(
            "run",
            Shape::Fixed,
            "Definition: its name, `name@label`, or id; or the name of a workflow.",
        ),
        Field::new("input", Shape::Any, "Input of the child; nothing if absent."),
        Field::new(
            "wait",
            Shape::FixedFlag,
            "Whether the step waits for the child's end; it does if absent.",
        ),
        Field::new("later", Shape::FixedFlag, "Whether the child may be pushed after this definition."),
    ]),
    on: &[],
    tries: false,
    class: without_effect,
    check,
    execute,
};

fn check(args: &Template, checks: &mut Checks<'_>) {
    let Some((run, text)) = args.get("run").and_then(|run| Some((run, run.text()?))) else { return };
    let (name, label) = text.split_once('@').unwrap_or((text, "x"));
    if semel::rules::path::Name::new(name).is_err() || label.is_empty() || label.contains('@') {
        let hint = "write its name, `name@label`, or its id";
        checks.refuse(&run.at, format!("`{text}` is no definition"), hint);
    }
}

/// The workflow that a child executes, as it was found when the child was started.
#[derive(Serialize, Deserialize)]
struct ChildVersion {
    workflow: String,
    version: String,
}

fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(async move {
        let args = call.args()?;
        let (reference, name) = (args["run"].as_str().unwrap_or_default(), &call.step.name);
        let input = args.get("input").cloned().unwrap_or_else(|| json!({}));
        let found = call.ctx.scope(name).step("version").run(async |_| version(call.ctx, reference).await);
        let ChildVersion { workflow, version } = found.await?;
        let child = WorkflowName::new(&workflow).version(&version);
        let child = call.ctx.child(child, input).named(&**name).await?;
        if call.args.get("wait").is_some_and(|wait| wait.is(false)) {
            return TaskEnd::value(&json!({"run": child.id().to_string()}));
        }
        match child.outcome().await? {
            Outcome::Completed(value) => Ok(call.of_recorded(value)),
            other => Err(failed(&child.id().to_string(), &other)),
        }
    })
}

/// Refuses a child of a run that is too deep for one, or of a workspace that has too many open runs for the moment. The
/// second is tried again, like any failure of a step.
async fn admit(ctx: &Ctx) -> Result<()> {
    let bounds: Arc<ChildBounds> = ctx.state();
    let (workspace, run, parent) = (ctx.workspace(), ctx.run_id(), ctx.parent());
    let admitted = bounds.admit(StartsChildren { workspace, run, parent, children: 1 }).await;
    admitted.map_err(|refused| match refused {
        Error::Validation(text) => fatal(text).with_code("LIMIT"),
        Error::Unavailable(source) if source.is::<LimitReached>() => {
            Fail::retryable(source).with_code("LIMIT")
        }
        refused => Fail::from(refused),
    })
}

/// Finds the version that a reference leads to at the moment, if a child may be started.
async fn version(ctx: &Ctx, reference: &str) -> Result<ChildVersion> {
    admit(ctx).await?;
    let catalog: Arc<Catalog> = ctx.state();
    if let Some(found) = catalog.find(ctx.workspace(), reference).await? {
        if found.archived {
            let told = format!("the definition `{}` is archived and takes no new runs", found.name);
            return Err(fatal(told).with_code("DEFINITION_NOT_FOUND"));
        }
        return Ok(ChildVersion { workflow: found.name, version: found.id.to_string() });
    }
    if reference.contains('@') || reference.starts_with(crate::definitions::id::FAMILY) {
        return Err(fatal(format!("there is no definition `{reference}`")).with_code("DEFINITION_NOT_FOUND"));
    }
    let version =
        crate::demo::hosted_version(reference).map_or_else(|| default_version().to_string(), str::to_owned);
    Ok(ChildVersion { workflow: reference.to_owned(), version })
}

/// A child that has not completed: `CHILD`, with what its own failure said.
fn failed(run: &str, outcome: &Outcome) -> Fail {
    let (message, data) = match outcome {
        Outcome::Failed(failure) => {
            let data: Option<Json> = failure.data.as_ref().and_then(|data| data.read().ok());
            (failure.message.clone(), json!({"run": run, "code": failure.code, "data": data}))
        }
        Outcome::Cancelled(reason) => {
            (format!("was cancelled: {reason}"), json!({"run": run, "status": "CANCELLED"}))
        }
        Outcome::TimedOut => ("has timed out".to_owned(), json!({"run": run, "status": "TIMED_OUT"})),
        Outcome::Purged(status) => {
            (format!("has ended as {status}, and its result is no longer kept"), json!({"run": run}))
        }
        Outcome::Completed(_) => ("has completed".to_owned(), json!({"run": run})),
    };
    fatal(format!("{run}: {message}")).with_code("CHILD").with_data(&data)
}
