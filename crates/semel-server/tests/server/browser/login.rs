//! The login and permissions, on servers with API keys.

use libtest_mimic::Trial;
use semel_server::config::{Config, StoreAddress};
use serde_json::json;
use tempfile::TempDir;

use super::{Look, Window};
use crate::served::{ROOT, Served, Token, keyed};
use crate::world::{Doing, fresh_schema, runtime};

/// A test on a server with API keys.
type Login = (&'static str, fn(Served) -> Doing);

pub(super) fn trials() -> Vec<Trial> {
    let all: [Login; 4] = [
        ("a_link_leads_through_the_login_and_a_sign_out_ends_it", |served| Box::pin(a_link_leads(served))),
        ("a_revoked_key_ends_the_session_of_an_open_page", |served| Box::pin(a_revoked_key_ends(served))),
        ("two_tabs_show_two_workspaces", |served| Box::pin(two_tabs(served))),
        ("a_reader_can_use_no_control", |served| Box::pin(a_reader(served))),
    ];
    let sqlite = all.map(|(name, run)| {
        Trial::test(format!("sqlite::browser::login::{name}"), move || {
            let folder = TempDir::new()?;
            let store = format!("sqlite:{}", folder.path().join("semel.db").display());
            runtime().block_on(on(StoreAddress::new(store), run));
            Ok(())
        })
    });
    let postgres = all.map(|(name, run)| {
        Trial::test(format!("postgres::browser::login::{name}"), move || {
            let address = json!({"address": std::env::var("SEMEL_TEST_POSTGRES")?, "schema": fresh_schema()});
            runtime().block_on(on(serde_json::from_value(address)?, run));
            Ok(())
        })
    });
    sqlite.into_iter().chain(postgres).collect()
}

async fn on(store: StoreAddress, run: fn(Served) -> Doing) {
    let served = Served::open(&Config { store, ..keyed() }).await;
    run(served).await;
}

async fn window(served: &Served) -> Window {
    Window::open(&format!("http://{}", served.address), Look::default()).await
}

/// Fills in the form of the login and sends it.
async fn sign_in(window: &Window, key: &str, name: &str) {
    window.fill("#key", key).await;
    window.fill("#name", name).await;
    window.press("Sign in").await;
}

async fn order(caller: &Token, key: &str) -> String {
    caller.post("/workflow-runs", &json!({"workflow": "order", "idempotencyKey": key})).await.run_id()
}

async fn a_link_leads(served: Served) {
    let root = served.caller(ROOT);
    let (id, revoked) = root.key(None, &["read"]).await;
    root.delete(&format!("/api-keys/{id}")).await.ok();
    let (_, key) = root.key(None, &["admin"]).await;
    let run = order(&key, "order-7").await;
    let window = window(&served).await;
    let link = format!("/w/default/runs/{run}?tab=ledger");
    window.goto(&link).await;
    for wrong in ["semel_nonsense", revoked.text()] {
        sign_in(&window, wrong, "Ada").await;
        window.sees("p[@role='alert']", "key").await;
        assert_eq!(window.value("#key").await, "", "a key is not sent back");
        assert_eq!(window.value("#name").await, "Ada");
    }
    sign_in(&window, key.text(), "Ada").await;
    window.sees("h1//bdi", "order-7").await;
    window.sees("h2", "Ledger").await;
    assert_eq!(window.place().await, link);
    window.sees("div[@class='foot']", "Ada · administrator").await;
    window.sees("*[@id='live']", "Live").await;
    window.reload().await;
    window.sees("h1//bdi", "order-7").await;
    assert_eq!(window.script("return document.cookie").await, "", "scripts cannot read the session");
    window.click(".foot form button").await;
    window.finds("#key").await;
    window.goto(&link).await;
    window.finds("#key").await;
    assert!(window.place().await.starts_with("/login?next="), "{}", window.place().await);
}

async fn a_revoked_key_ends(served: Served) {
    let root = served.caller(ROOT);
    let (id, key) = root.key(None, &["read"]).await;
    let window = window(&served).await;
    window.goto("/w/default/runs").await;
    sign_in(&window, key.text(), "Ada").await;
    window.sees("*[@id='live']", "Live").await;
    root.delete(&format!("/api-keys/{id}")).await.ok();
    // The stream ends with the key; the page asks for itself, and is led to the login.
    window.finds("#key").await;
}

async fn two_tabs(served: Served) {
    let root = served.caller(ROOT);
    let window = window(&served).await;
    let mut runs = Vec::new();
    for (place, workspace) in ["shop", "post"].into_iter().enumerate() {
        root.post("/workspaces", &json!({"name": workspace})).await.ok();
        let (_, key) = root.key(Some(workspace), &["start", "read"]).await;
        runs.push(order(&key, &format!("only-in-{workspace}")).await);
        if place > 0 {
            window.tab().await;
        }
        window.goto("/login").await;
        sign_in(&window, key.text(), "Ada").await;
        window.sees("*[@id='latest']//code", &format!("only-in-{workspace}")).await;
    }
    for (workspace, run) in ["shop", "post"].into_iter().zip(&runs) {
        window.tab().await;
        window.goto(&format!("/w/{workspace}/runs/{run}")).await;
        window.sees("h1//bdi", &format!("only-in-{workspace}")).await;
    }
}

async fn a_reader(served: Served) {
    let root = served.caller(ROOT);
    let (_, admin) = root.key(None, &["admin"]).await;
    let (_, reader) = root.key(None, &["read"]).await;
    let run = order(&admin, "order-7").await;
    let window = window(&served).await;
    let here = format!("/w/default/runs/{run}");
    window.goto(&here).await;
    sign_in(&window, reader.text(), "Rea").await;
    window.sees("h1//bdi", "order-7").await;
    for page in ["", "/fork", "/../../start", "/../../hooks", "/../../keys/order-7", "/../../settings"] {
        window.goto(&format!("{here}{page}")).await;
        window.finds("main").await;
        let able = window.texts("main form[method=post] button:not(:disabled)").await;
        assert!(able.is_empty(), "{page}: {able:?}");
    }
    for form in
        ["act', 'action=cancel&call=c", "act', 'action=pause&call=c", "resolve', 'step=s&decision=give-up"]
    {
        let (path, body) = form.split_once("', '").expect("a path and a body");
        let sent = format!(
            "const done = arguments[0]; fetch('{here}/{path}', {{method: 'POST', body: '{body}', \
             headers: {{'content-type': 'application/x-www-form-urlencoded'}}}}).then((answer) => done(answer.status))"
        );
        assert_eq!(window.promised(&sent).await, 403, "{form}");
    }
    assert_eq!(admin.get(&format!("/workflow-runs/{run}")).await.ok()["status"], "PENDING");
}
