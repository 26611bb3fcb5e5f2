//! Jobs for a thread that owns a connection: a verb, and where its answer goes.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};

use super::tx::SqliteStoreTx;
use crate::clock::Time;
use crate::error::{Error, Result, Source};
use crate::rules::commit::{Commit, Saved};
use crate::store::Started;
use crate::store::tx::{Verb, now_or_never};
use crate::store::verbs::{NewStart, StartRun};

/// How many jobs one transaction takes at most: enough to share an fsync among all of a large process's runs, few enough
/// that the first of them does not wait long for the last.
pub(super) const MAX_BATCH: usize = 8_192;

/// A job with more bytes of values than this is a large one.
const LARGE_BYTES: usize = 16 * 1024;

/// Most bytes that the large jobs of one transaction have together; it always takes the first of them. Those that have no room
/// are in the next transaction, with all small ones that have arrived until then: a small job never waits for more than this.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// A verb with its type hidden.
pub(super) trait Job: Send {
    /// How many bytes of values it writes, roughly.
    fn weight(&self) -> usize;
    /// Runs it and keeps the answer. False if the transaction must not be committed with it: a statement failed, or
    /// it was refused after it had written.
    fn run(&mut self, tx: &mut SqliteStoreTx) -> bool;
    /// Sends the answer.
    fn answer(self: Box<Self>);
    /// Sends this error instead.
    fn fail(self: Box<Self>, error: Error);
}

/// A job in the queue of the writer.
pub(super) enum Work {
    /// The commit of a step.
    Step(StepCommit),
    /// Any other commit. If it ends a run without ties, or is a step's that asks for news, it is as
    /// short as a step's.
    Commit(Box<VerbJob<Commit>>),
    /// A start without a key: they are all alike.
    Start(Box<StartJob>),
    /// A call of any other kind.
    Verb(Box<dyn Job>),
}

/// The commit of a step: the same as a job of its verb, without the detours.
pub(super) struct StepCommit {
    pub(super) commit: Commit,
    pub(super) saved: bool,
    reply: oneshot::Sender<Stepped>,
}

/// The run's version after a step. Thousands of these wait at a time, so the error that never comes takes no room in them.
type Stepped = Result<u64, Box<Error>>;

impl Work {
    /// How many bytes of values it writes, roughly.
    fn weight(&self) -> usize {
        match self {
            Self::Verb(job) => job.weight(),
            Self::Commit(job) => job.weight(),
            Self::Start(start) => start.new.text.len(),
            Self::Step(step) => step.commit.text().map_or(0, str::len),
        }
    }

    /// Sends the answer.
    pub(super) fn answer(self) {
        match self {
            Self::Verb(job) => job.answer(),
            Self::Commit(job) => job.answer(),
            Self::Start(start) => start.answer(),
            Self::Step(StepCommit { commit, saved, reply }) => {
                let version = commit.expected + commit.count;
                drop(reply.send(if saved { Ok(version) } else { Err(Box::new(commit.lost())) }));
            }
        }
    }

    /// Sends this error instead.
    pub(super) fn fail(self, error: Error) {
        match self {
            Self::Verb(job) => job.fail(error),
            Self::Commit(job) => job.fail(error),
            Self::Start(start) => drop(start.reply.send(Err(error))),
            Self::Step(step) => drop(step.reply.send(Err(Box::new(error)))),
        }
    }
}

/// A start, and the run as it will be if its key is free. If it is not, the verb decides.
pub(super) struct StartJob {
    pub(super) new: NewStart,
    /// The number under which it is inserted, if it is.
    pub(super) num: Option<i64>,
    verb: StartRun,
    answer: Option<Box<Result<Started>>>,
    reply: oneshot::Sender<Result<Started>>,
}

impl StartJob {
    /// As [`Job::run`].
    pub(super) fn run(&mut self, tx: &mut SqliteStoreTx) -> bool {
        let (answer, sound) = attempt(&self.verb, tx);
        self.answer = Some(Box::new(answer));
        sound
    }

    fn answer(self) {
        let answer = match self.num {
            Some(num) => Ok(self.new.started(num)),
            None => *self.answer.expect("a start is answered after it ran"),
        };
        drop(self.reply.send(answer));
    }
}

/// Work that is done; dropped, it is answered. So a runtime that is shutting down cannot lose what was written.
pub(super) struct FinishedWork(pub(super) Vec<Work>);

impl Drop for FinishedWork {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Work::answer);
    }
}

/// A verb, its result, and the caller that gets it.
pub(super) struct VerbJob<V: Verb> {
    pub(super) verb: V,
    pub(super) answer: Option<Result<V::Answer>>,
    reply: oneshot::Sender<Result<V::Answer>>,
}

impl<V: Verb> VerbJob<V> {
    fn new(verb: V) -> (Box<Self>, oneshot::Receiver<Result<V::Answer>>) {
        let (reply, answer) = oneshot::channel();
        (Box::new(Self { verb, answer: None, reply }), answer)
    }
}

/// Runs a verb. Whether the transaction may be committed with it.
fn attempt<V: Verb>(verb: &V, tx: &mut SqliteStoreTx) -> (Result<V::Answer>, bool) {
    let before = tx.writes.get();
    // A panic is the failure of that call alone: the thread goes on, with the other calls of the transaction.
    let answer = catch_unwind(AssertUnwindSafe(|| now_or_never(crate::store::tx::run(verb, tx))))
        .unwrap_or_else(|_| {
            tracing::error!(verb = std::any::type_name::<V>(), "a call panicked; it is rolled back");
            Err(Error::Unavailable("the call panicked, and was rolled back".into()))
        });
    let sound = match &answer {
        Ok(_) => true,
        Err(Error::Unavailable(_) | Error::Corrupt { .. }) => false,
        Err(_) => tx.writes.get() == before,
    };
    (answer, sound)
}

impl<V: Verb> Job for VerbJob<V> {
    fn weight(&self) -> usize {
        self.verb.weight()
    }

    fn run(&mut self, tx: &mut SqliteStoreTx) -> bool {
        let (answer, sound) = attempt(&self.verb, tx);
        self.answer = Some(answer);
        sound
    }

    fn answer(self: Box<Self>) {
        let answer = self.answer.expect("a job is answered after it ran");
        // A caller that no longer waits has been cancelled; the write stands all the same.
        drop(self.reply.send(answer));
    }

    fn fail(self: Box<Self>, error: Error) {
        drop(self.reply.send(Err(error)));
    }
}

/// The way to such a thread.
pub(super) struct JobSender {
    jobs: UnboundedSender<Work>,
    stop: watch::Sender<bool>,
    gone: watch::Receiver<()>,
}

/// The thread's end of it.
pub(super) struct JobReceiver {
    waiting: UnboundedReceiver<Work>,
    /// Large ones that had no room in a transaction yet.
    large: VecDeque<Work>,
    stop: watch::Receiver<bool>,
    /// Dropped when the thread ends.
    _gone: watch::Sender<()>,
}

/// A queue and its two ends.
pub(super) fn queue() -> (JobSender, JobReceiver) {
    let (sender, receiver) = unbounded_channel();
    let (stop, stopped) = watch::channel(false);
    let (gone_sender, gone) = watch::channel(());
    let jobs = JobReceiver { waiting: receiver, large: VecDeque::new(), stop: stopped, _gone: gone_sender };
    (JobSender { jobs: sender, stop, gone }, jobs)
}

impl JobSender {
    /// Sends a verb and waits for its answer.
    pub(super) async fn ask<V: Verb>(&self, verb: V) -> Result<V::Answer> {
        let lost = if V::READS { Error::Unavailable } else { Error::Unknown };
        let (job, answer) = VerbJob::new(verb);
        self.put(Work::Verb(job))?;
        heard(answer, lost).await?
    }

    /// Sends a commit that is not a step's and waits for its answer.
    pub(super) async fn commit(&self, commit: Commit) -> Result<Saved> {
        let (job, answer) = VerbJob::new(commit);
        self.put(Work::Commit(job))?;
        heard(answer, Error::Unknown).await?
    }

    /// Sends a start without a key and waits for its answer.
    pub(super) fn start(&self, verb: StartRun, now: Time) -> impl Future<Output = Result<Started>> + Send {
        let new = NewStart::of(&verb, now);
        let (reply, answer) = oneshot::channel();
        // Boxed here: what is awaited need not carry it along.
        let job = Box::new(StartJob { new, num: None, verb, answer: None, reply });
        async move {
            self.put(Work::Start(job))?;
            heard(answer, Error::Unknown).await?
        }
    }

    /// Sends the commit of a step and waits for its answer.
    pub(super) async fn step(&self, commit: Commit) -> Result<Saved> {
        let (reply, answer) = oneshot::channel();
        self.put(Work::Step(StepCommit { commit, saved: false, reply }))?;
        let version = heard(answer, Error::Unknown).await?.map_err(|error| *error)?;
        Ok(Saved { version, ..Saved::default() })
    }

    fn put(&self, work: Work) -> Result<()> {
        self.jobs.send(work).map_err(|_| Error::Unavailable("the store is closed".into()))
    }

    /// Lets the thread finish what it has, and waits until it is gone.
    pub(super) async fn stop(&self) {
        self.stop.send_replace(true);
        // A job that does nothing wakes the thread if it waits.
        drop(self.jobs.send(Work::Verb(Box::new(Nothing))));
        let mut gone = self.gone.clone();
        while gone.changed().await.is_ok() {}
    }
}

/// Waits for the answer of a job that the thread has taken. If the thread dies first, `lost` makes the error.
async fn heard<T>(answer: oneshot::Receiver<T>, lost: fn(Source) -> Error) -> Result<T> {
    answer.await.map_err(|_| lost("the store's thread has died".into()))
}

impl JobReceiver {
    /// Polls for jobs a little longer and yields the core meanwhile. A single caller sends its next call as soon as it has its
    /// answer; to sleep and be woken would take a good part of the time of its commit.
    pub(super) fn linger(&self) {
        /// Some tens of microseconds.
        const LOOKS: usize = 256;
        for _ in 0..LOOKS {
            if !self.waiting.is_empty() || !self.large.is_empty() {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Waits for jobs and takes all there are, up to [`MAX_BATCH`]; of large ones as many as have room. False when there will
    /// be none any more.
    pub(super) fn take(&mut self, jobs: &mut Vec<Work>) -> bool {
        if *self.stop.borrow() {
            self.waiting.close();
        }
        if self.large.is_empty() {
            if self.waiting.blocking_recv_many(jobs, MAX_BATCH) == 0 {
                return false;
            }
        } else {
            // These are there already, and nothing is waited for.
            while jobs.len() < MAX_BATCH
                && let Ok(work) = self.waiting.try_recv()
            {
                jobs.push(work);
            }
        }
        if jobs.iter().any(|work| work.weight() > LARGE_BYTES) {
            let (large, small) =
                std::mem::take(jobs).into_iter().partition(|work| work.weight() > LARGE_BYTES);
            *jobs = small;
            self.large.extend::<Vec<Work>>(large);
        }
        self.take_large(jobs);
        true
    }

    fn take_large(&mut self, jobs: &mut Vec<Work>) {
        let mut bytes = 0;
        while let Some(work) = self.large.pop_front() {
            bytes += work.weight();
            if bytes > BATCH_BYTES && bytes > work.weight() {
                return self.large.push_front(work);
            }
            jobs.push(work);
        }
    }
}

struct Nothing;

impl Job for Nothing {
    fn weight(&self) -> usize {
        0
    }

    fn run(&mut self, _: &mut SqliteStoreTx) -> bool {
        true
    }

    fn answer(self: Box<Self>) {}

    fn fail(self: Box<Self>, _: Error) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::NodeId;
    use crate::store::serve::Backend as _;
    use crate::store::sqlite::starts::tests::start;
    use crate::store::sqlite::{SqliteOptions, SqliteStore};
    use crate::store::tx::StoreTx;
    use crate::store::{Find, FindBy, Lease, LeaseAct, Store as _};
    use std::time::Duration;
    use uuid::Uuid;

    const NODE: NodeId = NodeId(Uuid::from_u128(7));

    /// Panics after it has written, or while it reads.
    struct Panics<const READS: bool>;

    impl<const READS: bool> Verb for Panics<READS> {
        type Answer = ();
        const READS: bool = READS;

        async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<()> {
            if !READS {
                tx.put_lease(NODE, Some(tx.now())).await?;
            }
            panic!("on purpose, reading: {READS}");
        }
    }

    /// A verb that writes this number of bytes.
    struct Heavy(usize);

    impl Verb for Heavy {
        type Answer = ();

        fn weight(&self) -> usize {
            self.0
        }

        async fn run<T: StoreTx>(&self, _: &mut T) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn large_jobs_share_a_transaction_as_far_as_they_have_room_and_small_ones_overtake_them() {
        let (queue, mut jobs) = queue();
        let third = BATCH_BYTES / 3;
        let put = |bytes: usize| drop(queue.put(Work::Verb(VerbJob::new(Heavy(bytes)).0)));
        for bytes in [1, third, third, 2, third, third, 2 * BATCH_BYTES, third] {
            put(bytes);
        }
        let mut taken = |later: &[usize]| {
            let mut batch = Vec::new();
            assert!(jobs.take(&mut batch));
            for bytes in later {
                put(*bytes);
            }
            batch.iter().map(Work::weight).collect::<Vec<_>>()
        };
        assert_eq!(taken(&[3]), [1, 2, third, third, third]);
        assert_eq!(taken(&[]), [3, third], "the next one has no room beside it");
        assert_eq!(taken(&[]), [2 * BATCH_BYTES], "it goes alone");
        assert_eq!(taken(&[]), [third]);
    }

    /// What shared the transaction was done, and is done again: it must not be believed to be there already.
    #[tokio::test]
    async fn starts_beside_a_call_that_panics_are_there_when_they_are_answered() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(SqliteOptions::new(folder.path().join("semel.db"))).await.unwrap();
        let mut started = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let (one, many) = (store.clone(), (0..9).map(|_| start()));
            started.spawn(async move { one.execute(Panics::<false>).await.map(|()| None) });
            for start in many {
                let store = store.clone();
                started.spawn(async move { store.start(start).await.map(|started| Some(started.run)) });
            }
        }
        let answers = started.join_all().await;
        assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 20, "{answers:?}");
        for run in answers.into_iter().flatten().flatten() {
            let find = Find { workspace: run.new.workspace, by: FindBy::Id(run.id()) };
            assert_eq!(store.find(find).await.unwrap().map(|(found, _)| found), Some(run));
        }
        store.close().await.unwrap();
    }

    #[tokio::test]
    async fn a_call_that_panics_fails_alone_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(SqliteOptions::new(folder.path().join("semel.db"))).await.unwrap();
        for _ in 0..3 {
            let other =
                Lease { node: NodeId(Uuid::from_u128(8)), act: LeaseAct::Join(Duration::from_secs(9)) };
            let (writes, reads, lease) = tokio::join!(
                store.execute(Panics::<false>),
                store.execute(Panics::<true>),
                store.lease(other),
            );
            assert!(matches!(writes, Err(Error::Unavailable(_))), "{writes:?}");
            assert!(matches!(reads, Err(Error::Unavailable(_))), "{reads:?}");
            lease.unwrap();
        }
        let renewed = store.lease(Lease { node: NODE, act: LeaseAct::Renew(Duration::from_secs(9)) }).await;
        assert!(matches!(renewed, Err(Error::NodeLost(NODE))), "rolled back: {renewed:?}");
        store.close().await.unwrap();
    }
}
