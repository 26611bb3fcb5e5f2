//! Long polls: wait for a run to change or end.

use std::time::Duration;

use semel::id::{RunId, WorkspaceId};
use semel::rules::entry::Outcome;
use semel::rules::run::Run;
use semel::store::{Find, FindBy};

use super::Problem;
use crate::app::App;

/// Interval of reads while waiting: progress at another server sends no wake-up here.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// A run of the caller's workspace, and its outcome.
pub(super) async fn found(
    app: &App,
    workspace: WorkspaceId,
    run: RunId,
) -> Result<(Run, Option<Outcome>), Problem> {
    let find = Find { workspace, by: FindBy::Id(run) };
    let found = app.store.find(find).await?;
    found.ok_or_else(|| semel::Error::RunNotFound(run).into())
}

/// The run as soon as it is far enough or has ended; at the latest when the time is over or the server stops.
pub(super) async fn until(
    app: &App,
    workspace: WorkspaceId,
    run: RunId,
    wait: Duration,
    enough: impl Fn(&Run) -> bool,
) -> Result<(Run, Option<Outcome>), Problem> {
    let _place = app.bounds.wait(workspace)?;
    let mut watch = app.store.watch(run);
    let end = app.clock.now().after(wait);
    loop {
        let (header, outcome) = found(app, workspace, run).await?;
        let over = app.clock.now() >= end || app.stop.is_ordered();
        if enough(&header) || header.status().is_terminal() || over {
            return Ok((header, outcome));
        }
        let look = app.clock.now().after(LOOK).min(end);
        tokio::select! {
            () = watch.changed() => {}
            () = app.clock.until(look) => {}
            () = app.stop.ordered() => {}
        }
    }
}
