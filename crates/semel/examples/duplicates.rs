//! What to do about a duplicate, five ways, written as code with a hook; the common ones are also policies of `start`.
//!
//! `cargo run --release -p semel --example duplicates`

use semel::engine::Engine as Handle;
use semel::rules::status::Status;
use semel::{Attempt, Ctx, Engine, OnConflict, Result, fatal};

/// The first run of a token does the work: it waits for amounts and adds them up, until it is sent a zero.
pub(crate) async fn collect(ctx: Ctx, (token, strategy): (String, String)) -> Result<u64> {
    let engine = ctx.state::<std::sync::OnceLock<Handle>>();
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
            // 2. Adopt what the owner comes to.
            "adopt" => {
                let adopt = async |_| Ok(engine().run(owner).typed::<u64>().result().await?);
                return ctx.step("adopt").run(adopt).await;
            }
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

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let engine = Engine::builder()
        .store(folder.path().join("semel.db"))
        .state(std::sync::OnceLock::<Handle>::new())
        .workflow("collect", collect)
        .open()
        .await?;
    engine
        .state::<std::sync::OnceLock<Handle>>()
        .expect("given above")
        .set(engine.clone())
        .expect("set once");
    let start = |strategy: &str| engine.start(collect, ("cart:7".to_owned(), strategy.to_owned()));

    let owner = start("first").await?;
    owner.reached(Status::Waiting).await?;
    println!("reject        {}", start("reject").await?.result().await.is_err());
    println!("inspect       {}", start("inspect").await?.result().await.expect_err("it says what it saw"));
    println!("forward       {}", start("forward").await?.result().await?);
    let adopting = start("adopt").await?;
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
    let atomic = start("c").key("cart-9").deliver("cart:7", 3u64).await?;
    println!("start+deliver {:?}", atomic.verdict());
    Ok(())
}
