//! A provider over HTTP that counts what it does, and can lose its answers. One process serves all plays; each has an account.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

/// Secret with which webhooks to the provider are signed.
pub(super) const SECRET: &str = "the secret of the receiver";

/// The books of all accounts.
static BOOKS: Mutex<Vec<Books>> = Mutex::new(Vec::new());
static ADDRESS: LazyLock<SocketAddr> = LazyLock::new(serve);

/// What the provider knows of one account.
#[derive(Debug, Default)]
struct Books {
    /// Everything that was done, in its order.
    done: Vec<Effect>,
    /// Number of reads.
    reads: usize,
    /// Requests that were refused, with the reason.
    refused: Vec<String>,
    /// Whether the first answer to each effect is lost.
    loses: bool,
    /// Answers to the next writes, whatever they ask for; after them everything is answered as usual.
    scripted: VecDeque<Scripted>,
    /// Requests for which a scripted answer was given, and those that were answered as usual after them.
    writes: usize,
    /// Whether the next servers that open have a connection to it; all further ones have.
    connected: VecDeque<bool>,
}

/// An answer that the provider was told to give.
#[derive(Clone, Debug)]
pub(super) struct Scripted {
    /// Whether the effect takes place before it.
    pub(super) does: bool,
    /// Its status; none if the answer is lost.
    pub(super) status: Option<u16>,
    /// A header line; empty for none.
    pub(super) header: &'static str,
    /// The body, as text.
    pub(super) body: String,
}

impl Scripted {
    /// An answer with this status, without an effect.
    pub(super) fn status(status: u16) -> Self {
        Self { does: false, status: Some(status), header: "", body: "{}".to_owned() }
    }
}

/// Something that the provider did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Effect {
    /// Path of the request below the account, such as `/keyed/charge`.
    pub(super) path: String,
    /// The key or reference that was sent along; empty if there was none.
    pub(super) key: String,
    /// Body of the request.
    pub(super) body: String,
}

/// An account at the provider. It survives every crash.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account(usize);

impl Account {
    /// Opens an account. One that `loses` does what it is asked and does not answer the first time.
    pub(super) fn open(loses: bool) -> Self {
        let mut all = books();
        all.push(Books { loses, ..Books::default() });
        Self(all.len() - 1)
    }

    /// Gives these answers to the next writes.
    pub(super) fn answers(self, scripted: impl IntoIterator<Item = Scripted>) {
        books()[self.0].scripted.extend(scripted);
    }

    /// Whether the next servers that open have a connection to it.
    pub(super) fn connects(self, connected: impl IntoIterator<Item = bool>) {
        books()[self.0].connected.extend(connected);
    }

    /// Whether the server that opens now has a connection to it.
    pub(super) fn is_connected(self) -> bool {
        books()[self.0].connected.pop_front().unwrap_or(true)
    }

    /// Number of requests that could have had an effect.
    pub(super) fn writes(self) -> usize {
        books()[self.0].writes
    }

    /// The address of a part of the account, such as `keyed`.
    pub(super) fn address(self, part: &str) -> String {
        format!("http://{}/{}/{part}", *ADDRESS, self.0)
    }

    /// Everything that was done, in its order.
    pub(super) fn done(self) -> Vec<Effect> {
        books()[self.0].done.clone()
    }

    /// How often something was done at each path.
    pub(super) fn all_times(self) -> BTreeMap<String, usize> {
        let mut times = BTreeMap::new();
        for effect in self.done() {
            *times.entry(effect.path).or_default() += 1;
        }
        times
    }

    /// Does something once for each key, for a program that calls the provider with the key of its step.
    pub(super) fn apply(self, path: &str, key: &str) {
        let done = &mut books()[self.0].done;
        if !done.iter().any(|effect| effect.key == key) {
            done.push(Effect { path: path.to_owned(), key: key.to_owned(), body: String::new() });
        }
    }

    /// Requests that were refused, with the reason.
    pub(super) fn refused(self) -> Vec<String> {
        books()[self.0].refused.clone()
    }
}

fn books() -> MutexGuard<'static, Vec<Books>> {
    BOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A caller that has died meanwhile reads no answer.
            std::thread::spawn(move || drop(answer(&stream)));
        }
    });
    address
}

/// A request as it was sent.
struct SentRequest {
    method: String,
    account: usize,
    /// Path below the account, without the query.
    path: String,
    query: String,
    headers: BTreeMap<String, String>,
    body: String,
}

fn read(stream: &TcpStream) -> Option<SentRequest> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let (account, path) = path.strip_prefix('/')?.split_once('/')?;
    let (account, path, query) = (account.parse().ok()?, format!("/{path}"), query.to_owned());
    Some(SentRequest { method, account, path, query, headers, body: String::from_utf8(body).ok()? })
}

/// Status and body of the answer; nothing if it is lost.
type Told = Option<(u16, Value)>;

fn answer(mut stream: &TcpStream) -> std::io::Result<()> {
    let Some(asked) = read(stream) else { return Ok(()) };
    let scripted = scripted(&mut books()[asked.account], &asked);
    if let Some(Scripted { status, header, body, .. }) = scripted {
        let Some(status) = status else { return Ok(()) };
        let head = format!("content-length: {}\r\nconnection: close", body.len());
        return write!(stream, "HTTP/1.1 {status} Told\r\n{head}\r\n{header}\r\n{body}");
    }
    let told = act(&mut books()[asked.account], &asked);
    let Some((status, body)) = told else { return Ok(()) };
    let body = if asked.method == "HEAD" { String::new() } else { body.to_string() };
    let head = "content-type: application/json\r\nconnection: close";
    write!(stream, "HTTP/1.1 {status} Told\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// The answer that was told for a write, after its effect if it has one.
fn scripted(books: &mut Books, asked: &SentRequest) -> Option<Scripted> {
    if matches!(asked.method.as_str(), "GET" | "HEAD") {
        return None;
    }
    books.writes += 1;
    let scripted = books.scripted.pop_front()?;
    if scripted.does {
        act(books, asked);
    }
    Some(scripted)
}

/// The first part of a path says what the provider can do about a repetition.
fn act(books: &mut Books, asked: &SentRequest) -> Told {
    let kind = asked.path.split('/').nth(1).unwrap_or_default();
    match (asked.method.as_str(), kind) {
        ("GET", "searched") => Some((200, search(books, asked))),
        ("GET" | "HEAD", _) => {
            books.reads += 1;
            // The first read is lost too.
            (!books.loses || books.reads > 1).then(|| (200, json!({"n": 7})))
        }
        (_, "keyed") => keyed(books, asked, "idempotency-key"),
        (_, "notices") if !is_signed(asked) => refuse(books, "the signature is wrong"),
        (_, "notices") => keyed(books, asked, "webhook-id"),
        (_, "searched") => {
            let body: Value = serde_json::from_str(&asked.body).ok()?;
            effect(books, asked, body["reference"].as_str().unwrap_or_default())
        }
        _ => effect(books, asked, ""),
    }
}

/// Does it, whether it was done before or not.
fn effect(books: &mut Books, asked: &SentRequest, key: &str) -> Told {
    let body = asked.body.clone();
    books.done.push(Effect { path: asked.path.clone(), key: key.to_owned(), body });
    (!books.loses).then(|| (200, json!({"id": books.done.len()})))
}

/// Does it once for each key; refuses a key with another request.
fn keyed(books: &mut Books, asked: &SentRequest, header: &str) -> Told {
    let Some(key) = asked.headers.get(header).cloned() else { return refuse(books, "there is no key") };
    let Some(at) = books.done.iter().position(|effect| effect.key == key) else {
        return effect(books, asked, &key);
    };
    let first = &books.done[at];
    if (&first.path, &first.body) != (&asked.path, &asked.body) {
        return refuse(books, "the key was used for another request");
    }
    Some((200, json!({"id": at + 1})))
}

#[expect(clippy::unnecessary_wraps, reason = "an answer, as all others are")]
fn refuse(books: &mut Books, why: &str) -> Told {
    books.refused.push(why.to_owned());
    Some((422, json!({"error": why})))
}

fn search(books: &Books, asked: &SentRequest) -> Value {
    let reference = asked.query.strip_prefix("reference=").unwrap_or_default();
    let found = books.done.iter().enumerate().filter(|(_, effect)| effect.key == reference);
    let found: Vec<_> = found.map(|(at, _)| json!({"id": at + 1})).collect();
    json!({ "items": found })
}

/// Whether a webhook is signed as the Standard Webhooks say.
fn is_signed(asked: &SentRequest) -> bool {
    let header = |name: &str| asked.headers.get(name).cloned().unwrap_or_default();
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("any key will do");
    mac.update(format!("{}.{}.{}", header("webhook-id"), header("webhook-timestamp"), asked.body).as_bytes());
    header("webhook-signature") == format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}
