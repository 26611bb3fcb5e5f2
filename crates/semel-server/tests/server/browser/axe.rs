//! axe-core on every page, in both themes: no violation of any impact.

use std::fs;

use serde_json::Value;

use super::strict::pages_with_data;
use super::{AXE, Look, Window, doubtful};
use crate::console::local;
use crate::world::{World, cases};

cases![axe_finds_nothing_in_light_colours, axe_finds_nothing_in_dark_colours];

async fn axe_finds_nothing(world: World, dark: bool) {
    let (browser, api) = local(&world).await;
    let _engine = doubtful(&world).await;
    let source = fs::read_to_string(std::env::var(AXE).expect("scripts/with-chromium gets axe-core"));
    let source = source.expect("the script has put it there");
    let run = api.start("left", "order-7", "null").await;
    api.start("left", "order-8", "null").await;
    api.post("/workflow-runs", r#"{"workflow": "left", "idempotencyKey": "order-7", "input": null}"#)
        .await
        .ok();
    api.reached(&run, "PAUSED").await;
    let window = Window::open(api.url(), Look { dark, ..Look::default() }).await;
    window.goto("/w/default/").await;
    let prefers = "return matchMedia('(prefers-color-scheme: dark)').matches";
    assert_eq!(window.script(prefers).await, dark, "the colours that were asked for");
    let mut found = Vec::new();
    for path in pages_with_data(&world, &browser, &run).await {
        window.goto(&path).await;
        window.sees("*[@id='live']", "Live").await;
        violations(&window, &source, &path, &mut found).await;
    }
    window.script("document.getElementById('keys').showModal()").await;
    violations(&window, &source, "the dialog of keys", &mut found).await;
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Adds what axe-core finds on the page.
async fn violations(window: &Window, source: &str, path: &str, found: &mut Vec<String>) {
    window.script(&format!("{source}; return true")).await;
    let run = "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then(({violations}) => done(violations.map(
        ({id, impact, nodes}) => [id, impact, nodes.slice(0, 3).map((node) => node.html + ' ' + node.failureSummary)])), (error) => done([String(error)]))";
    let Value::Array(all) = window.promised(run).await else { panic!("{path}: no list") };
    found.extend(all.into_iter().map(|one| format!("{path}: {one}")));
}

async fn axe_finds_nothing_in_light_colours(world: World) {
    axe_finds_nothing(world, false).await;
}

async fn axe_finds_nothing_in_dark_colours(world: World) {
    axe_finds_nothing(world, true).await;
}
