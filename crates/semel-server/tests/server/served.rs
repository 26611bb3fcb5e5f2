//! A whole server in this process, as `semel serve` opens it.

use std::net::SocketAddr;

use reqwest::{Client, Method, RequestBuilder};
use semel_server::config::{Auth, Config, Secret, StoreAddress};
use semel_server::serve::{Error, Server, Stop};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::world::Reply;

/// One trial per function, named after the module and the function.
#[macro_export]
macro_rules! served_trials {
    ($($(#[$only:meta])* $name:ident),+ $(,)?) => {{
        let area = module_path!().rsplit("::").next().expect("a module has a name");
        vec![$($(#[$only])* Trial::test(format!("{area}::{}", stringify!($name)), || {
            runtime().block_on($name());
            Ok(())
        })),+]
    }};
}

/// The root token of servers with authentication.
pub(crate) const ROOT: &str = "root-token-of-the-tests";

/// A server that runs until it is told to stop.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    /// Where metrics are, if that is an address of their own.
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) stop: Stop,
    running: JoinHandle<Result<(), Error>>,
}

/// The configuration of a test's server: a store in memory, a port of its own, no authentication.
pub(crate) fn config() -> Config {
    Config {
        listen: "127.0.0.1:0".parse().expect("an address"),
        store: StoreAddress::new("memory:"),
        auth: Auth::None,
        ..Config::default()
    }
}

/// The same, but callers are known by their keys.
pub(crate) fn keyed() -> Config {
    Config { auth: Auth::Keys, root_token: Some(Secret::new(ROOT)), ..config() }
}

impl Served {
    pub(crate) async fn open(config: &Config) -> Self {
        let server = Server::open(config).await.expect("a server can be opened");
        let (address, stop) = (server.address().expect("it listens"), server.stop());
        let metrics = server.metrics_address();
        Self { address, metrics, stop, running: tokio::spawn(server.run()) }
    }

    /// Waits until it has stopped, in good order.
    pub(crate) async fn stopped(self) {
        self.running.await.expect("it does not panic").expect("it stops in good order");
    }

    pub(crate) fn caller(&self, token: &str) -> Token {
        Token::at(format!("http://{}", self.address), token)
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("it listens")
    }

    /// Sends bytes on a connection of their own and reads until the server closes it.
    pub(crate) async fn told(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.expect("it takes them");
        rest(&mut stream).await
    }

    /// Begins a call that waits, and is in the server's hands when this is over; the body is not sent yet.
    pub(crate) async fn begun(&self, body: &str) -> TcpStream {
        let mut stream = self.connect().await;
        let head = format!(
            "POST /api/v1/workflow-runs HTTP/1.1\r\nhost: localhost\r\nprefer: wait=60\r\nexpect: 100-continue\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.expect("it takes the head");
        let mut answer = [0; 25];
        stream.read_exact(&mut answer).await.expect("it asks for the body");
        assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream
    }
}

/// All that is left to read on a connection.
pub(crate) async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.expect("the connection has an end");
    String::from_utf8(bytes).expect("it is text")
}

/// A client that asks no proxy.
pub(crate) fn client() -> Client {
    // The first of several callers installs it; all of them want the same.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().expect("a client can be made")
}

/// A caller with a token.
#[derive(Clone)]
pub(crate) struct Token {
    base: String,
    text: String,
    client: Client,
}

impl Token {
    /// A caller with this token, at the server of this address.
    pub(crate) fn at(base: String, token: &str) -> Self {
        Self { base, text: token.to_owned(), client: client() }
    }

    /// The token.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}/api/v1{path}", self.base)).bearer_auth(&self.text)
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        Reply::of(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        Reply::of(self.request(Method::POST, path).body(body.to_string())).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        Reply::of(self.request(Method::DELETE, path)).await
    }

    /// With another token.
    pub(crate) fn with(&self, token: &str) -> Self {
        Self { text: token.to_owned(), ..self.clone() }
    }

    /// Creates an API key as this caller; gives its id and a caller that has it.
    pub(crate) async fn key(&self, workspace: Option<&str>, permissions: &[&str]) -> (String, Self) {
        let mut asked = json!({"name": "test", "permissions": permissions});
        if let Some(workspace) = workspace {
            asked["workspace"] = workspace.into();
        }
        let made = self.post("/api-keys", &asked).await;
        assert_eq!(made.status, 201, "{}", made.text);
        let made = made.json();
        let text = |member: &str| made[member].as_str().expect("a text").to_owned();
        (text("id"), self.with(&text("token")))
    }
}
