//! Typed clients of a server: what they may do with which key, and what they are told.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use semel::clock::{Clock, SystemClock};
use semel::id::WorkspaceId;
use semel::remote::{Options, RemoteStore, wire};
use semel::store::Store;
use semel::store::memory::MemoryStore;
use semel::{Client, Ctx, Engine, WorkflowRef};

use super::site::{ServedSite, token};
use super::test;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test("a_client_starts_follows_and_lists_with_start_and_read", starts_and_reads),
        test("a_client_counts_the_open_runs_of_its_workspace", counts),
        test("a_client_is_not_told_of_runs_that_are_due", hears_no_dues),
    ]
}

const ORDER: WorkflowRef<u64, String> = WorkflowRef::new("order");

async fn order(ctx: Ctx, id: u64) -> semel::Result<String> {
    ctx.hook(format!("order:{id}")).recv().await
}

async fn site() -> (Arc<dyn Store>, ServedSite) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.clone()));
    (store.clone(), ServedSite::open(store, clock).await)
}

async fn client(site: &ServedSite, permissions: &str) -> semel::error::Result<Client> {
    let token = Some(token(WorkspaceId::DEFAULT, permissions));
    let options = Options { token, drives: false, ..Options::new(site.url()) };
    let store: Arc<dyn Store> = Arc::new(RemoteStore::open(options).await?);
    Client::builder().store(store).open().await
}

async fn starts_and_reads() -> Result<(), Failed> {
    let (store, site) = site().await;
    let engine = Engine::builder().store(store).workflow("order", order).open().await?;
    let client = client(&site, "start+read").await?;
    let run = client.start(ORDER, 7).key("order-7").await?;
    let again = client.start(ORDER, 7).key("order-7").await?;
    assert_eq!((run.created(), again.created(), again.id()), (true, false, run.id()));
    run.reached(semel::rules::status::Status::Waiting).await?;
    assert_eq!(client.hook("order:7").await?.map(|owner| owner.id()), Some(run.id()));
    client.deliver("order:7", "paid").await?;
    assert_eq!(run.result().await?, "paid");
    let listed = client.list().workflow("order").await?;
    assert_eq!(listed.into_iter().map(|run| run.id()).collect::<Vec<_>>(), [run.id()]);
    let refused = run.cancel("no").await.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("`operate`"), "{refused}");
    drop(engine);
    Ok(())
}

async fn counts() -> Result<(), Failed> {
    let (store, site) = site().await;
    let engine = Engine::builder().store(store).workflow("order", order).open().await?;
    let client = client(&site, "start+read").await?;
    for id in [1, 2] {
        client.start(ORDER, id).await?.reached(semel::rules::status::Status::Waiting).await?;
    }
    let elsewhere = engine.in_workspace(WorkspaceId(uuid::Uuid::from_u128(7)));
    elsewhere.start(ORDER, 3).await?;
    let counts = client.counts().await?;
    assert_eq!((counts.open(), counts.capped), (2, false));
    assert_eq!(counts, engine.counts().await?);
    Ok(())
}

/// Reads the stream of wakes until a run has ended.
async fn hears_no_dues() -> Result<(), Failed> {
    let (_store, site) = site().await;
    // It may have been installed by another test.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::new();
    let get = |path: &str, permission: &str| {
        let url = format!("{}{}{path}", site.url(), wire::PREFIX);
        http.get(url).bearer_auth(token(WorkspaceId::DEFAULT, permission)).send()
    };
    assert_eq!(get(wire::WAKES, "read").await?.status(), 403, "it could take a worker's turn");
    let mut stream = get(wire::WAKES_NOT_DUE, "read").await?;
    let admin = client(&site, "admin").await?;
    let run = admin.start(ORDER, 7).await?;
    run.cancel("enough").await?;
    let mut told = String::new();
    while !told.contains("ended") {
        let chunk = stream.chunk().await?.ok_or_else(|| format!("the stream has ended: {told}"))?;
        told.push_str(std::str::from_utf8(&chunk)?);
    }
    assert!(!told.contains("due"), "{told}");
    Ok(())
}
