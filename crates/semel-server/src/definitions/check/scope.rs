//! What an expression can see.

use serde_json::Value as Json;

use super::NameSet;
use crate::definitions::expression::NamePath;
use crate::definitions::problem::{At, Problems, nearest};
use crate::definitions::schema;

/// What the members of some names are.
const RUN: [&str; 3] = ["id", "key", "started"];
const ERROR: [&str; 5] = ["code", "message", "step", "status", "data"];
const EFFECT: [&str; 1] = ["key"];

/// The names that are visible at a place.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    /// Steps that have run before, in the list and in the blocks around.
    pub(super) steps: NameSet,
    /// Variables that may be set.
    pub(super) vars: NameSet,
    /// Other names: `index`, `error`, `this`, `effect`, and elements of lists.
    pub(super) names: NameSet,
}

impl Scope {
    pub(super) fn with(&self, name: &str) -> Self {
        let mut scope = self.clone();
        scope.names.insert(name.to_owned());
        scope
    }
}

/// What the whole definition has.
pub(super) struct Surroundings<'a> {
    /// Schema of the input.
    pub(super) input: Option<&'a Json>,
    /// Every step, with the block around it: empty at the top.
    pub(super) steps: Vec<(&'a str, String)>,
}

/// What is wrong about a reference, and a hint.
type Mistake = (String, String);

impl Surroundings<'_> {
    /// Checks a reference of an expression.
    pub(super) fn check(&self, reference: &NamePath, scope: &Scope, at: &At, problems: &mut Problems) {
        let (root, rest) = (reference[0].as_str(), &reference[1..]);
        let wrong = match root {
            "input" => return self.check_input(rest, at, problems),
            "range" => None,
            "steps" => self.check_step(rest, scope),
            "vars" => check_var(rest, scope),
            "run" => check_member("run", rest, &RUN),
            "error" if scope.names.contains("error") => check_member("error", rest, &ERROR),
            "effect" if scope.names.contains("effect") => check_member("effect", rest, &EFFECT),
            _ if scope.names.contains(root) => None,
            _ => Some(self.unknown_root(root, scope)),
        };
        if let Some((message, hint)) = wrong {
            problems.meaning(at, message).hint = Some(hint);
        }
    }

    fn check_input(&self, rest: &[String], at: &At, problems: &mut Problems) {
        if self.input.is_some_and(|input| schema::lacks(input, rest)) {
            let message = format!("`input.{}` is not in the schema of the input", rest.join("."));
            problems.warning(at, message).hint = Some("add it to `properties` of `input`".to_owned());
        }
    }

    fn check_step(&self, rest: &[String], scope: &Scope) -> Option<Mistake> {
        let Some(name) = rest.first() else {
            let hint = "write `steps.name`, or `steps['a-b']` if the name has a `-`";
            return Some(("it is not said which step is meant".to_owned(), hint.to_owned()));
        };
        if scope.steps.contains(name) {
            return None;
        }
        let around = self.steps.iter().find(|(step, _)| step == name).map(|(_, around)| around.as_str());
        let dashed = self.steps.iter().find(|(step, _)| step.starts_with(&format!("{name}-")));
        let message = format!("there is no step `{name}` before this one");
        Some(match (around, dashed) {
            (Some(""), _) => (format!("`steps.{name}` comes later, or is this step itself"), move_it()),
            (Some(around), _) if scope.steps.contains(around.split('/').next().unwrap_or(around)) => {
                let block = around.split('/').next().unwrap_or(around);
                let message = format!("`{name}` is inside the block `{block}`, and not visible from here");
                (message, format!("the value of the block is `steps.{block}`"))
            }
            (Some(_), _) => (format!("`steps.{name}` is not visible from here, or comes later"), move_it()),
            (None, Some((step, _))) => (message, format!("is it `steps['{step}']`? `-` subtracts")),
            (None, None) => (message, near_step(name, scope)),
        })
    }

    fn unknown_root(&self, root: &str, scope: &Scope) -> Mistake {
        let message = format!("`{root}` is not known here");
        let subtracted = self.steps.iter().find(|(step, _)| step.ends_with(&format!("-{root}")));
        if let Some((step, _)) = subtracted {
            return (message, format!("is it `steps['{step}']`? `-` subtracts"));
        }
        if self.steps.iter().any(|(step, _)| *step == root) {
            return (message, format!("write `steps.{root}`"));
        }
        let hint = match root {
            "env" | "secrets" | "secret" | "config" => {
                "secrets are in connections, which the operator configures"
            }
            "now" | "time" | "today" => "record the time in a step with `now`, and read that",
            "random" | "uuid" => "record an id in a step with `uuid`, and read that",
            "attempt" => "an argument that differs from try to try is another request under the same key",
            "this" => "`this` is the value of the task, and known in `keep` only",
            "error" => "`error` is known in `catch` only",
            "index" => "`index` is known in `for_each` and `loop` only",
            "call" => "`call` is known in the tools of `agent` and the steps of `planner` only",
            "effect" => "`effect.key` is known in the arguments of tasks that have an effect",
            _ => {
                let known = ["input", "steps", "vars", "run"].into_iter();
                let known = known.chain(scope.names.iter().map(String::as_str));
                return (message, format!("known are {}", known.collect::<Vec<_>>().join(", ")));
            }
        };
        (message, hint.to_owned())
    }
}

fn move_it() -> String {
    "a step sees those before it, in its own list and in the blocks around".to_owned()
}

fn near_step(name: &str, scope: &Scope) -> String {
    match nearest(name, scope.steps.iter().map(String::as_str)) {
        Some(near) => format!("is it `steps.{near}`?"),
        None if scope.steps.is_empty() => "there is no step before this one".to_owned(),
        None => {
            format!("the steps before are {}", scope.steps.iter().cloned().collect::<Vec<_>>().join(", "))
        }
    }
}

fn check_var(rest: &[String], scope: &Scope) -> Option<Mistake> {
    // All of them at once may be read; whether they are there is the author's business.
    let name = rest.first()?;
    if scope.vars.contains(name) {
        return None;
    }
    let near = nearest(name, scope.vars.iter().map(String::as_str));
    let hint = near.map_or_else(
        || format!("set it before, with `set: {{{name}: …}}`"),
        |near| format!("is it `vars.{near}`?"),
    );
    Some((format!("`vars.{name}` is not set before"), hint))
}

fn check_member(root: &str, rest: &[String], members: &[&str]) -> Option<Mistake> {
    let name = rest.first()?;
    let known = members.contains(&name.as_str());
    (!known).then(|| (format!("there is no `{root}.{name}`"), format!("`{root}` has {}", members.join(", "))))
}
