//! A window of a real browser, driven by the `WebDriver` protocol. The driver itself waits for an element: no test sleeps.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::served::client;

/// Name of the variable with the URL of the driver.
pub(super) const VARIABLE: &str = "SEMEL_TEST_WEBDRIVER";
/// Member with the id of an element, as the protocol names it.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// Time after which an element that has not appeared is missing, in milliseconds.
const PATIENCE: u64 = 30_000;
/// Neither a GPU nor a network of its own, and no sandbox: tests may run as root.
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1440,1000",
];

/// How a window is opened.
#[derive(Clone, Copy)]
pub(super) struct Look {
    /// Whether pages may run scripts.
    pub(super) scripts: bool,
    /// Whether the system prefers dark colours.
    pub(super) dark: bool,
}

impl Default for Look {
    fn default() -> Self {
        Self { scripts: true, dark: false }
    }
}

/// A browser with a profile of its own. It ends with the value.
pub(super) struct Window {
    client: Client,
    /// URL of its session at the driver.
    session: String,
    /// Address of the server whose pages it shows.
    base: String,
}

impl Drop for Window {
    fn drop(&mut self) {
        let ended = self.client.delete(&self.session).send();
        if let Err(error) = block_in_place(|| Handle::current().block_on(ended)) {
            eprintln!("a browser was not closed: {error}");
        }
    }
}

impl Window {
    /// A new browser for the pages of a server.
    pub(super) async fn open(base: &str, look: Look) -> Self {
        let driver =
            std::env::var(VARIABLE).expect("there is a driver: run the tests by scripts/with-chromium");
        let mut flags = FLAGS.to_vec();
        if look.dark {
            flags.push("--blink-settings=preferredColorScheme=0");
        }
        let scripts = if look.scripts { 1 } else { 2 };
        let options = json!({
            "args": flags,
            "prefs": {"profile.managed_default_content_settings.javascript": scripts},
        });
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "unhandledPromptBehavior": "accept",
            "timeouts": {"implicit": PATIENCE, "pageLoad": PATIENCE, "script": PATIENCE},
        }}});
        let mut window =
            Self { client: client(), session: format!("{driver}/session"), base: base.to_owned() };
        let made = window.ask(Method::POST, "", wanted).await.expect("a browser can be started");
        let id = made["sessionId"].as_str().expect("a session has an id");
        window.session = format!("{}/{id}", window.session);
        window
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> Result<Value, String> {
        let request = self.client.request(method.clone(), format!("{}{path}", self.session));
        let request = if method == Method::POST { request.body(body.to_string()) } else { request };
        let answer = request.send().await.expect("the driver answers");
        let status = answer.status();
        let text = answer.text().await.expect("an answer has an end");
        let value: Value = serde_json::from_str(&text).expect("the driver answers in JSON");
        if status.is_success() { Ok(value["value"].clone()) } else { Err(value["value"].to_string()) }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        match self.ask(Method::POST, path, body.clone()).await {
            Ok(value) => value,
            Err(refused) => panic!("{path} {body}: {refused}\n{}", self.told().await),
        }
    }

    /// What the page says, for the message of a failure.
    async fn told(&self) -> String {
        let body = "return document.title + '\\n' + location.href + '\\n' + document.body.innerText";
        let body = json!({"script": body, "args": []});
        match self.ask(Method::POST, "/execute/sync", body).await {
            Ok(text) => text.as_str().unwrap_or_default().to_owned(),
            Err(refused) => refused,
        }
    }

    /// Opens a path of the server.
    pub(super) async fn goto(&self, path: &str) {
        self.post("/url", json!({"url": format!("{}{path}", self.base)})).await;
    }

    /// Path and query of the page.
    pub(super) async fn place(&self) -> String {
        let url = self.ask(Method::GET, "/url", Value::Null).await.expect("a page has an address");
        let url = url.as_str().expect("it is a text");
        url.strip_prefix(&self.base).expect("it is a page of the server").to_owned()
    }

    /// Goes back in the history.
    pub(super) async fn back(&self) {
        self.post("/back", json!({})).await;
    }

    /// Loads the page again.
    pub(super) async fn reload(&self) {
        self.post("/refresh", json!({})).await;
    }

    /// Opens a tab and goes to it.
    pub(super) async fn tab(&self) {
        let tab = self.post("/window/new", json!({"type": "tab"})).await;
        self.post("/window", json!({"handle": tab["handle"]})).await;
    }

    /// Draws pages as on a screen of this width.
    pub(super) async fn narrow(&self, width: u32) {
        let screen = json!({"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": true});
        let command = json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": screen});
        self.post("/goog/cdp/execute", command).await;
    }

    /// Path of an element, waited for.
    async fn element(&self, using: &str, what: &str) -> String {
        let found = self.post("/element", json!({"using": using, "value": what})).await;
        format!("/element/{}", found[ELEMENT].as_str().expect("an element has an id"))
    }

    /// Waits for an element.
    pub(super) async fn finds(&self, css: &str) {
        self.element("css selector", css).await;
    }

    /// Waits for an element that has this text, inside or below it. `step` is a step of `XPath`: `h2`, `*[@id='live']`.
    pub(super) async fn sees(&self, step: &str, text: &str) {
        self.element("xpath", &having(step, text)).await;
    }

    /// Waits for an element and clicks on it.
    pub(super) async fn click(&self, css: &str) {
        let element = self.element("css selector", css).await;
        self.post(&format!("{element}/click"), json!({})).await;
    }

    /// Clicks on the button or link with this text.
    pub(super) async fn press(&self, text: &str) {
        let step = "main//*[self::button or self::a or self::summary or self::label]";
        let element = self.element("xpath", &having(step, text)).await;
        self.post(&format!("{element}/click"), json!({})).await;
    }

    /// Clicks twice on an element, as fast as a mouse does.
    pub(super) async fn press_twice(&self, css: &str) {
        let found = self.post("/element", json!({"using": "css selector", "value": css})).await;
        let (down, up) =
            (json!({"type": "pointerDown", "button": 0}), json!({"type": "pointerUp", "button": 0}));
        self.script(&format!("document.querySelector({}).scrollIntoView()", json!(css))).await;
        let there = json!({"type": "pointerMove", "x": 0, "y": 0, "origin": found});
        let mouse = json!({"type": "pointer", "id": "mouse", "actions": [there, down, up, down, up]});
        self.post("/actions", json!({"actions": [mouse]})).await;
    }

    /// Enters a text into a field in place of what was there.
    pub(super) async fn fill(&self, css: &str, text: &str) {
        let element = self.element("css selector", css).await;
        self.post(&format!("{element}/clear"), json!({})).await;
        self.post(&format!("{element}/value"), json!({"text": text})).await;
    }

    /// Enters keys into an element that keeps what it has.
    pub(super) async fn keys(&self, css: &str, keys: &str) {
        let element = self.element("css selector", css).await;
        self.post(&format!("{element}/value"), json!({"text": keys})).await;
    }

    /// What a function body gives in the page.
    pub(super) async fn script(&self, body: &str) -> Value {
        self.post("/execute/sync", json!({"script": body, "args": []})).await
    }

    /// What a function body gives by its last argument, a function.
    pub(super) async fn promised(&self, body: &str) -> Value {
        self.post("/execute/async", json!({"script": body, "args": []})).await
    }

    /// Texts of all elements that are there now.
    pub(super) async fn texts(&self, css: &str) -> Vec<String> {
        let all = format!("[...document.querySelectorAll({})]", json!(css));
        let found = self.script(&format!("return {all}.map((one) => one.textContent)")).await;
        let texts = found.as_array().expect("a list").iter();
        texts.map(|text| text.as_str().expect("a text").to_owned()).collect()
    }

    /// Value of a field.
    pub(super) async fn value(&self, css: &str) -> String {
        let element = self.element("css selector", css).await;
        let value = self.ask(Method::GET, &format!("{element}/property/value"), Value::Null).await;
        value.expect("a field has a value").as_str().expect("it is a text").to_owned()
    }

    /// Messages of the console since the last time.
    pub(super) async fn console(&self) -> Vec<String> {
        let entries = self.post("/se/log", json!({"type": "browser"})).await;
        entries.as_array().expect("a list").iter().map(|entry| entry["message"].to_string()).collect()
    }

    /// A picture of the window as PNG.
    pub(super) async fn picture(&self) -> Vec<u8> {
        let taken = self.ask(Method::GET, "/screenshot", Value::Null).await.expect("a window can be drawn");
        BASE64_STANDARD.decode(taken.as_str().expect("it is a text")).expect("it is base64")
    }
}

/// `XPath` of an element that has a text without quotes.
fn having(step: &str, text: &str) -> String {
    assert!(!text.contains('\''), "{text}");
    format!("//{step}[contains(normalize-space(.), '{text}')]")
}
