//! PostgreSQL behind a line that loses one message: the answer, the request, or a request that arrives when no caller
//! waits for it any more. Each request takes place once, and its caller is told so.

use std::collections::BTreeMap;
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
use semel::store::{Find, FindBy, Lease, LeaseAct, Query, Store};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::sqlite::{record_step, request};

type Test = Result<(), Failed>;

pub(crate) fn trials() -> Vec<Trial> {
    let cases = [
        ("an_answer_that_is_lost_is_found_out", Fate::AnswerLost),
        ("a_question_that_is_lost_is_asked_again", Fate::QuestionLost),
        ("a_question_that_comes_late_changes_nothing", Fate::QuestionLate),
    ];
    let mut trials: Vec<_> =
        cases.map(|(name, fate)| Trial::test(format!("lost::{name}"), move || run(everything(fate)))).into();
    let silent = "lost::one_who_gives_up_leaves_no_silent_line_to_the_next";
    trials.push(Trial::test(silent, || run(given_up())));
    trials
}

/// On one thread: what is asked at once is in one batch.
fn run(test: impl Future<Output = Test>) -> Test {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(test)
}

/// How a message and its connection are disturbed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// The database executes the request, and its answer is lost.
    AnswerLost,
    /// It is never asked.
    QuestionLost,
    /// The request arrives when its caller has given up.
    QuestionLate,
    /// It is never asked, and the connection does not break.
    Silence,
}

/// The line.
struct CutLine {
    /// What the next message is known by that is lost, and how.
    next: Mutex<Option<(&'static str, Fate)>>,
    /// The message was lost.
    lost: Notify,
    /// What it was.
    message: Mutex<Vec<u8>>,
    /// What is late may go on.
    release: Notify,
    /// It was answered.
    arrived: Notify,
}

impl CutLine {
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
        Self {
            next: Mutex::new(None),
            lost: Notify::new(),
            message: Mutex::new(Vec::new()),
            release: Notify::new(),
            arrived: Notify::new(),
        }
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
        *self.message.lock().expect("no panic inside") = message.to_vec();
        self.lost.notify_one();
        match fate {
            Fate::QuestionLost => {}
            Fate::Silence => std::future::pending().await,
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
struct StoreBehindLine {
    line: Arc<CutLine>,
    store: Arc<dyn Store>,
    node: NodeId,
}

impl StoreBehindLine {
    async fn open(fate: Fate) -> Result<Self, Failed> {
        let url = std::env::var("SEMEL_TEST_POSTGRES")?;
        let (before, after) = url.split_once('@').ok_or("a user in the URL")?;
        let (server, database) = after.split_once('/').ok_or("a database in the URL")?;
        let (line, here) = CutLine::open(server.to_owned()).await?;
        // A server that was not started for us may have seen other runs of this program.
        let schema = Some(format!("lost_{}_{fate:?}", std::process::id()).to_lowercase());
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
        let (workspace, run) = (WorkspaceId::DEFAULT, ledger.run());
        let entries = self.store.ledger(workspace, run.id(), 1).await?;
        let numbers: Vec<_> = entries.iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, (1..=run.state.version).collect::<Vec<_>>());
        let find = Find { workspace, by: FindBy::Id(run.id()) };
        let (found, _) = self.store.find(find).await?.ok_or("the run is there")?;
        assert_eq!((found.state.version, found.status()), (run.state.version, run.status()));
        let again = Ledger::read(found, entries.into_iter().map(|entry| entry.entry))?;
        let says = |ledger: &Ledger| format!("{:?}", ledger.records().collect::<BTreeMap<_, _>>());
        assert_eq!(says(&again), says(ledger));
        Ok(())
    }
}

async fn everything(fate: Fate) -> Test {
    let place = StoreBehindLine::open(fate).await?;
    commits(&place, fate, "alone", &["alone"]).await?;
    commits(&place, fate, "many-4", &["many-1", "many-2", "many-3", "many-4"]).await?;
    commits(&place, fate, "with-3", &["with-1", "with-2", "with-3", END]).await?;
    commits(&place, fate, "the-end", &[END]).await?;
    starts(&place, fate, "drawn-key", None).await?;
    starts(&place, fate, "given-key", Some("order-7")).await?;
    place.store.close().await?;
    Ok(())
}

/// What a run does that ends instead of a step.
const END: &str = "the-end";

/// One run for each of `steps` commits a step of that name, all at once; the lost message contains `known_by`. The first run is
/// alone, the others are written together.
async fn commits(place: &StoreBehindLine, fate: Fate, known_by: &'static str, steps: &[&str]) -> Test {
    let mut ledgers = Vec::new();
    for _ in steps {
        ledgers.push(place.driven().await?);
    }
    place.line.lose(known_by, fate);
    let mut commits = JoinSet::new();
    for (ledger, step) in ledgers.iter_mut().zip(steps) {
        match *step {
            END => ledger.record(Entry::Completed { value: Payload::parse(&format!("{END:?}"))? })?,
            step => record_step(ledger, step)?,
        }
        let (store, commit) = (place.store.clone(), ledger.commit().ok_or("an entry")?);
        commits.spawn(async move { store.commit(commit).await });
    }
    while let Some(saved) = commits.join_next().await {
        assert_eq!(saved??.version, ledgers[0].run().state.version, "{known_by}: {fate:?}");
    }
    place.line.settled(fate).await?;
    let lost = String::from_utf8_lossy(&place.line.message.lock().expect("no panic inside")).into_owned();
    let together = steps.iter().filter(|step| lost.contains(**step)).count();
    assert_eq!(together, steps.len().saturating_sub(1).max(1), "{known_by}: the others are one batch");
    for ledger in &ledgers {
        place.has(ledger).await?;
    }
    Ok(())
}

/// A caller that goes away while its line is silent. The next one does not wait behind it.
async fn given_up() -> Test {
    let place = StoreBehindLine::open(Fate::Silence).await?;
    let mut ledger = place.driven().await?;
    record_step(&mut ledger, "given-up")?;
    let commit = ledger.commit().ok_or("an entry")?;
    place.line.lose("given-up", Fate::Silence);
    tokio::select! {
        saved = place.store.commit(commit.clone()) => return Err(format!("{saved:?} on a silent line").into()),
        () = place.line.lost.notified() => {}
    }
    let again = tokio::time::timeout(Duration::from_secs(15), place.store.commit(commit)).await?;
    assert_eq!(again?.version, ledger.run().state.version);
    place.has(&ledger).await
}

/// A start whose input says this.
async fn starts(place: &StoreBehindLine, fate: Fate, input: &'static str, key: Option<&str>) -> Test {
    let all = || place.store.list(Query::all(WorkspaceId::DEFAULT, 1_000));
    let before = all().await?.runs.len();
    let like = request("-")?;
    let (workflow, key) = (like.workflow, key.map(Key::new).transpose()?);
    let value = Payload::parse(&format!("{input:?}"))?;
    let start = Start::new(WorkspaceId::DEFAULT, like.run, workflow, value, key);
    let start = Start { claim: Some(place.node), ..start };
    place.line.lose(input, fate);
    let started = place.store.start(start.clone()).await?;
    assert!(started.created() && started.run.id() == start.run, "{input}: {fate:?}: {started:?}");
    place.line.settled(fate).await?;
    assert_eq!(all().await?.runs.len(), before + 1, "{input}: {fate:?}");
    place.has(&Ledger::read(started.run, started.entries)?).await
}
