//! Tasks that ask models and call tools.

use serde_json::{Value as Json, json};

use super::paths::name;
use super::tasks::{StepMembers, one};
use super::{Conversion, Ordered, Task};

/// `StepMembers` of a question to a model that have a counterpart.
const PLAIN: [(&str, &str); 4] =
    [("model", "model"), ("temperature", "temperature"), ("maxTokens", "max_tokens"), ("stopWords", "stop")];

/// `LLM_CHAT_COMPLETE` and `LLM_TEXT_COMPLETE` become `llm`. The provider is the name of the connection.
pub(super) fn llm(conversion: &mut Conversion, task: &Task<'_>) -> StepMembers {
    let provider = name(task.input("llmProvider").as_str().unwrap_or("model"));
    conversion
        .note(task, &format!("configure the connection `{provider}`, of the kind `openai` or `anthropic`"));
    let mut members = one("on", Ordered::text(provider));
    for (theirs, ours) in PLAIN {
        let value = task.input(theirs);
        if !value.is_null() {
            members.push((ours.to_owned(), conversion.argument(task, value)));
        }
    }
    let (asked, system) = match question(task) {
        Ok(found) => found,
        Err(reason) => {
            conversion.refuse(task, reason);
            return StepMembers::new();
        }
    };
    if !system.is_null() {
        members.push(("system".to_owned(), conversion.argument(task, &system)));
    }
    let member = if asked.is_array() { "messages" } else { "prompt" };
    members.push((member.to_owned(), conversion.argument(task, &asked)));
    if task.input("jsonOutput") == &Json::Bool(true) {
        conversion.note(task, "the answer is any JSON object; describe it in `output`");
        members.push(("output".to_owned(), Ordered::object([("type", Ordered::text("object"))])));
    }
    one("llm", Ordered::Object(members))
}

/// What is asked, and the instructions before it.
fn question(task: &Task<'_>) -> Result<(Json, Json), &'static str> {
    let instructions = [task.input("instructions"), task.input("instructionsTemplate")]
        .into_iter()
        .find(|text| text.is_string());
    let mut system = instructions.cloned().unwrap_or_default();
    let mut messages = Vec::new();
    for message in task.input("messages").as_array().into_iter().flatten() {
        let said = &message["message"];
        match message["role"].as_str() {
            Some("user" | "human") => messages.push(json!({"role": "user", "content": said})),
            Some("assistant" | "ai") => messages.push(json!({"role": "assistant", "content": said})),
            Some("system") if system.is_null() => system = said.clone(),
            _ => return Err("the role of a message is not known now: use user, assistant, or one system"),
        }
    }
    let prompt = [task.input("userInput"), task.input("prompt")].into_iter().find(|text| text.is_string());
    match prompt {
        Some(prompt) => messages.push(json!({"role": "user", "content": prompt})),
        None if messages.is_empty() && task.input("promptName").is_string() => {
            return Err("its prompt is kept by Conductor's server: write the text into `prompt`");
        }
        None => {}
    }
    match &messages[..] {
        [] => Err("it asks nothing: write what into `prompt`"),
        [only] if only["role"] == "user" => Ok((only["content"].clone(), system)),
        _ => Ok((Json::Array(messages), system)),
    }
}

/// `CALL_MCP_TOOL` becomes `mcp`. The address of the server belongs to a connection.
pub(super) fn mcp(conversion: &mut Conversion, task: &Task<'_>) -> StepMembers {
    let Some(tool) = task.input("method").as_str().filter(|tool| !tool.contains("${")) else {
        conversion.refuse(task, "the tool is chosen at run time: use a `switch`, or an `agent`");
        return StepMembers::new();
    };
    let server = task.input("mcpServer").as_str().unwrap_or_default();
    let on = name(
        server.rsplit("//").next().and_then(|rest| rest.split(['/', ':', '.']).next()).unwrap_or_default(),
    );
    conversion.note(
        task,
        &format!("configure the connection `{on}`, of the kind `mcp`, for {server}; the call is not repeated until the connection says that it can be"),
    );
    let arguments = task.input("arguments");
    let mut members = one("on", Ordered::text(on));
    members.push(("tool".to_owned(), Ordered::text(tool)));
    if arguments.is_object() {
        members.push(("args".to_owned(), conversion.argument(task, arguments)));
    }
    one("mcp", Ordered::Object(members))
}

/// `result` is the text, or a member of the answer as JSON.
pub(super) fn llm_output(task: &str, rest: &[String]) -> Result<Vec<String>, String> {
    match rest {
        [result] if result == "result" => Ok(vec!["text".to_owned()]),
        [result, members @ ..] if result == "result" => {
            Ok(std::iter::once("output".to_owned()).chain(members.iter().cloned()).collect())
        }
        _ => Err(format!("of `{task}`, only `result` can be read")),
    }
}

/// `content[0].text` is the text, `structuredContent` the value.
pub(super) fn mcp_output(task: &str, rest: &[String]) -> Result<Vec<String>, String> {
    match rest {
        [content, first, text] if content == "content" && first == "0" && text == "text" => {
            Ok(vec!["text".to_owned()])
        }
        [structured, members @ ..] if structured == "structuredContent" => {
            Ok(std::iter::once("output".to_owned()).chain(members.iter().cloned()).collect())
        }
        _ => Err(format!("of `{task}`, only `content[0].text` and `structuredContent` can be read")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::import;
    use crate::definitions::document;

    fn imported(tasks: &serde_json::Value) -> Result<serde_json::Value, String> {
        let workflow = json!({"name": "ask", "version": 1, "tasks": tasks}).to_string();
        let imported = import(&workflow)
            .map_err(|refusals| refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        Ok(document::read(&imported.text).unwrap().plain()["steps"].clone())
    }

    #[test]
    fn questions_to_models_keep_their_words() {
        let ask = json!({"name": "ask", "taskReferenceName": "ask", "type": "LLM_CHAT_COMPLETE", "inputParameters": {
            "llmProvider": "openai", "model": "small", "instructions": "Be brief.", "temperature": 0.1, "maxTokens": 50,
            "jsonOutput": true, "messages": [{"role": "user", "message": "Judge ${workflow.input.order}"}]}});
        let told = json!({"name": "told", "taskReferenceName": "told", "inputParameters": {"a": "${ask.output.result}", "b": "${ask.output.result.risk}"}});
        assert_eq!(
            imported(&json!([ask, told])).unwrap(),
            json!([
                {"name": "ask", "llm": {"on": "openai", "model": "small", "temperature": 0.1, "max_tokens": 50, "system": "Be brief.",
                    "prompt": "Judge {{ input.order }}", "output": {"type": "object"}}},
                {"name": "told", "worker": {"queue": "told", "input": {"a": "{{ steps.ask.text }}", "b": "{{ steps.ask.output.risk }}"}}},
            ])
        );
        let kept = json!({"name": "ask", "taskReferenceName": "ask", "type": "LLM_CHAT_COMPLETE", "inputParameters": {"promptName": "mine"}});
        assert!(imported(&json!([kept])).unwrap_err().contains("`prompt`"));
    }

    #[cfg(feature = "mcp")]
    #[test]
    fn calls_of_tools_name_a_connection() {
        let call = json!({"name": "find", "taskReferenceName": "find", "type": "CALL_MCP_TOOL", "inputParameters": {
            "mcpServer": "http://crm.example.com/mcp", "method": "find_customer", "arguments": {"id": "${workflow.input.id}"}}});
        let told = json!({"name": "told", "taskReferenceName": "told", "inputParameters": {"a": "${find.output.content[0].text}"}});
        assert_eq!(
            imported(&json!([call, told])).unwrap(),
            json!([
                {"name": "find", "mcp": {"on": "crm", "tool": "find_customer", "args": {"id": "{{ input.id }}"}}},
                {"name": "told", "worker": {"queue": "told", "input": {"a": "{{ steps.find.text }}"}}},
            ])
        );
        let chosen = json!({"name": "find", "taskReferenceName": "find", "type": "CALL_MCP_TOOL", "inputParameters": {"method": "${workflow.input.tool}"}});
        assert!(imported(&json!([chosen])).unwrap_err().contains("`agent`"));
    }
}
