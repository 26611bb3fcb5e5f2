//! What a call of a model leaves in the ledger.

use std::collections::BTreeMap;

use semel::rules::json::Payload;
use semel::{Result, fatal};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::definitions::schema::InputSchema;
use crate::models::{Cost, Reply, ReplyEnd, Turn, Usage};
use crate::tasks::RefusedResult;

/// Member under which an answer is recorded.
pub(crate) const ANSWERED: &str = "semel:model";

/// An answer, with everything that was decided from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::tasks) struct ModelAnswer {
    /// Connection that was used.
    pub(in crate::tasks) connection: String,
    /// Model that was asked.
    pub(in crate::tasks) model: String,
    /// The message as the provider has written it; null if the conversation does not go on.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    pub(in crate::tasks) message: Json,
    /// Text of the answer.
    pub(in crate::tasks) text: String,
    /// The answer as JSON, if that was wanted and it fits.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    pub(in crate::tasks) output: Json,
    /// Why the answer does not fit; empty if it does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::tasks) misfits: Vec<String>,
    /// Tools that the model calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::tasks) calls: Vec<ToolCall>,
    /// Why the answer ends.
    pub(in crate::tasks) end: ReplyEnd,
    /// Tokens that were used; absent if the server does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::tasks) usage: Option<Usage>,
    /// What it cost; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::tasks) cost: Option<Cost>,
    /// Why the answer cannot be used although it was paid for; absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::tasks) refused: Option<RefusedResult>,
}

/// The call of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::tasks) struct ToolCall {
    /// Id by which its result is given back.
    pub(in crate::tasks) id: String,
    /// Name of the tool.
    pub(in crate::tasks) name: String,
    /// Arguments, as the model has given them.
    pub(in crate::tasks) arguments: Json,
    /// Why it is not carried out; absent if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::tasks) refused: Option<String>,
}

/// What an answer has cost: the part of it that sums are made of.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ModelUse {
    /// Connection that was used.
    pub(crate) connection: String,
    /// Model that was asked.
    pub(crate) model: String,
    /// Tokens that were used; absent if the server does not say it.
    pub(crate) usage: Option<Usage>,
    /// What it cost; absent if that is not known.
    pub(crate) cost: Option<Cost>,
}

impl ModelUse {
    /// The use that a recorded value tells of; none if it is no answer of a model.
    pub(crate) fn of(value: &Payload) -> Option<Self> {
        // Most values are none: they are not parsed.
        if !value.text().starts_with(&format!("{{\"{ANSWERED}\"")) {
            return None;
        }
        let mut recorded: BTreeMap<String, Self> = value.read().ok()?;
        recorded.remove(ANSWERED)
    }
}

impl ModelAnswer {
    /// What is recorded. An answer of more than `most` bytes is recorded as refused: it was paid for, and would be again.
    pub(in crate::tasks) fn record(&self, most: usize) -> Result<Payload> {
        let payload = |answer: &Self| {
            Payload::of(&BTreeMap::from([(ANSWERED, answer)]))
                .map_err(|why| fatal(why).with_code("TOO_LARGE"))
        };
        match payload(self) {
            Ok(payload) if payload.text().len() <= most => Ok(payload),
            _ => {
                let why = format!(
                    "the answer of the model has more than the {most} bytes that are recorded; ask for less"
                );
                payload(&self.clone().without_content(RefusedResult {
                    code: "TOO_LARGE".to_owned(),
                    message: why,
                    data: None,
                }))
            }
        }
    }

    /// The recorded answer; none if an operator has said what was answered.
    pub(in crate::tasks) fn read(recorded: &Payload) -> Option<Self> {
        let mut read: BTreeMap<String, Self> = recorded.read().ok()?;
        read.remove(ANSWERED)
    }

    /// The answer of a call in doubt, as an operator has given it: a text, or any JSON.
    pub(in crate::tasks) fn of_operator(recorded: &Payload, decide: &dyn Fn(&Reply) -> Judged) -> Self {
        let text = recorded.read::<String>().unwrap_or_else(|_| recorded.text().to_owned());
        let reply = Reply { message: Json::Null, text, calls: Vec::new(), end: ReplyEnd::Done, usage: None };
        let Judged { output, misfits, calls } = decide(&reply);
        let (connection, model) = (String::new(), String::new());
        Self {
            connection,
            model,
            message: Json::Null,
            text: reply.text,
            output,
            misfits,
            calls,
            end: ReplyEnd::Done,
            usage: None,
            cost: None,
            refused: None,
        }
    }

    fn without_content(self, refused: RefusedResult) -> Self {
        Self {
            message: Json::Null,
            text: String::new(),
            output: Json::Null,
            misfits: Vec::new(),
            calls: Vec::new(),
            refused: Some(refused),
            ..self
        }
    }

    /// The answer as a part of the conversation.
    pub(in crate::tasks) fn turn(&self) -> Turn {
        match self.message.is_null() {
            true => Turn::Assistant(self.text.clone()),
            false => Turn::Model(self.message.clone()),
        }
    }

    /// Asks for an answer that fits.
    pub(in crate::tasks) fn again(&self, schema: &Json) -> Turn {
        let misfits = self.misfits.join("\n- ");
        Turn::User(format!(
            "The answer does not fit:\n- {misfits}\nAnswer again, with JSON only, that fits this JSON Schema:\n{schema}"
        ))
    }
}

/// What was decided from an answer.
#[derive(Clone, Debug, Default)]
pub(in crate::tasks) struct Judged {
    /// The answer as JSON, if it fits.
    pub(in crate::tasks) output: Json,
    /// Why it does not fit.
    pub(in crate::tasks) misfits: Vec<String>,
    /// Tools that are called.
    pub(in crate::tasks) calls: Vec<ToolCall>,
}

impl Judged {
    /// Whether the text of an answer is JSON that fits a schema.
    pub(in crate::tasks) fn by_schema(reply: &Reply, schema: &InputSchema) -> Self {
        let misfit = |why: String| Self { misfits: vec![why], ..Self::default() };
        if reply.end == ReplyEnd::Length {
            return misfit("it was cut off at its maximum length".to_owned());
        }
        let output: Json = match serde_json::from_str(unfenced(&reply.text)) {
            Ok(output) => output,
            Err(error) => return misfit(format!("it is no JSON: {error}")),
        };
        let misfits = schema.misfits(&output);
        if misfits.is_empty() {
            return Self { output, ..Self::default() };
        }
        let told = misfits.into_iter().map(|misfit| match misfit.pointer.is_empty() {
            true => misfit.message,
            false => format!("{}: {}", misfit.pointer, misfit.message),
        });
        Self { misfits: told.collect(), ..Self::default() }
    }
}

/// A text without the fence of Markdown that models like to put around JSON.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inside = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    inside.map_or(text, |inside| inside.strip_prefix("json").unwrap_or(inside).trim())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(text: &str) -> ModelAnswer {
        ModelAnswer {
            connection: "model".to_owned(),
            model: "m".to_owned(),
            message: json!({"role": "assistant"}),
            text: text.to_owned(),
            output: Json::Null,
            misfits: Vec::new(),
            calls: Vec::new(),
            end: ReplyEnd::Done,
            usage: Some(Usage { input: 1, output: 2 }),
            cost: Cost::read(0.5),
            refused: None,
        }
    }

    #[test]
    fn an_answer_that_is_too_large_keeps_what_it_cost() {
        let recorded = answer(&"x".repeat(2_000)).record(1_000).unwrap();
        let read = ModelAnswer::read(&recorded).unwrap();
        assert_eq!(read.refused.unwrap().code, "TOO_LARGE");
        let used = ModelUse::of(&recorded).unwrap();
        assert_eq!((used.usage, used.cost), (Some(Usage { input: 1, output: 2 }), Cost::read(0.5)));
        let small = answer("yes");
        assert_eq!(ModelAnswer::read(&small.record(1_000).unwrap()).unwrap(), small);
        assert!(ModelUse::of(&Payload::parse(r#"{"a":{"semel:model":1}}"#).unwrap()).is_none());
    }

    #[test]
    fn an_answer_fits_a_schema_or_says_why_not() {
        let schema = InputSchema::new(
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}),
        );
        let reply = |text: &str, end| Reply {
            message: Json::Null,
            text: text.to_owned(),
            calls: Vec::new(),
            end,
            usage: None,
        };
        for text in [r#"{"a":1}"#, " {\"a\":1}\n", "```json\n{\"a\":1}\n```", "```{\"a\":1}```"] {
            assert_eq!(
                Judged::by_schema(&reply(text, ReplyEnd::Done), &schema).output,
                json!({"a": 1}),
                "{text}"
            );
        }
        for (text, end, why) in [
            (r#"{"a":"x"}"#, ReplyEnd::Done, "/a: "),
            ("yes", ReplyEnd::Done, "no JSON"),
            (r#"{"a":1}"#, ReplyEnd::Length, "cut off"),
        ] {
            let misfits = Judged::by_schema(&reply(text, end), &schema).misfits;
            assert!(misfits[0].contains(why), "{misfits:?}");
        }
    }
}
