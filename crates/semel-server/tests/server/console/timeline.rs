//! The timeline of a run, and the stream of a workspace.

use reqwest::{Method, Response};
use semel::Ctx;
use serde_json::{Value, json};

use super::local;
use crate::world::{World, cases};

cases![
    a_timeline_has_all_steps_in_pages_without_values,
    a_step_has_its_value_and_its_entries,
    a_timeline_grows_with_its_run,
    a_long_run_has_a_short_page,
    a_workspace_tells_what_changes_in_it,
];

async fn many(ctx: Ctx, count: u64) -> semel::Result<u64> {
    for n in 0..count {
        ctx.step("pack").key(n.to_string()).run(async |_| Ok(format!("parcel {n}"))).await?;
    }
    Ok(count)
}

async fn a_timeline_has_all_steps_in_pages_without_values(world: World) {
    let _engine = world.engine(|builder| builder.workflow("many", many)).await;
    let run = world.client.start("many", "k", "7").await;
    world.client.ended(&run).await;
    let path = format!("/workflow-runs/{run}/spans");
    let mut seen = Vec::new();
    let mut from = json!(0);
    while !from.is_null() {
        let page = world.client.get(&format!("{path}?limit=3&from={from}")).await;
        assert!(!page.text.contains("parcel"), "{}", page.text);
        let page = page.ok();
        assert_eq!((&page["totals"]["all"], &page["totals"]["completed"]), (&json!(7), &json!(7)));
        seen.extend(page["spans"].as_array().expect("a list").iter().map(|span| span["path"].clone()));
        from = page["next"].clone();
    }
    assert_eq!(json!(seen), json!((0..7).map(|n| format!("pack[{n}]")).collect::<Vec<_>>()));
    let first = world.client.get(&path).await.ok();
    assert_eq!(first["claims"].as_array().map(Vec::len), Some(1));
    let detail = world.client.get(&format!("/workflow-runs/{run}")).await.ok();
    for (span, step) in
        first["spans"].as_array().expect("spans").iter().zip(detail["steps"].as_array().expect("steps"))
    {
        for member in ["path", "effectKey", "startedAt", "endedAt", "class"] {
            assert_eq!(span[member], step[member], "{member}");
        }
    }
    let none = world.client.get(&format!("{path}?status=in-doubt")).await.ok();
    assert_eq!(none["spans"], json!([]));
    world.client.get(&format!("{path}?limit=0")).await.problem(400, "VALIDATION_ERROR");
    let missing = format!("/workflow-runs/run_{}/spans", "0".repeat(26));
    world.client.get(&missing).await.problem(404, "NOT_FOUND");
}

async fn a_step_has_its_value_and_its_entries(world: World) {
    let _engine = world.engine(|builder| builder.workflow("many", many)).await;
    let run = world.client.start("many", "k", "2").await;
    world.client.ended(&run).await;
    let step = world.client.get(&format!("/workflow-runs/{run}/steps/pack%5B1%5D")).await.ok();
    assert_eq!((&step["value"], &step["status"]), (&json!("parcel 1"), &json!("completed")));
    let entries = step["entries"].as_array().expect("a list");
    assert_eq!((entries.first(), entries.last()), (Some(&step["firstEntry"]), Some(&step["lastEntry"])));
    world.client.get(&format!("/workflow-runs/{run}/steps/pack%5B9%5D")).await.problem(404, "NOT_FOUND");
    let headers = world.client.get(&format!("/workflow-runs/{run}?steps=none")).await.ok();
    assert_eq!((&headers["steps"], &headers["result"]), (&json!([]), &json!(2)));
}

async fn a_timeline_grows_with_its_run(world: World) {
    async fn waits(ctx: Ctx, (): ()) -> semel::Result<()> {
        ctx.step("before").run(async |_| Ok(())).await?;
        let mut hook = ctx.hook::<()>("go");
        hook.recv().await?;
        ctx.step("after").run(async |_| Ok(())).await
    }
    let _engine = world.engine(|builder| builder.workflow("waits", waits)).await;
    let run = world.client.start("waits", "k", "null").await;
    world.client.reached(&run, "WAITING").await;
    let spans = async || world.client.get(&format!("/workflow-runs/{run}/spans")).await.ok();
    let states = |spans: &Value| {
        let all = spans["spans"].as_array().expect("a list").iter();
        all.map(|span| {
            format!("{} {}", span["kind"].as_str().unwrap_or(""), span["status"].as_str().unwrap_or(""))
        })
        .collect::<Vec<_>>()
    };
    let before = spans().await;
    assert_eq!(states(&before), ["step completed", "hook open"]);
    assert_eq!(before["spans"][1]["token"], "go");
    world.client.post("/hooks/go", "null").await.ok();
    world.client.ended(&run).await;
    let after = spans().await;
    assert_eq!(states(&after)[2], "step completed");
    assert!(after["version"].as_u64() > before["version"].as_u64());
}

async fn a_long_run_has_a_short_page(world: World) {
    let (browser, api) = local(&world).await;
    let _engine = world.engine(|builder| builder.workflow("many", many)).await;
    let run = api.start("many", "k", "400").await;
    api.ended(&run).await;
    let page = browser.open(&format!("/w/default/runs/{run}")).await;
    assert_eq!(page.text.matches("scope=\"row\"><a ").count(), 50);
    assert!(page.text.contains("data-total=\"400\"") && page.text.contains("data-more"), "{}", page.text);
    assert!(page.text.len() < 64 * 1024, "{} bytes", page.text.len());
    assert!(page.text.matches('<').count() < 4_000, "elements");
}

/// The next message of a stream.
async fn message(response: &mut Response, text: &mut String) -> Value {
    loop {
        if let Some((event, rest)) = text.split_once("\n\n") {
            let data = event.lines().find_map(|line| line.strip_prefix("data: ")).map(str::to_owned);
            let rest = rest.to_owned();
            *text = rest;
            if let Some(data) = data {
                return serde_json::from_str(&data).expect("JSON");
            }
            continue;
        }
        let chunk =
            response.chunk().await.expect("the stream is not cut off").expect("the stream has no end");
        text.push_str(std::str::from_utf8(&chunk).expect("text"));
    }
}

async fn a_workspace_tells_what_changes_in_it(world: World) {
    let run = world.client.start("order", "k", "1").await;
    let path = format!("/events?runs={run}");
    let mut stream = world.client.request(Method::GET, &path).send().await.expect("the server answers");
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut text = String::new();
    assert_eq!(message(&mut stream, &mut text).await, json!({"runs": [], "workspace": false}));
    world.client.post(&format!("/workflow-runs/{run}/pause"), "").await.ok();
    let mut told = Vec::new();
    loop {
        let next = message(&mut stream, &mut text).await;
        let named = next["runs"] == json!([run]);
        told.push(next);
        if named {
            break;
        }
    }
    assert!(told.len() <= 3, "{told:?}");
    world.client.start("order", "other", "1").await;
    assert_eq!(message(&mut stream, &mut text).await["workspace"], true);
    world.client.get("/events?runs=nonsense").await.problem(400, "VALIDATION_ERROR");
}
