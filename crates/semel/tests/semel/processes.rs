//! Real processes: this binary runs itself again in a role, and is killed or raced.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::{Clock, SystemClock};
use semel::id::{NodeId, RunId, WorkspaceId};
use semel::rules::ledger::Ledger;
use semel::rules::start::Start;
use semel::store::postgres::{PostgresOptions, PostgresStore};
use semel::store::sqlite::{SqliteOptions, SqliteStore};
use semel::store::{Lease, LeaseAct, Store, Wake};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::sqlite::{record_step, request, run, start};

pub(crate) const ROLE: &str = "SEMEL_TEST_ROLE";
pub(crate) const PLACE: &str = "SEMEL_TEST_PLACE";

/// The server's local socket; empty for a server that the tests have not started.
const SOCKET: &str = "SEMEL_TEST_POSTGRES_SOCKET";

type Test = Result<(), Failed>;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("processes::what_was_answered_survives_sigkill_on_sqlite", survives_sigkill),
        Trial::test("processes::a_second_process_on_the_same_file_is_refused", second_process),
        Trial::test("processes::equal_starts_of_two_processes_make_one_run_on_postgres", equal_starts),
        Trial::test("processes::every_answer_is_true_while_postgres_crashes", || {
            on_its_own_server("outlive")
        }),
        Trial::test("processes::wakes_are_heard_again_after_postgres_crashed", || on_its_own_server("hear")),
        Trial::test("processes::a_store_is_opened_over_a_local_socket", over_a_socket)
            .with_ignored_flag(std::env::var_os(SOCKET).is_none()),
    ]
}

/// Plays the role this process was started for, if it was for one.
pub(crate) fn play() -> Option<Test> {
    let (role, place) = (std::env::var(ROLE).ok()?, std::env::var(PLACE).ok()?);
    Some(match role.as_str() {
        "commit" => run(commit_until_killed(&place)),
        "open" => run(open(&place)),
        "start" => run(start_many(&place)),
        "outlive" => run(outlive_crashes()),
        "hear" => run(hear_again()),
        "encrypted" => run(crate::encrypted::talk()),
        #[cfg(all(feature = "sqlx-postgres", feature = "sqlx-mysql"))]
        "branches" => run(crate::engine::tx::all::servers::branches()),
        #[cfg(all(feature = "sqlx-postgres", feature = "sqlx-mysql"))]
        "unprepared" => run(crate::engine::tx::all::servers::unprepared()),
        "engine" => run(crate::kill::worker::work(&place)),
        other => Err(format!("no role {other}").into()),
    })
}

fn spawn(role: &str, place: &str) -> Result<Child, Failed> {
    let this = std::env::current_exe()?;
    Ok(Command::new(this).env(ROLE, role).env(PLACE, place).stdout(Stdio::piped()).spawn()?)
}

fn lines(child: &mut Child) -> Result<impl Iterator<Item = String> + use<>, Failed> {
    let out = child.stdout.take().ok_or("a pipe")?;
    Ok(BufReader::new(out).lines().map_while(Result::ok))
}

/// Says each commit after it was answered: `run version`.
async fn commit_until_killed(place: &str) -> Test {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(SqliteOptions::new(place)).await?);
    let node = NodeId(SystemClock::new().uuid());
    store.lease(Lease { node, act: LeaseAct::Join(Duration::from_mins(10)) }).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let store = store.clone();
        tasks.spawn(async move {
            let key = SystemClock::new().uuid().to_string();
            let started = start(&*store, &key, Some(node)).await.expect("a start");
            let mut ledger = Ledger::read(started.run, started.entries).expect("just created");
            for n in 0.. {
                record_step(&mut ledger, &format!("step-{n}")).expect("a new path");
                let saved = store.commit(ledger.commit().expect("one entry")).await.expect("a commit");
                let line = format!("{} {}\n", ledger.run().id(), saved.version);
                std::io::stdout().lock().write_all(line.as_bytes()).expect("the test reads");
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    Ok(())
}

fn survives_sigkill() -> Test {
    let folder = tempfile::tempdir()?;
    let place = folder.path().join("semel.db").display().to_string();
    let mut answered: HashMap<RunId, u64> = HashMap::new();
    for kill in 1..=10 {
        let mut child = spawn("commit", &place)?;
        let mut said = lines(&mut child)?;
        let note = |answered: &mut HashMap<RunId, u64>, line: &str| -> Test {
            // The last line may be cut by the kill; a whole one was answered.
            if let Some((run, version)) = line.split_once(' ') {
                answered.insert(run.parse()?, version.parse()?);
            }
            Ok(())
        };
        for line in said.by_ref().take(kill * 200) {
            note(&mut answered, &line)?;
        }
        child.kill()?;
        child.wait()?;
        let rest: Vec<_> = said.collect();
        for line in rest.iter().take(rest.len().saturating_sub(1)) {
            note(&mut answered, line)?;
        }
    }
    assert!(answered.len() > 100, "{} runs", answered.len());
    run(async {
        let store = SqliteStore::open(SqliteOptions::new(&place)).await?;
        for (run, version) in answered {
            let entries = store.ledger(WorkspaceId::DEFAULT, run, 1).await?;
            let numbers: Vec<_> = entries.iter().map(|n| n.number).collect();
            assert!(
                entries.len() as u64 >= version,
                "{run} was answered {version} and has {}",
                entries.len()
            );
            assert_eq!(numbers, (1..=entries.len() as u64).collect::<Vec<_>>(), "no gap, none twice");
        }
        Ok(())
    })
}

async fn open(place: &str) -> Test {
    match SqliteStore::open(SqliteOptions::new(place)).await {
        Ok(_) => println!("opened"),
        Err(error) => println!("{error}"),
    }
    Ok(())
}

fn second_process() -> Test {
    let folder = tempfile::tempdir()?;
    let place = folder.path().join("semel.db").display().to_string();
    run(async {
        let store = SqliteStore::open(SqliteOptions::new(&place)).await?;
        let said: Vec<_> = lines(&mut spawn("open", &place)?)?.collect();
        assert!(said.join(" ").contains("open in another process"), "{said:?}");
        store.close().await?;
        let said: Vec<_> = lines(&mut spawn("open", &place)?)?.collect();
        assert_eq!(said, ["opened"]);
        Ok(())
    })
}

/// 5,000 equal starts of 128 callers; says which runs they got and how many they created.
async fn start_many(place: &str) -> Test {
    let (url, schema) = place.split_once(' ').ok_or("url and schema")?;
    let options = PostgresOptions { schema: Some(schema.to_owned()), ..PostgresOptions::new(url) };
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(options).await?);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..128 {
        let store = store.clone();
        tasks.spawn(async move {
            let mut got = Vec::new();
            for _ in 0..40 {
                let started = start(&*store, "the one", None).await?;
                got.push((started.run.id(), started.created()));
            }
            Ok::<_, semel::Error>(got)
        });
    }
    let mut got = Vec::new();
    while let Some(some) = tasks.join_next().await {
        got.extend(some??);
    }
    let runs: std::collections::HashSet<_> = got.iter().map(|(run, _)| run.to_string()).collect();
    let created = got.iter().filter(|(_, created)| *created).count();
    println!("{} {created}", runs.into_iter().collect::<Vec<_>>().join(","));
    store.close().await?;
    Ok(())
}

fn equal_starts() -> Test {
    let url = std::env::var("SEMEL_TEST_POSTGRES")?;
    let place = format!("{url} equal_starts");
    let mut children = [spawn("start", &place)?, spawn("start", &place)?];
    let mut said = Vec::new();
    for child in &mut children {
        said.extend(lines(child)?);
        assert!(child.wait()?.success());
    }
    let parsed: Vec<_> = said.iter().filter_map(|line| line.split_once(' ')).collect();
    assert_eq!(parsed.len(), 2, "{said:?}");
    assert_eq!(parsed[0].0, parsed[1].0, "both have the same run, and only that");
    let created: usize = parsed.iter().filter_map(|(_, n)| n.parse::<usize>().ok()).sum();
    assert_eq!(created, 1, "{said:?}");
    Ok(())
}

fn over_a_socket() -> Test {
    run(async {
        let options = PostgresOptions::new(std::env::var(SOCKET)?);
        let store =
            PostgresStore::open(PostgresOptions { schema: Some("socket".to_owned()), ..options }).await?;
        assert!(start(&store, "one", None).await?.created());
        assert!(!start(&store, "one", None).await?.created());
        Ok(store.close().await?)
    })
}

/// Commits and starts of many runs go on while the server is stopped like by kill -9 and started again, three times. An
/// answer of `Saved` is there afterwards; after `Unavailable` the very same commit succeeds, which it could not if it had
/// been written; a start has one run, whichever of its answers was lost; `Unknown` does not occur, because the server
/// comes back.
async fn outlive_crashes() -> Test {
    let (url, ctl) = (std::env::var("SEMEL_TEST_POSTGRES")?, std::env::var("SEMEL_TEST_POSTGRES_CTL")?);
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(PostgresOptions::new(url)).await?);
    let node = NodeId(SystemClock::new().uuid());
    store.lease(Lease { node, act: LeaseAct::Join(Duration::from_hours(1)) }).await?;
    let (progress, mut done) = tokio::sync::mpsc::unbounded_channel();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..64 {
        let started = start(&*store, &format!("k{caller}"), Some(node)).await?;
        let mut ledger = Ledger::read(started.run, started.entries)?;
        let (store, progress, stopped) = (store.clone(), progress.clone(), stopped.clone());
        tasks.spawn(async move {
            for n in 0.. {
                if *stopped.borrow() {
                    break;
                }
                record_step(&mut ledger, &format!("step-{n}")).expect("a new path");
                let commit = ledger.commit().expect("one entry");
                let saved = loop {
                    match store.commit(commit.clone()).await {
                        Ok(saved) => break saved,
                        Err(semel::Error::Unavailable(_)) => tokio::task::yield_now().await,
                        Err(other) => panic!("{} {other}", ledger.run().id()),
                    }
                };
                assert_eq!(saved.version, ledger.run().state.version);
                progress.send(()).expect("the test counts");
            }
            ledger
        });
    }
    let mut starting = tokio::task::JoinSet::new();
    for caller in 0..32 {
        starting.spawn(start_until(store.clone(), node, caller, stopped.clone()));
    }
    for _ in 0..3 {
        for _ in 0..2_000 {
            done.recv().await.ok_or("the callers have ended")?;
        }
        let crashed = tokio::process::Command::new(&ctl).arg("crash").status().await?;
        assert!(crashed.success());
    }
    stop.send(true)?;
    while let Some(started) = starting.join_next().await {
        for (key, run) in started? {
            let again = start(&*store, &key, None).await?;
            assert_eq!((again.run.id(), again.created()), (run, false), "{key}");
            assert_eq!(again.run.state.node, Some(node), "{key} is driven by whom it was started for");
        }
    }
    while let Some(ledger) = tasks.join_next().await {
        let run = ledger?.run().clone();
        let entries = store.ledger(WorkspaceId::DEFAULT, run.id(), 1).await?;
        let numbers: Vec<_> = entries.iter().map(|n| n.number).collect();
        assert_eq!(
            numbers,
            (1..=run.state.version).collect::<Vec<_>>(),
            "what was answered, no gap, none twice"
        );
    }
    store.close().await?;
    Ok(())
}

/// Starts runs, each of them until it is answered; the keys, and the runs they got.
async fn start_until(
    store: Arc<dyn Store>,
    node: NodeId,
    caller: usize,
    stopped: tokio::sync::watch::Receiver<bool>,
) -> Vec<(String, RunId)> {
    let mut started = Vec::new();
    while !*stopped.borrow() {
        let key = format!("started-{caller}-{}", started.len());
        let mut request = Start { claim: Some(node), ..request(&key).expect("proper names") };
        if started.len() % 2 == 1 {
            // Under a key that is drawn for it.
            let Start { workspace, run, workflow, input, .. } = request;
            request = Start { claim: Some(node), ..Start::new(workspace, run, workflow, input, None) };
        }
        let answer = loop {
            match store.start(request.clone()).await {
                Ok(answer) => break answer,
                // Unknown if the server crashes again while it is looked up: asked again, it is the same run.
                Err(semel::Error::Unavailable(_) | semel::Error::Unknown(_)) => {
                    tokio::task::yield_now().await;
                }
                Err(other) => panic!("{key} {other}"),
            }
        };
        assert!(answer.created() && answer.run.id() == request.run, "{key}: {answer:?}");
        assert_eq!(answer.entries.len() as u64, answer.run.state.version, "{key}");
        started.push((answer.run.new.key.to_string(), request.run));
    }
    started
}

/// Two stores hear each other, also after the server was stopped like by kill -9 and started again. What happened while
/// no connection listened is made up for by a look at everything.
async fn hear_again() -> Test {
    let (url, ctl) = (std::env::var("SEMEL_TEST_POSTGRES")?, std::env::var("SEMEL_TEST_POSTGRES_CTL")?);
    let (one, two) = (open_postgres(&url).await?, open_postgres(&url).await?);
    let (mut at_one, mut at_two) = (one.wakes(), two.wakes());
    for round in 0..3 {
        start(&one, &format!("one-{round}"), None).await?;
        heard(&mut at_two, Wake::Due).await?;
        start(&two, &format!("two-{round}"), None).await?;
        // One's own, and the other's.
        heard(&mut at_one, Wake::Due).await?;
        heard(&mut at_one, Wake::Due).await?;
        let crashed = tokio::process::Command::new(&ctl).arg("crash").status().await?;
        assert!(crashed.success());
        heard(&mut at_one, Wake::All).await?;
        heard(&mut at_two, Wake::All).await?;
    }
    one.close().await?;
    two.close().await?;
    Ok(())
}

async fn open_postgres(url: &str) -> semel::error::Result<PostgresStore> {
    PostgresStore::open(PostgresOptions::new(url)).await
}

async fn heard(ear: &mut Receiver<Wake>, wanted: Wake) -> Test {
    let listening = async {
        let due = |wake| matches!(wake, Wake::DueIn(_)) && wanted == Wake::Due;
        loop {
            let wake = ear.recv().await?;
            if wake == wanted || due(wake) {
                break;
            }
        }
        Ok::<_, RecvError>(())
    };
    Ok(tokio::time::timeout(Duration::from_mins(1), listening).await??)
}

/// On a server of its own: the other tests need theirs.
pub(crate) fn on_its_own_server(role: &str) -> Test {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/with-postgres");
    let ended = Command::new(script)
        .arg(std::env::current_exe()?)
        .env_remove("SEMEL_TEST_POSTGRES")
        .env(ROLE, role)
        .env(PLACE, "")
        .status()?;
    assert!(ended.success(), "see above for what went wrong");
    Ok(())
}
