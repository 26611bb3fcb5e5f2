//! What pages show, and what their forms do.

use reqwest::Method;
use semel::Ctx;
use serde_json::json;

use super::{Browser, Page, encoded, local};
use crate::world::{Api, World, cases};

cases![
    every_page_has_the_headers_of_a_page_and_nothing_of_its_own,
    hostile_texts_are_texts_on_every_page,
    a_value_keeps_its_digits,
    a_form_works_without_scripts_and_twice_it_acts_once,
    a_cancel_that_comes_too_late_says_so,
    a_doubt_is_decided_by_its_form,
    a_delivery_by_the_form_is_consumed_once,
    a_second_start_is_on_the_first_page_and_on_that_of_the_key,
    a_fork_says_before_what_it_keeps,
    filters_and_pages_of_the_list_are_addresses,
    what_is_found_leads_to_its_page,
    a_page_that_is_not_there_is_a_page,
];

/// A text that would be markup, in every known way.
pub(crate) const HOSTILE: &str =
    "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u{202e}&amp;";

/// Addresses of all pages about a run with a key.
pub(crate) fn all_pages(run: &str, key: &str) -> Vec<String> {
    let mut pages: Vec<_> = [
        "",
        "runs",
        "runs?status=PAUSED",
        "start",
        "keys",
        "doubts",
        "hooks",
        "workers",
        "workflows",
        "settings",
    ]
    .iter()
    .map(|page| format!("/w/default/{page}"))
    .collect();
    for tab in ["timeline", "ledger", "duplicates", "inbox", "values", "lineage"] {
        pages.push(format!("/w/default/runs/{run}?tab={tab}"));
    }
    pages.push(format!("/w/default/runs/{run}?step=pay"));
    pages.push(format!("/w/default/runs/{run}/fork"));
    pages.push(format!("/w/default/keys/{}", encoded(key)));
    pages.push(format!("/w/default/hooks?token={}", encoded(key)));
    pages.push(format!("/w/default/find?q={}", encoded("nothing <b>")));
    pages.push(format!("/w/default/runs?workflow={}", encoded("<b>")));
    pages
}

/// Refuses markup that a page must not have: styles and scripts of its own, and addresses of others.
fn is_clean(path: &str, page: &Page) {
    for script in page.text.split("<script").skip(1) {
        let tag = script.split('>').next().unwrap_or_default();
        assert!(tag.contains("src=\"/assets/") && script.starts_with([' ']), "{path}: <script{tag}");
        assert!(
            script.split_once('>').is_some_and(|(_, rest)| rest.starts_with("</script>")),
            "{path}: a script of its own"
        );
    }
    for banned in [" style=", "<style", " onclick=", "<img", "javascript:", "src=\"http", "href=\"http"] {
        assert!(!page.text.contains(banned), "{path} has {banned}");
    }
}

async fn every_page_has_the_headers_of_a_page_and_nothing_of_its_own(world: World) {
    let (browser, api) = local(&world).await;
    let _engine = world.doubling().await;
    let run = api.start("double", "order-7", "21").await;
    api.ended(&run).await;
    for path in all_pages(&run, "order-7") {
        let page = browser.open(&path).await;
        assert_eq!(
            (page.status, page.header("content-type")),
            (200, "text/html; charset=utf-8"),
            "{path}: {}",
            page.text
        );
        let policy = page.header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "frame-ancestors 'none'",
            "form-action 'self'",
            "base-uri 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(page.header("cache-control"), "no-store", "{path}");
        assert_eq!(page.header("cross-origin-opener-policy"), "same-origin", "{path}");
        assert_eq!(page.header("cross-origin-resource-policy"), "same-origin", "{path}");
        assert!(page.text.starts_with("<!doctype html>"), "{path}");
        is_clean(&path, &page);
        for asset in page.text.split("\"/assets/").skip(1) {
            let name = asset.split(['"', '#']).next().unwrap_or_default();
            let file = browser.open(&format!("/assets/{name}")).await;
            assert_eq!(
                (file.status, file.header("cache-control")),
                (200, "public, max-age=31536000, immutable"),
                "{name}"
            );
        }
    }
}

/// A run with hostile texts that waits for a hook, and fails with what it is told.
pub(crate) async fn hostile_run(world: &World, api: &Api) -> (semel::Engine, String) {
    async fn fails(ctx: Ctx, (): ()) -> semel::Result<()> {
        let mut hook = ctx.hook::<String>(HOSTILE);
        let told = hook.recv().await?;
        ctx.step("pay").key(HOSTILE).run(async |_| Err::<(), _>(semel::fatal(told.clone()))).await
    }
    let engine = world.engine(|builder| builder.workflow("fails", fails)).await;
    let body = json!({"workflow": "fails", "input": null, "idempotencyKey": HOSTILE}).to_string();
    let run = api.post("/workflow-runs", body.clone()).await.run_id();
    api.post("/workflow-runs", body).await.ok();
    api.reached(&run, "WAITING").await;
    (engine, run)
}

/// Tells it, and waits for its end.
pub(crate) async fn hostile_end(api: &Api, run: &str) {
    api.post(&format!("/hooks/{}", encoded(HOSTILE)), json!(HOSTILE).to_string()).await.ok();
    assert_eq!(api.ended(run).await["status"], "FAILED");
}

async fn hostile_texts_are_texts_on_every_page(world: World) {
    let (browser, api) = local(&world).await;
    let (_engine, run) = hostile_run(&world, &api).await;
    let waits = browser.open(&format!("/w/default/hooks?token={}", encoded(HOSTILE))).await;
    is_clean("the hook", &waits);
    hostile_end(&api, &run).await;
    let mut shown = 0;
    let mut pages = all_pages(&run, HOSTILE);
    pages.push(format!("/w/default/runs/{run}?step={}", encoded(&format!("pay[{HOSTILE}]"))));
    pages.push(format!("/w/default/runs?key={}", encoded(HOSTILE)));
    for path in pages {
        let page = browser.open(&path).await;
        assert!(matches!(page.status, 200 | 400), "{path}: {} {}", page.status, page.text);
        is_clean(&path, &page);
        shown += usize::from(page.text.contains("alert(1)"));
    }
    assert!(shown >= 10, "the text is on {shown} pages only");
}

async fn a_value_keeps_its_digits(world: World) {
    let (browser, api) = local(&world).await;
    let run = api.start("order", "k", r#"{"cents": 9007199254740993, "deep": [[[[1.10]]]]}"#).await;
    let page = browser.open(&format!("/w/default/runs/{run}?tab=values")).await;
    assert!(page.text.contains("9007199254740993") && page.text.contains("1.10"), "{}", page.text);
    let file = browser.open(&format!("/w/default/runs/{run}/value?of=input")).await;
    assert_eq!(file.text, r#"{"cents": 9007199254740993, "deep": [[[[1.10]]]]}"#);
    assert!(file.header("content-disposition").starts_with("attachment"));
    let long = format!("\"{}\"", "x".repeat(200_000));
    let run = api.start("order", "long", &long).await;
    let page = browser.open(&format!("/w/default/runs/{run}?tab=values")).await;
    assert!(page.text.len() < 100_000 && page.text.contains("data-whole"), "{} bytes", page.text.len());
    let file = browser.open(&format!("/w/default/runs/{run}/value?of=input")).await;
    assert_eq!(file.text, long);
}

async fn a_form_works_without_scripts_and_twice_it_acts_once(world: World) {
    let (browser, api) = local(&world).await;
    let run = api.start("order", "k", "1").await;
    let here = format!("/w/default/runs/{run}");
    let page = browser.open(&here).await;
    let fields = [("action", "pause"), ("call", &page.field("call")), ("version", &page.field("version"))];
    let first = browser.send(&format!("{here}/act"), &fields).await;
    assert_eq!(first.leads_to(), format!("{here}?done=yes"));
    let again = browser.send(&format!("{here}/act"), &fields).await;
    assert_eq!(again.leads_to(), format!("{here}?done=again"));
    let page = browser.open(again.leads_to()).await;
    assert!(page.text.contains("took place once") && page.text.contains("Paused"), "{}", page.text);
    let resume = [("action", "resume"), ("call", "c"), ("version", "1")];
    let stale = browser.send(&format!("{here}/act"), &resume).await;
    assert_eq!(stale.status, 409, "{}", stale.text);
    assert!(stale.text.contains("<nav") && stale.text.contains("CONCURRENCY"), "{}", stale.text);
}

async fn a_cancel_that_comes_too_late_says_so(world: World) {
    let (browser, api) = local(&world).await;
    let run = api.start("order", "k", "1").await;
    let here = format!("/w/default/runs/{run}");
    let call = browser.open(&here).await.field("call");
    api.post(&format!("/workflow-runs/{run}/cancel"), r#"{"reason": "first"}"#).await.ok();
    let fields = [("action", "cancel"), ("call", call.as_str()), ("reason", "second")];
    let late = browser.send(&format!("{here}/act"), &fields).await;
    assert_eq!(late.leads_to(), format!("{here}?done=late"));
    let page = browser.open(late.leads_to()).await;
    assert!(page.text.contains("first") && !page.text.contains("second"), "{}", page.text);
}

/// A run whose step `send[a b]` is in doubt.
async fn doubtful(world: &World, api: &Api) -> (semel::Engine, String) {
    async fn left(ctx: Ctx, (): ()) -> semel::Result<String> {
        let doubtful = async |_: semel::Attempt| Err::<String, _>(semel::Fail::uncertain("the line is dead"));
        ctx.step("send").key("a b").at_most_once().run(doubtful).await
    }
    let engine = world.engine(|builder| builder.workflow("left", left)).await;
    let run = api.start("left", "k", "null").await;
    api.reached(&run, "PAUSED").await;
    (engine, run)
}

async fn a_doubt_is_decided_by_its_form(world: World) {
    let (browser, api) = local(&world).await;
    let (_engine, run) = doubtful(&world, &api).await;
    let here = format!("/w/default/runs/{run}");
    let page = browser.open(&here).await;
    for told in [
        "Did <code><bdi>send[a b]</bdi></code> take place?",
        "At most once",
        "the line is dead",
        "In doubt",
        "intent was recorded",
    ] {
        assert!(page.text.contains(told), "{told}: {}", page.text);
    }
    for listed in ["/w/default/", "/w/default/doubts"] {
        assert!(browser.open(listed).await.text.contains(">Decide<"), "{listed}");
    }
    let call = page
        .text
        .split_once("/resolve")
        .map(|(_, rest)| rest.split_once("name=\"call\" value=\"").expect("a form has a call").1);
    let call = call.expect("a form has a call").split('"').next().expect("the value ends").to_owned();
    let decide = async |decision: &str, more: (&str, &str)| {
        let fields = [
            ("step", "send[a b]"),
            ("tick", "1"),
            ("confirms", "true"),
            ("call", &call),
            ("decision", decision),
            more,
        ];
        browser.send(&format!("{here}/resolve"), &fields).await
    };
    let careless = decide("did-not-happen", ("path", "")).await;
    assert!(careless.status == 400 && careless.text.contains("type the path"), "{}", careless.text);
    let wrong = decide("happened", ("value", "{no json")).await;
    assert!(wrong.status == 400 && wrong.text.contains("not JSON"), "{}", wrong.text);
    let value = ("value", r#"{"sent": 9007199254740993}"#);
    assert_eq!(decide("happened", value).await.leads_to(), format!("{here}?done=yes"));
    assert_eq!(decide("happened", value).await.leads_to(), format!("{here}?done=again"));
    let ledger = browser.open(&format!("{here}?tab=ledger")).await;
    assert!(
        ledger.text.contains("stepResolved") && ledger.text.contains("9007199254740993"),
        "{}",
        ledger.text
    );
}

async fn a_delivery_by_the_form_is_consumed_once(world: World) {
    async fn asks(ctx: Ctx, (): ()) -> semel::Result<u64> {
        let mut hook = ctx.hook::<u64>("answer:7");
        hook.recv().await
    }
    let (browser, api) = local(&world).await;
    let _engine = world.engine(|builder| builder.workflow("asks", asks)).await;
    let run = api.start("asks", "k", "null").await;
    api.reached(&run, "WAITING").await;
    let page = browser.open("/w/default/hooks?token=answer%3A7").await;
    assert!(page.text.contains(&run), "{}", page.text);
    let call = page.field("call");
    let fields = [("token", "answer:7"), ("payload", "42"), ("call", call.as_str())];
    let first = browser.send("/w/default/hooks", &fields).await;
    assert_eq!(first.leads_to(), format!("/w/default/runs/{run}?done=delivered"));
    let again = browser.send("/w/default/hooks", &fields).await;
    assert_eq!(again.leads_to(), format!("/w/default/runs/{run}?done=absorbed"));
    assert_eq!(api.ended(&run).await["result"], 42);
}

async fn a_second_start_is_on_the_first_page_and_on_that_of_the_key(world: World) {
    let (browser, api) = local(&world).await;
    let empty = browser.open("/w/default/").await;
    assert!(
        empty.text.contains("The first minute") && empty.text.contains("idempotency-key: order-7"),
        "{}",
        empty.text
    );
    let fields = [("workflow", "order"), ("input", "{\"a\": 1}"), ("key", "order-7"), ("call", "c")];
    let started = browser.send("/w/default/start", &fields).await;
    assert!(started.leads_to().ends_with("?done=started"), "{}", started.leads_to());
    let again = browser.send("/w/default/start", &fields).await;
    assert!(again.leads_to().ends_with("?done=attached"), "{}", again.leads_to());
    assert_eq!(api.get("/workflow-runs").await.ok()["runs"].as_array().map(Vec::len), Some(1));
    let overview = browser.open("/w/default/").await;
    assert!(overview.text.contains("1 duplicate absorbed"), "{}", overview.text);
    let key = browser.open("/w/default/keys/order-7").await;
    assert!(key.text.contains("What came again") && key.text.contains("Start"), "{}", key.text);
    let other =
        browser.send("/w/default/start", &[("workflow", "order"), ("input", "2"), ("key", "order-7")]).await;
    assert!(other.status == 422 && other.text.contains("KEY_REUSED"), "{}", other.text);
}

async fn a_fork_says_before_what_it_keeps(world: World) {
    let (browser, api) = local(&world).await;
    let _engine = world.doubling().await;
    let run = api.start("double", "k", "21").await;
    api.ended(&run).await;
    let spans = api.get(&format!("/workflow-runs/{run}/spans")).await.ok();
    let first = spans["spans"][0]["lastEntry"].as_u64().expect("a number");
    let here = format!("/w/default/runs/{run}");
    let page = browser.open(&format!("{here}/fork?at={first}")).await;
    let row = |path: &str| {
        page.text
            .split_once(&format!("<bdi>{path}</bdi>"))
            .map(|(_, rest)| rest.split_once("</tr>").expect("the row ends").0.to_owned())
            .expect("the path has a row")
    };
    assert!(row("double").contains("Kept") && row("check").contains("Runs again"), "{}", page.text);
    let fields = [
        ("action", "fork"),
        ("at", &first.to_string()),
        ("keys", "same"),
        ("call", &page.field("call")),
        ("version", &page.field("version")),
    ];
    let forked = browser.send(&format!("{here}/act"), &fields).await;
    let to = forked.leads_to().to_owned();
    assert!(!to.starts_with(&here), "{to}");
    assert_eq!(
        browser.send(&format!("{here}/act"), &fields).await.leads_to(),
        to.replace("done=yes", "done=again")
    );
}

async fn filters_and_pages_of_the_list_are_addresses(world: World) {
    let (browser, api) = local(&world).await;
    for n in 0..60 {
        api.start(if n % 2 == 0 { "even" } else { "odd" }, &format!("k{n}"), "1").await;
    }
    let first = browser.open("/w/default/runs").await;
    assert_eq!(first.text.matches("data-run=").count(), 50);
    let older = first
        .text
        .split("cursor=")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .expect("a link to older runs");
    let second = browser.open(&format!("/w/default/runs?cursor={older}")).await;
    assert_eq!(second.text.matches("data-run=").count(), 10);
    assert!(second.text.contains(">k0<") && !first.text.contains(">k0<"));
    let odd = browser.open("/w/default/runs?workflow=odd&status=PENDING").await;
    assert_eq!(odd.text.matches("data-run=").count(), 30);
    let added = browser.open("/w/default/runs?workflow=odd&add=key%3Ak1").await;
    assert_eq!(added.leads_to(), "/w/default/runs?workflow=odd&key=k1");
    let one = browser.open(added.leads_to()).await;
    assert_eq!(one.text.matches("data-run=").count(), 1);
}

async fn what_is_found_leads_to_its_page(world: World) {
    let (browser, api) = local(&world).await;
    let run = api.start("order", "order 7", "1").await;
    assert_eq!(
        browser.open(&format!("/w/default/find?q={run}")).await.leads_to(),
        format!("/w/default/runs/{run}")
    );
    assert_eq!(browser.open("/w/default/find?q=order+7").await.leads_to(), "/w/default/keys/order%207");
    assert_eq!(browser.open("/w/default/find?q=nothing").await.status, 200);
}

async fn a_page_that_is_not_there_is_a_page(world: World) {
    let (browser, _) = local(&world).await;
    let missing = browser.open(&format!("/w/default/runs/run_{}", "0".repeat(26))).await;
    assert_eq!((missing.status, missing.header("content-type")), (404, "text/html; charset=utf-8"));
    assert!(missing.text.contains("<nav") && missing.text.contains("NOT_FOUND"), "{}", missing.text);
    assert_eq!(browser.open("/").await.leads_to(), "/w/default/");
    assert_eq!(browser.open("/w/other/").await.status, 404);
    let written = Page::of(
        Browser::request(&browser, Method::POST, "/w/default/api/workflow-runs")
            .header("sec-fetch-site", "same-origin"),
    )
    .await;
    assert_eq!(written.status, 405, "{}", written.text);
}
