//! The thread that writes: group commit, and the truth about a COMMIT that failed to answer.

use std::sync::Arc;

use rusqlite::Connection;
use uuid::Uuid;

use super::SqliteOptions;
use super::checkpoint::{self, Checkpoints};
use super::job::{FinishedWork, Job as _, JobReceiver, JobSender, StepCommit, VerbJob, Work, queue};
use super::open::File;
use super::starts::{self, Inserted};
use super::steps::{Entries, Steps};
use super::tx::{SqliteStoreTx, failed};
use crate::clock::{Clock, Time};
use crate::error::{Error, Result};
use crate::metrics::BATCH_CALLS;
use crate::rules::commit::{Commit, Saved};
use crate::sabotage::{self, Bug};

/// How often a batch whose COMMIT certainly did not take place is tried before its callers are told.
const TRIES: usize = 3;

/// Maximum number of callers that the writer answers itself.
const FEW: usize = 64;

/// A fault of COMMIT, on purpose.
#[cfg(feature = "testing")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitFault {
    /// It fails, and nothing was written.
    Before,
    /// It says that it failed, and everything was written: as SQLite does when fsync fails.
    After,
}

struct SqliteWriter {
    runtime: tokio::runtime::Handle,
    clock: Arc<dyn Clock>,
    checkpoints: Checkpoints,
    /// How many calls share a transaction.
    sizes: metrics::Histogram,
    /// None while the file cannot be opened: then nothing is known, and nothing is answered but that.
    tx: Option<SqliteStoreTx>,
    #[cfg(feature = "testing")]
    commit_fault: Option<Box<dyn FnMut() -> Option<CommitFault> + Send>>,
    /// The last to go: with it goes the lock that keeps other processes out.
    file: File,
}

/// Outcome of a transaction.
enum TxOutcome {
    /// It is durable, or there was nothing to write.
    Committed,
    /// It did not take place.
    Not(Error),
    /// It had to be taken back because of one of its jobs.
    Unsound,
    /// The outcome of the commit is unknown.
    Unknown(Error),
}

/// By what a transaction is found again.
enum TxMark {
    /// By its last row in the ledger: almost every transaction has one, so the mark costs nothing.
    Row(i64),
    /// By an id of its own.
    Id(Uuid),
}

pub(super) fn spawn(file: File, options: SqliteOptions) -> Result<JobSender> {
    let checkpoints = Checkpoints::spawn(&file)?;
    let mut writer = SqliteWriter {
        runtime: tokio::runtime::Handle::current(),
        clock: options.clock,
        checkpoints,
        sizes: metrics::histogram!(BATCH_CALLS, "store" => "sqlite"),
        tx: None,
        #[cfg(feature = "testing")]
        commit_fault: options.commit_fault,
        file,
    };
    writer.reopen()?;
    let (queue, jobs) = queue();
    let work = move || {
        let mut jobs = jobs;
        writer.write(&mut jobs);
        // The file is closed and unlocked before the queue says that the thread is gone.
        drop(writer);
    };
    let started = std::thread::Builder::new().name("semel-writer".to_owned()).spawn(work);
    started.map_err(|e| Error::Open { what: "the writer's thread".to_owned(), source: e.into() })?;
    Ok(queue)
}

impl SqliteWriter {
    fn write(&mut self, jobs: &mut JobReceiver) {
        let mut batch = Vec::new();
        while jobs.take(&mut batch) {
            self.sizes.record(f64::from(batch.len() as u32));
            self.group(&mut batch);
            if let Some(tx) = &self.tx {
                self.checkpoints.between_batches(&tx.conn);
            }
            jobs.linger();
        }
        if let Some(tx) = &self.tx {
            self.checkpoints.before_close(&tx.conn);
        }
    }

    /// Runs all waiting jobs in one transaction; if one of them spoils it, each in its own.
    fn group(&mut self, batch: &mut Vec<Work>) {
        match self.transaction(batch) {
            TxOutcome::Unsound if batch.len() > 1 => {
                for job in batch.drain(..) {
                    self.group(&mut vec![job]);
                }
            }
            // Alone and refused after it had written, or by a failing statement: its own answer says why.
            TxOutcome::Committed | TxOutcome::Unsound => self.answer(batch),
            TxOutcome::Not(error) => {
                let text = error.to_string();
                batch.drain(..).for_each(|job| job.fail(Error::Unavailable(text.clone().into())));
            }
            TxOutcome::Unknown(error) => {
                let text = error.to_string();
                batch.drain(..).for_each(|job| job.fail(Error::Unknown(text.clone().into())));
            }
        }
    }

    /// Waking thousands of callers takes as long as a good part of their writes: the runtime does it, beside the next
    /// batch. A few are woken from here, without a detour.
    fn answer(&self, batch: &mut Vec<Work>) {
        if batch.len() <= FEW {
            return batch.drain(..).for_each(Work::answer);
        }
        let answers = FinishedWork(std::mem::take(batch));
        self.runtime.spawn(async move { drop(answers) });
    }

    /// One transaction. A COMMIT that fails is looked up, and tried again if it certainly did not take place.
    fn transaction(&mut self, batch: &mut Vec<Work>) -> TxOutcome {
        let mut last = TxOutcome::Unsound;
        for _ in 0..TRIES {
            if self.tx.is_none()
                && let Err(error) = self.reopen_after_doubt()
            {
                return TxOutcome::Not(error);
            }
            last = match self.attempt(batch) {
                Ok(ended) => return ended,
                Err((Some(mark), error)) => self.look_up(&mark, error),
                Err((None, error)) => {
                    tracing::warn!(%error, "a transaction failed before its commit; reopening the file");
                    self.tx = None;
                    TxOutcome::Not(error)
                }
            };
            match last {
                TxOutcome::Not(_) => {}
                ended => return ended,
            }
        }
        last
    }

    /// Runs the jobs and commits. An error comes with the mark under which the transaction is to be looked up; without
    /// one it came before COMMIT, and the transaction certainly did not take place.
    fn attempt(&mut self, batch: &mut Vec<Work>) -> Result<TxOutcome, (Option<TxMark>, Error)> {
        let tx = self.tx.as_mut().expect("opened before an attempt");
        let before = tx.last_row;
        tx.begin(self.clock.now());
        execute(&tx.conn, "BEGIN IMMEDIATE").map_err(|e| (None, e))?;
        let sound = run(tx, batch).map_err(|e| (None, e))?;
        if !sound || tx.writes.get() == 0 {
            if !sound {
                tx.heads.forget_all();
            }
            // The answers do not depend on it: SQLite may have rolled back by itself, and closing does it in any case.
            if execute(&tx.conn, "ROLLBACK").is_err() {
                self.tx = None;
            }
            return Ok(if sound { TxOutcome::Committed } else { TxOutcome::Unsound });
        }
        // A row that the same transaction deletes again would not be found.
        let by_row = tx.last_row > before && !tx.deleted_rows;
        let mark = if by_row { TxMark::Row(tx.last_row) } else { TxMark::Id(self.clock.uuid()) };
        if sabotage::commits(Bug::AnswerBeforeCommit) {
            self.answer(batch);
        }
        match self.commit(&mark) {
            Ok(()) => Ok(TxOutcome::Committed),
            // The page that makes a transaction valid is the last one written, so it did not fit either.
            Err(error) if is_full(&error) => Err((None, error)),
            Err(error) => Err((Some(mark), error)),
        }
    }

    fn commit(&mut self, mark: &TxMark) -> Result<()> {
        let tx = self.tx.as_ref().expect("in a transaction");
        if let TxMark::Id(id) = mark {
            overwrite(&tx.conn, *id)?;
        }
        #[cfg(feature = "testing")]
        if let Some(fault) = self.commit_fault.as_mut().and_then(|fault| fault()) {
            if fault == CommitFault::After {
                execute(&tx.conn, "COMMIT")?;
            }
            return Err(Error::Unavailable("disk I/O error, on purpose".into()));
        }
        execute(&tx.conn, "COMMIT")
    }

    /// Stops, reopens and looks: never assumes.
    fn look_up(&mut self, mark: &TxMark, error: Error) -> TxOutcome {
        if sabotage::commits(Bug::AssumeFailedCommit) {
            return TxOutcome::Committed;
        }
        tracing::error!(%error, "a commit failed; reopening the file to see whether it took place");
        if let Err(reopening) = self.reopen() {
            return TxOutcome::Unknown(reopening);
        }
        let conn = &self.tx.as_ref().expect("just opened").conn;
        let found: rusqlite::Result<bool> = match mark {
            TxMark::Row(row) => {
                let sql = "SELECT EXISTS (SELECT 1 FROM ledger WHERE num = ?)";
                conn.query_row(sql, [row], |row| row.get(0))
            }
            TxMark::Id(id) => conn.query_row("SELECT mark = ? FROM meta", [id.as_bytes()], |row| row.get(0)),
        };
        self.checkpoints.wait();
        let made_sure = found.map_err(failed).and_then(|found| match found {
            true => self.checkpoints.settle(conn).map(|()| TxOutcome::Committed),
            false => overwrite(conn, self.clock.uuid()).map(|()| TxOutcome::Not(error)),
        });
        made_sure.unwrap_or_else(|error| {
            self.tx = None;
            TxOutcome::Unknown(error)
        })
    }

    /// Reopens after a failure whose transaction could not be looked up. Its callers are told that the outcome is
    /// unknown. What is visible now is made durable before other calls rely on it.
    fn reopen_after_doubt(&mut self) -> Result<()> {
        self.reopen()?;
        let made_sure = overwrite(&self.tx.as_ref().expect("just opened").conn, self.clock.uuid());
        if made_sure.is_err() {
            self.tx = None;
        }
        made_sure
    }

    fn reopen(&mut self) -> Result<()> {
        // Closed first: SQLite forgets what it thinks it has written.
        self.tx = None;
        let conn = self.file.connect()?;
        checkpoint::watch(&conn);
        self.tx = Some(SqliteStoreTx::new(conn, self.clock.now())?);
        Ok(())
    }
}

/// Runs all that waits. False if the transaction must not be committed.
fn run(tx: &mut SqliteStoreTx, batch: &mut [Work]) -> Result<bool> {
    let (row, num) = (tx.last_row, tx.last_num);
    run_alike(tx, batch)?;
    if starts::insert(tx, batch)? == Inserted::Repeated {
        // Rare: as a rule the answer to a start was lost, and it is asked again. From the beginning, and the starts one by
        // one.
        tx.heads.forget_all();
        execute(&tx.conn, "ROLLBACK")?;
        tx.begin(tx.now);
        // A transaction is found again by its last row: none may be counted that it does not have.
        (tx.last_row, tx.last_num) = (row, num);
        execute(&tx.conn, "BEGIN IMMEDIATE")?;
        run_alike(tx, batch)?;
    }
    Ok(batch.iter_mut().all(|work| match work {
        Work::Verb(job) => job.run(tx),
        // What the statements did not take: the verb does, or says why not.
        Work::Commit(job) if job.answer.is_none() => job.run(tx),
        Work::Start(start) if start.num.is_none() => start.run(tx),
        Work::Commit(_) | Work::Start(_) | Work::Step(_) => true,
    }))
}

/// The steps and ends come first, with statements that they share. All were asked at the same time, so any order is right.
fn run_alike(tx: &mut SqliteStoreTx, batch: &mut [Work]) -> Result<()> {
    let mut steps = Steps::prepare(&tx.conn)?;
    let mut advance = |entries: Option<_>| -> Result<bool> {
        let Some(entries) = entries else { return Ok(false) };
        let advanced = steps.advance(&mut tx.heads, tx.last_row + 1, &entries)?;
        tx.last_row += i64::from(advanced);
        tx.writes.set(tx.writes.get() + usize::from(advanced));
        Ok(advanced)
    };
    for work in &mut *batch {
        match work {
            Work::Step(StepCommit { commit, saved, .. }) => *saved = advance(Entries::of(commit, tx.now))?,
            Work::Commit(job) => {
                let VerbJob { verb, answer, .. } = &mut **job;
                *answer = match advance(Entries::of(verb, tx.now))? {
                    true => Some(Ok(saved(&tx.conn, verb, tx.now)?)),
                    false => None,
                };
            }
            // Its number in a transaction that did not take place.
            Work::Start(start) => start.num = None,
            Work::Verb(_) => {}
        }
    }
    steps.finish()
}

/// The answer to a commit that was written.
fn saved(conn: &Connection, commit: &Commit, now: Time) -> Result<Saved> {
    let arrivals = || {
        let mut arrivals = conn.prepare_cached("SELECT arrivals FROM runs WHERE num = ?")?;
        arrivals.query_row([commit.num], |row| row.get(0))
    };
    let asks = commit.asks_news;
    let arrivals = asks.then(arrivals).transpose().map_err(failed)?;
    let (version, written) = (commit.expected + commit.count, asks.then_some(now));
    Ok(Saved { version, arrivals, written, ..Saved::default() })
}

/// Whether a write found the disk full. A sync that does is another error: then the pages are there.
fn is_full(error: &Error) -> bool {
    let Error::Unavailable(source) = error else { return false };
    let below = source.downcast_ref::<rusqlite::Error>().and_then(rusqlite::Error::sqlite_error_code);
    below == Some(rusqlite::ErrorCode::DiskFull)
}

/// Makes sure that what is not visible stays so. The failed transaction's pages may stand in the log beyond its end,
/// where a recovery after a crash would find them; a transaction in their place makes them void.
fn overwrite(conn: &Connection, mark: Uuid) -> Result<()> {
    let statement = conn.prepare_cached("UPDATE meta SET mark = ?");
    statement.and_then(|mut statement| statement.execute([mark.as_bytes()])).map(drop).map_err(failed)
}

fn execute(conn: &Connection, sql: &str) -> Result<()> {
    conn.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map(drop).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use super::*;
    use crate::id::NodeId;
    use crate::rules::start::Start;
    use crate::store::sqlite::starts::tests::start;
    use crate::store::verbs::StartRun;
    use crate::store::{Lease, LeaseAct, Started};

    /// A writer without its thread: what it is given is one transaction.
    struct Bench {
        tx: SqliteStoreTx,
        queue: JobSender,
        jobs: JobReceiver,
        _file: File,
        _folder: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let file = File::open(&SqliteOptions::new(folder.path().join("semel.db"))).unwrap();
            let tx = SqliteStoreTx::new(file.connect().unwrap(), Time(1)).unwrap();
            let (queue, jobs) = queue();
            Self { tx, queue, jobs, _file: file, _folder: folder }
        }

        /// Starts them in one transaction, beside a write that has nothing to do with them.
        fn start(&mut self, starts: &[Start]) -> Vec<Started> {
            let ask = |start: &Start| {
                let verb = StartRun::of(start.clone()).unwrap();
                assert!(verb.is_plain());
                Box::pin(self.queue.start(verb, Time(1)))
            };
            let mut asked: Vec<_> = starts.iter().map(ask).collect();
            assert!(asked.iter_mut().all(|asked| poll(asked.as_mut()).is_pending()));
            let node = NodeId(Uuid::from_u128(7));
            let lease = self.queue.ask(Lease { node, act: LeaseAct::Join(Duration::from_secs(9)) });
            let mut lease = pin!(lease);
            assert!(poll(lease.as_mut()).is_pending());
            let mut batch = Vec::new();
            assert!(self.jobs.take(&mut batch));
            self.tx.begin(Time(1));
            execute(&self.tx.conn, "BEGIN IMMEDIATE").unwrap();
            assert!(run(&mut self.tx, &mut batch).unwrap());
            execute(&self.tx.conn, "COMMIT").unwrap();
            batch.drain(..).for_each(Work::answer);
            assert!(poll(lease).is_ready());
            let answers = asked.into_iter().map(|mut asked| match poll(asked.as_mut()) {
                Poll::Ready(answer) => answer.unwrap(),
                Poll::Pending => panic!("a start was not answered"),
            });
            answers.collect()
        }

        fn count(&self, what: &str) -> i64 {
            self.tx.conn.query_row(&format!("SELECT count(*) FROM {what}"), [], |row| row.get(0)).unwrap()
        }
    }

    fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// As many as the statements for sixteen, for four and for one take together.
    #[test]
    fn any_number_of_starts_is_inserted_and_each_under_its_own_number() {
        let mut bench = Bench::new();
        for (starts, so_far) in [(21, 21), (1, 22), (3, 25)] {
            let asked: Vec<_> = (0..starts).map(|_| start()).collect();
            for (asked, started) in asked.iter().zip(bench.start(&asked)) {
                assert_eq!((asked.run, 1), (started.run.id(), started.entries.len()));
                let there = format!("heads JOIN runs USING (num) WHERE num = {}", started.run.num);
                assert_eq!(bench.count(&there), 1);
            }
            let tables = ["runs", "ledger", "heads JOIN ledger ON ledger.num = last AND run = heads.num"];
            assert_eq!(tables.map(|table| bench.count(table)), [so_far; 3]);
        }
    }

    /// A transaction whose COMMIT fails is found again by its last row. It must not be looked for by one that it never had.
    #[test]
    fn a_start_that_is_repeated_counts_no_row() {
        let mut bench = Bench::new();
        let first: Vec<_> = (0..5).map(|_| start()).collect();
        let made = bench.start(&first);
        let before = bench.tx.last_row;
        let again = bench.start(&first[4..]);
        assert_eq!((bench.tx.last_row, &again[0].run), (before, &made[4].run));
        let mut mixed: Vec<_> = (0..20).map(|_| start()).collect();
        mixed.push(first[0].clone());
        assert_eq!(bench.start(&mixed)[20].run, made[0].run);
        assert_eq!((bench.count("runs"), bench.tx.last_row, bench.tx.last_num), (25, 25, 25));
    }
}
