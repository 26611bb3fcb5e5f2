//! How an engine makes itself known: its record in the store ([`EngineRecord`]).

use std::sync::Arc;
use std::time::Duration;

use super::Core;
use crate::error::{Error, Result};
use crate::id::NodeId;
use crate::rules::json::Payload;
use crate::rules::node::{EngineRecord, title};
use crate::rules::record::Keep;

/// How long a record is kept if nothing renews or removes it.
const KEPT: Duration = Duration::from_hours(1);
/// Pause after a record could not be written.
const PAUSE: Duration = Duration::from_secs(10);

/// The name of this program; empty if it is unknown.
pub(super) fn program() -> String {
    let path = std::env::current_exe().ok();
    let name =
        path.as_deref().and_then(|path| path.file_stem()).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_default()
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

impl Core {
    /// Keeps the record of this engine as long as it runs: written at once, again under each new node, and otherwise three
    /// times an hour.
    pub(super) async fn introduce_for_ever(self: Arc<Self>) {
        let mut written: Option<(NodeId, u64)> = None;
        loop {
            let node = self.node();
            // A record that was removed is not written again: its node is dead.
            let expected = written.filter(|(known, _)| *known == node).map_or(0, |(_, version)| version);
            let pause = match self.introduce(node, expected).await {
                Ok(version) => {
                    written = Some((node, version));
                    KEPT / 3
                }
                // The way to a server: it describes its workers itself.
                Err(Error::Validation(_)) => return,
                Err(error @ Error::Json(_)) => {
                    tracing::warn!(%error, "this engine is not listed: its record cannot be kept");
                    return;
                }
                Err(Error::RecordChanged { .. }) => KEPT / 3,
                Err(error) => {
                    tracing::debug!(%error, "the record of this engine cannot be written; trying again");
                    PAUSE
                }
            };
            tokio::select! {
                biased;
                () = self.renamed.notified() => {}
                () = self.clock.until(self.clock.now().after(pause)) => {}
            }
        }
    }

    /// Removes the record when the engine has left in good order. Otherwise the sweep does.
    pub(super) async fn take_leave(&self) {
        let (kind, id) = (EngineRecord::kind(), EngineRecord::id(self.node()));
        let keep = Keep { kind, id, body: Payload::null(), expected: None, ttl: Some(Duration::ZERO) };
        if let Err(error) = self.store.keep(keep).await {
            tracing::debug!(%error, "the record of this engine is not removed; the sweep removes it");
        }
    }

    /// Writes the record; gives its version.
    async fn introduce(&self, node: NodeId, expected: u64) -> Result<u64> {
        let functions = self.hosted.versions().map(|(workflow, version)| title(workflow, version));
        let record = EngineRecord {
            name: self.name.clone(),
            host: host(),
            pid: std::process::id(),
            workspace: self.home,
            serves: functions.collect(),
            families: self.hosted.families().iter().map(ToString::to_string).collect(),
            since: self.since,
        };
        let (kind, id, body) = (EngineRecord::kind(), EngineRecord::id(node), Payload::of(&record)?);
        let kept =
            self.store.keep(Keep { kind, id, body, expected: Some(expected), ttl: Some(KEPT) }).await?;
        Ok(kept.version)
    }
}
