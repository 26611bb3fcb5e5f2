//! One call of a model, as a step.

use std::sync::Arc;

use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use semel::clock::Time;
use semel::rules::json::Payload;
use semel::sdk::FailExt as _;
use semel::{Attempt, Ctx, Fail, Result, Retry, fatal};
use serde_json::Value as Json;

use super::MODELS;
use super::answer::{Judged, ModelAnswer};
use super::settings::AskSettings;
use crate::connections::{CallFailed, Connection, Connections, HttpAnswer, ModelTarget, Outgoing};
use crate::models::{ModelQuestion, Offer, Reply, ReplyEnd, Turn};
use crate::tasks::connection::{connection, missing, target};
use crate::tasks::http::effect::send;
use crate::tasks::http::request::below;
use crate::tasks::http::result::{Tried, data, judge, retry_after};
use crate::tasks::tries::{pause_before_next, uncertain};
use crate::tasks::{RefusedResult, TaskCall};

/// Status by which Anthropic says that it has not begun, because it has too much work.
const OVERLOADED: u16 = 529;

/// Asks the model of a step.
pub(in crate::tasks) struct Asking<'a> {
    call: TaskCall<'a>,
    /// The run, in the scope of the step.
    pub(in crate::tasks) ctx: Ctx,
    connections: Arc<Connections>,
    connection: std::result::Result<Arc<Connection>, String>,
    settings: &'a AskSettings,
    /// Instructions: those of the author, and what the task itself has to say.
    system: Option<String>,
}

/// What is asked in one call.
#[derive(Clone, Copy)]
pub(in crate::tasks) struct Asked<'a> {
    pub(in crate::tasks) turns: &'a [Turn],
    pub(in crate::tasks) tools: &'a [Offer],
    /// JSON Schema of the answer; any text if absent.
    pub(in crate::tasks) output: Option<&'a Json>,
    /// What is decided from the answer. It is recorded with it.
    pub(in crate::tasks) decide: &'a (dyn Fn(&Reply) -> Judged + Send + Sync),
}

impl<'a> Asking<'a> {
    pub(in crate::tasks) async fn new(
        call: TaskCall<'a>,
        settings: &'a AskSettings,
        system: Option<String>,
    ) -> Self {
        let connections = call.ctx.state::<Connections>();
        let on = call.args.get("on").and_then(|on| on.text()).unwrap_or_default();
        let connection = connection(&call, &connections, on).await;
        let ctx = call.ctx.scope(&*call.step.name);
        Self { call, ctx, connections, connection, settings, system }
    }

    /// Calls the model, or gives what it has answered in an earlier execution.
    pub(in crate::tasks) async fn ask(&self, asked: Asked<'_>) -> Result<ModelAnswer> {
        let step = self.ctx.step("model").indexed();
        let step = match self.call.step.retry {
            Some(retry) => step.retry(retry),
            None => step,
        };
        let step = if self.call.step.at_most_once { step.at_most_once() } else { step };
        let recorded = step.run(|attempt| self.attempt(attempt, asked)).await?;
        let answer =
            ModelAnswer::read(&recorded).unwrap_or_else(|| ModelAnswer::of_operator(&recorded, asked.decide));
        match &answer.refused {
            Some(refused) => Err(refused.fail()),
            None => Ok(answer),
        }
    }

    async fn attempt(&self, attempt: Attempt, asked: Asked<'_>) -> Result<Payload> {
        let not_now =
            |why: String| Err(missing(why)).retry_after(pause_before_next(self.retry(), &attempt, None));
        let (connection, target): (_, &ModelTarget) = match target(&self.connection, MODELS) {
            Ok(found) => found,
            Err(why) => return not_now(why),
        };
        let Some(model) = self.settings.model.as_deref().or(target.model.as_deref()) else {
            let name = &connection.name;
            return not_now(format!(
                "neither the step nor the connection `{name}` names a model; set `model` in one of them"
            ));
        };
        let question = ModelQuestion {
            model,
            system: self.system.as_deref(),
            turns: asked.turns,
            tools: asked.tools,
            output: asked.output,
            style: &self.settings.style,
        };
        let body = target.api.body(&question, target.base.host_str().unwrap_or_default());
        let request = request(target, target.api.path(), &body, attempt.key())?;
        let _turn = connection.turns.acquire().await.map_err(Fail::retryable)?;
        let what = target.route.redactor.text(&format!("{}: model {model}", connection.name));
        let limit = self.call.step.timeout.unwrap_or(connection.timeout);
        let called = send(&attempt, &self.connections, &target.route, request, limit, None).await;
        let http = self.answered(&attempt, tried(&what, called, attempt.now()))?;
        let read = body_of(&http).and_then(|body| target.api.reply(&body));
        let answer = match read {
            Ok(reply) => answered(connection, target, model, reply, asked),
            // It may well be paid for: only a step that may be repeated is.
            Err(why) if self.call.step.at_most_once => unusable(connection, model, &format!("{what}: {why}")),
            Err(why) => {
                let why = format!("{what} gave an answer that cannot be used: {why}");
                return Err(Fail::retryable(why).with_code("MODEL"));
            }
        };
        answer.record(connection.max_result)
    }

    /// The answer of the server. Whether it is asked again if there is none is said by the class of the step.
    fn answered(&self, attempt: &Attempt, tried: Tried) -> Result<HttpAnswer> {
        match tried {
            Tried::Done(answer) => Ok(answer),
            Tried::Refused { fail, .. } => Err(fail),
            Tried::NotNow { fail, pause, .. } => {
                Err(fail).retry_after(pause_before_next(self.retry(), attempt, pause))
            }
            Tried::Unknown { fail, .. } if self.call.step.at_most_once => Err(uncertain(fail)),
            Tried::Unknown { fail, .. } => Err(fail),
        }
    }

    fn retry(&self) -> Retry {
        self.call.step.retry.unwrap_or_default()
    }
}

/// A request to a server of models. The key tells gateways in between that it is a repetition; the providers promise nothing about it.
pub(super) fn request(target: &ModelTarget, path: &str, body: &Json, key: &str) -> Result<Outgoing> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(HeaderName::from_static("idempotency-key"), HeaderValue::from_str(key).map_err(fatal)?);
    let body = Some(body.to_string().into_bytes());
    Ok(Outgoing { method: Method::POST, url: below(&target.base, path)?, headers, body })
}

/// What an answer, or its absence, means.
pub(super) fn tried(what: &str, called: std::result::Result<HttpAnswer, CallFailed>, now: Time) -> Tried {
    match called {
        Ok(answer) if answer.status == OVERLOADED => {
            let fail = Fail::retryable(format!("{what} has too much work ({OVERLOADED})")).with_code("HTTP");
            Tried::NotNow {
                fail: fail.with_data(&data(&answer)),
                pause: retry_after(&answer, now),
                is_at_work: false,
            }
        }
        called => judge(what, &crate::connections::Profile::default(), called, now),
    }
}

/// The body of an answer as JSON; the error says why there is none.
pub(super) fn body_of(answer: &HttpAnswer) -> std::result::Result<Json, String> {
    if !answer.is_whole {
        return Err("it is too large".to_owned());
    }
    let body = answer.json.as_ref().ok_or("it is no JSON")?;
    body.read().map_err(|error| error.to_string())
}

fn answered(
    connection: &Connection,
    target: &ModelTarget,
    model: &str,
    reply: Reply,
    asked: Asked<'_>,
) -> ModelAnswer {
    let refused = (reply.end == ReplyEnd::Refused).then(|| RefusedResult {
        code: "MODEL".to_owned(),
        message: format!("{}: the model refuses to answer: {:.200}", connection.name, reply.text),
        data: None,
    });
    let Judged { output, misfits, calls } =
        if refused.is_some() { Judged::default() } else { (asked.decide)(&reply) };
    let goes_on = asked.output.is_some() || !asked.tools.is_empty();
    ModelAnswer {
        connection: connection.name.clone(),
        model: model.to_owned(),
        message: if goes_on { reply.message } else { Json::Null },
        text: reply.text,
        output,
        misfits,
        calls,
        end: reply.end,
        usage: reply.usage,
        cost: reply.usage.and_then(|usage| Some(target.price(model)?.of(usage))),
        refused,
    }
}

/// An answer that came, and tells nothing.
fn unusable(connection: &Connection, model: &str, why: &str) -> ModelAnswer {
    let message = format!("the answer cannot be used, and the step does not ask twice: {why}");
    ModelAnswer {
        connection: connection.name.clone(),
        model: model.to_owned(),
        message: Json::Null,
        text: String::new(),
        output: Json::Null,
        misfits: Vec::new(),
        calls: Vec::new(),
        end: ReplyEnd::Done,
        usage: None,
        cost: None,
        refused: Some(RefusedResult { code: "MODEL".to_owned(), message, data: None }),
    }
}
