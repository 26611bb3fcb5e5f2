//! Lists of steps, and what every step can have.

use std::time::Duration;

use semel::Retry;
use serde_json::Value as Json;

use super::{BLOCKS, DefinedStep, LanguageReader, STEP, StepBody};
use crate::definitions::document::{Member, Node, Value};
use crate::definitions::limits;
use crate::definitions::problem::At;
use crate::definitions::template::{Filled, Template, unknown_member};
use crate::tasks::{self, ABSENT, KINDS};

/// The members that go with a block.
fn companions_of(block: &str) -> &'static [&'static str] {
    match block {
        "for_each" | "loop" => &["steps"],
        "try" => &["catch", "finally"],
        _ => &[],
    }
}

/// Members that only go with a block.
const COMPANIONS: [&str; 3] = ["steps", "catch", "finally"];
/// Members that only go with a task that makes attempts.
const TRIES: [&str; 3] = ["retry", "timeout", "class"];

fn is_body(name: &str) -> bool {
    tasks::find(name).is_some() || ABSENT.contains(&name) || BLOCKS.iter().any(|block| block.name == name)
}

/// Everything that a step may have.
fn known() -> impl Iterator<Item = &'static str> + Clone {
    let fields = STEP.iter().map(|field| field.name);
    fields
        .chain(KINDS.iter().map(|kind| kind.name))
        .chain(ABSENT.iter().copied())
        .chain(BLOCKS.iter().map(|block| block.name))
}

impl LanguageReader<'_> {
    /// The list of steps under a name.
    pub(super) fn steps(&mut self, node: &Node, name: &str, at: &At) -> Vec<DefinedStep> {
        let Some(list) = node.get(name) else { return Vec::new() };
        self.list(list, &at.member(name, list.place))
    }

    /// A list of steps.
    pub(super) fn list(&mut self, node: &Node, at: &At) -> Vec<DefinedStep> {
        let Value::List(nodes) = &node.value else {
            let message = format!("a list of steps is expected, and this is {}", node.kind());
            self.problems.structure(at, message).hint = Some("begin each step with `- name: …`".to_owned());
            return Vec::new();
        };
        if nodes.is_empty() {
            self.problems.structure(at, "the list of steps is empty").hint =
                Some("it needs at least one".to_owned());
        }
        let mut steps: Vec<DefinedStep> = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            let Some(step) = self.step(node, &at.element(index, node.place)) else { continue };
            if let Some(first) = steps.iter().find(|first| first.name == step.name && !step.name.is_empty()) {
                let line = first.at.place.line;
                let at = step.at.member("name", node.get("name").map_or(node.place, |name| name.place));
                self.problems.meaning(&at, format!("the name `{}` is there twice", step.name)).hint =
                    Some(format!("names are unique in their list; the first one is in line {line}"));
            }
            steps.push(step);
        }
        steps
    }

    pub(super) fn step(&mut self, node: &Node, at: &At) -> Option<DefinedStep> {
        let Value::Object(members) = &node.value else {
            self.problems.structure(at, format!("a step is an object, and this is {}", node.kind())).hint =
                Some("write `name:` and a task, such as `- {name: pause, wait: 5m}`".to_owned());
            return None;
        };
        self.steps += 1;
        if self.steps == limits::STEPS + 1 {
            self.problems
                .structure(at, format!("the definition has more than {} steps", limits::STEPS))
                .hint =
                Some("move a part of it into a definition of its own, and call that with `child`".to_owned());
        }
        let body = self.body_member(members, at);
        self.check_step_members(members, body, at);
        let name = self.step_name(node, at);
        let condition = self.field(node, &STEP, "if", at);
        let retry = self.field(node, &STEP, "retry", at).map(|template| retry(&template));
        let timeout = self.field(node, &STEP, "timeout", at).and_then(|template| template.duration());
        let keep = self.field(node, &STEP, "keep", at);
        let class = self.field(node, &STEP, "class", at);
        let at_most_once = class.is_some_and(|class| class.text() == Some("at-most-once"));
        let undo = self.undo(node, at);
        let body = body.map_or(StepBody::Unknown, |body| self.body(node, body, at));
        Some(DefinedStep { name, at: at.clone(), condition, retry, timeout, keep, undo, at_most_once, body })
    }

    fn step_name(&mut self, node: &Node, at: &At) -> String {
        if node.get("name").is_none() {
            self.problems.structure(at, "the step has no name").hint = Some(
                "every step has a `name`: it is the identity of its effect, and in every error".to_owned(),
            );
        }
        let name = self.field(node, &STEP, "name", at);
        name.and_then(|name| name.text().map(str::to_owned)).unwrap_or_default()
    }

    /// The member that says what the step does; there must be exactly one.
    fn body_member<'n>(&mut self, members: &'n [Member], at: &At) -> Option<&'n Member> {
        let mut bodies = members.iter().filter(|member| is_body(&member.name));
        let (first, second) = (bodies.next(), bodies.next());
        match (first, second) {
            (None, _) => {
                let unknown = members.iter().any(|member| !known().any(|name| name == member.name));
                let hint = "give it one task, such as `http`, `worker` or `wait`, or one block";
                if !unknown {
                    self.problems.structure(at, "the step does nothing").hint = Some(hint.to_owned());
                }
            }
            (Some(first), Some(second)) => {
                let at = at.member(&second.name, second.place);
                let message =
                    format!("a step does one thing, and this one has `{}` and `{}`", first.name, second.name);
                self.problems.structure(&at, message).hint = Some("make it two steps".to_owned());
            }
            _ => {}
        }
        first
    }

    fn check_step_members(&mut self, members: &[Member], body: Option<&Member>, at: &At) {
        let body = body.map_or("", |body| body.name.as_str());
        let companions = companions_of(body);
        let tries =
            body == "transaction" || tasks::find(body).map_or(ABSENT.contains(&body), |kind| kind.tries);
        for member in members {
            let (name, at) = (member.name.as_str(), at.member(&member.name, member.place));
            if !known().any(|known| known == name) {
                self.problems.add(unknown_member(name, known(), &at));
            } else if COMPANIONS.contains(&name) && !companions.contains(&name) {
                let hint = "`steps` goes with `for_each` and `loop`, `catch` and `finally` with `try`";
                self.problems.structure(&at, format!("`{name}` has no meaning here")).hint =
                    Some(hint.to_owned());
            } else if TRIES.contains(&name) && !tries && !body.is_empty() {
                let hint = "it goes with tasks that have an effect, such as http, sql or worker, and with `transaction`";
                self.problems.structure(&at, format!("`{body}` has no `{name}`")).hint =
                    Some(hint.to_owned());
            }
        }
        let missing =
            companions.first().filter(|name| **name == "steps" && !members.iter().any(|m| m.name == **name));
        if let Some(name) = missing {
            self.problems.structure(at, format!("`{body}` has no `{name}`")).hint =
                Some(format!("write the steps of a pass in `steps`, beside `{body}`"));
        }
    }

    fn undo(&mut self, node: &Node, at: &At) -> Vec<DefinedStep> {
        let steps = self.steps(node, "undo", at);
        for step in steps.iter().filter(|step| !step.undo.is_empty()) {
            let at = step.at.member("undo", step.at.place);
            self.problems.structure(&at, "what undoes a step is not undone itself").hint =
                Some("a failing undo does not stop the others; the run's error lists it".to_owned());
        }
        steps
    }

    fn body(&mut self, node: &Node, body: &Member, at: &At) -> StepBody {
        let at_body = at.member(&body.name, body.node.place);
        if let Some(kind) = tasks::find(&body.name) {
            return StepBody::Task(kind, Template::read(&body.node, &kind.args, &at_body, self.problems));
        }
        match body.name.as_str() {
            "parallel" => self.parallel(&body.node, &at_body),
            "for_each" => self.for_each(node, &body.node, (at, &at_body)),
            "loop" => self.loops(node, &body.node, (at, &at_body)),
            "switch" => self.switch(&body.node, &at_body),
            "try" => self.tries(node, &body.node, (at, &at_body)),
            "transaction" => self.transaction(&body.node, &at_body),
            _ => {
                let message = format!("this server does not have the task `{}` yet", body.name);
                let at = at.member(&body.name, body.place);
                self.problems.meaning(&at, message).hint = Some(
                    "it is part of the language, and comes with a later version of the server".to_owned(),
                );
                StepBody::Absent(body.name.clone())
            }
        }
    }
}

/// The retry policy; what is absent is as the engine has it.
fn retry(template: &Template) -> Retry {
    let mut retry = Retry::default();
    let double = |name: &str| match template.get(name).map(|value| &value.value) {
        Some(Filled::Plain(Json::Number(number))) => number.as_f64(),
        _ => None,
    };
    let duration = |name: &str, otherwise: Duration| {
        template.get(name).and_then(Template::duration).unwrap_or(otherwise)
    };
    if let Some(attempts) = template.get("attempts") {
        let counted = attempts.integer().and_then(|attempts| u32::try_from(attempts).ok());
        retry.max_attempts = counted.unwrap_or(u32::MAX);
    }
    retry.initial = duration("first", retry.initial);
    retry.max_delay = duration("most", retry.max_delay);
    retry.factor = double("factor").unwrap_or(retry.factor);
    retry.jitter = double("jitter").unwrap_or(retry.jitter);
    retry
}
