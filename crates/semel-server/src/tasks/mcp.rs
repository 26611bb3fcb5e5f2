//! `mcp`: calls a tool of an MCP server.
//!
//! What can be done about a lost answer is said by the operator for each tool: a tool that reads, or that has an argument for the
//! effect key, is called again; any other is called at most once.

use std::sync::Arc;

use semel::rules::json::Payload;
use semel::sdk::FailExt as _;
use semel::{Attempt, Ctx, Fail, Result, Retry, fatal};
use serde_json::{Map, Value as Json, json};

use super::connection::{connection, missing, target};
use super::tries::{pause_before_next, uncertain};
use super::{Class, Executing, Kind, TaskCall, TaskEnd, nothing, read, record};
use crate::connections::{Connection, Connections, McpFailed, McpResult, McpTarget, ToolRule};
use crate::definitions::language::DefinedStep;
use crate::definitions::shape::{Field, Shape};
use crate::definitions::template::Template;
use crate::models::Offer;

pub(super) static KIND: Kind = Kind {
    name: "mcp",
    about: "Calls a tool of an MCP server. Its value is `{text, output?, content?}`.",
    args: Shape::Object(&[
        Field::required("on", Shape::Name, "Connection of the kind `mcp`."),
        Field::required("tool", Shape::Fixed, "Name of the tool, as the server has it."),
        Field::new("args", Shape::Map(&Shape::Any), "Arguments of the tool."),
    ]),
    on: &["mcp"],
    tries: true,
    class: by_connection,
    check: nothing,
    execute,
};

fn by_connection(_: &Template) -> Class {
    Class::ByConnection
}

fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(async move {
        let text = |name: &str| call.args.get(name).and_then(Template::text).unwrap_or_default();
        let calling = ToolStep::new(&call, call.ctx, text("on"), text("tool")).await;
        let arguments =
            |attempt: &Attempt| Ok(call.args_of(attempt)?.get("args").cloned().unwrap_or_else(|| json!({})));
        read(calling.run(&call.step.name, arguments).await?)
    })
}

/// Calls a tool for a model: `names` are those of the step, of the connection and of the tool.
pub(in crate::tasks) async fn call_tool(
    call: &TaskCall<'_>,
    ctx: &Ctx,
    names: (&str, &str, &str),
    arguments: &Json,
) -> Result<Payload> {
    let (step, connection, tool) = names;
    let calling = ToolStep::of_model(call, ctx, connection, tool).await;
    match read(calling.run(step, |_: &Attempt| Ok(arguments.clone())).await?)? {
        TaskEnd::Refused(refused) => Err(refused.fail()),
        TaskEnd::Kept(value) | TaskEnd::Value(value) => Ok(value),
        TaskEnd::Set(_) | TaskEnd::Return(_) => Ok(Payload::null()),
    }
}

/// The tools of a server, as they were when they were first asked for.
pub(in crate::tasks) async fn listed(call: &TaskCall<'_>, ctx: &Ctx, name: &str) -> Result<Vec<Offer>> {
    let calling = ToolStep::of_model(call, ctx, name, "").await;
    let step = ctx.step("tools").key(name);
    step.run(async |attempt: Attempt| {
        let (connection, mcp) = calling.target(&attempt)?;
        let asked = Box::pin(calling.within(&attempt, connection, mcp.tools())).await;
        asked.map_err(|failed| Fail::retryable(failed.message().to_owned()).with_code("MCP"))
    })
    .await
}

/// The call of a tool, as a step.
struct ToolStep<'a> {
    call: &'a TaskCall<'a>,
    ctx: &'a Ctx,
    connection: std::result::Result<Arc<Connection>, String>,
    tool: &'a str,
    /// What the author says about the step; nothing if a model calls the tool.
    step: Option<&'a DefinedStep>,
}

impl<'a> ToolStep<'a> {
    async fn new(call: &'a TaskCall<'a>, ctx: &'a Ctx, on: &str, tool: &'a str) -> Self {
        let connection = connection(call, &call.ctx.state::<Connections>(), on).await;
        Self { call, ctx, connection, tool, step: Some(call.step) }
    }

    async fn of_model(call: &'a TaskCall<'a>, ctx: &'a Ctx, on: &str, tool: &'a str) -> Self {
        Self { step: None, ..Self::new(call, ctx, on, tool).await }
    }

    /// What is known about the tool. That of a connection that is missing is not known yet.
    fn rule(&self) -> ToolRule {
        let known = target(&self.connection, KIND.on).map(|(_, mcp): (_, &McpTarget)| mcp.rule(self.tool));
        known.unwrap_or_default()
    }

    fn retry(&self) -> Retry {
        self.step.and_then(|step| step.retry).unwrap_or_default()
    }

    fn target(&self, attempt: &Attempt) -> Result<(&Connection, &McpTarget)> {
        let found = target(&self.connection, KIND.on);
        found.map_err(missing).retry_after(pause_before_next(self.retry(), attempt, None))
    }

    async fn run(
        &self,
        name: &str,
        arguments: impl Fn(&Attempt) -> Result<Json> + Send + Sync,
    ) -> Result<Payload> {
        let rule = self.rule();
        let once = self.step.is_some_and(|step| step.at_most_once) || rule == ToolRule::Nothing;
        let step = self.ctx.step(name).retry(self.retry());
        let step = if once { step.at_most_once() } else { step };
        let (rule, arguments) = (&rule, &arguments);
        step.run(async |attempt: Attempt| Box::pin(self.attempt(attempt, (rule, once), arguments)).await)
            .await
    }

    async fn attempt(
        &self,
        attempt: Attempt,
        (rule, once): (&ToolRule, bool),
        arguments: &(impl Fn(&Attempt) -> Result<Json> + Send + Sync),
    ) -> Result<Payload> {
        let (connection, mcp) = self.target(&attempt)?;
        let mut arguments = match arguments(&attempt)? {
            Json::Object(arguments) => arguments,
            _ => Map::new(),
        };
        if let ToolRule::KeyIn(argument) = rule {
            arguments.insert(argument.clone(), json!(attempt.key()));
        }
        let _turn = connection.turns.acquire().await.map_err(Fail::retryable)?;
        let calling = mcp.call(self.tool, arguments, attempt.key());
        let called = Box::pin(self.within(&attempt, connection, calling)).await;
        let what = format!("{}: tool {}", connection.name, self.tool);
        match called {
            Ok(result) if result.is_error => Err(fatal(format!("{what} has failed: {:.500}", result.text))
                .with_code("MCP")
                .with_data(&result.value)),
            Ok(McpResult { value, .. }) => {
                let value = Payload::of(&value).map_err(|refused| fatal(refused).with_code("TOO_LARGE"));
                record(value.and_then(|value| self.keep(&attempt, value, connection.max_result)))
            }
            Err(McpFailed::NotSent(why)) => Err(missing(format!("{what}: {why}")))
                .retry_after(pause_before_next(self.retry(), &attempt, None)),
            Err(McpFailed::Refused(why)) => Err(fatal(format!("{what}: {why}")).with_code("MCP")),
            Err(McpFailed::Lost(why)) => {
                let fail = Fail::retryable(format!("{what}: {why}")).with_code("MCP");
                Err(if once { uncertain(fail) } else { fail })
            }
        }
    }

    /// What is recorded of a result: a model is shown all of it.
    fn keep(&self, attempt: &Attempt, value: Payload, most: usize) -> Result<Payload> {
        match self.step {
            Some(_) => self.call.keep(attempt, value, most),
            None => super::call::bounded(value, most),
        }
    }

    /// Waits for the server within the time of the step. What has not answered by then may have taken place.
    async fn within<T>(
        &self,
        attempt: &Attempt,
        connection: &Connection,
        calling: impl Future<Output = std::result::Result<T, McpFailed>>,
    ) -> std::result::Result<T, McpFailed> {
        let _outside = attempt.outside();
        let limit = self.step.and_then(|step| step.timeout).unwrap_or(connection.timeout);
        let elapsed = attempt.clock().until(attempt.clock().now().after(limit));
        tokio::select! {
            called = calling => called,
            () = elapsed => Err(McpFailed::Lost(format!("there was no answer within {limit:?}"))),
        }
    }
}
