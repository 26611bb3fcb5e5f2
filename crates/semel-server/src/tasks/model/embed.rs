//! Embeddings: vectors of texts, by a connection of the kind `openai`.

use std::time::Duration;

use semel::sdk::FailExt as _;
use semel::{Attempt, Fail, Result, Retry, fatal};

use super::asking::{body_of, request, tried};
use crate::connections::{Connection, Connections, ModelTarget};
use crate::models::{EMBEDDINGS, Embedded, ModelApi, embedding_question, embeddings};
use crate::tasks::http::effect::send;
use crate::tasks::http::result::Tried;
use crate::tasks::tries::pause_before_next;

/// What vectors are made of.
#[derive(Clone, Copy, Debug)]
pub struct Embedding<'a> {
    /// The connection that has the model.
    pub connection: &'a Connection,
    /// What is at its other end.
    pub target: &'a ModelTarget,
    /// Name of the model; that of the connection if absent.
    pub model: Option<&'a str>,
    /// The texts, one vector for each.
    pub texts: &'a [String],
    /// Retries of the step: what the server asks to wait is obeyed within them.
    pub retry: Retry,
    /// Maximum time of the call.
    pub timeout: Duration,
}

/// Asks for the vectors of texts: a read, which can be repeated.
pub async fn embed(attempt: &Attempt, connections: &Connections, asked: Embedding<'_>) -> Result<Embedded> {
    let Embedding { connection, target, model, texts, retry, timeout } = asked;
    if target.api != ModelApi::OpenAi {
        return Err(fatal(format!(
            "`{}` has no embeddings; use a connection of the kind `openai`",
            connection.name
        ))
        .with_code("CONNECTION"));
    }
    let model = model.or(target.model.as_deref()).ok_or_else(|| {
        fatal(format!("neither the step nor the connection `{}` names a model", connection.name))
            .with_code("CONNECTION")
    })?;
    let request = request(target, EMBEDDINGS, &embedding_question(model, texts), attempt.key())?;
    let _turn = connection.turns.acquire().await.map_err(Fail::retryable)?;
    let what = target.route.redactor.text(&format!("{}: embeddings of {model}", connection.name));
    let called = send(attempt, connections, &target.route, request, timeout, None).await;
    let answer = match tried(&what, called, attempt.now()) {
        Tried::Done(answer) => answer,
        Tried::Refused { fail, .. } | Tried::Unknown { fail, .. } => return Err(fail),
        Tried::NotNow { fail, pause, .. } => {
            return Err(fail).retry_after(pause_before_next(retry, attempt, pause));
        }
    };
    body_of(&answer).and_then(|body| embeddings(&body, texts.len())).map_err(|why| {
        Fail::retryable(format!("{what} gave an answer that cannot be used: {why}")).with_code("MODEL")
    })
}
