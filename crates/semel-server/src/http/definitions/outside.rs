//! Checks of a push that need the server: connections and children.

use std::time::Duration;

use semel::id::WorkspaceId;
use semel::rules::path::Name;

use super::Problem;
use crate::app::App;
use crate::connections::{Connections, DatabaseTarget};
use crate::definitions::catalog::Reference;
use crate::definitions::language::Definition;
use crate::definitions::outside::{NamedChild, NamedConnection, NamedTransaction, Outside};
use crate::definitions::problem::Problems;

/// Maximum time to ask a database what it can do: a push should be answered while a person waits.
const PREPARE: Duration = Duration::from_secs(5);

/// What is wrong with what a definition names outside of itself.
pub(super) async fn check(
    app: &App,
    workspace: WorkspaceId,
    definition: &Definition,
) -> Result<Problems, Problem> {
    let mut problems = Problems::default();
    let Outside { connections, transactions, children } = Outside::of(definition);
    for NamedConnection { name, task, kinds, args, at } in &connections {
        let Some(connections) = &app.connections else { break };
        if let Some(message) = connections.check(workspace, name, kinds).await? {
            problems.meaning(at, message).hint = Some("`semel connection ls` lists what there is".to_owned());
        } else if let Some(message) = connections.unfit(workspace, name, task.name, &args.names()).await? {
            problems.meaning(at, message);
        } else if let Some(connection) = connections.find(workspace, name).await?
            && let Some(target) = connection.target::<DatabaseTarget>()
            && let Some(message) = crate::tasks::database::refused(args, target)
        {
            problems.meaning(at, format!("the database of `{name}` does not take the statement: {message}"));
        }
    }
    for transaction in &transactions {
        if let Some(connections) = &app.connections {
            check_several(connections, workspace, transaction, &mut problems).await?;
        }
    }
    let mut seen = Vec::new();
    for child in children.iter().filter(|child| child.reference != definition.name) {
        // Each is looked up once, however often it is named.
        let found = match seen.iter().find(|(reference, _)| *reference == child.reference) {
            Some((_, found)) => *found,
            None => {
                let found = found(app, workspace, &child.reference).await?;
                seen.push((child.reference.clone(), found));
                found
            }
        };
        report(child, found, &mut problems);
    }
    Ok(problems)
}

/// Whether the connections of a transaction are databases, and several of them can commit together.
async fn check_several(
    connections: &Connections,
    workspace: WorkspaceId,
    transaction: &NamedTransaction,
    problems: &mut Problems,
) -> Result<(), Problem> {
    let NamedTransaction { connections: names, at } = transaction;
    for name in names {
        let Some(connection) = connections.find(workspace, name).await? else { continue };
        let Some(target) = connection.target::<DatabaseTarget>() else {
            let message =
                format!("`{name}` is no database, and a transaction has only statements of databases");
            problems.meaning(at, message).hint =
                Some("make it a step of its own, before or after the transaction".to_owned());
            continue;
        };
        if names.len() == 1 {
            return Ok(());
        }
        match tokio::time::timeout(PREPARE, target.refuses_to_prepare()).await {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(why))) => {
                problems.meaning(at, format!("`{name}` cannot commit together with other databases: {why}"));
            }
            Ok(Err(why)) => {
                let message = format!("`{name}` could not be asked whether it can commit with others: {why}");
                problems.warning(at, message).hint = Some("`semel connection check` tells more".to_owned());
            }
            Err(_) => {
                let message =
                    format!("`{name}` did not say within {PREPARE:?} whether it can commit with others");
                problems.warning(at, message).hint = Some("`semel connection check` tells more".to_owned());
            }
        }
    }
    Ok(())
}

/// What is known of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChildState {
    /// A definition, or a workflow in code that something serves.
    Found,
    /// A definition that takes no new starts.
    Archived,
    Unknown,
}

async fn found(app: &App, workspace: WorkspaceId, reference: &str) -> Result<ChildState, Problem> {
    if let Some(named) = app.catalog.version(workspace, reference).await? {
        return Ok(if named.record.archived { ChildState::Archived } else { ChildState::Found });
    }
    let Reference::Current(name) = Reference::read(reference) else { return Ok(ChildState::Unknown) };
    let Ok(workflow) = Name::new(&name) else { return Ok(ChildState::Unknown) };
    let version = app.current_version(workspace, &workflow).await?;
    let served = app.drives(workspace, &name, version.as_str())
        || app.services.serves_any(app, workspace, &name).await;
    Ok(if served { ChildState::Found } else { ChildState::Unknown })
}

fn report(child: &NamedChild, found: ChildState, problems: &mut Problems) {
    let NamedChild { reference, later, at } = child;
    match found {
        ChildState::Found => {}
        ChildState::Archived => {
            let message = format!("the definition `{reference}` is archived, and takes no new starts");
            problems.warning(at, message).hint =
                Some("`semel definition use` makes it available again".to_owned());
        }
        ChildState::Unknown if *later => {}
        ChildState::Unknown => {
            let message = format!(
                "there is no definition `{reference}`, and no worker serves a workflow of this name now"
            );
            problems.meaning(at, message).hint =
                Some("push it first, or say `later: true` beside `run` if it comes later".to_owned());
        }
    }
}
