//! The arguments that `llm`, `agent` and `planner` have in common, evaluated.

use semel::{Fail, Result, fatal};
use serde_json::Value as Json;

use crate::definitions::schema::InputSchema;
use crate::models::{Style, Turn};

/// What a model is asked, and how.
#[derive(Debug)]
pub(in crate::tasks) struct AskSettings {
    /// Name of the model; that of the connection if absent.
    pub(in crate::tasks) model: Option<String>,
    /// Instructions of the author.
    pub(in crate::tasks) system: Option<String>,
    /// The conversation with which it begins.
    pub(in crate::tasks) turns: Vec<Turn>,
    /// Schema of the answer; any text if absent.
    pub(in crate::tasks) output: Option<InputSchema>,
    /// How answers are made.
    pub(in crate::tasks) style: Style,
}

impl AskSettings {
    pub(in crate::tasks) fn read(args: &Json) -> Result<Self> {
        let turns = match (args.get("prompt"), args.get("messages")) {
            (Some(prompt), _) => vec![Turn::User(text(prompt))],
            (None, Some(Json::Array(messages))) if !messages.is_empty() => {
                messages.iter().map(message).collect::<Result<_>>()?
            }
            _ => return Err(wrong("`messages` is a list of `{role, content}` that is not empty")),
        };
        let stop = args["stop"].as_array().into_iter().flatten();
        Ok(Self {
            model: args["model"].as_str().map(str::to_owned),
            system: args.get("system").map(text),
            turns,
            output: args.get("output").map(|schema| InputSchema::new(schema.clone())),
            style: Style {
                temperature: args["temperature"].as_f64(),
                max_tokens: args["max_tokens"].as_u64(),
                stop: stop.filter_map(|text| text.as_str().map(str::to_owned)).collect(),
            },
        })
    }
}

fn message(message: &Json) -> Result<Turn> {
    let content = message.get("content").map(text);
    match (message["role"].as_str(), content) {
        (Some("user"), Some(content)) => Ok(Turn::User(content)),
        (Some("assistant"), Some(content)) => Ok(Turn::Assistant(content)),
        _ => Err(wrong("a message is `{role: user, content: …}` or `{role: assistant, content: …}`")),
    }
}

/// A value as models read it: texts as they are, everything else as JSON.
pub(in crate::tasks) fn text(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn wrong(message: &str) -> Fail {
    fatal(message).with_code("EXPRESSION")
}
