//! What an operator sees: missing tables, wrong settings, closed workspaces.

use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::on;
use super::site::{Site, SiteKind};

pub(super) fn trials() -> Vec<Vec<Trial>> {
    vec![
        on("a_missing_fence_table_is_told_and_made", missing_table),
        on("a_connection_of_another_workspace_is_not_there", closed),
        on("settings_that_cannot_be_are_told_with_their_member", settings),
    ]
}

const STEPS: &str = "steps:
  - name: x
    retry: {attempts: 1}
    sql: {on: bank, run: 'UPDATE account SET cents = 1'}";

async fn missing_table(site: Site) -> Result<(), Failed> {
    let empty = Site::empty(site.kind).await;
    let checked = empty.checked(false).await;
    assert!(
        !checked.is_fine && checked.found.contains("`fenced_task_idempotency_lock` is missing"),
        "{checked:?}"
    );
    let outcome = format!("{:?}", empty.outcome(STEPS, json!({})).await);
    assert!(
        outcome.contains("CONNECTION") && outcome.contains("connection check NAME --install"),
        "{outcome}"
    );
    assert_eq!(empty.number("SELECT count(*) FROM account WHERE cents = 1").await, 0);
    for _ in 0..2 {
        let checked = empty.checked(true).await;
        assert!(checked.is_fine && checked.found.contains("so is `semel_queue`"), "{checked:?}");
    }
    empty.value(STEPS, json!({})).await;
    Ok(())
}

async fn closed(site: Site) -> Result<(), Failed> {
    use semel::id::WorkspaceId;
    let connections = site.connections_with("workspaces = ['acme']").map_err(Failed::from)?;
    assert!(connections.find(WorkspaceId::DEFAULT, "bank").await?.is_none());
    let told = connections.check(WorkspaceId::DEFAULT, "bank", &["postgres"]).await?;
    assert!(told.is_some_and(|told| told.contains("there is no connection `bank`")));
    Ok(())
}

async fn settings(site: Site) -> Result<(), Failed> {
    for (line, member) in [
        ("fence-table = 'a b'", "connections.bank.fence-table"),
        ("pool = 0", "connections.bank.pool"),
        ("lock-timeout = 'x'", "connections.bank.lock-timeout"),
        ("urll = 7", "connections.bank.urll"),
    ] {
        let refused = site.connections_with(line).err().unwrap_or_default();
        let is_servers = line.starts_with("pool") || line.starts_with("lock");
        if !(is_servers && site.kind == SiteKind::Sqlite) {
            assert!(refused.contains(member), "{line}: {refused}");
        }
    }
    let nowhere = Site { url: site.folder().join("absent.db").display().to_string(), ..site.clone() };
    let refused = nowhere.connections_with("").err().unwrap_or_default();
    let member = if site.kind == SiteKind::Sqlite { "connections.bank.path" } else { "connections.bank.url" };
    assert!(refused.contains(member) && !refused.contains("panicked"), "{refused}");
    let other = site.connections_with("fence-table = 'billing_lock'").map_err(Failed::from)?;
    let bank = other.all().next().unwrap().clone();
    assert!(bank.look(&other, true).await.is_fine);
    assert_eq!(site.number("SELECT count(*) FROM billing_lock").await, 0);
    Ok(())
}
