//! The model of an account, which says what a test has written, and an MCP server whose tools give their arguments back.

use serde_json::{Value, json};

use super::{Books, Effect, SentRequest, Told, keyed, refuse};

/// The answer of the round: there is one for each message of the model so far. A question is counted by its key.
pub(super) fn answer(books: &mut Books, asked: &SentRequest) -> Told {
    let question: Value = serde_json::from_str(&asked.body).ok()?;
    let round =
        question["messages"].as_array()?.iter().filter(|message| message["role"] == "assistant").count();
    let counted = keyed(books, asked, "idempotency-key")?;
    if counted.0 != 200 {
        return Some(counted);
    }
    let Some(said) = books.says.get(round) else { return refuse(books, "the model has nothing more to say") };
    let (message, end) = match said {
        Value::String(text) => (json!({"role": "assistant", "content": text}), "stop"),
        tools => {
            (json!({"role": "assistant", "content": null, "tool_calls": calls(tools, round)}), "tool_calls")
        }
    };
    Some((
        200,
        json!({"choices": [{"message": message, "finish_reason": end}], "usage": {"prompt_tokens": 100, "completion_tokens": 10}}),
    ))
}

fn calls(tools: &Value, round: usize) -> Vec<Value> {
    let call = |(at, tool): (usize, &Value)| {
        json!({"id": format!("c{round}-{at}"), "type": "function",
            "function": {"name": tool[0], "arguments": tool[1].to_string()}})
    };
    tools.as_array().into_iter().flatten().enumerate().map(call).collect()
}

/// One message to the MCP server, which has the tool `find_customer`.
pub(super) fn tool(books: &mut Books, asked: &SentRequest) -> Told {
    let message: Value = serde_json::from_str(&asked.body).ok()?;
    let Some(id) = message.get("id") else { return Some((202, Value::Null)) };
    let params = &message["params"];
    let result = match message["method"].as_str()? {
        "initialize" => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "crm", "version": "1"}}),
        "tools/list" => {
            let schema =
                json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
            json!({"tools": [{"name": "find_customer", "description": "Finds.", "inputSchema": schema}]})
        }
        "tools/call" => {
            let path = format!("/crm/{}", params["name"].as_str()?);
            let key = params["_meta"]["semel/effect-key"].as_str()?.to_owned();
            books.done.push(Effect { path, key, body: params["arguments"].to_string() });
            json!({"content": [{"type": "text", "text": params["arguments"].to_string()}]})
        }
        _ => json!({}),
    };
    Some((200, json!({"jsonrpc": "2.0", "id": id, "result": result})))
}
