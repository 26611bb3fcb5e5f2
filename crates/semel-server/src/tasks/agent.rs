//! `agent`: a language model that uses tools until it has an answer.

use semel::Result;
use serde_json::Value as Json;

use super::llm::{invalid, value};
use super::model::answer::{Judged, ModelAnswer};
use super::model::asking::{Asked, Asking};
use super::model::budget::Budget;
use super::model::settings::AskSettings;
use super::model::toolbox::Toolbox;
use super::model::{self, AGAIN, MODELS};
use super::{Executing, Kind, TaskCall, TaskEnd, without_effect};
use crate::definitions::schema::InputSchema;
use crate::definitions::shape::{Field, Shape};
use crate::models::{Reply, Turn};

pub(super) static KIND: Kind = Kind {
    name: "agent",
    about: "Lets a language model use tools until it has an answer. Its value is that of `llm`; each call of the model and of a tool is a recorded step.",
    args: Shape::Object(&[
        model::ON,
        model::MODEL,
        model::SYSTEM,
        model::PROMPT,
        model::MESSAGES,
        Field::new("tools", Shape::Tools, "What the model may call: tasks, and tools of MCP servers."),
        model::OUTPUT,
        model::TEMPERATURE,
        model::MAX_TOKENS,
        model::STOP,
        Field::new("limits", Shape::Object(&model::LIMITS), "What it may use: another call is `LIMIT`."),
    ]),
    on: MODELS,
    tries: true,
    // Its calls are steps of their own, with a class each.
    class: without_effect,
    check: model::check,
    execute,
};

fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(async move {
        let args = call.args()?;
        let settings = AskSettings::read(&args)?;
        let mut budget = Budget::read(&args, None);
        let asking = Asking::new(call, &settings, settings.system.clone()).await;
        let toolbox = Toolbox::open(call, &asking.ctx, "tool").await?;
        let agent = Agent { asking, toolbox, settings: &settings };
        let answer = agent.answer(&mut budget).await?;
        let mut value = value(&answer, settings.output.as_ref());
        budget.tell(&mut value);
        TaskEnd::value(&Json::Object(value))
    })
}

struct Agent<'a> {
    asking: Asking<'a>,
    toolbox: Toolbox<'a>,
    settings: &'a AskSettings,
}

impl Agent<'_> {
    /// Asks, carries out what is called, and asks again, until there is an answer that fits.
    async fn answer(&self, budget: &mut Budget) -> Result<ModelAnswer> {
        let output = self.settings.output.as_ref().map(InputSchema::json);
        let decide = |reply: &Reply| self.decide(reply);
        let (mut turns, mut misfits) = (self.settings.turns.clone(), 0);
        loop {
            budget.check()?;
            let tools = &self.toolbox.offers;
            let answer = self.asking.ask(Asked { turns: &turns, tools, output, decide: &decide }).await?;
            budget.add(&answer);
            if !answer.calls.is_empty() {
                let results = self.toolbox.carry_out(budget.calls(), &answer.calls).await?;
                turns.extend([answer.turn(), Turn::Results(results)]);
                continue;
            }
            match output {
                Some(schema) if !answer.misfits.is_empty() => {
                    misfits += 1;
                    if misfits > AGAIN {
                        return Err(invalid(&answer));
                    }
                    turns.extend([answer.turn(), answer.again(schema)]);
                }
                _ => return Ok(answer),
            }
        }
    }

    fn decide(&self, reply: &Reply) -> Judged {
        match &self.settings.output {
            _ if !reply.calls.is_empty() => self.toolbox.decide(reply),
            Some(schema) => Judged::by_schema(reply, schema),
            None => Judged::default(),
        }
    }
}
