//! The language: a definition as it was understood.
//!
//! [`read`] makes it of a document and reports what does not fit. What the parts mean to each other (references, scopes) is
//! `check`'s business.

mod blocks;
mod members;
mod steps;
mod tools;

use std::time::Duration;

use semel::Retry;
use serde_json::Value as Json;

use super::document::{Node, Value};
use super::id::FAMILY;
use super::limits;
use super::problem::{At, Problems};
use super::schema::InputSchema;
use super::shape::Field;
use super::template::{Template, check_members};
use crate::tasks::Kind;

pub(super) use members::{BLOCKS, CASE, CATCH, DEFINITION, FOR_EACH, LOOP, STEP};
pub use tools::{ToolDetail, ToolList, ToolServer};
pub(super) use tools::{editor_schema, tools};

/// A definition as it was understood.
#[derive(Debug)]
pub struct Definition {
    /// Its name; runs have it as their workflow.
    pub name: String,
    /// Label of the version, if the author gave one.
    pub version: Option<String>,
    /// Text for people: the purpose of the workflow. Absent if the document has none.
    pub description: Option<String>,
    /// JSON Schema of the input.
    pub input: Option<InputSchema>,
    /// Hooks that are open from the start of the run: names and tokens.
    pub hooks: Vec<(String, Template)>,
    /// Time after which the run fails.
    pub timeout: Option<Duration>,
    /// How long key and history are remembered after the end.
    pub retention: Option<Duration>,
    /// The steps, one after the other.
    pub steps: Vec<DefinedStep>,
    /// Result of the run; that of the last step if absent.
    pub returns: Option<Template>,
}

/// A step: a task or a block, with what is said about it.
#[derive(Debug)]
pub struct DefinedStep {
    /// Its name, unique in its list.
    pub name: String,
    /// Pointer and place of the step.
    pub at: At,
    /// Condition; the step is skipped if it is false.
    pub condition: Option<Template>,
    /// Retry policy of a task; the default one if absent.
    pub retry: Option<Retry>,
    /// Maximum duration of an attempt.
    pub timeout: Option<Duration>,
    /// The part of the value that is recorded; all of it if absent.
    pub keep: Option<Template>,
    /// Steps that undo this one; empty if absent.
    pub undo: Vec<DefinedStep>,
    /// Whether the author wants it never to be repeated.
    pub at_most_once: bool,
    /// The task or block of the step.
    pub body: StepBody,
}

/// The work of a step: a task, or a block with steps of its own.
#[derive(Debug)]
pub enum StepBody {
    /// A task with its arguments.
    Task(&'static Kind, Template),
    /// A task that this server does not have.
    Absent(String),
    /// Branches side by side, in the order of their names.
    Parallel(Vec<(String, Vec<DefinedStep>)>),
    /// Steps for each element of a list.
    ForEach(ForEach),
    /// Steps again and again.
    Loop(Loop),
    /// The first case that applies.
    Switch(Vec<Case>),
    /// Steps whose failure is caught.
    Try(Try),
    /// Statements that take place together.
    Transaction(Vec<DefinedStep>),
    /// What was not understood, and reported.
    Unknown,
}

/// Steps for each element of a list.
#[derive(Debug)]
pub struct ForEach {
    /// The list, or the expression that gives it.
    pub items: Template,
    /// Name of the element in expressions.
    pub name: String,
    /// Key of a pass; its index if absent.
    pub key: Option<Template>,
    /// Maximum number of passes at the same time.
    pub parallel: u32,
    /// Maximum number of passes.
    pub most: u32,
    /// The steps of a pass.
    pub steps: Vec<DefinedStep>,
}

/// Steps again and again.
#[derive(Debug)]
pub struct Loop {
    /// Whether the condition is looked at after each pass and ends the loop (`until`); else it is looked at before (`while`).
    pub until: bool,
    /// The condition that ends or continues the loop.
    pub condition: Template,
    /// Maximum number of passes; one more is the error `LIMIT`.
    pub most: u32,
    /// The steps of a pass.
    pub steps: Vec<DefinedStep>,
}

/// A case of a `switch`.
#[derive(Debug)]
pub struct Case {
    /// Condition; the last case may have none.
    pub when: Option<Template>,
    /// Steps of the case, in order.
    pub steps: Vec<DefinedStep>,
}

/// Steps whose failure is caught.
#[derive(Debug)]
pub struct Try {
    /// The steps that may fail.
    pub steps: Vec<DefinedStep>,
    /// Handling of failures: the first case whose condition is true of `error` is taken.
    pub catch: Vec<Case>,
    /// Steps that run in any case.
    pub finally: Vec<DefinedStep>,
}

/// Names that expressions have anyway, so that no element of a list can have them.
pub const RESERVED: [&str; 11] =
    ["input", "steps", "vars", "run", "index", "error", "this", "call", "effect", "loop", "range"];

/// Whether a text is a name of variables: letters, digits and `_`, not beginning with a digit.
pub fn is_identifier(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(letter)
        && text.chars().all(|c| letter(c) || c.is_ascii_digit())
        && text.len() <= super::limits::NAME
        && !text.starts_with("__")
}

/// Reads a definition. What does not fit is reported; the result is what was understood nevertheless.
pub fn read(node: &Node, problems: &mut Problems) -> Option<Definition> {
    let at = At { pointer: String::new(), place: node.place };
    if !matches!(node.value, Value::Object(_)) {
        let message = format!("a definition is an object, and this is {}", node.kind());
        problems.structure(&at, message).hint =
            Some("it begins with `semel: 1`, `name:` and `steps:`".to_owned());
        return None;
    }
    Some(LanguageReader { problems, steps: 0 }.definition(node, &at))
}

struct LanguageReader<'a> {
    problems: &'a mut Problems,
    /// Number of steps so far.
    steps: usize,
}

impl LanguageReader<'_> {
    fn definition(&mut self, node: &Node, at: &At) -> Definition {
        check_members(node, &DEFINITION, at, self.problems);
        self.language(node, at);
        let text = |reader: &mut Self, name: &str| {
            reader.field(node, &DEFINITION, name, at).and_then(|template| template.text().map(str::to_owned))
        };
        let (name, version, description) =
            (text(self, "name"), text(self, "version"), text(self, "description"));
        let input = self.schema(node, "input", at).map(InputSchema::new);
        let hooks = self.hooks(node, at);
        let timeout = self.field(node, &DEFINITION, "timeout", at).and_then(|template| template.duration());
        let retention =
            self.field(node, &DEFINITION, "retention", at).and_then(|template| template.duration());
        let steps = self.steps(node, "steps", at);
        let returns = self.field(node, &DEFINITION, "return", at);
        let name = name.unwrap_or_default();
        self.identity(node, (&name, version.as_deref()), at);
        Definition { name, version, description, input, hooks, timeout, retention, steps, returns }
    }

    /// Checks that name and label cannot be taken for something else in a reference: `name@label`, or an id.
    fn identity(&mut self, node: &Node, (name, version): (&str, Option<&str>), at: &At) {
        let place = |name: &str| at.member(name, node.get(name).map_or(node.place, |member| member.place));
        if name.starts_with(FAMILY) {
            let message = format!("a name does not begin with `{FAMILY}`, as ids do");
            self.problems.meaning(&place("name"), message);
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+');
        let is_label = |label: &str| {
            label.len() <= limits::NAME && label.chars().all(plain) && !label.starts_with(FAMILY)
        };
        if version.is_some_and(|version| !is_label(version)) {
            let message =
                format!("a label has 1 to {} letters of ASCII, digits, `_`, `-`, `.` and `+`", limits::NAME);
            self.problems.meaning(&place("version"), message).hint =
                Some("such as `3`, `1.4.0` or `2026-11-18`".to_owned());
        }
    }

    /// Checks the version of the language.
    fn language(&mut self, node: &Node, at: &At) {
        let Some(version) = node.get("semel") else { return };
        let is_one = matches!(&version.value, Value::Number(number) if number.text() == "1");
        if !is_one {
            let at = at.member("semel", version.place);
            self.problems.structure(&at, "this server knows version 1 of the language").hint =
                Some("write `semel: 1`".to_owned());
        }
    }

    fn hooks(&mut self, node: &Node, at: &At) -> Vec<(String, Template)> {
        let Some(hooks) = self.field(node, &DEFINITION, "hooks", at) else { return Vec::new() };
        let super::template::Filled::Object(members) = hooks.value else { return Vec::new() };
        for (name, token) in &members {
            self.name_of(name, &token.at);
        }
        self.bounded(members.len(), "hooks", &hooks.at);
        members
    }

    fn schema(&mut self, node: &Node, name: &str, at: &At) -> Option<Json> {
        let template = self.field(node, &DEFINITION, name, at)?;
        let super::template::Filled::Plain(schema) = template.value else { return None };
        Some(schema)
    }

    /// A member by its shape in the table.
    fn field(&mut self, node: &Node, fields: &[Field], name: &str, at: &At) -> Option<Template> {
        let shape = &fields.iter().find(|field| field.name == name)?.shape;
        let member = node.get(name)?;
        Some(Template::read(member, shape, &at.member(name, member.place), self.problems))
    }

    fn name_of(&mut self, name: &str, at: &At) {
        if let Err(why) = super::template::check_name(name) {
            self.problems.structure(at, why);
        }
    }

    fn bounded(&mut self, count: usize, what: &str, at: &At) {
        let most = super::limits::BRANCHES;
        if count == 0 || count > most {
            self.problems.structure(at, format!("here are {count} {what}; 1 to {most} are accepted"));
        }
    }
}

impl DefinedStep {
    /// Arguments of its task; none if it is a block.
    pub fn args(&self) -> Option<&Template> {
        match &self.body {
            StepBody::Task(_, args) => Some(args),
            _ => None,
        }
    }
}

impl StepBody {
    /// The lists of steps directly inside a block; those of a task are its tools.
    pub fn lists(&self) -> Vec<&[DefinedStep]> {
        match self {
            Self::Task(_, args) => args.tools().map(ToolList::list).into_iter().collect(),
            Self::Absent(_) | Self::Unknown => Vec::new(),
            Self::Parallel(branches) => branches.iter().map(|(_, steps)| steps.as_slice()).collect(),
            Self::ForEach(each) => vec![&each.steps],
            Self::Loop(looped) => vec![&looped.steps],
            Self::Switch(cases) => cases.iter().map(|case| case.steps.as_slice()).collect(),
            Self::Try(tried) => {
                let caught = tried.catch.iter().map(|case| case.steps.as_slice());
                [tried.steps.as_slice()].into_iter().chain(caught).chain([tried.finally.as_slice()]).collect()
            }
            Self::Transaction(steps) => vec![steps],
        }
    }
}

/// Names of the databases that the steps of a transaction use, each once, in the order in which they are first named. That is the order
/// in which their statements are executed.
pub(crate) fn databases(steps: &[DefinedStep]) -> Vec<&str> {
    let mut names = Vec::new();
    for step in steps {
        let StepBody::Task(_, args) = &step.body else { continue };
        let on = args.get("on").and_then(Template::text);
        names.extend(on.filter(|on| !names.contains(on)));
    }
    names
}

/// Visits every step, with the path of the blocks around it.
pub(super) fn each_step<'a>(
    steps: &'a [DefinedStep],
    around: &str,
    visit: &mut impl FnMut(&'a DefinedStep, &str),
) {
    for step in steps {
        visit(step, around);
        let inside = if around.is_empty() { step.name.clone() } else { format!("{around}/{}", step.name) };
        for list in step.body.lists() {
            each_step(list, &inside, visit);
        }
        each_step(&step.undo, &inside, visit);
    }
}
