//! The hooks of a definition, which are open from the start of its run.

use std::time::Duration;

use semel::rules::json::Payload;
use semel::sdk::Hook;
use semel::{Ctx, Fail, Result, fatal};
use serde_json::json;
use tokio::sync::Mutex;

use crate::definitions::expression::Data;
use crate::definitions::language::Definition;
use crate::tasks::evaluated;
use semel::error::failure_code;

/// The hooks of a run. An `event` waits for the next payload of one of them.
#[derive(Debug, Default)]
pub struct OpenHooks(Vec<(String, Mutex<Hook<Payload>>)>);

impl OpenHooks {
    /// Opens all hooks; the run fails if another one has a token.
    pub(super) async fn open(ctx: &Ctx, definition: &Definition, names: &Data) -> Result<Self> {
        let mut hooks = Vec::new();
        for (name, token) in &definition.hooks {
            let token = token_text(&evaluated(token, names)?)?;
            hooks.push((name.clone(), token.clone(), ctx.hook::<Payload>(token)));
        }
        let mut open = Vec::new();
        for (name, token, mut hook) in hooks {
            refuse_conflict(&mut hook, &token).await?;
            open.push((name, Mutex::new(hook)));
        }
        Ok(Self(open))
    }

    /// The next payload of a hook of the definition; none if the time is over.
    pub async fn next(&self, name: &str, limit: Option<Duration>) -> Result<Option<Payload>> {
        let hook = self.0.iter().find(|(own, _)| own == name).map(|(_, hook)| hook);
        let hook = hook.ok_or_else(|| fatal(format!("the definition has no hook `{name}`")))?;
        received(&mut *hook.lock().await, limit).await
    }
}

/// Opens the hook of one step and waits for a payload; none if the time is over.
pub async fn receive(ctx: &Ctx, token: &str, limit: Option<Duration>) -> Result<Option<Payload>> {
    let mut hook = ctx.hook::<Payload>(token);
    refuse_conflict(&mut hook, token).await?;
    received(&mut hook, limit).await
}

async fn received(hook: &mut Hook<Payload>, limit: Option<Duration>) -> Result<Option<Payload>> {
    match limit {
        Some(limit) => hook.recv_for(limit).await,
        None => hook.recv().await.map(Some),
    }
}

async fn refuse_conflict(hook: &mut Hook<Payload>, token: &str) -> Result<()> {
    match hook.conflict().await? {
        None => Ok(()),
        Some(owner) => Err(conflict(token, &owner.run_id.to_string())),
    }
}

fn conflict(token: &str, owner: &str) -> Fail {
    fatal(format!("the token `{token}` belongs to {owner}, which has not ended"))
        .with_code(failure_code::HOOK_CONFLICT)
        .with_data(&json!({"token": token, "owner": owner}))
}

/// A token from an expression.
pub fn token_text(value: &serde_json::Value) -> Result<String> {
    match value {
        serde_json::Value::String(text) => Ok(text.clone()),
        serde_json::Value::Number(number) => Ok(number.to_string()),
        other => {
            Err(fatal(format!("a token is a text, and this is {other:.40}"))
                .with_code(failure_code::EXPRESSION))
        }
    }
}
