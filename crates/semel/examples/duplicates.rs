//! What to do about a duplicate, five ways, written as code with a hook; the common ones are also policies of `start`.
//!
//! `cargo run -p semel --example duplicates`

use std::sync::OnceLock;
use std::time::Duration;

use semel::engine::Engine as Handle;
use semel::id::RunId;
use semel::rules::entry::Outcome;
use semel::rules::status::Status;
use semel::store::{Find, FindBy};
use semel::{Attempt, Ctx, Engine, OnConflict, Result, fatal};

/// The first run of a token does the work: it waits for amounts and adds them up, until it is sent a zero.
pub(crate) async fn collect(ctx: Ctx, (token, strategy): (String, String)) -> Result<u64> {
    let engine = ctx.state::<OnceLock<Handle>>();
    let engine = || engine.get().expect("set right after it was opened");
    loop {
        let mut hook = ctx.hook::<u64>(token.clone());
        let Some(owner) = hook.conflict().await? else {
            let mut sum = 0;
            while let Some(amount) = hook.next().await? {
                if amount == 0 {
                    return Ok(sum);
                }
                sum += amount;
            }
            return Err(fatal("asked to end"));
        };
        drop(hook);
        let owner = owner.run_id;
        match strategy.as_str() {
            // 1. Refuse to be the second.
            "reject" => return Err(fatal(format!("{owner} is at it"))),
            // 2. Adopt the owner's result.
            "adopt" => return adopt(&ctx, engine(), owner).await,
            // 3. Look at the owner, and decide.
            "inspect" => {
                let status =
                    ctx.step("inspect").run(async |_| Ok(engine().run(owner).status().await?)).await?;
                return Err(fatal(format!("the owner is {status}")));
            }
            // 4. Hand the request to the owner.
            "forward" => {
                // Under the key of this step: once, however often it is tried, and apart from what others forward.
                let forward = async |attempt: Attempt| {
                    Ok(engine().deliver(token.clone(), 5u64).id(attempt.key()).await?.arrival)
                };
                ctx.step("forward").run(forward).await?;
                return Ok(0);
            }
            // 5. Take the owner's place.
            _ => {
                let cancel = async |_| Ok(engine().run(owner).cancel("superseded").await?.changed);
                ctx.step("supersede").indexed().run(cancel).await?;
            }
        }
    }
}

/// Looks at the owner until it has ended, less and less often, and sleeps in between: a sleeping run takes none of the engine's slots. A
/// step that waits for another run keeps one; if such steps take all slots, the run that they wait for is never driven.
async fn adopt(ctx: &Ctx, engine: &Handle, owner: RunId) -> Result<u64> {
    let look = async |_| {
        let find = Find { workspace: engine.workspace(), by: FindBy::Id(owner) };
        Ok(engine.store().find(find).await?.and_then(|(_, outcome)| outcome))
    };
    let mut n = 0;
    loop {
        n += 1;
        match ctx.step("look").key(n).run(look).await? {
            None => ctx.sleep(format!("look-{n}"), Duration::from_millis(50) * n).await?,
            Some(Outcome::Completed(value)) => return value.read().map_err(fatal),
            Some(other) => return Err(fatal(format!("{owner} has no result: {other:?}"))),
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let engine = Engine::builder()
        .store(folder.path().join("semel.db"))
        .state(OnceLock::<Handle>::new())
        .workflow("collect", collect)
        .open()
        .await?;
    engine.state::<OnceLock<Handle>>().expect("given above").set(engine.clone()).expect("set once");
    let start = |strategy: &str| engine.start(collect, ("cart:7".to_owned(), strategy.to_owned()));

    let owner = start("first").await?;
    owner.reached(Status::Waiting).await?;
    println!("reject        {}", start("reject").await?.result().await.is_err());
    println!("inspect       {}", start("inspect").await?.result().await.expect_err("it says what it saw"));
    println!("forward       {}", start("forward").await?.result().await?);
    let adopting = start("adopt").await?;
    // Between two looks: one that came after the owner's end would be the next owner.
    adopting.reached(Status::Waiting).await?;
    engine.deliver("cart:7", 0u64).await?;
    println!("owner         {}", owner.result().await?);
    println!("adopt         {}", adopting.result().await?);

    let old = start("first").await?;
    old.reached(Status::Waiting).await?;
    let new = start("supersede").await?;
    new.reached(Status::Waiting).await?;
    println!("superseded    {}", old.status().await?);
    engine.deliver("cart:7", 0u64).await?;
    new.result().await?;

    // The same as a policy, decided in the transaction of the start: no hook, no window in between.
    let first = start("a").key("cart-8").await?;
    let second = start("b").key("cart-8").on_conflict(OnConflict::SUPERSEDE).await?;
    println!("policy        {:?}, the first is {}", second.verdict(), first.status().await?);
    // And a start that hands its payload to the owner of the token, or to the run it starts, in one transaction.
    second.reached(Status::Waiting).await?;
    let atomic = start("c").key("cart-9").deliver("cart:7", 3u64).await?;
    assert_eq!(atomic.id(), second.id(), "the start gives the owner");
    assert!(engine.run_by_key("cart-9").await?.is_none(), "no other run was started");
    engine.deliver("cart:7", 0u64).await?;
    let sum = second.result().await?;
    assert_eq!(sum, 3, "the owner has consumed what came with the start");
    println!("start+deliver {:?}, the owner adds up {sum}", atomic.verdict());
    Ok(())
}
