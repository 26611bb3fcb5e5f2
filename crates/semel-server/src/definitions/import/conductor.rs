//! Workflow definitions of Conductor.
//!
//! Plain `${…}` paths become expressions, and so do comparisons in JavaScript. Other JavaScript, jq and tasks that are chosen at run time
//! are refused, as what they would do is not in the document.

mod control;
mod javascript;
mod models;
mod paths;
mod tasks;

use std::fmt;
use std::sync::LazyLock;

use serde_json::{Map, Value as Json, json};

use super::yaml::Ordered;
use crate::definitions::check::check;
use crate::definitions::document;
use crate::definitions::problem::Problem;
use paths::{Nesting, Places};

/// A part of a Conductor workflow that cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotConverted {
    /// Reference name of the task; empty for the whole document.
    pub task: String,
    /// Why not, and what to do instead.
    pub reason: String,
}

impl fmt::Display for NotConverted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.task.as_str() {
            "" => f.write_str(&self.reason),
            task => write!(f, "{task}: {}", self.reason),
        }
    }
}

/// A definition that was converted.
#[derive(Debug)]
pub struct Imported {
    /// The definition in YAML; it is accepted by the check.
    pub text: String,
    /// What is to be decided by hand.
    pub notes: Vec<String>,
}

/// Converts a definition. The error names every task that stands in the way.
pub fn import(text: &str) -> Result<Imported, Vec<NotConverted>> {
    let whole = |reason: String| vec![NotConverted { task: String::new(), reason }];
    let json: Json =
        serde_json::from_str(text).map_err(|error| whole(format!("this is no JSON: {error}")))?;
    let (Some(name), Some(tasks)) = (json["name"].as_str(), json["tasks"].as_array()) else {
        return Err(whole("this is no workflow definition: it has no `name` or no `tasks`".to_owned()));
    };
    let workflow = paths::name(name);
    let mut import = Conversion { places: Places::of(tasks), workflow, ..Conversion::default() };
    let steps = import.list(tasks);
    let returns = import.outputs(&json);
    if !import.refusals.is_empty() {
        return Err(import.refusals);
    }
    let mut members = vec![
        ("semel".to_owned(), Ordered::Plain(1.into())),
        ("name".to_owned(), Ordered::text(import.workflow)),
    ];
    members.extend(text_member(&json, "version"));
    members.extend(text_member(&json, "description"));
    if let Some(seconds) = json["timeoutSeconds"].as_u64().filter(|seconds| *seconds > 0) {
        members.push(("timeout".to_owned(), Ordered::text(format!("{seconds}s"))));
    }
    members.push(("steps".to_owned(), Ordered::List(steps)));
    members.extend(returns.map(|returns| ("return".to_owned(), returns)));
    let text = Ordered::Object(members).yaml();
    match check(&text) {
        Ok(_) => Ok(Imported { text, notes: import.notes }),
        Err(problems) => {
            let document = document::read(&text).map(|node| node.plain()).unwrap_or_default();
            let refused = |problem: &Problem| NotConverted {
                task: step_at(&document, &problem.pointer),
                reason: problem.message.clone(),
            };
            Err(problems.iter().map(refused).collect())
        }
    }
}

/// Name of the step around a place of the definition, which is that of the task; the place itself if there is none.
fn step_at(document: &Json, pointer: &str) -> String {
    let ends = pointer.match_indices('/').map(|(end, _)| end).chain([pointer.len()]);
    let around = ends.skip(1).filter_map(|end| document.pointer(&pointer[..end])?["name"].as_str()).last();
    around.unwrap_or(pointer).to_owned()
}

fn text_member(json: &Json, name: &str) -> Option<(String, Ordered)> {
    let text = match &json[name] {
        Json::String(text) if !text.trim().is_empty() && !text.contains('{') => text.clone(),
        Json::Number(number) => number.to_string(),
        _ => return None,
    };
    Some((name.to_owned(), Ordered::text(text)))
}

/// A step with its name, which comes first.
fn named(task: &Task<'_>, members: Vec<(String, Ordered)>) -> Ordered {
    let name = ("name".to_owned(), Ordered::text(paths::name(&task.reference)));
    Ordered::Object(std::iter::once(name).chain(members).collect())
}

/// A step whose failure does not matter: its value is then what `set` says. The block has the name of the step, so that its value is
/// read as that of the step.
fn optional(task: &Task<'_>, step: Ordered) -> Ordered {
    let failed = Ordered::object([("failed", Ordered::text("{{ error.message }}"))]);
    let ignored = Ordered::object([("name", Ordered::text("ignored")), ("set", failed)]);
    let case = Ordered::object([("steps", Ordered::List(vec![ignored]))]);
    let members = [("try", Ordered::List(vec![step])), ("catch", Ordered::List(vec![case]))];
    named(task, members.map(|(name, value)| (name.to_owned(), value)).into())
}

/// The task that is named while the result of the workflow is converted.
static RESULT: LazyLock<Json> = LazyLock::new(|| json!({"type": "TERMINATE"}));

/// One import.
#[derive(Default)]
struct Conversion {
    places: Places,
    /// Name of the workflow.
    workflow: String,
    refusals: Vec<NotConverted>,
    notes: Vec<String>,
}

/// A task of the document.
struct Task<'a> {
    json: &'a Json,
    /// Its reference name in the workflow.
    reference: String,
}

impl<'a> Task<'a> {
    fn new(json: &'a Json) -> Self {
        let reference =
            json["taskReferenceName"].as_str().or_else(|| json["name"].as_str()).unwrap_or("unnamed");
        Self { json, reference: reference.to_owned() }
    }

    fn kind(&self) -> &'a str {
        self.json["type"].as_str().unwrap_or("SIMPLE")
    }

    /// Whether it becomes a task with an effect, which has an effect key.
    fn has_effect(&self) -> bool {
        matches!(self.kind(), "SIMPLE" | "HTTP" | "JDBC" | "EVENT" | "CALL_MCP_TOOL")
    }

    fn inputs(&self) -> Map<String, Json> {
        self.json["inputParameters"].as_object().cloned().unwrap_or_default()
    }

    fn input(&self, name: &str) -> &'a Json {
        &self.json["inputParameters"][name]
    }
}

impl Conversion {
    fn list(&mut self, tasks: &[Json]) -> Vec<Ordered> {
        let mut steps = Vec::new();
        for json in paths::without_joins(tasks) {
            let task = Task::new(json);
            let members = self.task(&task);
            let step = named(&task, members);
            steps.push(if json["optional"] == true { optional(&task, step) } else { step });
        }
        steps
    }

    fn refuse(&mut self, task: &Task<'_>, reason: impl Into<String>) {
        self.refusals.push(NotConverted { task: task.reference.clone(), reason: reason.into() });
    }

    fn note(&mut self, task: &Task<'_>, note: &str) {
        self.notes.push(format!("{}: {note}", task.reference));
    }

    fn outputs(&mut self, json: &Json) -> Option<Ordered> {
        let outputs = json["outputParameters"].as_object().filter(|outputs| !outputs.is_empty())?;
        let returned = outputs.iter().map(|(name, value)| {
            let task = Task { json: &RESULT, reference: format!("outputParameters.{name}") };
            (name.clone(), self.value(&task, value, &Nesting::default()))
        });
        Some(Ordered::Object(returned.collect()))
    }

    /// A value with its `${…}` translated, as it is seen from a place.
    fn value(&mut self, task: &Task<'_>, value: &Json, place: &Nesting) -> Ordered {
        match value {
            Json::String(text) => match self.places.text(text, (place, task.has_effect())) {
                Ok(text) => Ordered::text(text),
                Err(reason) => {
                    self.refuse(task, reason);
                    Ordered::Plain(Json::Null)
                }
            },
            Json::Array(items) => {
                Ordered::List(items.iter().map(|item| self.value(task, item, place)).collect())
            }
            Json::Object(members) => Ordered::Object(
                members.iter().map(|(name, value)| (name.clone(), self.value(task, value, place))).collect(),
            ),
            other => Ordered::Plain(other.clone()),
        }
    }

    /// A value as the task sees it.
    fn argument(&mut self, task: &Task<'_>, value: &Json) -> Ordered {
        let place = self.places.of_task(&task.reference);
        self.value(task, value, &place)
    }

    fn arguments(&mut self, task: &Task<'_>, without: &[&str]) -> Ordered {
        let mut inputs = task.inputs();
        inputs.retain(|name, _| !without.contains(&name.as_str()));
        self.argument(task, &Json::Object(inputs))
    }
}

#[cfg(test)]
mod tests;
