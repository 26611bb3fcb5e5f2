//! `llm`: asks a language model.

use semel::{Result, fatal};
use serde_json::{Map, Value as Json, json};

use super::model::answer::{Judged, ModelAnswer};
use super::model::asking::{Asked, Asking};
use super::model::budget::Budget;
use super::model::settings::AskSettings;
use super::model::{self, AGAIN, MODELS};
use super::{Executing, Kind, TaskCall, TaskEnd, without_effect};
use crate::definitions::schema::InputSchema;
use crate::definitions::shape::{Field, Shape};
use crate::models::Reply;

pub(super) static KIND: Kind = Kind {
    name: "llm",
    about: "Asks a language model. Its value is `{text, output?, model, end, calls, usage, cost?}`; each call is a recorded step.",
    args: Shape::Object(&[
        model::ON,
        model::MODEL,
        model::SYSTEM,
        model::PROMPT,
        model::MESSAGES,
        model::OUTPUT,
        model::TEMPERATURE,
        model::MAX_TOKENS,
        model::STOP,
        Field::new(
            "limits",
            Shape::Object(&[model::TOKENS_LIMIT, model::COST_LIMIT]),
            "What all calls of the step may use: another one is `LIMIT`.",
        ),
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
        let mut budget = Budget::read(&args, Some(AGAIN + 1));
        let asking = Asking::new(call, &settings, settings.system.clone()).await;
        let answer = fitting(&asking, &settings, &mut budget).await?;
        let mut value = value(&answer, settings.output.as_ref());
        budget.tell(&mut value);
        TaskEnd::value(&Json::Object(value))
    })
}

/// An answer that fits, asked for again if it does not.
async fn fitting(asking: &Asking<'_>, settings: &AskSettings, budget: &mut Budget) -> Result<ModelAnswer> {
    let decide = |reply: &Reply| match &settings.output {
        Some(schema) => Judged::by_schema(reply, schema),
        None => Judged::default(),
    };
    let output = settings.output.as_ref().map(InputSchema::json);
    let mut turns = settings.turns.clone();
    loop {
        budget.check()?;
        let answer = asking.ask(Asked { turns: &turns, tools: &[], output, decide: &decide }).await?;
        budget.add(&answer);
        match output {
            Some(schema) if !answer.misfits.is_empty() => {
                if budget.calls() > AGAIN {
                    return Err(invalid(&answer));
                }
                turns.extend([answer.turn(), answer.again(schema)]);
            }
            _ => return Ok(answer),
        }
    }
}

/// The failure of a task whose model does not give what is wanted.
pub(super) fn invalid(answer: &ModelAnswer) -> semel::Fail {
    let shown: String = answer.text.chars().take(SHOWN).collect();
    fatal(format!("the answers of the model do not fit: {}", answer.misfits.join("; ")))
        .with_code("OUTPUT_INVALID")
        .with_data(&json!({"misfits": answer.misfits, "text": shown}))
}

/// How much of an answer a failure shows, in characters.
const SHOWN: usize = 1_000;

/// The value of a task that ends with this answer.
pub(super) fn value(answer: &ModelAnswer, output: Option<&InputSchema>) -> Map<String, Json> {
    let mut value = Map::new();
    value.insert("text".to_owned(), json!(answer.text));
    if output.is_some() {
        value.insert("output".to_owned(), answer.output.clone());
    }
    value.insert("model".to_owned(), json!(answer.model));
    value.insert("end".to_owned(), json!(answer.end));
    value
}
