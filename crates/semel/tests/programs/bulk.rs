//! Large values at the same moment: results of steps, payloads of hooks, inputs and results of children.

use futures_util::future::join_all;
use semel::rules::entry::Class;
use semel::{Attempt, Ctx, Result, fatal};

use super::{Act, Program, World, applied_as, execute};

/// A text with this number of kibibytes, a different one for each part.
pub(super) fn ballast(part: u32, kib: u32) -> String {
    let letter = char::from(b'a' + (part % 26) as u8);
    letter.to_string().repeat(kib as usize * 1024)
}

/// The token of the hook of a part.
pub(super) fn token(place: &str, n: u32, part: u32) -> String {
    format!("{place}:b{n}-{part}")
}

/// Runs `count` steps, hooks and children at once, each with a value of `kib` kibibytes.
pub(super) async fn run(ctx: &Ctx, place: &str, n: u32, parts: u32, kib: u32) -> Result<Vec<String>> {
    let steps = join_all((0..parts).map(|part| step(ctx, n, part, kib)));
    let hooks = join_all((0..parts).map(|part| hook(ctx, place, n, part)));
    let children = join_all((0..parts).map(|part| child(ctx, place, n, part, kib)));
    let (steps, hooks, children) = tokio::join!(steps, hooks, children);
    for (part, text) in [steps, hooks, children].into_iter().flat_map(|texts| (0..).zip(texts)) {
        if text? != ballast(part, kib) {
            return Err(fatal(format!("a large value of part {part} has changed")));
        }
    }
    Ok(vec![format!("b{n}")])
}

async fn step(ctx: &Ctx, n: u32, part: u32, kib: u32) -> Result<String> {
    let world = ctx.state::<World>().0.clone();
    let body = async |attempt: Attempt| {
        applied_as(&*world, format!("b{n}"), Class::Keyed, &attempt).await?;
        Ok(ballast(part, kib))
    };
    ctx.step(format!("b{n}")).key(part).run(body).await
}

async fn hook(ctx: &Ctx, place: &str, n: u32, part: u32) -> Result<String> {
    ctx.hook::<String>(token(place, n, part)).recv().await
}

/// The child gives back what it was given.
async fn child(ctx: &Ctx, place: &str, n: u32, part: u32, kib: u32) -> Result<String> {
    let acts = vec![Act::Ballast { text: ballast(part, kib) }];
    let program: Program = (format!("{place}/c{n}-{part}"), acts);
    let told = ctx.child(execute, program).key(format!("{n}-{part}")).await?.result().await?;
    Ok(told.concat())
}
