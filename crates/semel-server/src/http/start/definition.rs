//! Starts of definitions: which version, and whether it takes the input.

use semel::Error;
use semel::id::WorkspaceId;
use semel::rules::json::Payload;
use semel::rules::key::Scope;
use semel::rules::run::Retention;
use semel::rules::start::{Policy, PolicyRow, Start, StartAction};
use semel::store::{Find, FindBy, Started};

use super::{StartProgram, name};
use crate::app::App;
use crate::definitions::catalog::FoundDefinition;
use crate::definitions::schema::Misfit;
use crate::http::Problem;
use crate::http::definitions::no_definition;

/// Size of an input from which its check is left to a thread of its own, so that other calls are answered meanwhile.
const LARGE: usize = 32 * 1024;

/// What a start of a definition is to run.
pub(super) async fn program_of(
    app: &App,
    workspace: WorkspaceId,
    reference: &str,
    input: &Payload,
) -> Result<StartProgram, Problem> {
    let found = app.catalog.find(workspace, reference).await?.ok_or_else(|| no_definition(reference))?;
    let refused = match found.archived {
        true => Some(archived(&found)),
        false => misfit(&found, input).await?,
    };
    let usual = Retention::default();
    let retention = found.definition.retention.map_or(usual, |kept| Retention { history: kept, key: kept });
    Ok(StartProgram {
        workflow: name(&found.name)?,
        version: name(found.id.as_str())?,
        timeout: found.definition.timeout,
        retention,
        refused,
    })
}

fn archived(found: &FoundDefinition) -> Problem {
    Problem::impossible(format!(
        "the definition {} is archived and takes no new starts; `semel definition use` or a push makes it available again",
        found.name
    ))
}

/// The problem of an input that does not fit the schema.
async fn misfit(found: &FoundDefinition, input: &Payload) -> Result<Option<Problem>, Problem> {
    if found.definition.input.is_none() {
        return Ok(None);
    }
    let (definition, input) = (found.definition.clone(), input.clone());
    let large = input.text().len() > LARGE;
    let check = move || {
        let input = input.read().map_err(|error| Problem::validation(error.to_string()))?;
        Ok::<_, Problem>(definition.input.as_ref().map_or_else(Vec::new, |schema| schema.misfits(&input)))
    };
    let misfits = match large {
        true => tokio::task::spawn_blocking(check)
            .await
            .map_err(|_| Problem::unavailable("the server is stopping; try again"))??,
        false => check()?,
    };
    Ok((!misfits.is_empty()).then(|| refused_input(found, misfits)))
}

fn refused_input(found: &FoundDefinition, misfits: Vec<Misfit>) -> Problem {
    let said = misfits.iter().map(|Misfit { pointer, message }| match pointer.as_str() {
        "" => message.clone(),
        pointer => format!("{pointer}: {message}"),
    });
    let said = said.collect::<Vec<_>>().join("; ");
    let detail = format!("the input does not fit {}@{}: {said}", found.name, found.label);
    Problem::input_invalid(detail).at(misfits.into_iter().map(|misfit| misfit.pointer).collect())
}

/// The run that holds the key of a start that creates no new one; else why it does not.
pub(super) async fn attached(app: &App, start: Start, refused: Problem) -> Result<Started, Problem> {
    let scope = Scope::of(start.scope, &start.workflow, &start.workflow_version);
    let find = Find { workspace: start.workspace, by: FindBy::Key(scope, start.key.clone()) };
    if app.store.find(find).await?.is_none() {
        return Err(refused);
    }
    let policy = without_replace(start.policy);
    let replaces = policy != start.policy;
    match app.store.start(Start { policy, ..start }).await {
        Err(Error::DuplicateRun { .. }) if replaces => Err(refused),
        started => Ok(started?),
    }
}

/// The policy, except that it creates no new run under a key that is in use.
fn without_replace(Policy { same, other }: Policy) -> Policy {
    let action = |action| if action == StartAction::Replace { StartAction::Reject } else { action };
    let row = |PolicyRow { open, completed, failed, cancelled, timed_out }| PolicyRow {
        open: action(open),
        completed: action(completed),
        failed: action(failed),
        cancelled: action(cancelled),
        timed_out: action(timed_out),
    };
    Policy { same: row(same), other: row(other) }
}
