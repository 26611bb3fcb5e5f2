//! Chat completions and embeddings, as `OpenAI` and many other servers have them.

use serde_json::{Map, Value as Json, json};

use super::schema::is_strict;
use super::{ModelQuestion, Offer, Reply, ReplyEnd, Turn, Usage, WantedCall, arguments};

/// The host whose newer models refuse the member `max_tokens`; other servers often know no other.
const OPENAI: &str = "api.openai.com";

/// Path of embeddings below the base address.
pub const EMBEDDINGS: &str = "/embeddings";

pub(super) fn body(question: &ModelQuestion<'_>, host: &str) -> Json {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(question.model));
    let system = question.system.map(|system| json!({"role": "system", "content": system}));
    let messages: Vec<Json> = system.into_iter().chain(question.turns.iter().flat_map(messages)).collect();
    body.insert("messages".to_owned(), Json::Array(messages));
    if !question.tools.is_empty() {
        body.insert("tools".to_owned(), question.tools.iter().map(tool).collect());
    }
    if let Some(schema) = question.output {
        let format = json!({"name": "answer", "schema": schema, "strict": is_strict(schema)});
        body.insert("response_format".to_owned(), json!({"type": "json_schema", "json_schema": format}));
    }
    if let Some(temperature) = question.style.temperature {
        body.insert("temperature".to_owned(), json!(temperature));
    }
    if let Some(most) = question.style.max_tokens {
        let name = if host == OPENAI { "max_completion_tokens" } else { "max_tokens" };
        body.insert(name.to_owned(), json!(most));
    }
    if !question.style.stop.is_empty() {
        body.insert("stop".to_owned(), json!(question.style.stop));
    }
    Json::Object(body)
}

fn messages(turn: &Turn) -> Vec<Json> {
    match turn {
        Turn::User(text) => vec![json!({"role": "user", "content": text})],
        Turn::Assistant(text) => vec![json!({"role": "assistant", "content": text})],
        Turn::Model(message) => vec![message.clone()],
        Turn::Results(results) => {
            let result = |result: &super::ToolOutput| json!({"role": "tool", "tool_call_id": result.id, "content": result.text});
            results.iter().map(result).collect()
        }
    }
}

fn tool(Offer { name, about, input }: &Offer) -> Json {
    json!({"type": "function", "function": {"name": name, "description": about, "parameters": input}})
}

pub(super) fn reply(body: &Json) -> Result<Reply, String> {
    let choice = body.pointer("/choices/0").ok_or("it has no `choices`")?;
    let message =
        choice.get("message").filter(|message| message.is_object()).ok_or("its choice has no `message`")?;
    let refusal = message["refusal"].as_str().filter(|refusal| !refusal.is_empty());
    let calls = match &message["tool_calls"] {
        Json::Array(calls) => calls.iter().map(call).collect::<Result<Vec<_>, _>>()?,
        _ => Vec::new(),
    };
    let end = match choice["finish_reason"].as_str() {
        _ if refusal.is_some() => ReplyEnd::Refused,
        Some("length") => ReplyEnd::Length,
        Some("content_filter") => ReplyEnd::Refused,
        _ => ReplyEnd::Done,
    };
    let text = refusal.or_else(|| message["content"].as_str()).unwrap_or_default().to_owned();
    Ok(Reply { message: message.clone(), text, calls, end, usage: usage(body) })
}

fn call(call: &Json) -> Result<WantedCall, String> {
    let function = &call["function"];
    let name = function["name"].as_str().ok_or("a call of a tool has no name")?;
    let id = call["id"].as_str().ok_or("a call of a tool has no `id`")?;
    let arguments = match &function["arguments"] {
        Json::String(text) => arguments(text),
        Json::Null => arguments(""),
        other => Ok(other.clone()),
    };
    Ok(WantedCall { id: id.to_owned(), name: name.to_owned(), arguments })
}

fn usage(body: &Json) -> Option<Usage> {
    let usage = &body["usage"];
    let input = usage["prompt_tokens"].as_u64()?;
    Some(Usage { input, output: usage["completion_tokens"].as_u64().unwrap_or_default() })
}

/// The body of a request for embeddings.
pub fn embedding_question(model: &str, texts: &[String]) -> Json {
    json!({"model": model, "input": texts, "encoding_format": "float"})
}

/// The embeddings of some texts.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedded {
    /// One vector for each text, in their order.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens that were used; absent if the server does not say it.
    pub usage: Option<Usage>,
}

/// Reads the answer to a request for the embeddings of this number of texts; the error says why it is none.
pub fn embeddings(body: &Json, texts: usize) -> Result<Embedded, String> {
    let data = body["data"].as_array().ok_or("it has no `data`")?;
    let mut vectors = vec![Vec::new(); texts];
    for (at, item) in data.iter().enumerate() {
        let index = item["index"].as_u64().and_then(|index| usize::try_from(index).ok()).unwrap_or(at);
        let numbers = item["embedding"].as_array().ok_or("one of its embeddings is no list")?;
        #[expect(clippy::cast_possible_truncation, reason = "embeddings are kept with the digits of a float")]
        let number =
            |number: &Json| number.as_f64().map(|number| number as f32).filter(|number| number.is_finite());
        let vector = numbers
            .iter()
            .map(number)
            .collect::<Option<Vec<_>>>()
            .ok_or("one of its embeddings has no numbers")?;
        let place = vectors.get_mut(index).ok_or("it has more embeddings than texts were sent")?;
        *place = vector;
    }
    let length = vectors.first().map_or(0, Vec::len);
    match vectors.iter().all(|vector| vector.len() == length && length > 0) {
        true => Ok(Embedded { vectors, usage: usage(body) }),
        false => Err("its embeddings are not all there, or are not of one length".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Style, ToolOutput};
    use super::*;

    #[test]
    fn a_conversation_with_tools_is_written_as_chat_completions() {
        let output = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let tools =
            [Offer { name: "find".to_owned(), about: "Finds.".to_owned(), input: json!({"type": "object"}) }];
        let said = json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c1"}]});
        let turns = [
            Turn::User("hello".to_owned()),
            Turn::Model(said.clone()),
            Turn::Results(vec![ToolOutput { id: "c1".to_owned(), text: "7".to_owned(), is_error: false }]),
        ];
        let style = Style { temperature: Some(0.5), max_tokens: Some(9), stop: vec!["END".to_owned()] };
        let question = ModelQuestion {
            model: "m",
            system: Some("be brief"),
            turns: &turns,
            tools: &tools,
            output: Some(&output),
            style: &style,
        };
        let expected = json!({
            "model": "m", "temperature": 0.5, "max_tokens": 9, "stop": ["END"],
            "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}, said,
                {"role": "tool", "tool_call_id": "c1", "content": "7"}],
            "tools": [{"type": "function", "function": {"name": "find", "description": "Finds.", "parameters": {"type": "object"}}}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "strict": false, "schema": output}},
        });
        assert_eq!(body(&question, "llm.example"), expected);
        assert_eq!(body(&question, OPENAI)["max_completion_tokens"], 9);
    }

    #[test]
    fn an_answer_has_text_calls_and_usage() {
        let answer = json!({"choices": [{"finish_reason": "tool_calls", "message": {"role": "assistant", "content": null,
            "tool_calls": [{"id": "c1", "function": {"name": "find", "arguments": "{\"a\":1}"}},
                {"id": "c2", "function": {"name": "find", "arguments": "{"}}]}}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 4}});
        let reply = reply(&answer).unwrap();
        assert_eq!(reply.usage, Some(Usage { input: 3, output: 4 }));
        assert_eq!(reply.calls[0].arguments, Ok(json!({"a": 1})));
        assert_eq!((&*reply.calls[1].id, &reply.calls[1].arguments), ("c2", &Err("{".to_owned())));
        let end =
            |choice: Json| super::reply(&json!({"choices": [choice]})).map(|reply| (reply.end, reply.text));
        let refused = json!({"message": {"refusal": "no"}, "finish_reason": "stop"});
        assert_eq!(end(refused), Ok((ReplyEnd::Refused, "no".to_owned())));
        let cut = json!({"message": {"content": "on"}, "finish_reason": "length"});
        assert_eq!(end(cut), Ok((ReplyEnd::Length, "on".to_owned())));
        for wrong in [json!({}), json!({"choices": []}), json!({"choices": [{}]}), json!("x")] {
            assert!(super::reply(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn embeddings_are_in_the_order_of_the_texts() {
        let body = json!({"data": [{"index": 1, "embedding": [0.5, 1]}, {"index": 0, "embedding": [2, 3]}], "usage": {"prompt_tokens": 5}});
        let embedded = embeddings(&body, 2).unwrap();
        assert_eq!(embedded.vectors, [[2.0, 3.0], [0.5, 1.0]]);
        assert_eq!(embedded.usage, Some(Usage { input: 5, output: 0 }));
        assert!(embeddings(&body, 3).is_err() && embeddings(&body, 1).is_err());
        assert!(embeddings(&json!({"data": [{"embedding": [1]}, {"embedding": [1, 2]}]}), 2).is_err());
    }
}
