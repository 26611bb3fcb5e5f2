//! A provider that behaves as its page says: it loses answers, replays, refuses repetitions, forgets keys.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};

/// What a provider does about a repeated request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// It gives the first answer again to the same value of this header, for this number of milliseconds.
    Replays(&'static str, i64),
    /// It refuses the same value at this pointer of the body, for this number of milliseconds.
    Refuses(&'static str, i64),
    /// It carries it out once more, and can be searched for the value at this pointer.
    Searched(&'static str),
    /// It carries it out once more.
    Repeats,
}

/// How the provider handles a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is carried out, and the answer is lost.
    Lost,
    /// It is carried out after the next one, and nothing is answered: its sender is a zombie, or a switch was slow.
    Late,
    /// It is not carried out, and answered with this status.
    Status(u16),
}

/// The books of a provider.
pub(super) struct Desk {
    manner: Manner,
    plan: Vec<Fate>,
    /// Time in milliseconds, as far as the test has told it.
    pub(super) now: i64,
    /// Requests that wanted something to be done.
    pub(super) calls: usize,
    /// Path and body of what was carried out.
    pub(super) delivered: Vec<(String, String)>,
    /// Keys, when they were first seen, and the answer.
    keys: HashMap<String, (i64, Value)>,
    late: Vec<Request>,
}

struct Request {
    method: String,
    path: String,
    headers: HashMap<String, String>,
    body: String,
}

/// A provider on a port of its own. It is gone with the process.
#[derive(Clone)]
pub(super) struct Provider {
    port: u16,
    desk: Arc<Mutex<Desk>>,
}

impl Provider {
    pub(super) fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let (now, plan, delivered, late) = (0, Vec::new(), Vec::new(), Vec::new());
        let desk = Desk { manner, plan, now, calls: 0, delivered, keys: HashMap::new(), late };
        let provider = Self { port, desk: Arc::new(Mutex::new(desk)) };
        let serving = provider.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A caller that is gone hears nothing.
                drop(serving.serve(&stream));
            }
        });
        provider
    }

    pub(super) fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().expect("no thread panics while it holds the lock")
    }

    /// Forgets everything, and takes a new plan.
    pub(super) fn plan(&self, plan: &[Fate]) {
        let mut desk = self.desk();
        desk.plan = plan.iter().rev().copied().collect();
        (desk.calls, desk.now) = (0, 0);
        desk.delivered.clear();
        desk.keys.clear();
        desk.late.clear();
    }

    /// Where it listens on this machine.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The configuration of a connection `post` to it.
    pub(super) fn config(&self, profile: &str) -> String {
        let port = self.port;
        format!(
            "[connections.post]\nkind = 'http'\nbase = 'http://127.0.0.1:{port}'\nfrom = '+41440000000'\n\
             profile = '{profile}'\n"
        )
    }

    fn serve(&self, stream: &TcpStream) -> std::io::Result<()> {
        let request = Request::read(stream)?;
        let answered = self.desk().take(request);
        if let Some((status, body)) = answered {
            let body = body.to_string();
            let length = body.len();
            let mut stream = stream;
            write!(
                stream,
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\nx-message-id: h7\r\n\
                 content-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )?;
        }
        Ok(())
    }
}

impl Request {
    fn read(stream: &TcpStream) -> std::io::Result<Self> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut words = line.split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        Ok(Self { method, path, headers, body: String::from_utf8_lossy(&body).into_owned() })
    }

    /// What a provider knows it by.
    fn key(&self, manner: Manner) -> Option<String> {
        match manner {
            Manner::Replays(header, _) => self.headers.get(header).cloned(),
            Manner::Refuses(pointer, _) | Manner::Searched(pointer) => {
                let body: Value = serde_json::from_str(&self.body).ok()?;
                Some(body.pointer(pointer)?.as_str()?.to_owned())
            }
            Manner::Repeats => None,
        }
    }
}

impl Desk {
    /// The answer to a request; none if it is lost.
    fn take(&mut self, request: Request) -> Option<(u16, Value)> {
        if request.method == "GET" {
            return Some((200, self.search(&request)));
        }
        self.calls += 1;
        match self.plan.pop() {
            Some(Fate::Status(status)) => return Some((status, json!({"error": "planned"}))),
            Some(Fate::Late) => {
                self.late.push(request);
                return None;
            }
            Some(Fate::Lost) => {
                self.carry_out(&request);
                return None;
            }
            None => {}
        }
        let answered = self.carry_out(&request);
        for late in std::mem::take(&mut self.late) {
            self.carry_out(&late);
        }
        Some(answered)
    }

    fn search(&self, request: &Request) -> Value {
        let Manner::Searched(pointer) = self.manner else { return json!({}) };
        let found = self.delivered.iter().filter(|(_, body)| {
            let body: Value = serde_json::from_str(body).unwrap_or_default();
            let key = body.pointer(pointer).and_then(Value::as_str).unwrap_or("(none)");
            request.path.contains(key)
        });
        json!({"Messages": found.map(|_| json!({"MessageID": "m1"})).collect::<Vec<_>>()})
    }

    fn carry_out(&mut self, request: &Request) -> (u16, Value) {
        let key = request.key(self.manner);
        let window = match self.manner {
            Manner::Replays(_, window) | Manner::Refuses(_, window) => window,
            Manner::Searched(_) | Manner::Repeats => 0,
        };
        if let Some((first, answer)) = key.as_ref().and_then(|key| self.keys.get(key))
            && self.now < first + window
        {
            return match self.manner {
                Manner::Refuses(..) => (400, json!({"code": "duplicate_request"})),
                _ => (200, answer.clone()),
            };
        }
        self.delivered.push((request.path.clone(), request.body.clone()));
        let id = format!("m{}", self.delivered.len());
        let answer = json!({"id": id, "sid": id, "MessageID": id, "messageId": id, "sessionId": id});
        if let Some(key) = key {
            self.keys.insert(key, (self.now, answer.clone()));
        }
        (200, answer)
    }
}
