//! What a model may have done: tasks of the definition, and tools of MCP servers.
//!
//! The n-th call of the m-th answer is done in the scope `tool[m-n]`: `opinion/tool[2-1]/history`. Calls of one answer are under
//! way at the same time, and their results are told in their order.

use futures_util::future::join_all;
use semel::rules::json::Payload;
use semel::{Ctx, Result, fatal};
use serde_json::{Value as Json, json};

use super::answer::{Judged, ToolCall};
use super::settings::text;
use crate::definitions::expression::Data;
use crate::definitions::language::{DefinedStep, StepBody};
use crate::definitions::schema::InputSchema;
use crate::models::{Offer, Reply, TOOL_NAME, ToolOutput};
use crate::tasks::{TaskCall, TaskEnd, evaluated};

/// Maximum size of a result that a model is shown, in bytes: it is sent with every further question.
const SHOWN: usize = 64 * 1024;
/// Maximum number of tools: providers take little more, and models choose badly among many.
pub(in crate::tasks) const TOOLS: usize = 64;
/// Maximum number of calls of one answer that are carried out.
const CALLS: usize = 64;

/// The tools of a step.
pub(in crate::tasks) struct Toolbox<'a> {
    call: TaskCall<'a>,
    /// The run, in the scope of the step.
    ctx: Ctx,
    /// Name of the scopes of calls: `tool`, or `step` in a planner.
    scope: &'static str,
    tools: Vec<Tool<'a>>,
    /// What the model is told about them, in the same order.
    pub(in crate::tasks) offers: Vec<Offer>,
}

struct Tool<'a> {
    name: String,
    input: InputSchema,
    does: ToolBody<'a>,
}

enum ToolBody<'a> {
    /// A task of the definition.
    Defined(&'a DefinedStep),
    /// A tool of an MCP server: the connection, and its name there.
    #[cfg(feature = "mcp")]
    Server { connection: &'a str, tool: String },
}

impl<'a> Toolbox<'a> {
    /// The tools of a step. Those of MCP servers are asked for once and recorded.
    pub(in crate::tasks) async fn open(call: TaskCall<'a>, ctx: &Ctx, scope: &'static str) -> Result<Self> {
        let mut toolbox = Self { call, ctx: ctx.clone(), scope, tools: Vec::new(), offers: Vec::new() };
        let Some(list) = call.args.tools() else { return Ok(toolbox) };
        for (step, detail) in list.steps() {
            let offer = Offer {
                name: step.name.clone(),
                about: detail.about.clone(),
                input: detail.input.json().clone(),
            };
            toolbox.add(offer, ToolBody::Defined(step))?;
        }
        for server in &list.servers {
            toolbox.add_server(server).await?;
        }
        Ok(toolbox)
    }

    #[cfg(feature = "mcp")]
    async fn add_server(&mut self, server: &'a crate::definitions::language::ToolServer) -> Result<()> {
        let listed = crate::tasks::mcp::listed(&self.call, &self.ctx, &server.connection).await?;
        for name in server.only.iter().flatten() {
            if !listed.iter().any(|tool| tool.name == *name) {
                let why = format!("the MCP server of `{}` has no tool `{name}`", server.connection);
                return Err(fatal(why).with_code("MCP"));
            }
        }
        for Offer { name, about, input } in listed {
            if server.only.as_ref().is_some_and(|only| !only.contains(&name)) {
                continue;
            }
            let offer = Offer { name: offered_name(&name), about, input };
            self.add(offer, ToolBody::Server { connection: &server.connection, tool: name })?;
        }
        Ok(())
    }

    #[cfg(not(feature = "mcp"))]
    async fn add_server(&mut self, server: &'a crate::definitions::language::ToolServer) -> Result<()> {
        let why =
            format!("this server was built without MCP, and cannot use the tools of `{}`", server.connection);
        Err(fatal(why).with_code("ABSENT"))
    }

    fn add(&mut self, offer: Offer, does: ToolBody<'a>) -> Result<()> {
        if self.tools.iter().any(|tool| tool.name == offer.name) {
            let why =
                format!("two tools have the name `{}`; choose those of a server with `only`", offer.name);
            return Err(fatal(why).with_code("EXPRESSION"));
        }
        if self.tools.len() == TOOLS {
            let why = format!("there are more than {TOOLS} tools; choose those of a server with `only`");
            return Err(fatal(why).with_code("LIMIT"));
        }
        self.tools.push(Tool {
            name: offer.name.clone(),
            input: InputSchema::new(offer.input.clone()),
            does,
        });
        self.offers.push(offer);
        Ok(())
    }

    fn find(&self, name: &str) -> Option<&Tool<'a>> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Why the arguments of a call are not accepted; none if they are.
    pub(in crate::tasks) fn refusal(&self, name: &str, arguments: &Json) -> Option<String> {
        let Some(tool) = self.find(name) else { return Some(format!("there is no tool `{name}`")) };
        let misfits = tool.input.misfits(arguments);
        let told: Vec<_> =
            misfits.iter().map(|misfit| format!("{}: {}", misfit.pointer, misfit.message)).collect();
        (!told.is_empty()).then(|| format!("the arguments do not fit: {}", told.join("; ")))
    }

    /// The calls that an answer wants, each with the reason if it is not carried out.
    pub(in crate::tasks) fn decide(&self, reply: &Reply) -> Judged {
        let calls = reply.calls.iter().enumerate().map(|(at, wanted)| {
            let (arguments, refused) = match &wanted.arguments {
                _ if at >= CALLS => {
                    (Json::Null, Some(format!("at most {CALLS} tools are called by one answer")))
                }
                Ok(arguments) => (arguments.clone(), self.refusal(&wanted.name, arguments)),
                Err(text) => (json!(text), Some("the arguments are no JSON".to_owned())),
            };
            ToolCall { id: wanted.id.clone(), name: wanted.name.clone(), arguments, refused }
        });
        Judged { calls: calls.collect(), ..Judged::default() }
    }

    /// Carries out the calls of the answer with this number.
    pub(in crate::tasks) async fn carry_out(
        &self,
        answer: u32,
        calls: &[ToolCall],
    ) -> Result<Vec<ToolOutput>> {
        let running =
            calls.iter().enumerate().map(|(at, call)| self.one(format!("{answer}-{}", at + 1), call));
        join_all(running).await.into_iter().collect()
    }

    async fn one(&self, key: String, call: &ToolCall) -> Result<ToolOutput> {
        let output = |text: String, is_error| ToolOutput { id: call.id.clone(), text, is_error };
        if let Some(refused) = &call.refused {
            return Ok(output(failure("REFUSED", refused), true));
        }
        let (text, is_error) = told(self.carried_out(&key, &call.name, &call.arguments).await)?;
        Ok(output(text, is_error))
    }

    /// Does what a tool is for; the key tells the call from others.
    pub(in crate::tasks) async fn carried_out(
        &self,
        key: &str,
        name: &str,
        arguments: &Json,
    ) -> Result<Payload> {
        let tool = self.find(name).ok_or_else(|| fatal(format!("there is no tool `{name}`")))?;
        let ctx = self.ctx.scope_keyed(self.scope, key);
        match &tool.does {
            ToolBody::Defined(step) => self.defined(&ctx, step, arguments).await,
            #[cfg(feature = "mcp")]
            ToolBody::Server { connection, tool: name } => {
                crate::tasks::mcp::call_tool(&self.call, &ctx, (&*tool.name, *connection, &**name), arguments)
                    .await
            }
        }
    }

    async fn defined(&self, ctx: &Ctx, step: &DefinedStep, arguments: &Json) -> Result<Payload> {
        let StepBody::Task(kind, args) = &step.body else {
            return Err(fatal(format!("`{}` is no task", step.name)));
        };
        let scope = self.call.scope.with("call", Data::of_json(arguments));
        let call = TaskCall { ctx, step, args, scope: &scope, hooks: self.call.hooks };
        match (kind.execute)(call).await? {
            TaskEnd::Kept(value) => Ok(value),
            TaskEnd::Refused(refused) => Err(refused.fail()),
            TaskEnd::Value(value) => match &step.keep {
                None => Ok(value),
                Some(keep) => {
                    let kept = evaluated(keep, &scope.with("this", Data::of_payload(&value)))?;
                    Payload::of(&kept).map_err(|refused| fatal(refused).with_code("TOO_LARGE"))
                }
            },
            TaskEnd::Set(_) | TaskEnd::Return(_) => Ok(Payload::null()),
        }
    }
}

/// A result as the model is shown it.
fn shown(value: &Payload) -> String {
    let whole = match value.read::<Json>() {
        Ok(Json::String(text)) => text,
        _ => value.text().to_owned(),
    };
    if whole.len() <= SHOWN {
        return whole;
    }
    let end = (0..=SHOWN).rev().find(|end| whole.is_char_boundary(*end)).unwrap_or_default();
    format!("{}\n(cut off: the result has {} bytes, and {SHOWN} are shown)", &whole[..end], whole.len())
}

/// A failure as the model is shown it.
fn failure(code: &str, message: &str) -> String {
    text(&json!({"error": {"code": code, "message": message}}))
}

/// The name under which a tool of a server is offered: providers take letters of ASCII, digits, `_` and `-`.
pub(in crate::tasks) fn offered_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    name.chars().map(plain).take(TOOL_NAME).collect()
}

/// What the model is told of a result, and whether it is a failure. A run that is asked to end tells nothing.
pub(in crate::tasks) fn told(result: Result<Payload>) -> Result<(String, bool)> {
    match result {
        Ok(value) => Ok((shown(&value), false)),
        Err(fail) if fail.is_cancelled() => Err(fail),
        Err(fail) => Ok((failure(fail.code().unwrap_or("FAILED"), &fail.to_string()), true)),
    }
}
