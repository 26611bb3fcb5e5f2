//! What language models are asked, and what they answer, in the two shapes that are spoken over HTTP: chat completions ([`ModelApi::OpenAi`])
//! and messages ([`ModelApi::Anthropic`]).
//!
//! Only data here: a question becomes the body of a request, and the body of an answer becomes a [`Reply`]. Sending is the business of
//! connections, and what is recorded that of tasks. `schema`: JSON Schemas as the providers take them; `price`: what an answer costs.

mod anthropic;
mod openai;
mod price;
mod schema;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

pub use openai::{EMBEDDINGS, Embedded, embedding_question, embeddings};
pub use price::{Cost, MOST as MOST_COST, Price, Usage};

/// The shape in which a model is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelApi {
    /// Chat completions, as `OpenAI` and many other servers have them.
    OpenAi,
    /// Messages, as Anthropic has them.
    Anthropic,
}

/// A question to a model.
#[derive(Clone, Copy, Debug)]
pub struct ModelQuestion<'a> {
    /// Name of the model.
    pub model: &'a str,
    /// Instructions that stand before the conversation; none if absent.
    pub system: Option<&'a str>,
    /// The conversation up to this call, the oldest turn first.
    pub turns: &'a [Turn],
    /// Tools that the model may call.
    pub tools: &'a [Offer],
    /// JSON Schema of the answer; any text if absent.
    pub output: Option<&'a Json>,
    /// How the answer is made.
    pub style: &'a Style,
}

/// How an answer is made. What is absent is as the provider has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Style {
    /// How much chance is in the answer: 0 is the least.
    pub temperature: Option<f64>,
    /// Maximum length of the answer in tokens.
    pub max_tokens: Option<u64>,
    /// Texts at which the answer ends.
    pub stop: Vec<String>,
}

/// A part of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Turn {
    /// A text of the user.
    User(String),
    /// A text of the model that the author has written.
    Assistant(String),
    /// A message of the model, as its provider has written it.
    Model(Json),
    /// What the tools gave that the message before has called, in its order.
    Results(Vec<ToolOutput>),
}

/// Result of a tool call, for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// Id of the call, as the model has named it.
    pub id: String,
    /// The result as text: JSON, if it is no text.
    pub text: String,
    /// Whether the tool has failed.
    pub is_error: bool,
}

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// Name of the tool: at most 64 of `A-Za-z0-9_-`.
    pub name: String,
    /// Description of the tool for the model.
    pub about: String,
    /// JSON Schema of its arguments.
    pub input: Json,
}

/// The answer of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The message as the provider has written it, to continue the conversation with.
    pub message: Json,
    /// The text of the answer; empty if it only calls tools.
    pub text: String,
    /// Calls of tools, in the order in which the model has written them.
    pub calls: Vec<WantedCall>,
    /// Reason for which the model stopped.
    pub end: ReplyEnd,
    /// Tokens that were used; absent if the server does not say it.
    pub usage: Option<Usage>,
}

/// The call of a tool that a model wants.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedCall {
    /// Id of the call, by which its result is given back.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments, or the text that is no JSON.
    pub arguments: Result<Json, String>,
}

/// Reason for which a model stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplyEnd {
    /// The model had said what it wanted to say.
    Done,
    /// The answer has reached its maximum length.
    Length,
    /// The model, or a filter of its provider, refuses to answer.
    Refused,
}

impl ModelApi {
    /// Path of the requests below the base address.
    pub fn path(self) -> &'static str {
        match self {
            Self::OpenAi => "/chat/completions",
            Self::Anthropic => "/messages",
        }
    }

    /// The body of a request. `host` is that of the server: some differ.
    pub fn body(self, question: &ModelQuestion<'_>, host: &str) -> Json {
        match self {
            Self::OpenAi => openai::body(question, host),
            Self::Anthropic => anthropic::body(question),
        }
    }

    /// Reads the body of an answer; the error says why it is none.
    pub fn reply(self, body: &Json) -> Result<Reply, String> {
        match self {
            Self::OpenAi => openai::reply(body),
            Self::Anthropic => anthropic::reply(body),
        }
    }
}

/// Arguments of a call as a model has written them. No arguments are none.
fn arguments(text: &str) -> Result<Json, String> {
    if text.trim().is_empty() {
        return Ok(Json::Object(serde_json::Map::new()));
    }
    serde_json::from_str(text).map_err(|_| text.to_owned())
}

/// Whether a text can be the name of a tool.
pub fn is_tool_name(name: &str) -> bool {
    (1..=TOOL_NAME).contains(&name.len())
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-'))
}

/// Maximum length of a tool's name: that of both providers.
pub const TOOL_NAME: usize = 64;
