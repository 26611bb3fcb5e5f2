//! Clients: they start, find and control runs that an engine drives, and drive none themselves. The clock stands still,
//! so a wait that ends has been told, and has not looked.

use libtest_mimic::{Failed, Trial};
use semel::clock::Clock;
use semel::rules::entry::Entry;
use semel::rules::path::Name;
use semel::rules::start::StartVerdict;
use semel::rules::status::Status;
use semel::store::WorkflowCounts;
use semel::{Client, Ctx, Error, Result, WorkflowName, WorkflowRef};
use serde_json::json;

use super::replay::waiting;
use super::{Lab, by_turns, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_client_starts_a_run_that_an_engine_drives", driven_elsewhere),
        trial("a_key_is_the_same_for_a_client_and_an_engine", same_key),
        trial("a_client_delivers_and_finds_the_owner_of_a_token", delivers),
        by_turns("a_client_never_claims", never_claims),
        trial("a_client_ends_a_run_that_an_engine_drives", ends),
        trial("a_list_is_filtered_and_comes_page_by_page", lists),
        trial("open_runs_are_counted_in_the_workspace_of_the_handle", counts),
        trial("a_client_without_a_store_is_refused", no_store),
    ]
}

const DOUBLE: WorkflowRef<u64, u64> = WorkflowRef::new("double");
const ORDER: WorkflowRef<u64, String> = WorkflowRef::new("order");

async fn double(ctx: Ctx, number: u64) -> Result<u64> {
    ctx.step("double").run(async |_| Ok(number * 2)).await
}

async fn order(ctx: Ctx, id: u64) -> Result<String> {
    ctx.hook(format!("order:{id}")).recv().await
}

async fn client(lab: &Lab) -> semel::error::Result<Client> {
    let clock = lab.clock.clone() as std::sync::Arc<dyn Clock>;
    Client::builder().store(lab.store.clone()).clock(clock).open().await
}

async fn driven_elsewhere() -> std::result::Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("double", double).open().await?;
    let client = client(&lab).await?;
    let run = client.start(DOUBLE, 21).await?;
    assert_eq!((run.created(), run.result().await?), (true, 42));
    let by_name = client.start(WorkflowName::new("double"), 4).await?;
    assert_eq!(by_name.result().await?, json!(8));
    drop(engine);
    Ok(())
}

async fn same_key() -> std::result::Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("double", double).open().await?;
    let client = client(&lab).await?;
    let first = client.start(DOUBLE, 1).key("k").await?;
    assert_eq!(first.result().await?, 2);
    let again = client.start(DOUBLE, 1).key("k").await?;
    let there = engine.start(double, 1).key("k").await?;
    assert_eq!((again.id(), again.verdict()), (first.id(), Some(StartVerdict::Replayed)));
    assert_eq!((there.id(), there.created()), (first.id(), false));
    assert_eq!(client.run_by_key("k").await?.map(|run| run.id()), Some(first.id()));
    let other = client.start(DOUBLE, 2).key("k").await;
    assert!(matches!(other, Err(Error::KeyReused { .. })), "{other:?}");
    Ok(())
}

async fn delivers() -> std::result::Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("order", order).open().await?;
    let client = client(&lab).await?;
    let run = client.start(ORDER, 7).await?;
    waiting(&lab, &run).await;
    assert_eq!(client.hook("order:7").await?.map(|owner| owner.id()), Some(run.id()));
    let first = client.deliver("order:7", "paid").id("click-1").await?;
    let again = client.deliver("order:7", "paid").id("click-1").await?;
    assert_eq!((first.absorbed, again.absorbed), (false, true));
    assert_eq!(run.result().await?, "paid");
    drop(engine);
    Ok(())
}

async fn never_claims() -> std::result::Result<(), Failed> {
    let lab = Lab::new();
    let client = client(&lab).await?;
    let run = client.start(DOUBLE, 21).await?;
    super::rest::yield_often().await;
    let before = run.ledger().await?;
    assert!(matches!(before[..], [_]), "{before:?}");
    assert_eq!((run.status().await?, run.header().await?.state.node), (Status::Pending, None));
    let engine = lab.engine().workflow("double", double).open().await?;
    assert_eq!(run.result().await?, 42);
    let claims = run.ledger().await?.into_iter().filter(|line| matches!(line.entry, Entry::Claimed { .. }));
    assert_eq!(claims.count(), 1, "by the engine");
    drop(engine);
    Ok(())
}

async fn ends() -> std::result::Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("order", order).open().await?;
    let client = client(&lab).await?;
    let run = client.start(ORDER, 7).await?;
    waiting(&lab, &run).await;
    assert!(run.cancel("out of stock").await?.changed);
    let seen = engine.run(run.id()).result().await;
    assert!(matches!(seen, Err(Error::Ended { .. })), "{seen:?}");
    let who = run.ledger().await?.into_iter().find_map(|line| match line.entry {
        Entry::Cancelled { by, .. } => Some(by),
        _ => None,
    });
    assert_eq!(who.as_deref(), Some("client"));
    Ok(())
}

async fn lists() -> std::result::Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("double", double).workflow("order", order).open().await?;
    let client = client(&lab).await?;
    let mut done = Vec::new();
    for n in 0..3 {
        let run = engine.start(double, n).await?;
        run.result().await?;
        done.insert(0, run.id());
    }
    let later = lab.clock.now().after(std::time::Duration::from_secs(1));
    lab.clock.advance_to(later);
    let open = engine.start(order, 7).await?;
    waiting(&lab, &open).await;

    let ids = |page: semel::store::Page| page.into_iter().map(|run| run.id()).collect::<Vec<_>>();
    assert_eq!(ids(engine.list().status(Status::Waiting).await?), [open.id()]);
    assert_eq!(ids(client.list().workflow("double").await?), done);
    assert_eq!(ids(client.list().since(later).await?), [open.id()]);
    let first = client.list().workflow("double").limit(2).await?;
    let next = first.next.ok_or("a second page")?;
    assert_eq!(ids(first), done[..2]);
    let last = client.list().workflow("double").limit(2).before(next).await?;
    assert_eq!((last.next, ids(last)), (None, done[2..].to_vec()));
    let elsewhere = client.in_workspace(semel::id::WorkspaceId(uuid::Uuid::from_u128(7)));
    assert_eq!(ids(elsewhere.list().await?), []);
    assert!(Name::new("no/name").is_err());
    assert_eq!(client.list().workflow("no/name").await.map_err(|e| e.code()).err(), Some("VALIDATION_ERROR"));
    Ok(())
}

async fn counts() -> std::result::Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("double", double).workflow("order", order).open().await?;
    let client = client(&lab).await?;
    engine.start(double, 1).await?.result().await?;
    let (first, second) = (engine.start(order, 1).await?, engine.start(order, 2).await?);
    waiting(&lab, &first).await;
    waiting(&lab, &second).await;
    second.pause().await?;
    let elsewhere = client.in_workspace(semel::id::WorkspaceId(uuid::Uuid::from_u128(7)));
    elsewhere.start(DOUBLE, 3).await?;

    let counted = |workflow: &str, open, paused| WorkflowCounts {
        workflow: Name::new(workflow).expect("a name"),
        open,
        paused,
    };
    let counts = engine.counts().await?;
    assert_eq!(counts.workflows, [counted("order", 2, 1)], "what has ended, and other tenants, are left out");
    assert_eq!((counts.open(), counts.paused(), counts.in_doubt, counts.capped), (2, 1, 0, false));
    assert_eq!(client.counts().await?, counts);
    assert_eq!(elsewhere.counts().await?.workflows, [counted("double", 1, 0)]);
    Ok(())
}

async fn no_store() -> std::result::Result<(), Failed> {
    let refused = Client::builder().open().await.err().map(|error| error.to_string());
    assert!(refused.is_some_and(|text| text.contains("add `.store(")));
    Ok(())
}
