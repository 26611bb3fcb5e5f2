//! An engine that dies before and after each of its durable writes, a database that ends sessions, an embedder that loses answers, and an
//! owner that wakes up too late.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use libtest_mimic::{Failed, Trial};
use semel::Engine;
use semel::clock::SystemClock;
use semel::engine::Builder;
use semel::rules::entry::Outcome;
use semel::store::faulty::{Fault, Faulty};
use semel::store::memory::MemoryStore;
use semel::store::{Lease, LeaseAct, Store, Sweep};
use semel::testing::{Crasher, Ended, Moment, Point, Scene};
use serde_json::{Value, json};

use super::library::{Library, sentences, steps};
use super::trial;
use crate::databases::site::{Fixed, TESTED};
use crate::overtaken::{HeldLine, HeldPart, Hold, Route, overtaken};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("ingest::a_crash_at_every_boundary_pays_once_and_replaces_once", || {
            every_boundary();
            Ok(())
        }),
        trial("a_lost_answer_is_asked_for_again_under_the_same_key", lost),
        trial("a_session_that_is_killed_in_the_commit_is_tried_again_without_paying_again", killed),
        trial("a_zombie_that_reads_the_table_or_gets_its_vectors_late_changes_nothing", late),
        trial("a_zombie_at_the_commit_cannot_replace_anything", zombie),
    ]
}

/// Two documents in a row: the second one keeps vectors of the first.
fn twice() -> String {
    let first = steps(", size: 50");
    let second = first.replace("name: know", "name: again").replace("input.text", "input.next");
    format!("{first}\n{}", second.strip_prefix("steps:\n").expect("it begins so"))
}

fn every_boundary() {
    let input = json!({"id": "d", "text": sentences(0..70), "next": sentences(60..75)});
    let crasher = Crasher::new(
        Library::fresh,
        |library: &Library, builder| library.build(builder, &twice()),
        async move |scene: Scene<Library>| {
            let run = scene.engine().start(TESTED, input.clone()).key("k").await?;
            Ok(match run.outcome().await? {
                Outcome::Completed(value) => value.read().unwrap(),
                other => Value::String(format!("{other:?}")),
            })
        },
    );
    let check = |ended: &Ended<Library, Value>| {
        let (library, kills) = (&ended.world, ended.crashes.len());
        assert_eq!((&ended.value["chunks"], &ended.value["embedded"]), (&json!(15), &json!(5)));
        let rows = library.rows_apart();
        assert_eq!((rows.len(), rows[0].contains("0060"), rows[14].contains("0074")), (15, true, true));
        // 64 and 6 of the first, and 5 of the second.
        let (keys, calls) = library.embedder.counts();
        assert_eq!(keys, 3, "{:?}", library.embedder.asked());
        assert!(calls <= 3 + kills, "{calls} calls with {kills} kills");
    };
    let plays = crasher.every_boundary(check) + crasher.every_fault(check);
    assert!(plays > 20, "{plays}");
    // Between an answer and its record, and between a commit and its record.
    for (path, calls) in [("know/embed", 4), ("know/embed#2", 4), ("know/store", 3), ("again/store", 3)] {
        let ended = crasher.play(&[Point::Body(path.to_owned(), Moment::Returned)]);
        check(&ended);
        assert_eq!(ended.world.embedder.counts(), (3, calls), "{path}");
    }
}

async fn lost() -> Result<(), Failed> {
    let library = Library::new().await;
    library.embedder.lose(2);
    library.ingest(&sentences(0..5)).await;
    assert_eq!(library.embedder.counts(), (1, 3));
    library.embedder.lose(9);
    let failed = library.failure(&steps(", size: 50"), json!({"id": "d", "text": sentences(5..9)})).await;
    assert_eq!(failed.code.as_deref(), Some("HTTP"), "{failed:?}");
    assert!(library.rows().await[0].contains("0000"), "nothing was replaced");
    Ok(())
}

/// The database ends the session while rows are put.
async fn killed() -> Result<(), Failed> {
    let library = Library::new().await;
    library.ingest(&sentences(0..5)).await;
    library.embedder.asked().clear();
    // The sequence is not rolled back: the first try dies, the second does not.
    library.site.script("CREATE SEQUENCE tries").await;
    let body = "BEGIN IF nextval('tries') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN new; END";
    library
        .site
        .script(&format!("CREATE FUNCTION dies() RETURNS trigger LANGUAGE plpgsql AS $${body}$$"))
        .await;
    library
        .site
        .script("CREATE TRIGGER dies BEFORE INSERT ON semel_chunks FOR EACH ROW EXECUTE FUNCTION dies()")
        .await;
    library.ingest(&sentences(3..8)).await;
    assert_eq!(library.rows().await.len(), 5);
    assert_eq!(library.embedder.counts(), (1, 1));
    assert!(library.site.number("SELECT nextval('tries')").await > 2, "there was a second try");
    Ok(())
}

/// What the first owner asks of the table, or of the embedder, or the answer, comes through when another owner is done.
async fn late() -> Result<(), Failed> {
    let input = sentences(0..5);
    let steps =
        steps(", size: 50").replace("{{ input.id }}", "d").replace("{{ input.text }}", input.trim_end());
    for marker in ["SELECT n, hash", "POST /v1/embeddings"] {
        for part in [HeldPart::Request, HeldPart::Answer] {
            let library = Library::new().await;
            let is_read = marker.starts_with("SELECT");
            let base = library.embedder.base();
            let embedder = base.split('/').nth(2).ok_or("an address")?;
            let far = if is_read { library.site.host() } else { embedder };
            let line = HeldLine::to(far, Hold { marker, part }).await;
            let build = |builder: Builder, route| {
                let connections = match (is_read, route) {
                    (true, route) => {
                        Library { site: library.site.by(&line, route), ..library.clone() }.connections()
                    }
                    (false, Route::Held) => library.connections_to(&base.replace(embedder, &line.address())),
                    (false, Route::Direct) => library.connections(),
                };
                builder.state(connections).programs(Fixed::new(&steps))
            };
            let ended = overtaken(&line, TESTED, build, || None).await;
            assert!(
                matches!(ended.outcome, Outcome::Completed(_)) && ended.doubt.is_none(),
                "{marker} {part:?}: {ended:?}"
            );
            assert_eq!(library.rows().await.len(), 5, "{marker} {part:?}");
            let (keys, calls) = library.embedder.counts();
            assert_eq!((keys, calls), (1, if is_read { 1 } else { 2 }), "{marker} {part:?}");
            let outcomes = "SELECT count(*) FROM fenced_task_idempotency_lock WHERE outcome IS NOT NULL";
            assert_eq!(library.site.number(outcomes).await, 1, "{marker} {part:?}");
        }
    }
    Ok(())
}

/// An engine that has lost its run without noticing waits for the document in its commit, before the new owner does.
async fn zombie() -> Result<(), Failed> {
    let library = Library::new().await;
    // Which session has put a row.
    library.site.script("ALTER TABLE semel_chunks ADD COLUMN session integer DEFAULT pg_backend_pid()").await;
    let pool = library.pool();
    let gate = pool.get().await?;
    let lock = "hashtextextended('d', to_regclass('semel_chunks')::oid::bigint)";
    gate.batch_execute(&format!("SELECT pg_advisory_lock({lock})")).await?;
    let waiting = format!(
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid::bigint = ({lock} & 4294967295) \
         ORDER BY waitstart"
    );
    let waits = async |sessions: usize| -> Result<Vec<i32>, Failed> {
        loop {
            let rows = gate.query(&waiting, &[]).await?;
            if rows.len() >= sessions {
                return Ok(rows.iter().map(|row| row.get(0)).collect());
            }
            tokio::task::yield_now().await;
        }
    };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
    let leases = AtomicU32::new(0);
    // It neither hears of its loss nor learns of it from its lease.
    let faults = move |call| {
        let is_renewal = call == "lease" && leases.fetch_add(1, Ordering::SeqCst) > 0;
        is_renewal.then_some(Fault::Before)
    };
    let deaf: Arc<dyn Store> = Arc::new(Faulty::new(store.clone(), faults).deaf());
    let steps = steps(", size: 50");
    let first = library.build(Engine::builder().store(deaf), &steps).open().await?;
    let run = first.start(TESTED, json!({"id": "d", "text": sentences(0..5)})).await?;
    let zombie = waits(1).await?[0];
    let node = run.header().await?.state.node.expect("it is driven");
    store.lease(Lease { node, act: LeaseAct::Leave }).await?;
    store.sweep(Sweep { limit: 100 }).await?;
    let second = library.build(Engine::builder().store(store), &steps).open().await?;
    let owner = *waits(2).await?.iter().find(|session| **session != zombie).expect("two sessions wait");
    gate.batch_execute(&format!("SELECT pg_advisory_unlock({lock})")).await?;
    let outcome = second.run(run.id()).outcome().await?;
    assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
    // It was refused when it wanted to commit, and rolls back.
    let busy = format!("SELECT 1 FROM pg_stat_activity WHERE pid = {zombie} AND state <> 'idle'");
    while !gate.query(&busy, &[]).await?.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(library.rows().await.len(), 5);
    let sessions = "SELECT string_agg(DISTINCT session::text, ' ') FROM semel_chunks";
    assert_eq!(library.site.text(sessions).await, owner.to_string(), "the zombie was session {zombie}");
    assert_eq!(library.embedder.counts(), (1, 1), "what was recorded is not asked for again");
    let outcomes = "SELECT count(*) FROM fenced_task_idempotency_lock WHERE outcome IS NOT NULL";
    assert_eq!(library.site.number(outcomes).await, 1);
    Ok(())
}
