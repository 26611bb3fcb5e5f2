//! Group commit: plain commits of many runs in one statement.
//!
//! While one batch is being made durable the next one fills up; there is no timer and no waiting. A batch does the same
//! as the verb would do for each of its commits, or leaves it alone: what a batch leaves alone is run by the verb.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use super::rows::{is_collision, is_refused};
use super::server::{PAUSE, Server};
use super::tasks::{Stop, Tasks};
use crate::clock::Clock;
use crate::error::{Error, Result, Source};
use crate::rules::commit::{Commit, Content, Saved};

/// Most commits in one statement: beyond this it only gets longer, not faster.
const MOST: usize = 4096;
/// Batches under way at once: while one waits for the disk the other uses the processor.
const WORKERS: usize = 2;
/// How often a batch is sent that meets others, before its commits go on singly.
const ATTEMPTS: usize = 5;

const COMMIT: &str = include_str!("commit.sql");
/// Which commits of a batch are in the ledger, as they are: of a batch that took place, but did not say so.
const FOUND: &str = "SELECT array_agg(c.num) FROM unnest($1::bigint[], $2::bigint[], $3::text[]) \
     AS c (num, expected, entries) JOIN ledger l ON l.run = c.num AND l.seq = c.expected AND l.entries = c.entries";

/// A commit on its way, and who waits for it.
struct Job {
    commit: Commit,
    reply: oneshot::Sender<Result<Saved>>,
}

type Queue = Arc<Mutex<mpsc::UnboundedReceiver<Job>>>;

/// The way into the batches.
pub(super) struct Batches {
    queue: mpsc::UnboundedSender<Job>,
    workers: Tasks,
}

impl Batches {
    /// Starts the tasks that write. They end when this is dropped or stopped, and all that was queued is answered.
    pub(super) fn start(server: &Arc<Server>) -> Self {
        let (queue, jobs) = mpsc::unbounded_channel();
        let (jobs, workers) = (Arc::new(Mutex::new(jobs)), Tasks::new());
        for _ in 0..WORKERS {
            workers.spawn(|stop| Worker::new(server.clone()).work(jobs.clone(), stop));
        }
        Self { queue, workers }
    }

    pub(super) async fn commit(&self, commit: Commit) -> Result<Saved> {
        let (reply, answer) = oneshot::channel();
        let closed = |_| Error::Unavailable("the store is closed".into());
        self.queue.send(Job { commit, reply }).map_err(closed)?;
        // No answer: the task has gone down with the runtime, perhaps after it has written.
        answer.await.unwrap_or_else(|gone| Err(Error::Unknown(Box::new(gone))))
    }

    /// Takes no more, and waits until everything that was queued is answered.
    pub(super) async fn stop(&self) {
        self.workers.stop().await;
    }
}

/// Waits for commits and takes what is there; false when there will be no more.
async fn next(queue: &Queue, jobs: &mut Vec<Job>, stop: &mut Stop) -> bool {
    let mut queue = queue.lock().await;
    tokio::select! {
        biased;
        // Dropped or stopped: what is queued is still taken out, and nothing more comes in.
        () = stop.asked() => queue.close(),
        taken = queue.recv_many(jobs, MOST) => return taken > 0,
    }
    queue.recv_many(jobs, MOST).await > 0
}

/// Commits column by column, as they are sent.
#[derive(Default)]
struct Columns<'a> {
    nums: Vec<i64>,
    expected: Vec<i64>,
    versions: Vec<i64>,
    entries: Vec<&'a str>,
}

/// What else there is to say of a commit with which the run does not just go on.
#[derive(Default)]
struct Moves {
    statuses: Vec<i16>,
    dues: Vec<Option<i64>>,
    seen: Vec<i64>,
    not_before: Vec<Option<i64>>,
}

/// The commits of one statement.
#[derive(Default)]
struct Batch<'a> {
    /// The runs' numbers, and where among the jobs their commits stand.
    order: Vec<(i64, usize)>,
    steps: Columns<'a>,
    others: Columns<'a>,
    moves: Moves,
}

impl<'a> Batch<'a> {
    /// In order of the runs' numbers, so that two batches lock in the same order; of two commits of one run only the
    /// first, because an UPDATE would take either.
    fn of(jobs: &'a [Job]) -> Self {
        let mut order: Vec<_> = jobs.iter().enumerate().map(|(i, job)| (job.commit.num, i)).collect();
        order.sort_unstable();
        order.dedup_by_key(|(num, _)| *num);
        let mut batch = Self::default();
        for (_, i) in &order {
            batch.add(&jobs[*i].commit);
        }
        Self { order, ..batch }
    }

    fn add(&mut self, commit: &'a Commit) {
        let columns = if commit.is_progress() { &mut self.steps } else { &mut self.others };
        let Content::Ready(text) = &commit.content else { unreachable!("only plain commits are queued") };
        columns.nums.push(commit.num);
        columns.expected.push(commit.expected as i64);
        columns.versions.push((commit.expected + commit.count) as i64);
        columns.entries.push(text);
        if !commit.is_progress() {
            self.moves.statuses.push(commit.status.code());
            self.moves.dues.push(commit.due.map(|due| due.0));
            self.moves.seen.push(commit.seen as i64);
            self.moves.not_before.push(commit.not_before.map(|until| until.0));
        }
    }

    /// Which of the jobs are saved, by the numbers of the runs that are.
    fn saved(&self, mut nums: Vec<i64>, jobs: usize) -> Vec<bool> {
        let mut saved = vec![false; jobs];
        nums.sort_unstable();
        for (num, job) in &self.order {
            saved[*job] = nums.len() == self.order.len() || nums.binary_search(num).is_ok();
        }
        saved
    }
}

/// Why no commit of a batch has an answer: the error they get, and its common cause.
type Failure = (fn(Source) -> Error, Arc<dyn std::error::Error + Send + Sync>);

/// One connection of its own, and the batches that go over it.
struct Worker {
    server: Arc<Server>,
    session: Option<(Client, Statement)>,
    /// Commits that go on singly.
    singles: JoinSet<()>,
}

impl Worker {
    fn new(server: Arc<Server>) -> Self {
        Self { server, session: None, singles: JoinSet::new() }
    }

    async fn work(mut self, queue: Queue, mut stop: Stop) {
        let mut jobs = Vec::with_capacity(MOST);
        while next(&queue, &mut jobs, &mut stop).await {
            let batch = Batch::of(&jobs);
            let saved = self.write(&batch).await.map(|nums| batch.saved(nums, jobs.len()));
            for (i, job) in jobs.drain(..).enumerate() {
                match &saved {
                    Ok(saved) if saved[i] => job.saved(),
                    Ok(_) => self.single(job),
                    // Whoever no longer waits needs no answer.
                    Err((error, source)) => drop(job.reply.send(Err(error(Box::new(source.clone()))))),
                }
            }
            while self.singles.try_join_next().is_some() {}
        }
        while self.singles.join_next().await.is_some() {}
    }

    /// Runs a commit by its verb: that gives it its reason, or does what a batch does not.
    fn single(&mut self, job: Job) {
        let server = self.server.clone();
        self.singles.spawn(async move { drop(job.reply.send(server.execute(&job.commit).await)) });
    }

    /// Writes a batch, and gives the numbers of the runs that are saved. The others have to be run singly.
    async fn write(&mut self, batch: &Batch<'_>) -> Result<Vec<i64>, Failure> {
        for _ in 0..ATTEMPTS {
            let (mark, now) = (self.server.ids.uuid(), self.server.given().map(|now| now.0));
            let (Batch { steps, others, moves, .. }, session) = (batch, self.session().await?);
            let params: [&(dyn ToSql + Sync); 14] = [
                &mark,
                &now,
                &steps.nums,
                &steps.expected,
                &steps.versions,
                &steps.entries,
                &others.nums,
                &others.expected,
                &others.versions,
                &others.entries,
                &moves.statuses,
                &moves.dues,
                &moves.seen,
                &moves.not_before,
            ];
            let answer = session.0.query_one(&session.1, &params).await;
            match answer.and_then(|row| row.try_get::<_, Option<Vec<i64>>>(0)) {
                Ok(nums) => return Ok(nums.unwrap_or_default()),
                Err(error) if is_collision(&error) => {
                    tracing::debug!(%error, "a batch has met another; again");
                }
                Err(error) if is_refused(&error) => {
                    tracing::warn!(%error, "a batch was refused; its commits go on singly");
                    break;
                }
                Err(error) => {
                    tracing::warn!(%error, "the answer to a batch is lost; its mark will tell");
                    self.session = None;
                    let took = self.server.settle(mark).await;
                    if took.map_err(|elapsed| (Error::Unknown as _, Arc::new(elapsed) as _))? {
                        return self.found(batch).await;
                    }
                }
            }
        }
        Ok(Vec::new())
    }

    async fn session(&mut self) -> Result<&(Client, Statement), Failure> {
        if self.session.as_ref().is_none_or(|(client, _)| client.is_closed()) {
            match self.server.prepared(COMMIT).await {
                Ok(session) => self.session = Some(session),
                Err(error) => {
                    // Callers may try again at once; the server that is down need not hear of it as often.
                    tokio::time::sleep(PAUSE).await;
                    return Err((Error::Unavailable, Arc::new(error)));
                }
            }
        }
        Ok(self.session.as_ref().expect("just made, if it was not there"))
    }

    /// The runs of a batch that took place, but whose answer is lost: those that have its entries. The same entries at
    /// the same place by somebody else would be just as good, and say the same.
    async fn found(&self, batch: &Batch<'_>) -> Result<Vec<i64>, Failure> {
        let asking = async {
            loop {
                let client = self.server.reconnect().await;
                let found = tokio::try_join!(find(&client, &batch.steps), find(&client, &batch.others));
                match found {
                    Ok((steps, others)) => return [steps, others].concat(),
                    Err(error) => tracing::debug!(%error, "a batch could not be looked up; trying again"),
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let found = tokio::time::timeout(self.server.patience, asking).await;
        found.map_err(|elapsed| (Error::Unknown as _, Arc::new(elapsed) as _))
    }
}

async fn find(client: &Client, commits: &Columns<'_>) -> Result<Vec<i64>, tokio_postgres::Error> {
    let row = client.query_one(FOUND, &[&commits.nums, &commits.expected, &commits.entries]).await?;
    row.try_get::<_, Option<_>>(0).map(Option::unwrap_or_default)
}

impl Job {
    fn saved(self) {
        let version = self.commit.expected + self.commit.count();
        drop(self.reply.send(Ok(Saved { version, settled: Vec::new() })));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::id::RunId;
    use crate::rules::status::Status;

    fn job(num: i64, expected: u64, status: Status) -> Job {
        let commit = Commit {
            num,
            run: RunId(uuid::Uuid::from_u128(num as u128)),
            expected,
            count: 2,
            content: Content::Ready(format!("[{num}]")),
            status,
            due: Some(Time(7)),
            seen: 3,
            not_before: None,
            consumed: Vec::new(),
            closed: Vec::new(),
            outcome: None,
        };
        Job { commit, reply: oneshot::channel().0 }
    }

    #[test]
    fn a_batch_is_in_order_and_takes_the_first_commit_of_a_run() {
        let jobs = [
            job(9, 4, Status::Running),
            job(2, 1, Status::Waiting),
            job(5, 1, Status::Running),
            job(9, 6, Status::Running),
        ];
        let batch = Batch::of(&jobs);
        assert_eq!(batch.order, [(2, 1), (5, 2), (9, 0)]);
        assert_eq!((&batch.steps.nums, &batch.steps.versions), (&vec![5, 9], &vec![3, 6]));
        assert_eq!((&batch.others.nums, &batch.moves.dues), (&vec![2], &vec![Some(7)]));
        assert_eq!(batch.steps.entries, ["[5]", "[9]"]);
    }

    #[test]
    fn what_is_not_in_the_answer_is_not_saved() {
        let jobs = [job(9, 4, Status::Running), job(2, 1, Status::Running), job(9, 6, Status::Running)];
        let batch = Batch::of(&jobs);
        assert_eq!(batch.saved(vec![9, 2], jobs.len()), [true, true, false], "the second of 9 was not sent");
        assert_eq!(batch.saved(vec![9], jobs.len()), [true, false, false]);
        assert_eq!(batch.saved(Vec::new(), jobs.len()), [false, false, false]);
    }
}
