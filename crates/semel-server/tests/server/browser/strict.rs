//! What holds for every page: texts of others stay texts, the security policy is not violated, nothing comes from elsewhere,
//! and a narrow screen is wide enough.

use serde_json::json;

use super::{Look, Window, doubtful};
use crate::console::pages::{HOSTILE, all_pages, hostile_end, hostile_run};
use crate::console::{Browser, encoded, local};
use crate::world::{World, cases};

cases![no_page_violates_its_policy_whatever_texts_it_shows, no_page_scrolls_sideways_on_a_telephone,];

/// Scripts that are in the page itself, images, and what was loaded from elsewhere.
const FOREIGN: &str = "return [...document.querySelectorAll('script:not([src]), img, [style], [onerror]')].map((one) => one.outerHTML)
    .concat(performance.getEntriesByType('resource').map((one) => one.name).filter((name) => !name.startsWith(location.origin)))";

/// Width of the page, and what reaches beyond the screen.
const WIDE: &str = "return [document.documentElement.scrollWidth].concat(document.documentElement.scrollWidth > 390
    ? [...document.querySelectorAll('body *')].filter((one) => one.getBoundingClientRect().right > 391).map((one) => one.outerHTML.slice(0, 120)) : [])";

async fn no_page_violates_its_policy_whatever_texts_it_shows(world: World) {
    let (browser, api) = local(&world).await;
    let (_engine, run) = hostile_run(&world, &api).await;
    let window = Window::open(api.url(), Look::default()).await;
    let mut shown = 0;
    for path in ["/w/default/", "/w/default/hooks"] {
        shown += is_strict(&window, path).await;
    }
    hostile_end(&api, &run).await;
    let mut pages = all_pages(&run, HOSTILE);
    pages.push(format!("/w/default/runs/{run}?step={}", encoded(&format!("pay[{HOSTILE}]"))));
    for path in answered(&browser, pages).await {
        shown += is_strict(&window, &path).await;
    }
    assert!(shown >= 10, "the text is on {shown} pages only");
    // Copied back, byte for byte.
    window.goto(&format!("/w/default/runs/{run}")).await;
    window.sees("h1", "alert(1)").await;
    assert_eq!(window.texts("h1 bdi").await, [HOSTILE]);
}

/// The pages that exist; the console names others as not loaded.
async fn answered(browser: &Browser, pages: Vec<String>) -> Vec<String> {
    let mut found = Vec::new();
    for path in pages {
        if browser.open(&path).await.status == 200 {
            found.push(path);
        }
    }
    found
}

/// Opens a page; gives whether it shows the hostile text.
async fn is_strict(window: &Window, path: &str) -> usize {
    window.goto(path).await;
    window.sees("*[@id='live']", "Live").await;
    let foreign = window.script(FOREIGN).await;
    assert_eq!(foreign, json!([]), "{path}");
    let told = window.console().await;
    assert!(told.is_empty(), "{path}: {told:?}");
    usize::from(window.texts("main").await[0].contains("alert(1)"))
}

/// Pages with and without something on them.
pub(super) async fn pages_with_data(world: &World, browser: &Browser, run: &str) -> Vec<String> {
    let mut pages = all_pages(run, "order-7");
    pages.push("/w/default/runs?status=CANCELLED".to_owned());
    pages.push(format!("/w/default/runs/{run}?step={}", encoded("send[a b]")));
    pages.push(format!("/w/default/runs/{}", world.client.start("order", "plain", "1").await));
    answered(browser, pages).await
}

async fn no_page_scrolls_sideways_on_a_telephone(world: World) {
    let (browser, api) = local(&world).await;
    let _engine = doubtful(&world).await;
    let run = api.start("left", "order-7", "null").await;
    api.reached(&run, "PAUSED").await;
    let window = Window::open(api.url(), Look::default()).await;
    window.narrow(390).await;
    for path in pages_with_data(&world, &browser, &run).await {
        window.goto(&path).await;
        window.finds("main").await;
        let wide = window.script(WIDE).await;
        assert_eq!(wide, json!([390]), "{path}");
    }
}
