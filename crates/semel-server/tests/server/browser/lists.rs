//! What a person sees of runs: the first minute, filters and pages of the list, and a run that goes on.

use std::sync::Arc;

use tokio::process::Command;
use tokio::sync::Semaphore;

use super::{Look, Window, gated};
use crate::console::local;
use crate::world::{Api, World, cases};

cases![
    the_first_minute_shows_the_absorbed_duplicate_without_a_reload,
    filters_and_pages_are_addresses_that_can_be_shared,
    filters_and_pages_work_without_scripts,
    an_open_page_follows_its_run_to_the_end,
    a_row_with_the_focus_is_not_replaced,
    a_ninth_run_loads_beside_eight_open_ones,
];

/// Marks the document, which a reload would replace.
const MARK: &str = "window.marked = true";
/// Whether the document is the marked one.
const MARKED: &str = "return window.marked === true";
/// Keys of the runs in the list.
const KEYS: &str = "table.runs tbody tr a";

async fn the_first_minute_shows_the_absorbed_duplicate_without_a_reload(world: World) {
    let (_, api) = local(&world).await;
    let window = Window::open(api.url(), Look::default()).await;
    window.goto("/").await;
    window.sees("h2", "The first minute").await;
    window.sees("*[@id='live']", "Live").await;
    window.script(MARK).await;
    window.press("Copy").await;
    window.sees("*[@id='live']", "Copied").await;
    // Pasted with the keyboard, as into a shell.
    window.keys("#find", "\u{e009}v").await;
    let line = window.value("#find").await;
    assert!(line.starts_with("curl ") && line.contains(api.url()), "{line}");
    for _ in 0..2 {
        let said = Command::new("sh").args(["-c", &line]).output().await.expect("there is a shell");
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        // Seen before it is pressed again: the start of the run does not bring its duplicate to the screen.
        window.sees("*[@id='latest']//code", "order-7").await;
    }
    window.sees("*[@id='first']//span", "1 duplicate absorbed: one run, as it should be").await;
    assert_eq!(window.script(MARKED).await, true, "the page was loaded again");
    assert_eq!(window.console().await, Vec::<String>::new());
}

/// Filters, goes on to older runs, back, and loads again; gives the last address and its rows.
async fn walk(api: &Api, window: &Window) -> (String, Vec<String>) {
    for n in 0..60 {
        api.start(if n % 2 == 0 { "even" } else { "odd" }, &format!("k{n}"), "1").await;
    }
    window.goto("/w/default/runs").await;
    window.sees("code", "k59").await;
    let newest = window.texts(KEYS).await;
    assert_eq!(newest.len(), 50);
    window.press("Older").await;
    window.sees("code", "k9").await;
    let oldest = window.texts(KEYS).await;
    assert_eq!(oldest, (0..10).rev().map(|n| format!("k{n}")).collect::<Vec<_>>());
    window.back().await;
    window.sees("code", "k59").await;
    assert_eq!(window.texts(KEYS).await, newest);
    window.fill("input[name=add]", "workflow:odd").await;
    window.press("Filter").await;
    window.sees("span[@class='chip']", "odd").await;
    window.fill("input[name=add]", "status:PENDING").await;
    window.press("Filter").await;
    window.sees("nav[@aria-label='By status']/a[@aria-current]", "Pending").await;
    let odd = window.texts(KEYS).await;
    assert_eq!(odd, (0..60).rev().filter(|n| n % 2 == 1).map(|n| format!("k{n}")).collect::<Vec<_>>());
    window.reload().await;
    window.sees("code", "k59").await;
    assert_eq!(window.texts(KEYS).await, odd);
    (window.place().await, odd)
}

async fn filters_and_pages_are_addresses_that_can_be_shared(world: World) {
    let (_, api) = local(&world).await;
    let window = Window::open(api.url(), Look::default()).await;
    let (place, rows) = walk(&api, &window).await;
    let other = Window::open(api.url(), Look::default()).await;
    other.goto(&place).await;
    other.sees("code", "k59").await;
    assert_eq!(other.texts(KEYS).await, rows, "{place}");
}

async fn filters_and_pages_work_without_scripts(world: World) {
    let (_, api) = local(&world).await;
    let window = Window::open(api.url(), Look { scripts: false, ..Look::default() }).await;
    walk(&api, &window).await;
    assert_eq!(window.texts("#live").await, ["Not live"], "no script has run");
}

async fn an_open_page_follows_its_run_to_the_end(world: World) {
    let (_, api) = local(&world).await;
    let window = Window::open(api.url(), Look::default()).await;
    let run = api.start("gated", "k", "\"go\"").await;
    window.goto(&format!("/w/default/runs/{run}")).await;
    window.sees("*[@id='head']//span", "Pending").await;
    window.sees("*[@id='live']", "Live").await;
    window.script(MARK).await;
    let gate = Arc::new(Semaphore::new(0));
    let _engine = gated(&world, gate.clone()).await;
    window.sees("*[@id='head']//span", "Running").await;
    gate.add_permits(1);
    window.sees("*[@id='head']//span", "Waiting").await;
    window.sees("table[@class='tl']//code", "pack").await;
    api.post("/hooks/go", "42").await.ok();
    window.sees("*[@id='head']//span", "Completed").await;
    window.sees("*[@id='facts']//dt", "Ended").await;
    assert_eq!(window.script(MARKED).await, true, "the page was loaded again");
    window.press("Input & result").await;
    window.sees("*[@id='result']", "42").await;
    assert_eq!(window.console().await, Vec::<String>::new());
}

async fn a_row_with_the_focus_is_not_replaced(world: World) {
    let (_, api) = local(&world).await;
    let window = Window::open(api.url(), Look::default()).await;
    let (focused, other) = (api.start("order", "focused", "1").await, api.start("order", "other", "1").await);
    window.goto("/w/default/runs").await;
    window.sees("*[@id='live']", "Live").await;
    let row = format!("document.getElementById('{focused}')");
    window.script(&format!("window.row = {row}; window.row.querySelector('a').focus()")).await;
    for run in [&focused, &other] {
        api.post(&format!("/workflow-runs/{run}/cancel"), "").await.ok();
    }
    window.sees(&format!("tr[@id='{other}']//span"), "Cancelled").await;
    let kept = window.script(&format!("return window.row === {row} && window.row.textContent")).await;
    assert!(kept.as_str().is_some_and(|text| text.contains("Pending")), "{kept}");
    api.start("order", "newer", "1").await;
    window.sees("a[@id='newer']", "1 newer run ·").await;
    assert_eq!(window.texts(KEYS).await, ["other", "focused"], "rows do not move");
    window.script("document.activeElement.blur()").await;
    api.post("/workflow-runs", r#"{"workflow": "order"}"#).await.ok();
    window.sees(&format!("tr[@id='{focused}']//span"), "Cancelled").await;
}

async fn a_ninth_run_loads_beside_eight_open_ones(world: World) {
    let (_, api) = local(&world).await;
    let window = Window::open(api.url(), Look::default()).await;
    for n in 1..=9 {
        let run = api.start("order", &format!("tab-{n}"), "1").await;
        if n > 1 {
            window.tab().await;
        }
        window.goto(&format!("/w/default/runs/{run}")).await;
        window.sees("h1//bdi", &format!("tab-{n}")).await;
    }
    window.sees("*[@id='live']", "Live").await;
}
