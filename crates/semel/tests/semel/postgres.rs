//! What only the PostgreSQL store has: transactions that meet, and messages whose length has a bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::{Clock, SystemClock};
use semel::id::{NodeId, RunId, WorkspaceId};
use semel::rules::entry::Entry;
use semel::rules::json::Payload;
use semel::rules::key::Label;
use semel::rules::ledger::Ledger;
use semel::rules::once::{Ask, OnceAnswer, OnceCall, OnceScope};
use semel::rules::path::Visit;
use semel::rules::receipt::ReceiptKind;
use semel::rules::start::Start;
use semel::store::postgres::{PostgresOptions, PostgresStore};
use semel::store::{Lease, LeaseAct, Store};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

use crate::sqlite::{request, run};

type Test = Result<(), Failed>;

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn() -> Test| Trial::test(format!("postgres::{name}"), test);
    vec![
        trial("a_run_that_rests_leaves_a_once_that_it_was_granted_meanwhile", || {
            run(rest_and_grant("rest", false))
        }),
        trial("a_tied_run_that_rests_leaves_a_once_that_it_was_granted_meanwhile", || {
            run(rest_and_grant("tied", true))
        }),
        trial("receipts_that_were_forgotten_meanwhile_are_not_added_up_again", || run(forgotten_receipts())),
        trial("many_large_values_at_once_are_sent_in_messages_of_bounded_length", || run(large_values())),
        // Under the load of other tests, batches overlap for longer and find less room: `make check` plays it alone.
        trial("most_steps_of_runs_write_to_no_index", || run(steps_of_many_runs())).with_ignored_flag(true),
    ]
}

/// A store in a schema of its own.
struct SchemaStore {
    store: Arc<dyn Store>,
    node: NodeId,
    schema: String,
}

impl SchemaStore {
    async fn open(name: &str, url: &str) -> Result<Self, Failed> {
        // A server that was not started for us may have seen other runs of this program.
        let schema = format!("postgres_{}_{name}", std::process::id());
        let options = PostgresOptions { schema: Some(schema.clone()), ..PostgresOptions::new(url) };
        let store: Arc<dyn Store> = Arc::new(PostgresStore::open(options).await?);
        let node = NodeId(SystemClock::new().uuid());
        store.lease(Lease { node, act: LeaseAct::Join(Duration::from_hours(1)) }).await?;
        Ok(Self { store, node, schema })
    }

    async fn driven(&self, key: &str) -> Result<Ledger, Failed> {
        let started = self.store.start(Start { claim: Some(self.node), ..request(key)? }).await?;
        Ok(Ledger::read(started.run, started.entries)?)
    }

    async fn claim_once(&self, run: RunId, label: &str) -> Result<OnceAnswer, Failed> {
        let (workspace, scope, label) = (WorkspaceId::DEFAULT, OnceScope::Workspace, Label::new(label)?);
        Ok(self.store.once(OnceCall { workspace, scope, label, run, ask: Ask::Claim }).await?)
    }

    /// A connection of the test, on the tables of the store.
    async fn client(&self) -> Result<Client, Failed> {
        let (client, connection) = tokio_postgres::connect(&server_url()?, NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute(&format!("SET search_path = {}", self.schema)).await?;
        Ok(client)
    }
}

async fn own_database(name: &str) -> Result<String, Failed> {
    let server = server_url()?;
    let name = format!("postgres_{}_{name}", std::process::id());
    let (before, _) = server.rsplit_once('/').ok_or("the URL names a database")?;
    let (client, connection) = tokio_postgres::connect(&server, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(&format!("CREATE DATABASE {name}")).await?;
    Ok(format!("{before}/{name}"))
}

fn server_url() -> Result<String, Failed> {
    Ok(std::env::var("SEMEL_TEST_POSTGRES")?)
}

/// Asks until this number of statements wait for a lock on the store's tables.
async fn blocked(place: &SchemaStore, statements: i64) -> Test {
    let client = place.client().await?;
    let waiting = "SELECT count(DISTINCT w.pid) FROM pg_locks w WHERE NOT w.granted AND w.pid IN \
         (SELECT l.pid FROM pg_locks l JOIN pg_class c ON c.oid = l.relation \
          WHERE c.relnamespace = $1::text::regnamespace)";
    let until = async {
        loop {
            let found: i64 = client.query_one(waiting, &[&place.schema]).await?.try_get(0)?;
            if found >= statements {
                return Ok::<_, Failed>(());
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(1), until).await?
}

/// A run claims a `run_once` value. The transaction locks the run and waits; meanwhile the commit begins that lets the run rest.
/// The grant is first, so the resting run must give the value up: no other run could ever claim it otherwise.
async fn rest_and_grant(name: &str, tied: bool) -> Test {
    let place = SchemaStore::open(name, &server_url()?).await?;
    let mut owner = place.driven("owner").await?;
    if tied {
        // A token: the run has ties before the once is asked for, so that its row is locked by the grant and not changed.
        owner.open_hook(Visit::parse("hook").ok_or("a path")?, semel::rules::key::Token::new("t")?)?;
        let saved = place.store.commit(owner.commit().ok_or("a draft")?).await?;
        owner.settle(&saved.settled)?;
    }
    let other = place.driven("other").await?.run().id();
    let mut client = place.client().await?;
    // Another caller that is about to ask for the same label, and disconnects.
    let first = client.transaction().await?;
    let lock = "INSERT INTO once (workspace, scope, label, owner, fence) VALUES ($1, '*', 'sms', $1, 0)";
    first.execute(lock, &[&WorkspaceId::DEFAULT.0]).await?;
    owner.record(Entry::Waiting { due: None })?;
    let (run, rest) = (owner.run().id(), owner.commit().ok_or("an entry")?);
    let store = place.store.clone();
    let (granted, saved, met) = tokio::join!(
        place.claim_once(run, "sms"),
        async {
            blocked(&place, 1).await?;
            Ok::<_, Failed>(store.commit(rest).await?)
        },
        async {
            blocked(&place, 2).await?;
            Ok::<_, Failed>(first.rollback().await?)
        },
    );
    met?;
    assert!(matches!(granted?, OnceAnswer::Mine(_)), "the one before has gone away");
    saved?;
    let answer = place.claim_once(other, "sms").await?;
    assert!(matches!(answer, OnceAnswer::Mine(_)), "the owner rests, so the value is free: {answer:?}");
    Ok(place.store.close().await?)
}

/// The sweep forgets a run's receipts while new ones are being written.
async fn forgotten_receipts() -> Test {
    let place = SchemaStore::open("receipts", &server_url()?).await?;
    let owner = place.driven("k").await?.run().id();
    let absorbed = async || {
        let receipts = place.store.receipts(WorkspaceId::DEFAULT, owner).await?;
        let count = receipts.iter().find(|(kind, _)| *kind == ReceiptKind::Start).map(|(_, r)| r.count);
        Ok::<_, Failed>(count.unwrap_or(0))
    };
    place.store.start(request("k")?).await?;
    assert_eq!(absorbed().await?, 1);
    let mut client = place.client().await?;
    let sweep = client.transaction().await?;
    sweep.query_one("SELECT num FROM runs WHERE id = $1 FOR UPDATE", &[&owner.0]).await?;
    place.store.start(request("k")?).await?;
    let (count, swept) = tokio::join!(absorbed(), async {
        blocked(&place, 1).await?;
        sweep.execute("DELETE FROM receipts", &[]).await?;
        Ok::<_, Failed>(sweep.commit().await?)
    });
    swept?;
    assert_eq!(count?, 1, "the first is forgotten");
    Ok(place.store.close().await?)
}

/// Runs that end a step with a large value at the same moment.
const RUNS: usize = 40;
/// The length of each value.
const LARGE: usize = 2 * 1024 * 1024 - 2;
/// No message may be longer: the batches have 8 MiB, and one more value that does not fit any more.
const LONGEST: usize = 12 * 1024 * 1024;

async fn large_values() -> Test {
    let url = server_url()?;
    let (before, after) = url.split_once('@').ok_or("a user in the URL")?;
    let (server, database) = after.split_once('/').ok_or("a database in the URL")?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let here = listener.local_addr()?;
    let (longest, server) = (Arc::new(AtomicUsize::new(0)), server.to_owned());
    let seen = longest.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (server, seen) = (server.clone(), seen.clone());
            tokio::spawn(async move { drop(carry(client, &server, &seen).await) });
        }
    });
    // Only messages that are not encrypted have a length that can be read.
    let database = format!("{database}{}sslmode=disable", if database.contains('?') { '&' } else { '?' });
    let place = SchemaStore::open("large", &format!("{before}@{here}/{database}")).await?;
    let mut ledgers = Vec::new();
    for n in 0..RUNS {
        ledgers.push(place.driven(&format!("large-{n}")).await?);
    }
    let value = Payload::parse(&format!("\"{}\"", "x".repeat(LARGE)))?;
    let at_once = async {
        let mut calls = JoinSet::new();
        for ledger in &mut ledgers {
            ledger.record(Entry::Recorded {
                at: Visit::parse("large").ok_or("a path")?,
                value: value.clone(),
                failed: None,
            })?;
            let (store, commit) = (place.store.clone(), ledger.commit().ok_or("an entry")?);
            calls.spawn(async move { store.commit(commit).await.map(drop) });
            let start = Start { input: value.clone(), ..request(&format!("start-{}", calls.len()))? };
            let store = place.store.clone();
            calls.spawn(async move { store.start(start).await.map(drop) });
        }
        while let Some(done) = calls.join_next().await {
            done??;
        }
        Ok::<_, Failed>(())
    };
    tokio::time::timeout(Duration::from_mins(2), at_once).await??;
    let longest = longest.load(Ordering::Relaxed);
    assert!((LARGE..LONGEST).contains(&longest), "the longest message had {longest} bytes");
    Ok(place.store.close().await?)
}

/// Carries what both say, and notes the length of the longest message to the server.
async fn carry(client: TcpStream, server: &str, longest: &AtomicUsize) -> std::io::Result<()> {
    let server = TcpStream::connect(server).await?;
    let ((mut asks, mut hears), (mut answers, mut is_told)) = (client.into_split(), server.into_split());
    let back = async { tokio::io::copy(&mut answers, &mut hears).await };
    let forth = async {
        // The first message has no letter before its length.
        let mut head = 0;
        loop {
            let mut start = [0; 5];
            asks.read_exact(&mut start[..4 + head]).await?;
            let length = start[head..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes)) as usize;
            longest.fetch_max(length, Ordering::Relaxed);
            is_told.write_all(&start[..4 + head]).await?;
            let rest = length.saturating_sub(4) as u64;
            tokio::io::copy(&mut (&mut asks).take(rest), &mut is_told).await?;
            head = 1;
        }
    };
    tokio::select! {
        ended = back => ended.map(drop),
        ended = forth => ended,
    }
}

/// Many runs that take their steps together: an update that finds room on its row's page writes to no index. The room is the
/// fill factor of the table.
async fn steps_of_many_runs() -> Test {
    const RUNS: usize = 500;
    const STEPS: usize = 10;
    // A database of its own: transactions of other tests would keep earlier versions of rows on their pages.
    let url = own_database("steps").await?;
    let place = SchemaStore::open("steps", &url).await?;
    let mut ledgers = Vec::new();
    for n in 0..RUNS {
        ledgers.push(place.driven(&format!("run-{n}")).await?);
    }
    for step in 0..STEPS {
        let mut commits = JoinSet::new();
        for (n, ledger) in ledgers.iter_mut().enumerate() {
            let at = Visit::parse(&format!("step-{step}")).ok_or("a path")?;
            ledger.record(Entry::Recorded { at, value: Payload::parse("1")?, failed: None })?;
            let (store, commit) = (place.store.clone(), ledger.commit().ok_or("an entry")?);
            commits.spawn(async move { store.commit(commit).await.map(|saved| (n, saved)) });
        }
        while let Some(saved) = commits.join_next().await {
            let (n, saved) = saved??;
            ledgers[n].settle(&saved.settled)?;
        }
    }
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    // PostgreSQL counts what a connection did when that ends, at the latest.
    place.store.close().await?;
    let (schema, all) = (place.schema.clone(), (RUNS * STEPS) as i64);
    drop(place);
    let counted = async {
        let counts = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'runs'";
        loop {
            let row = client.query_one(counts, &[&schema]).await?;
            let (updates, in_place): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            if updates >= all {
                return Ok::<_, Failed>((updates, in_place));
            }
        }
    };
    let (updates, in_place) = tokio::time::timeout(Duration::from_mins(1), counted).await??;
    assert!(in_place * 10 >= updates * 9, "only {in_place} of {updates} updates found room on their page");
    Ok(())
}
