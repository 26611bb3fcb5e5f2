//! A trip is booked step by step, and unbooked step by step if something goes wrong, or if the run is asked to end.
//!
//! `cargo run -p semel --example saga`

use semel::rules::status::Status;
use semel::{Ctx, Engine, Result, fatal};
use std::sync::Mutex;

/// What is booked at the moment.
#[derive(Default)]
pub(crate) struct Agency(Mutex<Vec<String>>);

impl Agency {
    pub(crate) fn booked(&self) -> Vec<String> {
        self.0.lock().expect("no panics here").clone()
    }

    fn book(&self, what: &str) -> Result<String> {
        if what == "balloon" {
            return Err(fatal("no balloons today"));
        }
        self.0.lock().expect("no panics here").push(what.to_owned());
        Ok(what.to_owned())
    }

    fn unbook(&self, what: &str) -> bool {
        let mut booked = self.0.lock().expect("no panics here");
        let before = booked.len();
        booked.retain(|booked| booked != what);
        booked.len() < before
    }
}

pub(crate) async fn trip(ctx: Ctx, parts: Vec<String>) -> Result<usize> {
    let mut booked = Vec::new();
    let result = book(&ctx, &parts, &mut booked).await;
    if result.is_err() {
        // Clean-up goes on although the run was asked to end. The last booking goes first.
        let (ctx, agency) = (ctx.cleanup(), ctx.state::<Agency>());
        for part in booked.iter().rev() {
            ctx.step("unbook").key(part).run(async |_| Ok(agency.unbook(part))).await?;
        }
    }
    result.map(|()| booked.len())
}

async fn book(ctx: &Ctx, parts: &[String], booked: &mut Vec<String>) -> Result<()> {
    let agency = ctx.state::<Agency>();
    for part in parts {
        booked.push(ctx.step("book").key(part).run(async |_| agency.book(part)).await?);
    }
    // The customer may think again until the bill is paid.
    ctx.hook::<()>(format!("pay:{}", ctx.run_id())).recv().await
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let engine = Engine::builder()
        .store(folder.path().join("semel.db"))
        .state(Agency::default())
        .workflow("trip", trip)
        .open()
        .await?;
    let start =
        |parts: &[&str]| engine.start(trip, parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>());
    let left = || engine.state::<Agency>().expect("given above").booked();

    let failed = start(&["hotel", "train", "balloon"]).await?;
    println!("failed     {}", failed.result().await.expect_err("no balloons"));
    println!("left       {:?}", left());

    let cancelled = start(&["hotel", "train"]).await?;
    cancelled.reached(Status::Waiting).await?;
    println!("booked     {:?}", left());
    cancelled.request_cancel("the customer thought again").await?;
    println!("cancelled  {}", cancelled.result().await.expect_err("cancelled"));
    println!("left       {:?}", left());

    let paid = start(&["hotel"]).await?;
    paid.reached(Status::Waiting).await?;
    engine.deliver(format!("pay:{}", paid.id()), ()).await?;
    println!("paid       {} part, {:?} booked", paid.result().await?, left());
    Ok(())
}
