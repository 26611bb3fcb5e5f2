//! Engines in processes that open the store themselves: what they say of themselves in their records.

use semel::error::Result;
use semel::rules::node::EngineRecord;
use semel::rules::record::{Look, LookBy, Record};

use crate::api::{EngineView, time};
use crate::app::App;

/// Maximum number of engines that are read; more are not expected on one database.
pub(in crate::http) const MOST_ENGINES: usize = 500;

/// The engines of all workspaces, those that joined last first, with their records.
pub(in crate::http) async fn present(app: &App) -> Result<Vec<(Record, EngineRecord)>> {
    let by = LookBy::Page { after: None, limit: MOST_ENGINES, newest_first: true };
    let records = app.store.records(Look { kind: EngineRecord::kind(), by }).await?;
    // A record that a newer Semel has written may not be readable: its engine is not shown.
    let read = |record: Record| record.body.read().ok().map(|engine| (record, engine));
    Ok(records.into_iter().filter_map(read).collect())
}

/// An engine as its workspace sees it.
pub(super) fn view((record, engine): (Record, EngineRecord)) -> EngineView {
    let EngineRecord { name, host, pid, mut serves, families, since, .. } = engine;
    serves.extend(families.into_iter().map(|family| format!("*@{family}*")));
    EngineView { node: record.id.to_string(), name, host, pid, serves, since: time(since) }
}
