//! The web console in a real browser: Chromium, driven by `scripts/with-chromium`, on SQLite and on PostgreSQL.

mod acts;
mod axe;
mod driver;
mod lists;
mod login;
mod pictures;
mod strict;

use std::sync::Arc;

use libtest_mimic::Trial;
use semel::{Attempt, Ctx, Engine, Fail};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use self::driver::{Look, VARIABLE, Window};
use crate::world::{Case, World, on_databases};

/// Name of the variable with the path of axe-core.
const AXE: &str = "SEMEL_TEST_AXE";

/// Tests that need a driver are left out, visibly, where there is none; `make browser` starts one.
pub(crate) fn trials() -> Vec<Trial> {
    let is_missing = |variable: &str| std::env::var_os(variable).is_none();
    if is_missing(VARIABLE) {
        eprintln!(
            "{VARIABLE} is not set: the tests in a browser are left out; scripts/with-chromium runs them"
        );
    } else if is_missing(AXE) {
        eprintln!(
            "{AXE} is not set: the tests with axe-core are left out; scripts/with-chromium gets it with npm"
        );
    }
    let on_databases = |cases: Vec<Case>| cases.into_iter().map(in_browser).flat_map(on_databases);
    let cases = [acts::cases(), lists::cases(), strict::cases()].into_iter().flatten().collect();
    let trials = on_databases(cases).chain(login::trials()).chain(pictures::trials());
    let with_axe = on_databases(axe::cases());
    let with_axe = with_axe.map(|trial| trial.with_ignored_flag(is_missing(VARIABLE) || is_missing(AXE)));
    trials.map(|trial| trial.with_ignored_flag(is_missing(VARIABLE))).chain(with_axe).collect()
}

fn in_browser(case: Case) -> Case {
    Case { name: Box::leak(format!("browser::{}", case.name).into_boxed_str()), ..case }
}

/// A workflow whose step waits for a permit and whose hook `go:KEY` waits for a message.
async fn gated(world: &World, gate: Arc<Semaphore>) -> Engine {
    let gated = move |ctx: Ctx, token: String| {
        let gate = gate.clone();
        async move {
            let body = async |_: Attempt| {
                gate.acquire().await.map_err(semel::fatal)?.forget();
                Ok(())
            };
            ctx.step("pack").run(body).await?;
            let mut hook = ctx.hook::<u64>(token);
            hook.recv().await
        }
    };
    world.engine(|builder| builder.workflow("gated", gated)).await
}

/// A workflow whose only step, `send[a b]`, is in doubt until an operator has said that it did not take place.
async fn doubtful(world: &World) -> Engine {
    async fn left(ctx: Ctx, (): ()) -> semel::Result<Value> {
        let send = async |attempt: Attempt| match attempt.is_cleared() {
            true => Ok(json!("sent again")),
            false => Err(Fail::uncertain("the line is dead")),
        };
        ctx.step("send").key("a b").at_most_once().run(send).await
    }
    world.engine(|builder| builder.workflow("left", left)).await
}
