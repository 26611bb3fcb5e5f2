//! `planner`: a language model that chooses one of the listed steps per round, until it says that the goal is reached.
//!
//! The choice is JSON: `{"next": {"step": "look", "why": "…", "input": {…}}}`, or `{"next": {"step": "done", "result": …}}`. The n-th
//! choice is carried out in the scope `step[n]`: `plan/step[2]/look`.

use semel::Result;
use semel::rules::json::Payload;
use serde_json::{Map, Value as Json, json};

use super::llm::{invalid, value};
use super::model::answer::{Judged, ModelAnswer};
use super::model::asking::{Asked, Asking};
use super::model::budget::Budget;
use super::model::settings::AskSettings;
use super::model::toolbox::{Toolbox, told};
use super::model::{self, AGAIN, MODELS};
use super::{Checks, Executing, Kind, TaskCall, TaskEnd, without_effect};
use crate::definitions::schema::InputSchema;
use crate::definitions::shape::{Field, Shape};
use crate::definitions::template::Template;
use crate::models::{Reply, Turn};

/// The choice that ends the plan.
const DONE: &str = "done";

pub(super) static KIND: Kind = Kind {
    name: "planner",
    about: "Lets a language model choose one of the listed steps per round. Its value is `{result, steps, model, calls, usage, cost?}`.",
    args: Shape::Object(&[
        model::ON,
        model::MODEL,
        model::SYSTEM,
        model::PROMPT,
        model::MESSAGES,
        Field::required(
            "steps",
            Shape::Tools,
            "The steps among which the model chooses, as the tools of an `agent`.",
        ),
        Field::new("output", Shape::Schema, "JSON Schema of the result; any value if absent."),
        model::TEMPERATURE,
        model::MAX_TOKENS,
        Field::new("limits", Shape::Object(&model::LIMITS), "What it may use: another call is `LIMIT`."),
    ]),
    on: MODELS,
    tries: true,
    // Its calls are steps of their own, with a class each.
    class: without_effect,
    check,
    execute,
};

fn check(args: &Template, checks: &mut Checks<'_>) {
    model::check(args, checks);
    let steps = args.tools().into_iter().flat_map(crate::definitions::language::ToolList::steps);
    for (step, _) in steps.filter(|(step, _)| step.name == DONE) {
        checks.refuse(
            &step.at,
            format!("`{DONE}` ends the plan, so no step has that name"),
            "give it another name",
        );
    }
}

fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(async move {
        let args = call.args()?;
        let settings = AskSettings::read(&args)?;
        let mut budget = Budget::read(&args, None);
        let scope = call.ctx.scope(&*call.step.name);
        let toolbox = Toolbox::open(call, &scope, "step").await?;
        let asking = Asking::new(call, &settings, Some(instructions(&settings, &toolbox))).await;
        let choice = choice(&settings, &toolbox);
        let plan = Planning { asking, toolbox, settings: &settings, choice: InputSchema::new(choice) };
        let (answer, taken) = plan.carry_out(&mut budget).await?;
        let mut value = value(&answer, None);
        value.remove("text");
        value.remove("end");
        value.insert("result".to_owned(), next(&answer)["result"].clone());
        value.insert("steps".to_owned(), Json::Array(taken));
        budget.tell(&mut value);
        TaskEnd::value(&Json::Object(value))
    })
}

/// What the model is told, beside what the author says.
fn instructions(settings: &AskSettings, toolbox: &Toolbox<'_>) -> String {
    let own = settings.system.as_deref().unwrap_or_default();
    let steps: String = toolbox
        .offers
        .iter()
        .map(|offer| format!("- `{}`: {} Input: {}\n", offer.name, offer.about, offer.input))
        .collect();
    format!(
        "{own}\n\nYou reach the goal step by step. In each answer choose exactly one step, as JSON: \
         {{\"next\": {{\"step\": \"<name>\", \"why\": \"<one sentence>\", \"input\": {{…}}}}}}. You are then told its result. \
         When the goal is reached, or cannot be reached, answer {{\"next\": {{\"step\": \"{DONE}\", \"why\": \"…\", \"result\": …}}}}.\n\
         The steps are:\n{steps}"
    )
    .trim_start()
    .to_owned()
}

/// JSON Schema of a choice.
fn choice(settings: &AskSettings, toolbox: &Toolbox<'_>) -> Json {
    let one = |step: &str, name: &str, schema: Json| {
        let mut properties = Map::new();
        properties.insert("step".to_owned(), json!({"const": step}));
        properties.insert("why".to_owned(), json!({"type": "string"}));
        properties.insert(name.to_owned(), schema);
        json!({"type": "object", "properties": properties, "required": ["step", "why", name], "additionalProperties": false})
    };
    let steps = toolbox.offers.iter().map(|offer| one(&offer.name, "input", offer.input.clone()));
    let result = settings.output.as_ref().map_or_else(|| json!({}), |schema| schema.json().clone());
    let all: Vec<Json> = steps.chain([one(DONE, "result", result)]).collect();
    json!({"type": "object", "properties": {"next": {"anyOf": all}}, "required": ["next"], "additionalProperties": false})
}

fn next(answer: &ModelAnswer) -> &Json {
    &answer.output["next"]
}

struct Planning<'a> {
    asking: Asking<'a>,
    toolbox: Toolbox<'a>,
    settings: &'a AskSettings,
    /// Schema of a choice, as the provider is told it.
    choice: InputSchema,
}

impl Planning<'_> {
    /// Carries out what the model chooses, until it says that it is done; gives its last answer, and the steps that were taken.
    async fn carry_out(&self, budget: &mut Budget) -> Result<(ModelAnswer, Vec<Json>)> {
        let decide = |reply: &Reply| self.decide(reply);
        let (mut turns, mut taken, mut misfits) = (self.settings.turns.clone(), Vec::new(), 0);
        loop {
            budget.check()?;
            let output = Some(self.choice.json());
            let answer =
                self.asking.ask(Asked { turns: &turns, tools: &[], output, decide: &decide }).await?;
            budget.add(&answer);
            if !answer.misfits.is_empty() {
                misfits += 1;
                if misfits > AGAIN {
                    return Err(invalid(&answer));
                }
                turns.extend([answer.turn(), answer.again(self.choice.json())]);
                continue;
            }
            misfits = 0;
            let name = next(&answer)["step"].as_str().unwrap_or(DONE);
            if name == DONE {
                return Ok((answer, taken));
            }
            let (input, number) = (input(next(&answer)), taken.len() + 1);
            let result: Result<Payload> = self.toolbox.carried_out(&number.to_string(), name, &input).await;
            let (text, is_error) = told(result)?;
            taken.push(json!({"step": name, "input": input, "failed": is_error}));
            turns.extend([answer.turn(), Turn::User(format!("Step {number}, `{name}`, gave:\n{text}"))]);
        }
    }

    /// Checks a choice by its parts, so that the model is told which of them is wrong.
    fn decide(&self, reply: &Reply) -> Judged {
        let open = json!({"type": "object", "required": ["next"],
            "properties": {"next": {"type": "object", "required": ["step"], "properties": {"step": {"type": "string"}}}}});
        let decided = Judged::by_schema(reply, &InputSchema::new(open));
        if !decided.misfits.is_empty() {
            return decided;
        }
        let next = &decided.output["next"];
        let misfits = match next["step"].as_str() {
            Some(DONE) => self.settings.output.as_ref().map_or_else(Vec::new, |schema| {
                let misfits = schema.misfits(&next["result"]).into_iter();
                misfits.map(|misfit| format!("/next/result{}: {}", misfit.pointer, misfit.message)).collect()
            }),
            Some(name) => self.toolbox.refusal(name, &input(next)).into_iter().collect(),
            None => Vec::new(),
        };
        Judged { misfits, ..decided }
    }
}

/// The input of a chosen step; nothing is an empty object.
fn input(next: &Json) -> Json {
    next.get("input").filter(|input| !input.is_null()).cloned().unwrap_or_else(|| json!({}))
}
