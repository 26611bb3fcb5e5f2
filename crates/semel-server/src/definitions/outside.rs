//! What a definition names outside of itself: connections, and other definitions as children. Whether they are there is known to a
//! server only.

use super::language::{Definition, StepBody, databases, each_step};
use super::problem::At;
use super::template::Template;
use crate::tasks::Kind;

/// The use of a connection by a task.
#[derive(Clone, Debug)]
pub struct NamedConnection<'d> {
    /// Name of the connection, as the definition has it.
    pub name: String,
    /// Kind of the task that uses it.
    pub task: &'static Kind,
    /// Kinds of connections that it can be of.
    pub kinds: &'static [&'static str],
    /// Arguments of the task.
    pub args: &'d Template,
    /// Position in the document at which it is named.
    pub at: At,
}

/// A child: a definition, or a workflow in code.
#[derive(Clone, Debug)]
pub struct NamedChild {
    /// Id, `name@label` or name.
    pub reference: String,
    /// Whether it may be pushed later.
    pub later: bool,
    /// Position in the document at which it is named.
    pub at: At,
}

/// A transaction, with the connections that its steps name.
#[derive(Clone, Debug)]
pub struct NamedTransaction {
    /// Names of the connections, each once, in the order of the document.
    pub connections: Vec<String>,
    /// Position of the transaction in the document.
    pub at: At,
}

/// Everything that a definition names outside of itself.
#[derive(Clone, Debug, Default)]
pub struct Outside<'d> {
    /// Connections, in the order of the document.
    pub connections: Vec<NamedConnection<'d>>,
    /// Transactions, in the order of the document.
    pub transactions: Vec<NamedTransaction>,
    /// Children, in the order of the document.
    pub children: Vec<NamedChild>,
}

impl<'d> Outside<'d> {
    /// The connections, workflows and transactions that a definition names.
    pub fn of(definition: &'d Definition) -> Self {
        let mut outside = Self::default();
        each_step(&definition.steps, "", &mut |step, _| {
            let (task, args) = match &step.body {
                StepBody::Task(task, args) => (*task, args),
                StepBody::Transaction(steps) => {
                    let connections = databases(steps).into_iter().map(str::to_owned).collect();
                    outside.transactions.push(NamedTransaction { connections, at: step.at.clone() });
                    return;
                }
                _ => return,
            };
            let text = |name: &str| {
                args.get(name).and_then(|value| Some((value.text()?.to_owned(), value.at.clone())))
            };
            for (on, kinds) in crate::tasks::connections(task, args) {
                if let Some(name) = on.text().map(str::to_owned) {
                    outside.connections.push(NamedConnection { name, task, kinds, args, at: on.at.clone() });
                }
            }
            for server in args.tools().into_iter().flat_map(|tools| &tools.servers) {
                let Some(task) = crate::tasks::find("mcp") else { break };
                outside.connections.push(NamedConnection {
                    name: server.connection.clone(),
                    task,
                    kinds: task.on,
                    args,
                    at: server.at.clone(),
                });
            }
            if let Some((reference, at)) = text("run").filter(|_| task.name == "child") {
                let later = args.get("later").is_some_and(|later| later.is(true));
                outside.children.push(NamedChild { reference, later, at });
            }
        });
        outside
    }
}
