//! What `llm`, `agent` and `planner` have in common: calls of models, each a step of its own.
//!
//! - [`asking`]: one call, from the question to what is recorded. [`answer`]: what is recorded. [`settings`]: the arguments.
//! - [`budget`]: what may be used. [`toolbox`]: what a model may have done. [`embed`]: vectors of texts.
//!
//! A call is the step `model` in the scope of the task: `opinion/model`, `opinion/model#2` … Everything that is decided from an
//! answer (whether it fits, which tools it calls, and with which arguments) is recorded with it, so that a replay decides alike.

pub(in crate::tasks) mod answer;
pub(in crate::tasks) mod asking;
pub(in crate::tasks) mod budget;
pub(in crate::tasks) mod embed;
pub(in crate::tasks) mod settings;
pub(in crate::tasks) mod toolbox;

#[cfg(all(test, feature = "mcp"))]
mod tests;

use super::{Checks, Class};
use crate::definitions::language::{DefinedStep, StepBody};
use crate::definitions::shape::{Field, Shape};
use crate::definitions::template::{Filled, Template};
use crate::models::MOST_COST;

/// Kinds of connections that have models.
pub(super) const MODELS: &[&str] = &["openai", "anthropic"];
/// How often an answer that does not fit is asked for again.
pub(super) const AGAIN: u32 = 2;
/// Maximum number of tokens that a limit can say.
const MANY: i64 = 1_000_000_000;

pub(super) const ON: Field =
    Field::required("on", Shape::Name, "Connection that has the model: `openai` or `anthropic`.");
pub(super) const MODEL: Field =
    Field::new("model", Shape::Fixed, "Name of the model; that of the connection if absent.");
pub(super) const SYSTEM: Field =
    Field::new("system", Shape::Text, "Instructions that stand before the conversation.");
pub(super) const PROMPT: Field = Field::new("prompt", Shape::Text, "What the model is asked.");
pub(super) const MESSAGES: Field = Field::new(
    "messages",
    Shape::Items,
    "A conversation instead of `prompt`: a list of `{role, content}` with the roles user and assistant.",
);
pub(super) const OUTPUT: Field = Field::new(
    "output",
    Shape::Schema,
    "JSON Schema of the answer. What does not fit is asked for again, twice.",
);
pub(super) const TEMPERATURE: Field = Field::new(
    "temperature",
    Shape::Number(0.0, 2.0),
    "How much chance is in the answer; as the provider has it if absent.",
);
pub(super) const MAX_TOKENS: Field =
    Field::new("max_tokens", Shape::Integer(1, 1_000_000), "Maximum length of one answer in tokens.");
pub(super) const STOP: Field =
    Field::new("stop", Shape::List(&Shape::Fixed), "Texts at which an answer ends.");
pub(super) const TOKENS_LIMIT: Field = Field::new(
    "tokens",
    Shape::Integer(1, MANY),
    "Tokens of all questions and answers after which there is no further call.",
);
pub(super) const COST_LIMIT: Field = Field::new(
    "cost",
    Shape::Number(0.0, MOST_COST),
    "Cost of all calls after which there is no further one; needs prices in the connection.",
);

/// The limits of `agent` and `planner`.
pub(super) static LIMITS: [Field; 3] = [
    Field::new(
        "rounds",
        Shape::Integer(1, budget::MOST_ROUNDS as i64),
        "Maximum number of calls of the model; 10 if absent.",
    ),
    TOKENS_LIMIT,
    COST_LIMIT,
];

/// Checks what the arguments of all three tasks have in common.
pub(super) fn check(args: &Template, checks: &mut Checks<'_>) {
    checks.exactly_one(args, &["prompt", "messages"]);
    let Some(Template { value: Filled::List(messages), .. }) = args.get("messages") else { return };
    for message in messages {
        let role = message.get("role").and_then(Template::text);
        if !matches!(role, Some("user" | "assistant")) || message.get("content").is_none() {
            let hint = "write `{role: user, content: …}` or `{role: assistant, content: …}`; instructions are in `system`";
            checks.refuse(&message.at, "this is no message", hint);
        }
    }
}

/// A part of a task that has a path of its own in a run.
#[derive(Debug)]
pub(crate) struct TaskPart<'a> {
    /// Path below that of the step, with `*` for keys.
    pub(crate) path: String,
    /// What it is: `model`, or the kind of a task.
    pub(crate) kind: &'a str,
    /// What is known about repeating its effect.
    pub(crate) class: Class,
    /// Connection that it uses; absent if none.
    pub(crate) connection: Option<&'a str>,
}

/// The parts of a step: calls of its model, and of its tools.
pub(crate) fn parts<'a>(kind: &str, step: &DefinedStep, args: &'a Template) -> Vec<TaskPart<'a>> {
    let scope = match kind {
        "llm" | "agent" => "tool",
        "planner" => "step",
        _ => return Vec::new(),
    };
    let class = |step: &DefinedStep, class| if step.at_most_once { Class::AtMostOnce } else { class };
    let on = |args: &'a Template| args.get("on").and_then(Template::text);
    let model = TaskPart {
        path: "model".to_owned(),
        kind: "model",
        class: class(step, Class::Keyed),
        connection: on(args),
    };
    let mut parts = vec![model];
    let Some(tools) = args.tools() else { return parts };
    for (tool, _) in tools.steps() {
        let StepBody::Task(kind, args) = &tool.body else { continue };
        let (path, class) = (format!("{scope}[*]/{}", tool.name), class(tool, (kind.class)(args)));
        parts.push(TaskPart { path, kind: kind.name, class, connection: on(args) });
    }
    for server in &tools.servers {
        let (class, connection) = (Class::ByConnection, Some(&*server.connection));
        let named = server.only.iter().flatten().map(|name| toolbox::offered_name(name));
        let names = if server.only.is_some() { named.collect() } else { vec!["*".to_owned()] };
        let part =
            |name: String| TaskPart { path: format!("{scope}[*]/{name}"), kind: "mcp", class, connection };
        parts.extend(names.into_iter().map(part));
    }
    parts
}
