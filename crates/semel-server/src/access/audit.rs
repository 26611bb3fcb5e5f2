//! The audit: administrative calls, kept with their workspace.

use std::time::Duration;

use semel::Error;
use semel::clock::Time;
use semel::id::WorkspaceId;
use semel::rules::json::Payload;
use semel::rules::key::RecordId;
use semel::rules::path::Name;
use semel::rules::record::{Keep, Look, LookBy};
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::records;

/// How long the audit is kept.
const KEPT: Duration = Duration::from_hours(90 * 24);

/// One administrative call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Act {
    pub(crate) at: Time,
    /// The API key, or `root`.
    pub(crate) by: String,
    /// Method and route.
    pub(crate) call: String,
    /// The path with its ids.
    pub(crate) subject: String,
    pub(crate) status: u16,
}

/// Records a call. The call has taken place already, so its answer does not depend on this.
pub(super) async fn note(app: &App, workspace: WorkspaceId, act: &Act) {
    let written = async {
        let keep = Keep {
            kind: kind(workspace)?,
            id: RecordId::new(app.clock.uuid().to_string())?,
            body: Payload::of(act)?,
            expected: None,
            ttl: Some(KEPT),
        };
        app.store.keep(keep).await
    };
    if let Err(error) = written.await {
        tracing::error!(%error, by = act.by, call = act.call, "an administrative call could not be written to the audit");
    }
}

/// A page of calls, newest first, and the id after which the next page begins if there may be one.
pub(crate) async fn page(
    app: &App,
    workspace: WorkspaceId,
    after: Option<&str>,
    limit: usize,
) -> Result<(Vec<Act>, Option<String>), Error> {
    let after = after.map(RecordId::new).transpose()?;
    let by = LookBy::Page { after, limit, newest_first: true };
    let page = app.store.records(Look { kind: kind(workspace)?, by }).await?;
    let next = page.last().filter(|_| page.len() == limit).map(|record| record.id.to_string());
    let acts = page.iter().map(|record| Ok(records::read(record)?.body)).collect::<Result<_, Error>>()?;
    Ok((acts, next))
}

fn kind(workspace: WorkspaceId) -> Result<Name, Error> {
    Ok(Name::new(&format!("audit-{workspace}"))?)
}
