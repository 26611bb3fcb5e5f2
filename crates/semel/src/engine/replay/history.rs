//! A run as a document: everything that a replay needs, without the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::judge::Recorded;
use super::{Replay, ReplayRow, refused};
use crate::clock::Time;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::id::{RunId, WorkspaceId};
use crate::rules::entry::{Created, Entry};
use crate::rules::key::Fingerprint;
use crate::rules::ledger::Ledger;
use crate::rules::path::{Name, Visit};
use crate::rules::run::{NewRun, Retention, Run, RunState};
use crate::rules::status::Status;
use crate::store::{Find, FindBy, Numbered, Part, Store};

/// The format that is written. Others are refused by name.
const FORMAT: &str = "semel/history/1";

/// A run with its whole ledger, as JSON: made by [`Engine::export`], judged by [`Engine::replay_history`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct History {
    /// Format of the document: `semel/history/1`.
    pub format: String,
    /// Id of the exported run.
    pub run: RunId,
    /// Workspace from which it was exported.
    pub workspace: WorkspaceId,
    /// Name of the run's workflow.
    pub workflow: Name,
    /// Status at the time of the export.
    pub status: Status,
    /// Time at which the run was created.
    pub created: Time,
    /// All entries of its ledger.
    pub entries: Vec<HistoryLine>,
    /// Requests for its children, by their paths.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<String, AskedChild>,
}

/// One entry of a ledger, with its number and time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryLine {
    /// Number of the entry, from 1.
    pub number: u64,
    /// Time at which the entry was committed.
    pub at: Time,
    /// The entry, as the ledger has it.
    pub entry: Entry,
}

/// The request for a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedChild {
    /// Name of the child's workflow.
    pub workflow: Name,
    /// Fingerprint of workflow and input.
    pub fingerprint: String,
}

impl AskedChild {
    pub(super) fn new(workflow: Name, fingerprint: Fingerprint) -> Self {
        Self { workflow, fingerprint: format!("{fingerprint:?}") }
    }
}

/// Maximum size of what is read of a ledger at once, in bytes.
const PART_BYTES: usize = 8 * 1024 * 1024;

/// The whole ledger of a run, read part by part; refused if it has more than this number of bytes.
async fn ledger_of(
    store: &dyn Store,
    workspace: WorkspaceId,
    run: RunId,
    bytes: usize,
) -> Result<Vec<Numbered>> {
    let (mut entries, mut read, mut next) = (Vec::new(), 0_usize, Some(1));
    while let Some(from) = next {
        let part = Part { workspace, run, from, limit: usize::MAX, bytes: PART_BYTES };
        let part = store.ledger_part(part).await?;
        read += part.entries.iter().map(|line| line.entry.weight()).sum::<usize>();
        if read > bytes {
            return Err(Error::Validation(format!(
                "the history of {run} has more than {bytes} bytes; read its ledger page by page instead"
            )));
        }
        entries.extend(part.entries);
        next = part.next;
    }
    Ok(entries)
}

impl History {
    /// Reads a document that [`History::to_json`] wrote. Refuses other formats by name.
    pub fn from_json(text: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Format {
            format: String,
        }
        let invalid = |why: String| Error::Validation(format!("this is no history of a run: {why}"));
        // The format is checked first: a document of another format may look entirely different.
        let Format { format } = serde_json::from_str(text).map_err(|e| invalid(e.to_string()))?;
        if format != FORMAT {
            return Err(invalid(format!("its format is {format:?}, and this Semel reads {FORMAT:?}")));
        }
        serde_json::from_str(text).map_err(|e| invalid(e.to_string()))
    }

    /// Reads a run with its whole ledger from a store.
    pub async fn of(store: &dyn Store, workspace: WorkspaceId, run: RunId) -> Result<Self> {
        Self::of_at_most(store, workspace, run, usize::MAX).await
    }

    /// The same for a reader with limited memory: a ledger of more than this number of bytes is refused.
    pub async fn of_at_most(
        store: &dyn Store,
        workspace: WorkspaceId,
        run: RunId,
        bytes: usize,
    ) -> Result<Self> {
        let header = header_of(store, workspace, run).await?.ok_or(Error::RunNotFound(run))?;
        if header.purged {
            return Err(Error::Validation(format!(
                "the history of {run} has been forgotten: its retention is over"
            )));
        }
        let entries = ledger_of(store, workspace, run, bytes).await?;
        let children = children_of(store, workspace, &entries).await?;
        Ok(Self {
            format: FORMAT.to_owned(),
            run,
            workspace: header.new.workspace,
            workflow: header.new.workflow.clone(),
            status: header.state.status,
            created: header.new.created,
            entries: entries
                .into_iter()
                .map(|n| HistoryLine { number: n.number, at: n.at, entry: n.entry })
                .collect(),
            children,
        })
    }

    /// Writes it as one JSON document.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a history is plain data with text keys")
    }

    /// The fold of it.
    pub(super) fn recorded(&self) -> Result<Recorded> {
        let entries: Vec<Entry> = self.entries.iter().map(|line| line.entry.clone()).collect();
        let Some(Entry::Created(created)) = entries.first() else {
            return Err(Error::Validation(format!(
                "the history of {} does not begin with `created`",
                self.run
            )));
        };
        let ledger =
            Ledger::read(self.header(created), entries.iter().cloned()).map_err(refused(self.run))?;
        let children = self.children.iter();
        let children = children.filter_map(|(path, child)| Some((Visit::parse(path)?, child.clone())));
        Ok(Recorded { ledger, entries, children: children.collect() })
    }

    /// As much of the run's header as its ledger needs.
    fn header(&self, created: &Created) -> Run {
        Run {
            num: 0,
            new: Arc::new(NewRun {
                id: self.run,
                workspace: self.workspace,
                workflow: created.workflow.clone(),
                workflow_version: created.workflow_version.clone(),
                scope: created.scope.clone(),
                key: created.key.clone(),
                // Nothing is started by a history.
                fingerprint: Fingerprint([0; 32]),
                lineage: created.lineage,
                parent: created.parent.as_ref().map(|parent| parent.run),
                retention: Retention::default(),
                created: self.created,
            }),
            state: RunState {
                status: Status::Pending,
                version: 0,
                due: None,
                node: None,
                stalls: 0,
                ended: None,
                purge: None,
                deadline: None,
                holds_key: false,
                ties: false,
                attention: None,
            },
            arrivals: 0,
            purged: false,
        }
    }
}

impl Recorded {
    /// The result of a replay of this history.
    pub(super) fn replay(&self, fork: Option<RunId>, rows: Vec<ReplayRow>) -> Replay {
        let run = self.ledger.run();
        Replay {
            run: run.id(),
            workflow: self.ledger.created().workflow.to_string(),
            status: run.status(),
            version: run.state.version,
            fork,
            rows,
        }
    }
}

impl Engine {
    /// A run with its whole ledger, to be kept in a file and replayed elsewhere. It contains all inputs, results and
    /// payloads of the run as they are.
    ///
    /// ```
    /// use semel::{Ctx, Engine, History, Result};
    ///
    /// async fn double(ctx: Ctx, n: u32) -> Result<u32> {
    ///     ctx.step("double").run(async |_| Ok(n * 2)).await
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> semel::error::Result<()> {
    /// let production = Engine::builder().store("memory:").workflow("double", double).open().await?;
    /// let run = production.start(double, 21).await?;
    /// run.result().await?;
    /// let text = production.export(run.id()).await?.to_json();
    ///
    /// let ci = Engine::builder().store("memory:").workflow("double", double).open().await?;
    /// assert!(ci.replay_history(&History::from_json(&text)?).await?.is_identical());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn export(&self, run: RunId) -> Result<History> {
        History::of(&**self.store(), self.workspace(), run).await
    }
}

async fn header_of(store: &dyn Store, workspace: WorkspaceId, run: RunId) -> Result<Option<Run>> {
    let find = Find { workspace, by: FindBy::Id(run) };
    Ok(store.find(find).await?.map(|(run, _)| run))
}

/// Requests for the children of a ledger. Only the children's own runs hold them, so those of forgotten children are
/// missing.
async fn children_of(
    store: &dyn Store,
    workspace: WorkspaceId,
    entries: &[Numbered],
) -> Result<BTreeMap<String, AskedChild>> {
    let mut children = BTreeMap::new();
    for Numbered { entry, .. } in entries {
        if let Entry::ChildStarted { child, run, .. } = entry
            && let Some(header) = header_of(store, workspace, *run).await?
        {
            let asked = AskedChild::new(header.new.workflow.clone(), header.new.fingerprint);
            children.insert(child.to_string(), asked);
        }
    }
    Ok(children)
}
