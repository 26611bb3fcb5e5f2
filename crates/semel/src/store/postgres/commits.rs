//! Plain commits in batches.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error as PgError, Row};

use super::batch::{BatchWriter, CallKind, Done, Rows, Stamp, StatementBatch, WRITERS};
use super::ends::{ENDERS, Ends};
use super::queue::BatchQueue;
use super::server::Server;
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::rules::attention::Attention;
use crate::rules::commit::{Beyond, Commit, Saved};

/// Finds the commits of a batch that are in the ledger, after its answer was lost.
const FOUND: &str = include_str!("sql/found.sql");

/// The places of the statements.
const ONE_STEP: usize = 0;
const ONE_MOVE: usize = 1;
const STEPS: usize = 2;
const ALL: usize = 3;

/// The columns of a commit; and what else there is to say of one with which the run does not just go on.
pub(super) const STEP: &[&str] = &["bigint", "bigint", "bigint", "text"];
const MOVE: &[&str] =
    &["bigint", "bigint", "bigint", "text", "smallint", "bigint", "bigint", "bigint", "smallint"];

/// Plain commits.
pub(super) struct Commits;

impl CallKind for Commits {
    type Call = Commit;
    type Batch<'a> = CommitBatch<'a>;
    type Told = CommitNews;
    const MOST: usize = 4096;
    const SETTINGS: &'static str = "";

    fn weight(commit: &Commit) -> usize {
        commit.text().map_or(0, str::len)
    }

    /// Each does to a run what the verb would do, or leaves it alone: those that are not in the answer are tried again one by
    /// one, which gives them their reason.
    fn sql() -> Vec<String> {
        let clock = include_str!("sql/clock.sql");
        let stepped = |rows: Rows| include_str!("sql/stepped.sql").replace("{steps}", &rows.of(2, STEP));
        let moved =
            |rows: Rows, first| include_str!("sql/moved.sql").replace("{moves}", &rows.of(first, MOVE));
        let (one, many) = (Rows::One, Rows::Many);
        vec![
            format!("{clock}, {}, {}", stepped(one), appended(one, "stepped")),
            format!("{clock}, {}, {}", moved(one, 2), appended(one, "moved")),
            format!("{clock}, {}, {}", stepped(many), appended(many, "stepped")),
            format!(
                "{clock}, {}, {}, {}",
                stepped(many),
                moved(many, 2 + STEP.len()),
                appended(many, "(SELECT * FROM stepped UNION ALL SELECT * FROM moved)")
            ),
        ]
    }
}

/// The end of a statement, which appends the entries of what stands in `saved` and answers with it.
pub(super) fn appended(rows: Rows, saved: &str) -> String {
    let answer = match rows {
        Rows::One => "s.num, s.arrivals",
        Rows::Many => "array_agg(s.num), array_agg(s.arrivals)",
    };
    include_str!("sql/appended.sql").replace("{saved}", saved).replace("{answer}", answer)
}

/// The ways into the batches.
pub(super) struct CommitQueue {
    commits: BatchQueue<BatchWriter<Commits>>,
    ends: BatchQueue<BatchWriter<Ends>>,
}

impl CommitQueue {
    pub(super) fn start(server: &Arc<Server>) -> Self {
        let commits = BatchQueue::start(WRITERS, || BatchWriter::new(server));
        Self { commits, ends: BatchQueue::start(ENDERS, || BatchWriter::new(server)) }
    }

    pub(super) async fn commit(&self, server: &Server, commit: Commit) -> Result<Saved> {
        let done = match Ends::takes(&commit) {
            true => self.ends.ask(commit).await?,
            false => self.commits.ask(commit).await?,
        };
        match done {
            Done::Saved(commit, CommitNews { arrivals, written }) => {
                let saved = Saved { version: commit.expected + commit.count(), ..Saved::default() };
                Ok(match commit.asks_news {
                    true => Saved { arrivals: Some(arrivals), written, ..saved },
                    false => saved,
                })
            }
            Done::Left(commit) => server.execute(&commit).await,
            // It may still arrive. A caller that asks again finds it in the ledger, or another commit in its place.
            Done::Lost(_) => {
                Err(Error::Unknown("the answer to a commit is lost, and it is not there".into()))
            }
        }
    }

    pub(super) async fn stop(&self, patience: Duration) {
        self.commits.stop(patience).await;
        self.ends.stop(patience).await;
    }
}

/// Commits column by column, as they are sent.
#[derive(Default)]
pub(super) struct Columns<'a> {
    pub(super) nums: Vec<i64>,
    expected: Vec<i64>,
    versions: Vec<i64>,
    entries: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    pub(super) fn add(&mut self, commit: &'a Commit) {
        self.nums.push(commit.num);
        self.expected.push(commit.expected as i64);
        self.versions.push((commit.expected + commit.count) as i64);
        self.entries.push(commit.text().expect("only plain commits are queued"));
    }

    pub(super) fn params(&self, rows: Rows) -> [&(dyn ToSql + Sync); STEP.len()] {
        let Self { nums, expected, versions, entries } = self;
        [rows.column(nums), rows.column(expected), rows.column(versions), rows.column(entries)]
    }
}

/// Further columns of commits with which a run waits, pauses or ends, or says that a timer has fired.
#[derive(Default)]
struct Moves {
    statuses: Vec<i16>,
    dues: Vec<Option<i64>>,
    seen: Vec<i64>,
    not_before: Vec<Option<i64>>,
    attention: Vec<Option<i16>>,
}

impl Moves {
    fn params(&self, rows: Rows) -> [&(dyn ToSql + Sync); MOVE.len() - STEP.len()] {
        let Self { statuses, dues, seen, not_before, attention } = self;
        [
            rows.column(statuses),
            rows.column(dues),
            rows.column(seen),
            rows.column(not_before),
            rows.column(attention),
        ]
    }
}

/// The commits of one statement.
#[derive(Default)]
pub(super) struct CommitBatch<'a> {
    /// The runs' numbers, and where among the calls their commits stand.
    order: Vec<(i64, usize)>,
    calls: usize,
    steps: Columns<'a>,
    others: Columns<'a>,
    moves: Moves,
}

impl<'a> StatementBatch<'a> for CommitBatch<'a> {
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

    /// The shortest that will do: a part of a statement costs time also if there is nothing for it to do.
    fn statement(&self) -> usize {
        match (self.steps.nums.len(), self.others.nums.len()) {
            (1, 0) => ONE_STEP,
            (0, 1) => ONE_MOVE,
            (_, 0) => STEPS,
            (_, _) => ALL,
        }
    }

    fn params<'p>(&'p self, stamp: &'p Stamp) -> Vec<&'p (dyn ToSql + Sync)> {
        let Self { steps, others, moves, .. } = self;
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&stamp.now];
        let (statement, one, many) = (self.statement(), Rows::One, Rows::Many);
        match statement {
            ONE_STEP => params.extend(steps.params(one)),
            ONE_MOVE => params.extend(others.params(one).into_iter().chain(moves.params(one))),
            _ => params.extend(steps.params(many)),
        }
        if statement == ALL {
            params.extend(others.params(many).into_iter().chain(moves.params(many)));
        }
        params
    }

    fn done(&self, answer: &[Row]) -> Result<Vec<Option<CommitNews>>, PgError> {
        let saved = match (self.statement(), answer) {
            (ONE_STEP | ONE_MOVE, saved) => saved.iter().map(SavedRun::of).collect::<Result<_, _>>()?,
            (_, all) => all_saved(all)?,
        };
        Ok(self.saved(saved))
    }

    /// Commits whose entries are in the ledger. If another driver has written the same entries at the same place, the result
    /// is the same.
    async fn found(&self, client: &Client) -> Result<Vec<Option<CommitNews>>, PgError> {
        let (steps, others) = tokio::try_join!(find(client, &self.steps), find(client, &self.others))?;
        Ok(self.saved([steps, others].concat()))
    }
}

impl<'a> CommitBatch<'a> {
    fn add(&mut self, commit: &'a Commit) {
        let columns = if commit.is_progress() { &mut self.steps } else { &mut self.others };
        columns.add(commit);
        if !commit.is_progress() {
            self.moves.statuses.push(commit.status.code());
            let Beyond { due, not_before, attention, .. } = commit.beyond();
            self.moves.dues.push(due.map(|due| due.0));
            self.moves.seen.push(commit.seen as i64);
            self.moves.not_before.push(not_before.map(|until| until.0));
            self.moves.attention.push(attention.map(Attention::code));
        }
    }

    /// What each of the calls is told, by the runs that are saved.
    fn saved(&self, saved: Vec<SavedRun>) -> Vec<Option<CommitNews>> {
        saved_of(&self.order, self.calls, saved)
    }
}

/// What is told of a commit that is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommitNews {
    /// Number of the latest message in the run's inbox.
    arrivals: u64,
    /// Time of the database when it was written; none if its answer was lost.
    written: Option<Time>,
}

/// A run whose commit is saved.
#[derive(Clone, Copy)]
pub(super) struct SavedRun {
    num: i64,
    news: CommitNews,
}

impl SavedRun {
    fn new(num: i64, arrivals: i64, written: Option<Time>) -> Self {
        Self { num, news: CommitNews { arrivals: arrivals as u64, written } }
    }

    /// From the answer of a statement for one.
    fn of(row: &Row) -> Result<Self, PgError> {
        Ok(Self::new(row.try_get(0)?, row.try_get(1)?, Some(Time(row.try_get(2)?))))
    }
}

/// The commits of a batch that are sent: the numbers of their runs, and where among the calls they stand. They are in order of the
/// numbers, so that two batches lock in the same order; of two commits of one run only the first is sent, because an UPDATE
/// would take either.
pub(super) fn order_of(commits: &[&Commit]) -> Vec<(i64, usize)> {
    let mut order: Vec<_> = commits.iter().enumerate().map(|(i, commit)| (commit.num, i)).collect();
    order.sort_unstable();
    order.dedup_by_key(|(num, _)| *num);
    order
}

/// What is told of each of the calls, by the runs that are saved. `order` has the runs that were sent, by their numbers, and where
/// among the calls they stand.
pub(super) fn saved_of(
    order: &[(i64, usize)],
    calls: usize,
    mut saved: Vec<SavedRun>,
) -> Vec<Option<CommitNews>> {
    let mut told = vec![None; calls];
    saved.sort_unstable_by_key(|run| run.num);
    let all = saved.len() == order.len();
    for (n, (num, call)) in order.iter().enumerate() {
        let at = if all { Ok(n) } else { saved.binary_search_by_key(num, |run| run.num) };
        told[*call] = at.ok().map(|at| saved[at].news);
    }
    told
}

/// The runs that are saved, from the answer of a statement for many.
pub(super) fn all_saved(answer: &[Row]) -> Result<Vec<SavedRun>, PgError> {
    let [all] = answer else { return Ok(Vec::new()) };
    runs_of(all, Some(Time(all.try_get(2)?)))
}

/// The runs of an answer with their numbers and those of their latest messages.
fn runs_of(all: &Row, written: Option<Time>) -> Result<Vec<SavedRun>, PgError> {
    let column = |n: usize| all.try_get::<_, Option<Vec<i64>>>(n).map(Option::unwrap_or_default);
    let each = column(0)?.into_iter().zip(column(1)?);
    Ok(each.map(|(num, arrivals)| SavedRun::new(num, arrivals, written)).collect())
}

pub(super) async fn find(client: &Client, commits: &Columns<'_>) -> Result<Vec<SavedRun>, PgError> {
    let row = client.query_one(FOUND, &[&commits.nums, &commits.expected, &commits.entries]).await?;
    runs_of(&row, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;
    use crate::rules::commit::{Content, Tally, Write};
    use crate::rules::run::tests::run;
    use crate::rules::status::Status;

    fn commit(num: i64, expected: u64, status: Status) -> Commit {
        Commit::new(Write {
            num,
            run: RunId(uuid::Uuid::from_u128(num as u128)),
            new: run(Status::Running).new,
            fence: 1,
            node: None,
            expected,
            count: 2,
            content: Content::Ready(format!("[{num}]")),
            status,
            seen: 3,
            asks_news: false,
            tally: Tally::default(),
            beyond: Some(Box::new(Beyond { due: Some(Time(7)), ..Beyond::default() })),
        })
    }

    #[test]
    fn a_batch_is_in_order_and_takes_the_first_commit_of_a_run() {
        let commits = [
            commit(9, 4, Status::Running),
            commit(2, 1, Status::Waiting),
            commit(5, 1, Status::Running),
            commit(9, 6, Status::Running),
        ];
        let batch = CommitBatch::of(&commits.each_ref());
        assert_eq!(batch.order, [(2, 1), (5, 2), (9, 0)]);
        assert_eq!((&batch.steps.nums, &batch.steps.versions), (&vec![5, 9], &vec![3, 6]));
        assert_eq!((&batch.others.nums, &batch.moves.dues), (&vec![2], &vec![Some(7)]));
        assert_eq!(batch.steps.entries, ["[5]", "[9]"]);
    }

    #[test]
    fn a_batch_takes_the_shortest_statement_and_its_parameters() {
        let (step, end) = (commit(1, 1, Status::Running), commit(2, 1, Status::Completed));
        let other = commit(3, 1, Status::Running);
        let shape = |commits: &[&Commit]| {
            let batch = CommitBatch::of(commits);
            (batch.statement(), batch.params(&Stamp::default()).len())
        };
        assert_eq!(shape(&[&step]), (ONE_STEP, 5));
        assert_eq!(shape(&[&end]), (ONE_MOVE, 10));
        assert_eq!(shape(&[&step, &other]), (STEPS, 5));
        assert_eq!(shape(&[&step, &end]), (ALL, 14));
        let most = |sql: &String| (1..99).rfind(|n| sql.contains(&format!("${n}:"))).unwrap();
        assert_eq!(Commits::sql().iter().map(most).collect::<Vec<_>>(), [5, 10, 5, 14]);
    }

    #[test]
    fn what_is_not_in_the_answer_is_not_saved() {
        let running = |num, expected| commit(num, expected, Status::Running);
        let commits = [running(9, 4), running(2, 1), running(9, 6)];
        let batch = CommitBatch::of(&commits.each_ref());
        let [two, nine] = [(2, 7), (9, 8)].map(|(num, arrivals)| SavedRun::new(num, arrivals, None));
        let told = |arrivals| Some(CommitNews { arrivals, written: None });
        assert_eq!(batch.saved(vec![nine, two]), [told(8), told(7), None], "the second of 9 was not sent");
        assert_eq!(batch.saved(vec![nine]), [told(8), None, None]);
        assert_eq!(batch.saved(Vec::new()), [None, None, None]);
    }
}
