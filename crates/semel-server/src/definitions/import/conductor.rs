//! Workflow definitions of Conductor.
//!
//! Plain `${…}` paths become expressions. JavaScript, jq and tasks that are chosen at run time are refused, as what they would do is
//! not in the document.

mod condition;
mod models;
mod paths;
mod tasks;

use std::fmt;

use serde_json::{Map, Value as Json};

use super::yaml::Ordered;
use crate::definitions::check::check;
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
    let mut import = Conversion { places: Places::of(tasks), ..Conversion::default() };
    let steps = import.list(tasks);
    let returns = import.outputs(&json);
    if !import.refusals.is_empty() {
        return Err(import.refusals);
    }
    let mut members = vec![
        ("semel".to_owned(), Ordered::Plain(1.into())),
        ("name".to_owned(), Ordered::text(paths::name(name))),
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
        Err(problems) => Err(problems
            .iter()
            .map(|problem| NotConverted { task: problem.pointer.clone(), reason: problem.message.clone() })
            .collect()),
    }
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

/// One import.
#[derive(Default)]
struct Conversion {
    places: Places,
    refusals: Vec<NotConverted>,
    notes: Vec<String>,
}

/// A task of the document.
struct Task<'a> {
    json: &'a Json,
    /// Its reference name.
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
        for json in tasks.iter().filter(|json| json["type"] != "JOIN") {
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
        let task = Task { json, reference: String::new() };
        Some(self.value(&task, &Json::Object(outputs.clone()), &Nesting::default()))
    }

    /// A value with its `${…}` translated, as it is seen from a place.
    fn value(&mut self, task: &Task<'_>, value: &Json, place: &Nesting) -> Ordered {
        match value {
            Json::String(text) => match self.places.text(text, place) {
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
