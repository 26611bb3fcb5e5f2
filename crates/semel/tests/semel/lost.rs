//! PostgreSQL behind a line that loses one message: the answer, the question, or a question that comes through when nobody
//! waits for it any more. Whatever was asked has taken place once, and its caller is told so.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::{Clock, SystemClock};
use semel::id::{NodeId, WorkspaceId};
use semel::rules::entry::Entry;
use semel::rules::json::Payload;
use semel::rules::key::Key;
use semel::rules::ledger::Ledger;
use semel::rules::start::Start;
use semel::store::postgres::{PostgresOptions, PostgresStore};
use semel::store::{Lease, LeaseAct, Query, Store};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::sqlite::{record_step, request, run};

type Test = Result<(), Failed>;

pub(crate) fn trials() -> Vec<Trial> {
    let cases = [
        ("an_answer_that_is_lost_is_found_out", Fate::AnswerLost),
        ("a_question_that_is_lost_is_asked_again", Fate::QuestionLost),
        ("a_question_that_comes_late_changes_nothing", Fate::QuestionLate),
    ];
    cases.map(|(name, fate)| Trial::test(format!("lost::{name}"), move || run(everything(fate)))).into()
}

/// What becomes of a message, and of its connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// The database does as it was asked, and nobody hears of it.
    AnswerLost,
    /// It is never asked.
    QuestionLost,
    /// It is asked when everybody has given up.
    QuestionLate,
}

/// The line.
struct Line {
    /// What the next message is known by that is lost, and how.
    next: Mutex<Option<(&'static str, Fate)>>,
    /// The message was lost.
    lost: Notify,
    /// What is late may go on.
    release: Notify,
    /// It was answered.
    arrived: Notify,
}

impl Line {
    /// A line to a server; and where it begins.
    async fn open(server: String) -> Result<(Arc<Self>, SocketAddr), Failed> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (line, here) = (Arc::new(Self::new()), listener.local_addr()?);
        let shared = line.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (line, server) = (shared.clone(), server.clone());
                // A connection that breaks is what this is about.
                tokio::spawn(async move { drop(line.carry(client, &server).await) });
            }
        });
        Ok((line, here))
    }

    fn new() -> Self {
        Self { next: Mutex::new(None), lost: Notify::new(), release: Notify::new(), arrived: Notify::new() }
    }

    fn lose(&self, known_by: &'static str, fate: Fate) {
        *self.next.lock().expect("no panic inside") = Some((known_by, fate));
    }

    fn fate_of(&self, message: &[u8]) -> Option<Fate> {
        let mut next = self.next.lock().expect("no panic inside");
        let says = |text: &str| message.windows(text.len()).any(|part| part == text.as_bytes());
        next.take_if(|(known_by, _)| says(known_by)).map(|(_, fate)| fate)
    }

    async fn carry(&self, mut client: TcpStream, server: &str) -> std::io::Result<()> {
        let mut server = TcpStream::connect(server).await?;
        let (mut question, mut answer) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
        loop {
            tokio::select! {
                read = client.read(&mut question) => match read? {
                    0 => return Ok(()),
                    read => match self.fate_of(&question[..read]) {
                        None => server.write_all(&question[..read]).await?,
                        Some(fate) => return self.drop_message(fate, &question[..read], client, server).await,
                    },
                },
                read = server.read(&mut answer) => match read? {
                    0 => return Ok(()),
                    read => client.write_all(&answer[..read]).await?,
                },
            }
        }
    }

    async fn drop_message(
        &self,
        fate: Fate,
        message: &[u8],
        client: TcpStream,
        mut server: TcpStream,
    ) -> std::io::Result<()> {
        self.lost.notify_one();
        match fate {
            Fate::QuestionLost => {}
            Fate::AnswerLost => {
                server.write_all(message).await?;
                server.read_u8().await?;
            }
            Fate::QuestionLate => {
                drop(client);
                self.release.notified().await;
                server.write_all(message).await?;
                server.read_u8().await?;
                self.arrived.notify_one();
            }
        }
        Ok(())
    }

    /// The message was lost; and if it was only late, it has come through by now.
    async fn settled(&self, fate: Fate) -> Test {
        let settled = async {
            self.lost.notified().await;
            if fate == Fate::QuestionLate {
                self.release.notify_one();
                self.arrived.notified().await;
            }
        };
        Ok(tokio::time::timeout(Duration::from_mins(1), settled).await?)
    }
}

/// A store behind a line, and a node of it.
struct Place {
    line: Arc<Line>,
    store: Arc<dyn Store>,
    node: NodeId,
}

impl Place {
    async fn open(fate: Fate) -> Result<Self, Failed> {
        let url = std::env::var("SEMEL_TEST_POSTGRES")?;
        let (before, after) = url.split_once('@').ok_or("a user in the URL")?;
        let (server, database) = after.split_once('/').ok_or("a database in the URL")?;
        let (line, here) = Line::open(server.to_owned()).await?;
        let schema = Some(format!("lost_{fate:?}").to_lowercase());
        let options =
            PostgresOptions { schema, ..PostgresOptions::new(format!("{before}@{here}/{database}")) };
        let store: Arc<dyn Store> = Arc::new(PostgresStore::open(options).await?);
        let node = NodeId(SystemClock::new().uuid());
        store.lease(Lease { node, act: LeaseAct::Join(Duration::from_hours(1)) }).await?;
        Ok(Self { line, store, node })
    }

    async fn driven(&self) -> Result<Ledger, Failed> {
        let key = SystemClock::new().uuid().to_string();
        let started = self.store.start(Start { claim: Some(self.node), ..request(&key)? }).await?;
        Ok(Ledger::read(started.run, started.entries)?)
    }

    /// What the store has is what the ledger says: all of it, once.
    async fn has(&self, ledger: &Ledger) -> Test {
        let entries = self.store.ledger(WorkspaceId::DEFAULT, ledger.run().id(), 1).await?;
        let numbers: Vec<_> = entries.iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, (1..=ledger.run().state.version).collect::<Vec<_>>());
        Ok(())
    }
}

async fn everything(fate: Fate) -> Test {
    let place = Place::open(fate).await?;
    steps(&place, fate, "lone-step", 1).await?;
    steps(&place, fate, "step-of-many", 8).await?;
    end(&place, fate).await?;
    starts(&place, fate, "drawn-key", None).await?;
    starts(&place, fate, "given-key", Some("order-7")).await?;
    place.store.close().await?;
    Ok(())
}

/// So many runs commit at once; the last of them has the step of this name.
async fn steps(place: &Place, fate: Fate, name: &'static str, runs: usize) -> Test {
    let mut ledgers = Vec::new();
    for _ in 0..runs {
        ledgers.push(place.driven().await?);
    }
    let last = runs - 1;
    place.line.lose(name, fate);
    let mut commits = JoinSet::new();
    for (n, ledger) in ledgers.iter_mut().enumerate() {
        record_step(ledger, if n == last { name } else { "step" })?;
        let (store, commit) = (place.store.clone(), ledger.commit().ok_or("an entry")?);
        commits.spawn(async move { store.commit(commit).await });
    }
    while let Some(saved) = commits.join_next().await {
        assert_eq!(saved??.version, ledgers[0].run().state.version, "{name}: {fate:?}");
    }
    place.line.settled(fate).await?;
    for ledger in &ledgers {
        place.has(ledger).await?;
    }
    Ok(())
}

async fn end(place: &Place, fate: Fate) -> Test {
    let mut ledger = place.driven().await?;
    ledger.record(Entry::Completed { value: Payload::parse(r#""the-end""#)? })?;
    place.line.lose("the-end", fate);
    let saved = place.store.commit(ledger.commit().ok_or("an entry")?).await?;
    assert_eq!(saved.version, ledger.run().state.version, "{fate:?}");
    place.line.settled(fate).await?;
    place.has(&ledger).await
}

/// A start whose input says this.
async fn starts(place: &Place, fate: Fate, input: &'static str, key: Option<&str>) -> Test {
    let all = || place.store.list(Query::all(WorkspaceId::DEFAULT, 1_000));
    let before = all().await?.len();
    let like = request("-")?;
    let (workflow, key) = (like.workflow, key.map(Key::new).transpose()?);
    let value = Payload::parse(&format!("{input:?}"))?;
    let start = Start::new(WorkspaceId::DEFAULT, like.run, workflow, value, key);
    let start = Start { claim: Some(place.node), ..start };
    place.line.lose(input, fate);
    let started = place.store.start(start.clone()).await?;
    assert!(started.created() && started.run.id() == start.run, "{input}: {fate:?}: {started:?}");
    place.line.settled(fate).await?;
    assert_eq!(all().await?.len(), before + 1, "{input}: {fate:?}");
    place.has(&Ledger::read(started.run, started.entries)?).await
}
