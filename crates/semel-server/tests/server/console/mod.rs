//! The web console: its pages as text, on every store, and who may see them.

pub(crate) mod pages;
pub(crate) mod timeline;
pub(crate) mod visitors;

use std::sync::Arc;

use reqwest::header::{HeaderMap, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder};
use semel::clock::SystemClock;
use semel_server::app::App;
use semel_server::{http, ui};
use tokio::net::TcpListener;

use crate::world::{Api, World};

/// What the answer to a page has.
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Page {
    pub(crate) async fn of(request: RequestBuilder) -> Self {
        let response = request.send().await.expect("the server answers");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Self { status, headers, text: response.text().await.expect("a page has an end") }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("our headers are text"))
    }

    /// Where a form leads.
    pub(crate) fn leads_to(&self) -> &str {
        assert_eq!(self.status, 303, "{}", self.text);
        self.header(LOCATION.as_str())
    }

    /// The value of the first field with this name.
    pub(crate) fn field(&self, name: &str) -> String {
        let start = format!("name=\"{name}\" value=\"");
        let rest = self.text.split_once(&start).map(|(_, rest)| rest);
        let rest = rest.unwrap_or_else(|| panic!("the page has no field {name}: {}", self.text));
        rest.split('"').next().expect("a quote ends it").to_owned()
    }
}

/// A browser without scripts: it keeps no cookies and follows no redirects by itself.
#[derive(Clone)]
pub(crate) struct Browser {
    base: String,
    client: Client,
    cookie: Option<String>,
}

impl Browser {
    pub(crate) fn at(base: String) -> Self {
        // The first of several callers installs it; all of them want the same.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().redirect(Policy::none()).build();
        Self { base, client: client.expect("a client can be made"), cookie: None }
    }

    /// With the cookie of an answer.
    pub(crate) fn with(&self, page: &Page) -> Self {
        let cookie = page.header("set-cookie").split(';').next().expect("it has a value").to_owned();
        Self { cookie: Some(cookie), ..self.clone() }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.base));
        match &self.cookie {
            Some(cookie) => request.header("cookie", cookie),
            None => request,
        }
    }

    pub(crate) async fn open(&self, path: &str) -> Page {
        Page::of(self.request(Method::GET, path)).await
    }

    /// Sends a form of our own page.
    pub(crate) async fn send(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        Page::of(self.form(path, fields).header("sec-fetch-site", "same-origin")).await
    }

    /// A form, with nothing said about the page that sends it.
    pub(crate) fn form(&self, path: &str, fields: &[(&str, &str)]) -> RequestBuilder {
        let body: Vec<_> =
            fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
        let request = self.request(Method::POST, path).body(body.join("&"));
        request.header("content-type", "application/x-www-form-urlencoded")
    }
}

/// A text as a part of an address.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes()
        .map(
            |byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            },
        )
        .collect()
}

/// The console and the API of a store, as a local server has them.
pub(crate) async fn local(world: &World) -> (Browser, Api) {
    let app = Arc::new(App::open(world.store.clone(), Arc::new(SystemClock::new())));
    let router = ui::router(app.clone()).merge(http::router(app));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let base = format!("http://{}", listener.local_addr().expect("it is bound"));
    tokio::spawn(async move { axum::serve(listener, router).await.expect("serving goes on") });
    (Browser::at(base.clone()), Api::at(base))
}
