//! Ends of children in batches: thousands of children of one run end at about the same time, and each end writes to the parent,
//! which only one transaction can do at a time.

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error as PgError, Row};
use uuid::Uuid;

use super::batch::{CallKind, Rows, Stamp, StatementBatch};
use super::commits::{Columns, CommitNews, STEP, all_saved, appended, find, order_of, saved_of};
use crate::rules::commit::{Commit, Ending};
use crate::rules::entry::Message;
use crate::rules::run::Parent;
use crate::rules::status::Status;
use crate::store::tx::message_text;

/// Indexes of the statements.
const LOCK: usize = 0;
const END: usize = 1;

/// What else there is to say of an end: the run's id, its status, where its parent waits, and what the parent is told.
const MORE: &[&str] = &["uuid", "smallint", "text", "text"];

/// Batches under way at once, beside a call that is answered by its caller alone. They write to the parents in no particular order: two of them would
/// wait for each other.
pub(super) const ENDERS: usize = 1;

/// Ends that change nothing but the run and its parent's inbox.
pub(super) struct Ends;

impl Ends {
    /// Whether a commit may be one of these. The statement makes sure.
    pub(super) fn takes(commit: &Commit) -> bool {
        let parent = commit.beyond().ending.as_ref().and_then(|ending| ending.parent.as_ref());
        // The children of a cancelled run are told as well.
        parent.is_some()
            && commit.is_plain()
            && commit.beyond().not_before.is_none()
            && commit.status != Status::Cancelled
    }
}

impl CallKind for Ends {
    type Call = Commit;
    type Batch<'a> = EndBatch<'a>;
    type Told = CommitNews;
    /// The parents' rows are locked for as long as a batch takes.
    const MOST: usize = 512;
    const SETTINGS: &'static str = "";

    fn weight(commit: &Commit) -> usize {
        // The result is in the entries, and in the message.
        commit.text().map_or(0, str::len) * 2
    }

    fn sql() -> Vec<String> {
        let clock = include_str!("sql/clock.sql");
        let columns = [STEP, MORE].concat();
        let ends = include_str!("sql/ends.sql").replace("{ends}", &Rows::Many.of(2, &columns));
        let appended = appended(Rows::Many, "ended");
        vec![include_str!("sql/lock.sql").to_owned(), format!("{clock}, {ends}{appended}")]
    }
}

/// The ends of one statement.
#[derive(Default)]
pub(super) struct EndBatch<'a> {
    order: Vec<(i64, usize)>,
    calls: usize,
    columns: Columns<'a>,
    ids: Vec<Uuid>,
    statuses: Vec<i16>,
    visits: Vec<String>,
    messages: Vec<String>,
}

impl<'a> EndBatch<'a> {
    fn add(&mut self, commit: &'a Commit) {
        let Some(Ending { outcome, parent: Some(Parent { visit, .. }), .. }) = &commit.beyond().ending else {
            unreachable!("only ends of children are queued")
        };
        self.columns.add(commit);
        self.ids.push(commit.run.0);
        self.statuses.push(commit.status.code());
        self.visits.push(visit.to_string());
        let (child, outcome) = (visit.clone(), outcome.clone());
        self.messages.push(message_text(&Message::ChildEnded { child, run: commit.run, outcome }));
    }
}

impl<'a> StatementBatch<'a> for EndBatch<'a> {
    type Call = Commit;
    type Told = CommitNews;

    fn of(commits: &[&'a Commit]) -> Self {
        let order = order_of(commits);
        let mut batch = Self::default();
        for (_, i) in &order {
            batch.add(commits[*i]);
        }
        Self { order, calls: commits.len(), ..batch }
    }

    /// What is sent again is refused by its version, and found in the ledger.
    fn needs_mark(&self) -> bool {
        false
    }

    fn lock(&self) -> Option<(usize, &(dyn ToSql + Sync))> {
        Some((LOCK, &self.columns.nums))
    }

    fn statement(&self) -> usize {
        END
    }

    fn params<'p>(&'p self, stamp: &'p Stamp) -> Vec<&'p (dyn ToSql + Sync)> {
        let Self { columns, ids, statuses, visits, messages, .. } = self;
        let more: [&(dyn ToSql + Sync); MORE.len()] = [ids, statuses, visits, messages];
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&stamp.now];
        params.extend(columns.params(Rows::Many).into_iter().chain(more));
        params
    }

    fn done(&self, answer: &[Row]) -> Result<Vec<Option<CommitNews>>, PgError> {
        Ok(saved_of(&self.order, self.calls, all_saved(answer)?))
    }

    async fn found(&self, client: &Client) -> Result<Vec<Option<CommitNews>>, PgError> {
        Ok(saved_of(&self.order, self.calls, find(client, &self.columns).await?))
    }
}
