//! All problems of a definition at once: what can be said without a server.

mod scope;
mod walk;

use std::collections::BTreeSet;

use super::document::{self, Node};
use super::id::{DefinitionId, identify};
use super::language::{self, Definition};
use super::problem::{At, Problem, Problems, Severity, TextPosition};
use walk::Walk;

/// A definition that is accepted.
#[derive(Debug)]
pub struct Accepted {
    /// The definition as it was understood.
    pub definition: Definition,
    /// Id of the definition, made of its content.
    pub id: DefinitionId,
    /// Its canonical JSON, of which the id is made.
    pub canonical: String,
    /// Warnings; nothing else is in there.
    pub warnings: Vec<Problem>,
}

/// Checks a text. The error has all problems, the worst first.
pub fn check(text: &str) -> Result<Accepted, Vec<Problem>> {
    let node = document::read(text).map_err(|problem| vec![problem])?;
    check_node(&node)
}

/// Checks a document that has been read.
pub fn check_node(node: &Node) -> Result<Accepted, Vec<Problem>> {
    let mut problems = Problems::default();
    let definition = language::read(node, &mut problems);
    if let Some(definition) = &definition {
        Walk::new(definition, &mut problems).check();
    }
    let (canonical, id) = identify(node).map_err(|error| {
        let at = At { pointer: String::new(), place: TextPosition { line: 1, column: 1 } };
        vec![Problem::new(Severity::Syntax, &at, error.to_string())]
    })?;
    match definition.filter(|_| !problems.refuses()) {
        Some(definition) => Ok(Accepted { definition, id, canonical, warnings: problems.sorted() }),
        None => Err(problems.sorted()),
    }
}

/// Names, in a fixed order.
type NameSet = BTreeSet<String>;

#[cfg(test)]
mod tests;
