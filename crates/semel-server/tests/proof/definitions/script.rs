//! What the model of the phase says, and which tools the MCP server has. A question begins with the place that it is about; what is
//! answered follows from the last name of the place, and from how many answers the model has given before.

use serde_json::{Value, json};

/// How a provider writes its answers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wire {
    /// Chat completions.
    Completions,
    /// Messages.
    Messages,
}

/// What a model says.
pub(super) enum Said {
    Text(String),
    /// Calls of tools: names and arguments.
    Tools(Vec<(&'static str, Value)>),
}

/// The place that is asked about, and the number of the answers before.
pub(super) fn asked(question: &Value) -> Option<(String, usize)> {
    let messages = question["messages"].as_array()?;
    let of = |role: &'static str| messages.iter().filter(move |message| message["role"] == role);
    let place = of("user").next()?["content"].as_str()?.to_owned();
    Some((place, of("assistant").count()))
}

/// The answer to a question; none if it is not in the script.
pub(super) fn answer(at: &str, round: usize, number: u64) -> Option<Said> {
    let (_, name) = at.rsplit_once('/')?;
    let text = |text: String| Some(Said::Text(text));
    let tool = |place: &str| json!({"at": format!("{at}/{place}")});
    match (name, round) {
        // It has to be asked twice: the first answer does not fit the schema.
        ("asked", 0) => text("a number".to_owned()),
        ("asked", _) => text(json!({"n": number}).to_string()),
        ("spoken" | "once", _) => text(number.to_string()),
        ("agent", 0) => Some(Said::Tools(vec![
            ("charge", tool("tool[1-1]/charge")),
            ("find", json!({"at": at})),
            ("keep", tool("tool[1-3]/keep")),
        ])),
        ("agent", 1) => Some(Said::Tools(vec![("push", tool("tool[2-1]/push"))])),
        ("agent", _) => text(number.to_string()),
        ("plan", 0) => {
            text(json!({"next": {"step": "charge", "why": "w", "input": tool("step[1]/charge")}}).to_string())
        }
        ("plan", _) => text(json!({"next": {"step": "done", "why": "w", "result": number}}).to_string()),
        _ => None,
    }
}

impl Said {
    /// The answer as a provider writes it.
    pub(super) fn encoded(&self, wire: Wire, round: usize) -> Value {
        match wire {
            Wire::Completions => self.completion(round),
            Wire::Messages => self.message(round),
        }
    }

    fn completion(&self, round: usize) -> Value {
        let (message, end) = match self {
            Self::Text(text) => (json!({"role": "assistant", "content": text}), "stop"),
            Self::Tools(calls) => {
                let call = |(at, (name, arguments)): (usize, &(&str, Value))| {
                    json!({"id": format!("c{round}-{at}"), "type": "function",
                        "function": {"name": name, "arguments": arguments.to_string()}})
                };
                let calls: Vec<Value> = calls.iter().enumerate().map(call).collect();
                (json!({"role": "assistant", "content": null, "tool_calls": calls}), "tool_calls")
            }
        };
        json!({"choices": [{"message": message, "finish_reason": end}], "usage": {"prompt_tokens": 100, "completion_tokens": 10}})
    }

    fn message(&self, round: usize) -> Value {
        let (content, end) = match self {
            Self::Text(text) => (vec![json!({"type": "text", "text": text})], "end_turn"),
            Self::Tools(calls) => {
                let call = |(at, (name, input)): (usize, &(&str, Value))| json!({"type": "tool_use", "id": format!("c{round}-{at}"), "name": name, "input": input});
                (calls.iter().enumerate().map(call).collect(), "tool_use")
            }
        };
        json!({"content": content, "stop_reason": end, "usage": {"input_tokens": 100, "output_tokens": 10}})
    }
}

/// The vectors for a number of texts.
pub(super) fn embeddings(texts: usize) -> Value {
    let vectors: Vec<Value> =
        (0..texts).map(|index| json!({"index": index, "embedding": [index, 1]})).collect();
    json!({"data": vectors, "usage": {"prompt_tokens": 3}})
}

/// What the MCP server answers before a tool is called.
pub(super) fn introduction(method: &str) -> Value {
    let tool = |name: &str| {
        json!({"name": name, "description": format!("To {name}."),
            "inputSchema": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}})
    };
    match method {
        "initialize" => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "tools", "version": "1"}}),
        "tools/list" => {
            let tools = ["find", "book", "push"].map(tool);
            json!({ "tools": tools })
        }
        _ => json!({}),
    }
}
