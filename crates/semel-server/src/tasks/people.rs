//! What `approval` and `human` have in common: they ask a person and wait for the answer.

use std::time::Duration;

use semel::clock::Time;
use semel::id::ApprovalId;
use semel::rules::json::Payload;
use semel::rules::key::Token;
use semel::{Ctx, Result, Retry, fatal};
use serde_json::Value as Json;

use super::{Checks, Executing, TaskCall, TaskEnd};
use crate::approvals::{Approval, ApprovalEnd, Approvals, Decided, token_of};
use crate::definitions::schema::InputSchema;
use crate::definitions::template::Template;
use crate::definitions::{duration, limits};

/// Maximum length of a title in characters: it is a line in a list.
const TITLE: usize = 1_000;
/// Maximum size of what a person is shown, and of the form, in bytes each: the limit of a task's result.
const CONTENT: usize = 256 * 1024;

/// Checks the timeout of a step that waits for a person.
pub(super) fn check_timeout(args: &Template, checks: &mut Checks<'_>) {
    let Some(timeout) = args.get("timeout") else { return };
    if timeout.duration().is_some_and(|duration| duration > limits::APPROVAL) {
        let hint = "ask again in a `loop` if it may take longer";
        checks.refuse(&timeout.at, "a person can be asked for at most 90 days", hint);
    }
}

/// Asks, waits, and gives the decision. The hook is open before the question is listed, so that an answer that comes at once
/// is kept. What the record says is the decision: it also arbitrates between a decision and the timeout.
pub(super) fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(async move {
        let question = Question::read(&call.args()?)?;
        let ctx = call.ctx.scope(&*call.step.name);
        let id = ApprovalId(ctx.uuid("id").await?);
        let token = token_of(ctx.uuid("token").await?);
        let mut hook = ctx.hook::<Decided>(&token);
        let opened = ctx.now("opened").await?;
        let timeout = question.timeout;
        let step = call.ctx.step_path(&call.step.name)?;
        let approval = question.approval(&call, step, Token::new(token).map_err(fatal)?, opened);
        let approvals = ctx.state::<Approvals>();
        let open = ctx.step("open").retry(patient());
        let listed = open.run(async |_| Ok(approvals.open(id, &approval).await?)).await;
        let received = match listed {
            Ok(()) => hook.recv_for(timeout).await,
            Err(fail) => Err(fail),
        };
        let decided = match received {
            Ok(Some(decided)) => close(&ctx, id, Some(decided), ApprovalEnd::Decided).await?,
            Ok(None) => close(&ctx, id, None, ApprovalEnd::TimedOut).await?,
            Err(fail) => {
                if fail.is_cancelled() {
                    close(&ctx, id, None, ApprovalEnd::Cancelled).await?;
                }
                return Err(fail);
            }
        };
        let Some(decided) = decided else {
            let seconds = timeout.as_secs();
            return Err(fatal(format_args!("there was no decision within {seconds} s")).with_code("TIMEOUT"));
        };
        let value =
            Payload::of(&decided.settled()).map_err(|refused| fatal(refused).with_code("TOO_LARGE"))?;
        Ok(TaskEnd::Value(value))
    })
}

/// Closes the record, also if the run is asked to end meanwhile.
async fn close(
    ctx: &Ctx,
    id: ApprovalId,
    received: Option<Decided>,
    end: ApprovalEnd,
) -> Result<Option<Decided>> {
    let (ctx, approvals) = (ctx.cleanup(), ctx.state::<Approvals>());
    let now = ctx.now("closed").await?;
    let step = ctx.step("close").retry(patient());
    step.run(async |_| Ok(approvals.close(id, received.clone(), end, now).await?)).await
}

/// Only the store can fail in these steps, and without it the run cannot go on anyway.
fn patient() -> Retry {
    Retry::exponential().max_attempts(u32::MAX)
}

/// The arguments of a task that asks a person.
struct Question {
    title: String,
    content: Option<Payload>,
    form: Option<Payload>,
    by: Vec<String>,
    timeout: Duration,
}

impl Question {
    fn read(args: &Json) -> Result<Self> {
        let title = args["title"].as_str().map_or_else(|| args["title"].to_string(), str::to_owned);
        if title.chars().count() > TITLE {
            let why = format!("the title has more than {TITLE} characters; write the rest into `content`");
            return Err(fatal(why).with_code("TOO_LARGE"));
        }
        let form = args.get("form");
        if let Some(Err(why)) = form.map(|form| InputSchema::checked(form.clone())) {
            return Err(fatal(format!("the form cannot be used: {why}")).with_code("EXPRESSION"));
        }
        Ok(Self {
            title,
            content: args.get("content").map(|content| bounded(content, "content")).transpose()?,
            form: form.map(|form| bounded(form, "form")).transpose()?,
            by: args.get("by").map_or(Ok(Vec::new()), roles)?,
            timeout: args.get("timeout").map_or(Ok(limits::APPROVAL), length)?,
        })
    }

    fn approval(self, call: &TaskCall<'_>, step: String, token: Token, opened_at: Time) -> Approval {
        Approval {
            workspace: call.ctx.workspace(),
            run: call.ctx.run_id(),
            step,
            token,
            title: self.title,
            content: self.content,
            form: self.form,
            by: self.by,
            opened_at,
            expires_at: opened_at.after(self.timeout),
            decided: None,
            ended: None,
        }
    }
}

fn bounded(value: &Json, name: &str) -> Result<Payload> {
    let too_large = |why: String| fatal(why).with_code("TOO_LARGE");
    let payload = Payload::of(value).map_err(|refused| too_large(refused.to_string()))?;
    match payload.text().len() {
        ..=CONTENT => Ok(payload),
        bytes => {
            Err(too_large(format!("`{name}` has {bytes} bytes; a person is shown at most {CONTENT} of them")))
        }
    }
}

fn roles(value: &Json) -> Result<Vec<String>> {
    let names = value.as_array().into_iter().flatten();
    let name = |name: &Json| name.as_str().map(str::to_owned);
    names.map(name).collect::<Option<_>>().ok_or_else(|| expression(value, "a list of roles"))
}

fn length(value: &Json) -> Result<Duration> {
    let text = value.as_str().ok_or_else(|| expression(value, "a duration such as `2d`"))?;
    let length = duration::read(text).map_err(|why| fatal(why).with_code("EXPRESSION"))?;
    Ok(length.min(limits::APPROVAL))
}

fn expression(value: &Json, expected: &str) -> semel::Fail {
    fatal(format!("{expected} is expected, and this is {value:.40}")).with_code("EXPRESSION")
}
