//! Who may see pages, and whose forms are taken.

use libtest_mimic::Trial;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Browser, Page};
use crate::served::{ROOT, Served, Token, config, keyed};
use crate::world::runtime;

pub(crate) fn trials() -> Vec<Trial> {
    crate::served_trials![
        no_page_is_shown_without_a_session,
        a_person_signs_in_and_out_and_a_link_leads_through_the_login,
        a_wrong_or_revoked_key_signs_no_person_in,
        a_revoked_key_ends_its_sessions,
        a_session_enters_the_workspaces_of_its_keys_only,
        a_page_of_another_site_can_send_no_form,
        a_reader_may_look_and_an_operator_may_act_under_a_name,
        a_new_key_is_shown_once_and_revoked_by_a_form,
        long_answers_are_compressed_and_streams_are_not,
        a_local_server_shows_the_console_to_this_machine_only,
    ]
}

/// Addresses of pages, as far as they need no run.
const PAGES: [&str; 12] = [
    "",
    "/",
    "/runs",
    "/start",
    "/keys",
    "/keys/k",
    "/doubts",
    "/hooks",
    "/workers",
    "/workflows",
    "/settings",
    "/find?q=x",
];

fn browser(served: &Served) -> Browser {
    Browser::at(format!("http://{}", served.address))
}

async fn sign_in(browser: &Browser, key: &Token, name: &str) -> (Browser, Page) {
    let page = browser.send("/login", &[("apiKey", key.text()), ("name", name)]).await;
    assert_eq!(page.status, 303, "{}", page.text);
    (browser.with(&page), page)
}

async fn no_page_is_shown_without_a_session() {
    let served = Served::open(&keyed()).await;
    let browser = browser(&served);
    let (_, key) = served.caller(ROOT).key(None, &["start", "read"]).await;
    let run = key.post("/workflow-runs", &json!({"workflow": "secret-workflow"})).await.run_id();
    let mut pages: Vec<_> = PAGES.iter().map(|page| format!("/w/default{page}")).collect();
    pages.push(format!("/w/default/runs/{run}"));
    pages.push(format!("/w/default/runs/{run}/fork"));
    pages.push(format!("/w/default/runs/{run}/value?of=input"));
    for path in &pages {
        let page = browser.open(path).await;
        assert!(page.leads_to().starts_with("/login?next=%2Fw%2Fdefault"), "{path}: {}", page.leads_to());
        assert!(!page.text.contains("secret-workflow"), "{path}");
    }
    for path in ["/api/workflow-runs", "/api/events", &format!("/api/workflow-runs/{run}/events")] {
        assert_eq!(browser.open(&format!("/w/default{path}")).await.status, 401, "{path}");
    }
    for path in [
        format!("/runs/{run}/act"),
        format!("/runs/{run}/resolve"),
        "/start".to_owned(),
        "/hooks".to_owned(),
        "/settings/keys".to_owned(),
        "/keys/k/release".to_owned(),
    ] {
        let refused = browser.send(&format!("/w/default{path}"), &[("action", "cancel")]).await;
        assert_eq!(refused.status, 401, "{path}: {}", refused.text);
    }
    // The cookie is no credential of the API.
    let (signed, _) = sign_in(&browser, &key, "Ada").await;
    assert_eq!(signed.open("/api/v1/workflow-runs").await.status, 401);
    let invented = Page::of(
        browser
            .request(Method::GET, "/w/default/runs")
            .header("cookie", format!("__Host-semel={}", "0".repeat(64))),
    )
    .await;
    assert!(invented.leads_to().starts_with("/login"), "{}", invented.text);
}

async fn a_person_signs_in_and_out_and_a_link_leads_through_the_login() {
    let served = Served::open(&keyed()).await;
    let browser = browser(&served);
    let (_, key) = served.caller(ROOT).key(None, &["read"]).await;
    assert_eq!(browser.open("/").await.leads_to(), "/login");
    let link = "/w/default/runs?status=FAILED";
    let login = browser.open(browser.open(link).await.leads_to()).await;
    assert_eq!(login.status, 200);
    assert_eq!(login.field("next"), "/w/default/runs?status=FAILED");
    let page = browser.send("/login", &[("apiKey", key.text()), ("name", "Ada"), ("next", link)]).await;
    assert_eq!(page.leads_to(), link);
    let cookie = page.header("set-cookie").to_owned();
    for part in ["__Host-semel=", "; Path=/;", "; Secure", "; HttpOnly", "; SameSite=Strict"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(
        !cookie.contains(key.text().rsplit('_').next().unwrap_or("semel_")),
        "the token is not in the browser"
    );
    let signed = browser.with(&page);
    let runs = signed.open(link).await;
    assert!(runs.status == 200 && runs.text.contains("Ada · reads"), "{}", runs.text);
    assert_eq!(signed.open("/").await.leads_to(), "/w/default/");
    let session: Value = serde_json::from_str(&signed.open("/api/v1/session").await.text).expect("JSON");
    assert_eq!(
        (&session["name"], &session["workspaces"][0]["workspace"]),
        (&json!("Ada"), &json!("default"))
    );
    let evil =
        browser.send("/login", &[("apiKey", key.text()), ("name", "Ada"), ("next", "//evil.example/")]).await;
    assert_eq!(evil.leads_to(), "/w/default/");
    // A link on another site: the browser has kept the cookie back, and a page of this server leads on.
    let from_elsewhere =
        Page::of(browser.request(Method::GET, link).header("sec-fetch-site", "cross-site")).await;
    assert!(
        from_elsewhere.status == 200 && from_elsewhere.text.contains("http-equiv=\"refresh\""),
        "{}",
        from_elsewhere.text
    );
    let out = signed.send("/logout", &[]).await;
    assert!(out.leads_to() == "/login" && out.header("set-cookie").contains("Max-Age=0"));
    assert!(signed.open(link).await.leads_to().starts_with("/login"));
    assert_eq!(signed.open("/api/v1/session").await.status, 401);
}

async fn a_wrong_or_revoked_key_signs_no_person_in() {
    let served = Served::open(&keyed()).await;
    let browser = browser(&served);
    let root = served.caller(ROOT);
    let (id, key) = root.key(None, &["read"]).await;
    root.delete(&format!("/api-keys/{id}")).await.ok();
    for wrong in [key.text(), "nonsense", "", ROOT] {
        let page = browser.send("/login", &[("apiKey", wrong), ("name", "Ada")]).await;
        assert!(page.status == 401 && page.header("set-cookie").is_empty(), "{wrong}: {}", page.status);
        assert!(page.text.contains("role=\"alert\"") && !page.text.contains(ROOT), "{}", page.text);
    }
    let (_, key) = root.key(None, &["read"]).await;
    let nameless = browser.send("/login", &[("apiKey", key.text()), ("name", " ")]).await;
    assert!(nameless.status == 400 && nameless.text.contains("name"), "{}", nameless.text);
}

async fn a_revoked_key_ends_its_sessions() {
    let served = Served::open(&keyed()).await;
    let root = served.caller(ROOT);
    let (id, key) = root.key(None, &["read"]).await;
    let (signed, _) = sign_in(&browser(&served), &key, "Ada").await;
    assert_eq!(signed.open("/w/default/runs").await.status, 200);
    let stream =
        signed.request(Method::GET, "/w/default/api/events").send().await.expect("the server answers");
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    root.delete(&format!("/api-keys/{id}")).await.ok();
    assert!(signed.open("/w/default/runs").await.leads_to().starts_with("/login"));
    // It ends with the key: otherwise this would wait for ever.
    stream.text().await.expect("the stream has an end");
}

async fn a_session_enters_the_workspaces_of_its_keys_only() {
    let served = Served::open(&keyed()).await;
    let root = served.caller(ROOT);
    for name in ["shop", "post"] {
        root.post("/workspaces", &json!({"name": name})).await.ok();
    }
    let (_, shop) = root.key(Some("shop"), &["start", "read"]).await;
    let (_, post) = root.key(Some("post"), &["read"]).await;
    let run = shop.post("/workflow-runs", &json!({"workflow": "w"})).await.run_id();
    let (first, page) = sign_in(&browser(&served), &shop, "Ada").await;
    assert_eq!(page.leads_to(), "/w/shop/");
    assert_eq!(first.open(&format!("/w/shop/runs/{run}")).await.status, 200);
    assert!(first.open("/w/post/runs").await.leads_to().starts_with("/login"));
    let (both, _) = sign_in(&first, &post, "Ada").await;
    for workspace in ["shop", "post"] {
        let page = both.open(&format!("/w/{workspace}/runs")).await;
        assert!(
            page.status == 200 && page.text.contains("/w/shop/") && page.text.contains("/w/post/"),
            "{}",
            page.text
        );
    }
    assert_eq!(both.open(&format!("/w/post/runs/{run}")).await.status, 404);
    // The secret was replaced at the second login.
    assert!(first.open("/w/shop/runs").await.leads_to().starts_with("/login"));
}

async fn a_page_of_another_site_can_send_no_form() {
    let served = Served::open(&keyed()).await;
    let (_, key) = served.caller(ROOT).key(None, &["admin"]).await;
    let run = key.post("/workflow-runs", &json!({"workflow": "w"})).await.run_id();
    let (signed, _) = sign_in(&browser(&served), &key, "Ada").await;
    let path = format!("/w/default/runs/{run}/act");
    let form = || signed.form(&path, &[("action", "cancel"), ("call", "c")]);
    let own = format!("http://{}", served.address);
    for refused in [
        form(),
        form().header("sec-fetch-site", "cross-site"),
        form().header("sec-fetch-site", "same-site"),
        form().header("sec-fetch-site", "none"),
        form().header("origin", "https://evil.example"),
        form().header("origin", "null"),
        form().header("sec-fetch-site", "cross-site").header("origin", &own),
    ] {
        let page = Page::of(refused).await;
        assert_eq!(page.status, 403, "{}", page.text);
    }
    for (path, fields) in [("/login", &[("apiKey", key.text()), ("name", "Eve")][..]), ("/logout", &[][..])] {
        let page = Page::of(signed.form(path, fields).header("sec-fetch-site", "cross-site")).await;
        assert_eq!(page.status, 403, "{path}");
    }
    let session = signed.request(Method::DELETE, "/api/v1/session").header("origin", "https://evil.example");
    assert_eq!(Page::of(session).await.status, 403);
    assert_eq!(key.get(&format!("/workflow-runs/{run}")).await.ok()["status"], "PENDING");
    assert_eq!(Page::of(form().header("origin", &own)).await.status, 303);
    assert_eq!(key.get(&format!("/workflow-runs/{run}")).await.ok()["status"], "CANCELLED");
}

async fn a_reader_may_look_and_an_operator_may_act_under_a_name() {
    let served = Served::open(&keyed()).await;
    let root = served.caller(ROOT);
    let (_, reader) = root.key(None, &["read"]).await;
    let (_, operator) = root.key(None, &["read", "operate"]).await;
    let (_, admin) = root.key(None, &["admin"]).await;
    let run = admin.post("/workflow-runs", &json!({"workflow": "w", "idempotencyKey": "k"})).await.run_id();
    let (reads, _) = sign_in(&browser(&served), &reader, "Rea").await;
    let here = format!("/w/default/runs/{run}");
    for page in PAGES {
        assert_eq!(reads.open(&format!("/w/default{page}")).await.status, 200, "{page}");
    }
    let page = reads.open(&here).await;
    assert!(page.text.contains("disabled title=\"This needs the permission operate\""), "{}", page.text);
    assert!(!reads.open("/w/default/settings").await.text.contains("New API key"));
    for (path, fields) in [
        (format!("{here}/act"), &[("action", "pause")][..]),
        (format!("{here}/act"), &[("action", "fork")][..]),
        (format!("{here}/resolve"), &[("step", "s"), ("decision", "give-up")][..]),
        ("/w/default/start".to_owned(), &[("workflow", "w"), ("call", "c")][..]),
        ("/w/default/hooks".to_owned(), &[("token", "t"), ("payload", "1")][..]),
        ("/w/default/keys/k/release".to_owned(), &[("call", "c")][..]),
        ("/w/default/settings/keys".to_owned(), &[("name", "n"), ("permission", "admin"), ("call", "c")][..]),
    ] {
        let refused = reads.send(&path, fields).await;
        assert!(refused.status == 403 && refused.text.contains("FORBIDDEN"), "{path}: {}", refused.status);
    }
    let (acts, _) = sign_in(&browser(&served), &operator, "Ope").await;
    let paused = acts.send(&format!("{here}/act"), &[("action", "pause"), ("call", "c")]).await;
    assert_eq!(paused.leads_to(), format!("{here}?done=yes"));
    assert_eq!(
        acts.open("/w/default/settings").await.text.matches("with the permission <code>admin</code>").count(),
        1
    );
    let detail = admin.get(&format!("/workflow-runs/{run}")).await.ok();
    assert_eq!(detail["pauseReason"], "paused by Ope (key: test); resume it to continue");
    let calls = admin.get("/audit").await.ok()["calls"].clone();
    let pause = calls
        .as_array()
        .expect("a list")
        .iter()
        .find(|call| call["subject"] == format!("/workflow-runs/{run}/pause"));
    let by = pause.expect("the call is in the audit")["by"].as_str().unwrap_or_default();
    assert!(by.starts_with("Ope (key_"), "{by}");
    // By the API the same key may do the same, and no more.
    operator.post(&format!("/workflow-runs/{run}/resume"), &json!({})).await.ok();
    operator.get("/api-keys").await.problem(403, "FORBIDDEN");
    operator.post("/workflow-runs", &json!({"workflow": "w"})).await.problem(403, "FORBIDDEN");
    operator.post("/hooks/nothing", &json!(1)).await.problem(404, "HOOK_NOT_FOUND");
}

async fn a_new_key_is_shown_once_and_revoked_by_a_form() {
    let served = Served::open(&keyed()).await;
    let (_, admin) = served.caller(ROOT).key(None, &["admin"]).await;
    let (signed, _) = sign_in(&browser(&served), &admin, "Ada").await;
    let call = signed.open("/w/default/settings").await.field("call");
    let fields =
        [("name", "on-call <b>"), ("permission", "operate"), ("permission", "read"), ("call", call.as_str())];
    let made = signed.send("/w/default/settings/keys", &fields).await;
    let token =
        made.text.split_once("data-copy=\"semel_").map(|(_, rest)| rest.split('"').next().expect("a quote"));
    let token = format!("semel_{}", token.expect("the page shows it"));
    admin.with(&token).get("/workflow-runs").await.ok();
    let again = signed.send("/w/default/settings/keys", &fields).await;
    assert!(again.status == 409 && !again.text.contains(&token), "{}", again.text);
    let settings = signed.open("/w/default/settings").await;
    assert!(!settings.text.contains(&token) && !settings.text.contains("<b>\""), "{}", settings.text);
    let id = token.split('_').nth(1).expect("a token has an id");
    let revoked = signed.send(&format!("/w/default/settings/keys/key_{id}/revoke"), &[]).await;
    assert_eq!(revoked.leads_to(), "/w/default/settings?done=revoked");
    admin.with(&token).get("/workflow-runs").await.problem(401, "AUTH_ERROR");
}

async fn long_answers_are_compressed_and_streams_are_not() {
    let served = Served::open(&config()).await;
    let browser = browser(&served);
    let encoding = async |path: &str| {
        let request = browser.request(Method::GET, path).header("accept-encoding", "gzip");
        let response = request.send().await.expect("the server answers");
        response.headers().get("content-encoding").map(|value| value.to_str().expect("text").to_owned())
    };
    for long in ["/w/default/runs", "/api/v1/openapi.json"] {
        assert_eq!(encoding(long).await.as_deref(), Some("gzip"), "{long}");
    }
    for plain in ["/api/v1/workflow-runs", "/api/v1/events", "/w/default/api/events", "/healthz"] {
        assert_eq!(encoding(plain).await, None, "{plain}");
    }
}

async fn a_local_server_shows_the_console_to_this_machine_only() {
    let served = Served::open(&config()).await;
    let browser = browser(&served);
    assert_eq!(browser.open("/").await.leads_to(), "/w/default/");
    assert_eq!(browser.open("/w/default/").await.status, 200);
    assert_eq!(browser.open("/login").await.leads_to(), "/");
    let elsewhere = browser.request(Method::GET, "/w/default/").header("host", "semel.evil.example");
    assert_eq!(Page::of(elsewhere).await.status, 403);
    let signed = browser.request(Method::POST, "/api/v1/session").body(r#"{"apiKey": "x", "name": "Ada"}"#);
    assert_eq!(Page::of(signed).await.status, 400);
}
