//! Tasks: steps whose code the server brings along. One file for each kind, with what it takes and what is checked about it when a
//! definition is pushed. Nothing else knows about kinds.

mod agent;
mod approval;
mod call;
mod channel;
mod child;
mod connection;
pub(crate) mod database;
mod event;
mod fail;
mod http;
mod human;
#[cfg(feature = "ingest")]
mod ingest;
mod llm;
#[cfg(feature = "mcp")]
mod mcp;
mod model;
mod now;
mod people;
mod planner;
mod publish;
mod returns;
mod set;
mod sql;
mod tries;
mod uuid;
mod wait;
mod webhook;
mod worker;

use serde::{Deserialize, Serialize};

pub use call::{Executing, RefusedResult, TaskCall, TaskEnd, evaluated, not_evaluated, read, record};
pub(crate) use model::TaskPart;
pub(crate) use model::answer::ModelUse;
pub use model::embed::{Embedding, embed};

use crate::definitions::language::DefinedStep;
use crate::definitions::problem::{At, Problems};
use crate::definitions::shape::Shape;
use crate::definitions::template::Template;

/// What is known about repeating the effect of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = TaskClass)]
pub enum Class {
    /// Run again under the same key; the other side absorbs the repetition.
    Keyed,
    /// Never run twice; in doubt if a crash hides its end.
    AtMostOnce,
    /// Statement and outcome are one commit in the user's database: it takes place exactly once.
    Transaction,
    /// The connection's profile says what the other side can do.
    ByConnection,
    /// No effect outside: a recorded value, a timer, a hook.
    None,
}

/// A kind of task.
#[derive(Debug)]
pub struct Kind {
    /// The member of a step that selects it.
    pub name: &'static str,
    /// What it does, in a sentence; shown by editors.
    pub about: &'static str,
    /// Shape of its arguments.
    pub args: Shape,
    /// Kinds of connections that its argument `on` may name; empty if it uses none.
    pub on: &'static [&'static str],
    /// Whether a step of this kind can have `retry`, `timeout` and `class`.
    pub tries: bool,
    /// What is known about repeating it.
    pub class: fn(&Template) -> Class,
    /// Checks beyond the shape of its arguments.
    pub check: fn(&Template, &mut Checks<'_>),
    /// Executes it, as a part of a run.
    pub execute: for<'a> fn(TaskCall<'a>) -> Executing<'a>,
}

/// What a task's check may know about the definition.
pub struct Checks<'a> {
    /// Names of the definition's hooks.
    pub hooks: &'a [&'a str],
    /// The step that has the task.
    pub step: &'a DefinedStep,
    /// Collects the problems that are found.
    pub problems: &'a mut Problems,
}

impl Checks<'_> {
    /// Reports a problem with a hint.
    fn refuse(&mut self, at: &At, message: impl Into<String>, hint: impl Into<String>) {
        self.problems.meaning(at, message).hint = Some(hint.into());
    }

    /// Exactly one of these members must be there.
    fn exactly_one<'t>(&mut self, args: &'t Template, names: &[&str]) -> Option<(&'t str, &'t Template)>
    where
        Self: 't,
    {
        let crate::definitions::template::Filled::Object(members) = &args.value else { return None };
        let mut given = members.iter().filter(|(name, _)| names.contains(&name.as_str()));
        let (first, second) = (given.next(), given.next());
        let either = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        match (first, second) {
            (Some((name, value)), None) => return Some((name, value)),
            (None, _) => {
                self.refuse(&args.at, format!("one of {either} is missing"), "exactly one of them is needed");
            }
            (Some((first, _)), Some((second, value))) => self.refuse(
                &value.at,
                format!("`{first}` and `{second}` exclude each other"),
                format!("exactly one of {either} is needed"),
            ),
        }
        None
    }
}

/// All kinds, in the order of the documentation.
pub static KINDS: &[&Kind] = &[
    &http::KIND,
    &webhook::KIND,
    &sql::KIND,
    &publish::KIND,
    #[cfg(feature = "ingest")]
    &ingest::KIND,
    &channel::MAIL,
    &channel::SMS,
    &channel::CALL,
    &llm::KIND,
    &agent::KIND,
    &planner::KIND,
    #[cfg(feature = "mcp")]
    &mcp::KIND,
    &worker::KIND,
    &child::KIND,
    &approval::KIND,
    &human::KIND,
    &event::KIND,
    &wait::KIND,
    &set::KIND,
    &now::KIND,
    &uuid::KIND,
    &returns::KIND,
    &fail::KIND,
];

/// Tasks of the language that this server does not have.
pub const ABSENT: &[&str] = &[
    #[cfg(not(feature = "ingest"))]
    "ingest",
    #[cfg(not(feature = "mcp"))]
    "mcp",
];

/// The parts of a step that are steps of their own; none of most kinds.
pub(crate) fn parts<'a>(kind: &str, step: &DefinedStep, args: &'a Template) -> Vec<TaskPart<'a>> {
    match kind {
        #[cfg(feature = "ingest")]
        "ingest" => ingest::parts(args),
        _ => model::parts(kind, step, args),
    }
}

/// The connections that a step names, each with the kinds that it can be of.
pub(crate) fn connections<'a>(
    kind: &'static Kind,
    args: &'a Template,
) -> Vec<(&'a Template, &'static [&'static str])> {
    let on = args.get("on").map(|on| (on, kind.on));
    match kind.name {
        #[cfg(feature = "ingest")]
        "ingest" => on.into_iter().chain(ingest::embedder(args)).collect(),
        _ => on.into_iter().collect(),
    }
}

/// The kind with this name.
pub fn find(name: &str) -> Option<&'static Kind> {
    KINDS.iter().copied().find(|kind| kind.name == name)
}

/// No effect, whatever the arguments.
fn without_effect(_: &Template) -> Class {
    Class::None
}

/// Keyed, whatever the arguments.
fn keyed(_: &Template) -> Class {
    Class::Keyed
}

/// Nothing beyond the shape.
fn nothing(_: &Template, _: &mut Checks<'_>) {}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_task_of_the_language_is_there_or_known_to_be_absent() {
        let there = KINDS.iter().map(|kind| kind.name);
        let all: HashSet<_> = there.chain(ABSENT.iter().copied()).collect();
        assert_eq!(all.len(), KINDS.len() + ABSENT.len(), "no name is there twice");
        for name in
            "http sql publish webhook mail sms call ingest llm agent planner mcp worker child approval human \
                     event wait set now uuid return fail"
                .split_whitespace()
        {
            assert!(all.contains(name), "{name}");
        }
    }
}
