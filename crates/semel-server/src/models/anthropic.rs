//! Messages, as Anthropic has them.

use serde_json::{Map, Value as Json, json};

use super::schema::for_anthropic;
use super::{ModelQuestion, Offer, Reply, ReplyEnd, ToolOutput, Turn, Usage, WantedCall};

/// Maximum length of an answer in tokens if the author does not say it: the API wants one.
const MAX_TOKENS: u64 = 4_096;

pub(super) fn body(question: &ModelQuestion<'_>) -> Json {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(question.model));
    body.insert("max_tokens".to_owned(), json!(question.style.max_tokens.unwrap_or(MAX_TOKENS)));
    if let Some(system) = question.system {
        body.insert("system".to_owned(), json!(system));
    }
    body.insert("messages".to_owned(), question.turns.iter().map(message).collect());
    if !question.tools.is_empty() {
        body.insert("tools".to_owned(), question.tools.iter().map(tool).collect());
    }
    if let Some(schema) = question.output.and_then(for_anthropic) {
        body.insert("output_config".to_owned(), json!({"format": {"type": "json_schema", "schema": schema}}));
    }
    if let Some(temperature) = question.style.temperature {
        body.insert("temperature".to_owned(), json!(temperature));
    }
    if !question.style.stop.is_empty() {
        body.insert("stop_sequences".to_owned(), json!(question.style.stop));
    }
    Json::Object(body)
}

fn message(turn: &Turn) -> Json {
    match turn {
        Turn::User(text) => json!({"role": "user", "content": text}),
        Turn::Assistant(text) => json!({"role": "assistant", "content": text}),
        Turn::Model(content) => json!({"role": "assistant", "content": content}),
        Turn::Results(results) => {
            json!({"role": "user", "content": results.iter().map(result).collect::<Vec<_>>()})
        }
    }
}

fn result(ToolOutput { id, text, is_error }: &ToolOutput) -> Json {
    json!({"type": "tool_result", "tool_use_id": id, "content": text, "is_error": is_error})
}

fn tool(Offer { name, about, input }: &Offer) -> Json {
    json!({"name": name, "description": about, "input_schema": input})
}

pub(super) fn reply(body: &Json) -> Result<Reply, String> {
    let content = body["content"].as_array().ok_or("it has no `content`")?;
    let of_kind = |kind: &'static str| content.iter().filter(move |block| block["type"] == kind);
    let text = of_kind("text").filter_map(|block| block["text"].as_str()).collect();
    let calls = of_kind("tool_use").map(call).collect::<Result<Vec<_>, _>>()?;
    let end = match body["stop_reason"].as_str() {
        Some("max_tokens" | "model_context_window_exceeded") => ReplyEnd::Length,
        Some("refusal") => ReplyEnd::Refused,
        _ => ReplyEnd::Done,
    };
    Ok(Reply { message: body["content"].clone(), text, calls, end, usage: usage(&body["usage"]) })
}

fn call(block: &Json) -> Result<WantedCall, String> {
    let text = |name: &str| block[name].as_str().map(str::to_owned);
    let (Some(id), Some(name)) = (text("id"), text("name")) else {
        return Err("a call of a tool has no `id` or no name".to_owned());
    };
    Ok(WantedCall { id, name, arguments: Ok(block["input"].clone()) })
}

/// What was written into the provider's cache, or read from it, is counted as the rest of the question.
fn usage(usage: &Json) -> Option<Usage> {
    let tokens = |name: &str| usage[name].as_u64();
    let cached = ["cache_creation_input_tokens", "cache_read_input_tokens"]
        .into_iter()
        .filter_map(tokens)
        .sum::<u64>();
    Some(Usage {
        input: tokens("input_tokens")? + cached,
        output: tokens("output_tokens").unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::Style;
    use super::*;

    #[test]
    fn a_conversation_with_tools_is_written_as_messages() {
        let output = json!({"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}});
        let tools =
            [Offer { name: "find".to_owned(), about: "Finds.".to_owned(), input: json!({"type": "object"}) }];
        let said = json!([{"type": "tool_use", "id": "c1", "name": "find", "input": {}}]);
        let turns = [
            Turn::User("hello".to_owned()),
            Turn::Model(said.clone()),
            Turn::Results(vec![ToolOutput { id: "c1".to_owned(), text: "7".to_owned(), is_error: true }]),
        ];
        let style = Style { temperature: None, max_tokens: None, stop: vec!["END".to_owned()] };
        let question = ModelQuestion {
            model: "m",
            system: Some("be brief"),
            turns: &turns,
            tools: &tools,
            output: Some(&output),
            style: &style,
        };
        let schema =
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false});
        let expected = json!({
            "model": "m", "max_tokens": 4096, "system": "be brief", "stop_sequences": ["END"],
            "messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": said},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "7", "is_error": true}]}],
            "tools": [{"name": "find", "description": "Finds.", "input_schema": {"type": "object"}}],
            "output_config": {"format": {"type": "json_schema", "schema": schema}},
        });
        assert_eq!(body(&question), expected);
    }

    #[test]
    fn an_answer_has_text_calls_and_usage() {
        let answer = json!({"stop_reason": "tool_use", "content": [{"type": "thinking", "thinking": "…"}, {"type": "text", "text": "a"},
            {"type": "tool_use", "id": "c1", "name": "find", "input": {"n": 1}}],
            "usage": {"input_tokens": 3, "cache_read_input_tokens": 10, "output_tokens": 4}});
        let reply = reply(&answer).unwrap();
        assert_eq!(
            (&*reply.text, reply.end, reply.usage),
            ("a", ReplyEnd::Done, Some(Usage { input: 13, output: 4 }))
        );
        assert_eq!(
            reply.calls,
            [WantedCall { id: "c1".to_owned(), name: "find".to_owned(), arguments: Ok(json!({"n": 1})) }]
        );
        assert_eq!(reply.message, answer["content"]);
        let end = |reason: &str| super::reply(&json!({"content": [], "stop_reason": reason})).unwrap().end;
        assert_eq!(
            (end("max_tokens"), end("refusal"), end("end_turn")),
            (ReplyEnd::Length, ReplyEnd::Refused, ReplyEnd::Done)
        );
        for wrong in [json!({}), json!({"content": [{"type": "tool_use"}]}), json!([])] {
            assert!(super::reply(&wrong).is_err(), "{wrong}");
        }
    }
}
