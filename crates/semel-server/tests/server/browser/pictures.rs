//! Pictures of the pages. They are in `target/console` after each run; with `SEMEL_PICTURES=1` those of the documentation are
//! made again.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use semel::{Attempt, Ctx, Engine, Fail, Retry};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{Look, Window, doubtful, gated};
use crate::console::local;
use crate::world::{Api, Kind, World, runtime};

/// Maximum size of a picture in the documentation, in bytes.
const LARGEST: usize = 200 * 1024;
/// Where pictures are after each run, and those of the documentation.
const FOLDERS: [&str; 2] = ["../../target/console", "../../docs/pictures"];

pub(super) fn trials() -> Vec<Trial> {
    vec![Trial::test("sqlite::browser::pictures::pages_are_drawn_in_both_themes", || {
        runtime().block_on(async { pages_are_drawn_in_both_themes(World::on(Kind::Sqlite).await).await });
        Ok(())
    })]
}

/// A workflow with a retried step, steps in turn, a timer and a hook.
async fn orders(world: &World) -> Engine {
    async fn order(ctx: Ctx, input: Value) -> semel::Result<Value> {
        ctx.step("reserve").run(async |_| Ok(json!({"shelf": "B 12"}))).await?;
        let charge = async |attempt: Attempt| match attempt.number() {
            1 | 2 => Err(Fail::retryable("the provider answers 503")),
            _ => Ok(json!({"charge": "ch_3PqXa81", "amount": input["amount"]})),
        };
        let paid = ctx.step("charge").retry(Retry::fixed(Duration::from_millis(700))).run(charge).await?;
        ctx.sleep("dry", Duration::from_millis(1_500)).await?;
        for item in ["mug", "tea", "pot"] {
            ctx.step("pack").key(item).run(async |_| Ok(json!({"packed": item}))).await?;
        }
        let mut hook = ctx.hook::<Value>(format!("pickup:{}", input["order"]));
        let by = hook.recv().await?;
        ctx.step("notify").run(async |_| Ok(json!({"mail": "sent"}))).await?;
        Ok(json!({"paid": paid, "by": by}))
    }
    world.engine(|builder| builder.workflow("process-order", order)).await
}

async fn start(api: &Api, key: &str, order: u64) -> String {
    let body = json!({"workflow": "process-order", "idempotencyKey": key, "input": {"order": order, "amount": 125_000}});
    api.post("/workflow-runs", body.to_string()).await.run_id()
}

async fn pages_are_drawn_in_both_themes(world: World) {
    let (_, api) = local(&world).await;
    let (_orders, _doubtful) = (orders(&world).await, doubtful(&world).await);
    let _gated = gated(&world, Arc::new(Semaphore::new(0))).await;
    let run = start(&api, "order-48213", 48_213).await;
    let open = start(&api, "order-48214", 48_214).await;
    for _ in 0..3 {
        start(&api, "order-48213", 48_213).await;
    }
    let other = r#"{"workflow": "process-order", "idempotencyKey": "order-48213", "input": {"order": 48213, "amount": 129000}}"#;
    api.post("/workflow-runs", other).await.problem(422, "KEY_REUSED");
    let doubt = api.start("left", "letter-48209", "null").await;
    api.start("gated", "parcel-48207", "\"go\"").await;
    api.start("dunning", "dun-2026-11", "1").await;
    for (run, status) in [(&doubt, "PAUSED"), (&run, "WAITING"), (&open, "WAITING")] {
        api.reached(run, status).await;
    }
    // It waits for its timer first.
    let window = Window::open(api.url(), Look::default()).await;
    window.goto("/w/default/hooks").await;
    window.sees("*[@id='hooks']//code", "pickup:48213").await;
    let delivered = api.post_as("evt_1", "/hooks/pickup:48213", r#"{"courier": "north"}"#).await;
    delivered.ok();
    api.post_as("evt_1", "/hooks/pickup:48213", r#"{"courier": "north"}"#).await.ok();
    assert_eq!(api.ended(&run).await["status"], "COMPLETED");
    let step = format!("/w/default/runs/{run}?step=charge");
    let pages = [
        ("overview", "/w/default/", true),
        ("run", &step, true),
        ("doubt", &format!("/w/default/runs/{doubt}"), true),
        ("runs", "/w/default/runs", false),
        ("key", "/w/default/keys/order-48213", false),
        ("fork", &format!("/w/default/runs/{run}/fork?at=3"), false),
        ("hooks", "/w/default/hooks", false),
        ("ledger", &format!("/w/default/runs/{run}?tab=ledger"), false),
        ("workers", "/w/default/workers", false),
        ("workflows", "/w/default/workflows", false),
    ];
    for (theme, dark) in [("light", false), ("dark", true)] {
        let window = Window::open(api.url(), Look { dark, ..Look::default() }).await;
        for (name, path, documented) in pages {
            draw(&window, (name, theme), path, documented && !dark).await;
        }
    }
}

/// Draws a page; into the documentation only if that is asked for.
async fn draw(window: &Window, (name, theme): (&str, &str), path: &str, documented: bool) {
    window.goto(path).await;
    window.sees("*[@id='live']", "Live").await;
    let picture = window.picture().await;
    assert!(picture.starts_with(b"\x89PNG") && picture.len() < LARGEST, "{name}: {} bytes", picture.len());
    let wanted = documented && std::env::var("SEMEL_PICTURES").is_ok_and(|asked| asked == "1");
    let file = if wanted { format!("{name}.png") } else { format!("{name}-{theme}.png") };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDERS[usize::from(wanted)]);
    fs::create_dir_all(&folder).expect("the folder can be made");
    fs::write(folder.join(file), picture).expect("the picture can be kept");
}
