//! Group commit: calls of many callers share a statement. While one batch is under way the next one fills up; there is no
//! timer. A single call is executed by its caller's own task, because handing it to another task would only add latency.
//!
//! A batch is bounded in bytes: PostgreSQL accepts no message above 1 GiB, and a large batch delays its answers. Large calls
//! have a queue of their own, so that small ones do not wait behind them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, oneshot};

use super::tasks::{Stop, Tasks};
use crate::error::{Error, Result, Source};

/// Most bytes that the calls of one batch may have together: a fraction of a second on the way to the database. A batch always
/// takes its first call, which may be longer alone.
const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// A call with more bytes than this is a large one: some hundred of them would fill a batch.
const LARGE_BYTES: usize = 64 * 1024;
/// Batches of large calls under way at once: they wait for the network and the disk, which several would only share.
const LARGE_WORKERS: usize = 1;

/// Why no call of a batch has an answer: the error they get, and its common cause.
pub(super) type BatchError = (fn(Source) -> Error, Arc<dyn std::error::Error + Send + Sync>);

/// The error that one of the callers gets.
pub(super) fn failed((error, cause): &BatchError) -> Error {
    error(Box::new(cause.clone()))
}

/// Answers batches.
pub(super) trait Worker: Send + 'static {
    type Call: Send + Sync + 'static;
    type Answer: Send + 'static;
    /// Most calls in one batch: beyond this it only gets longer, not faster.
    const MOST: usize;
    /// How many bytes of values a call sends, roughly.
    fn weight(call: &Self::Call) -> usize;
    /// Answers all of these, in their order. It may be dropped in the middle, and asked again: a caller that answers its own
    /// call may go away.
    fn work(&mut self, calls: Vec<Self::Call>) -> impl Future<Output = Vec<Result<Self::Answer>>> + Send;
}

/// A call in the queue, with the channel for its answer.
struct QueuedCall<C, A> {
    call: C,
    reply: oneshot::Sender<Result<A>>,
}

type JobOf<W> = QueuedCall<<W as Worker>::Call, <W as Worker>::Answer>;

/// Collects calls into batches.
pub(super) struct BatchQueue<W: Worker> {
    small: mpsc::UnboundedSender<JobOf<W>>,
    large: mpsc::UnboundedSender<JobOf<W>>,
    workers: Tasks,
    /// The worker of single calls. It is separate, so that a caller whose future is never polled again delays no other.
    alone: Mutex<W>,
    /// Calls without an answer.
    open: AtomicUsize,
}

/// The calls of one lane that wait for a worker.
struct Lane<W: Worker> {
    jobs: mpsc::UnboundedReceiver<JobOf<W>>,
    /// A call that did not fit into the last batch: it is the first of the next.
    next: Option<JobOf<W>>,
}

impl<W: Worker> Lane<W> {
    fn new() -> (mpsc::UnboundedSender<JobOf<W>>, SharedLane<W>) {
        let (sender, jobs) = mpsc::unbounded_channel();
        (sender, Arc::new(Mutex::new(Self { jobs, next: None })))
    }

    /// Fills a batch with waiting calls, up to its limits.
    fn fill(&mut self, first: JobOf<W>, batch: &mut Vec<JobOf<W>>) {
        let mut bytes = W::weight(&first.call);
        batch.push(first);
        while batch.len() < W::MOST
            && let Ok(job) = self.jobs.try_recv()
        {
            bytes += W::weight(&job.call);
            if bytes > BATCH_BYTES {
                self.next = Some(job);
                return;
            }
            batch.push(job);
        }
    }
}

type SharedLane<W> = Arc<Mutex<Lane<W>>>;

impl<W: Worker> BatchQueue<W> {
    /// Starts this number of workers, beside those for large calls and the one for single calls. They end when this is
    /// dropped or stopped, and all that was queued is answered.
    pub(super) fn start(workers: usize, worker: impl Fn() -> W) -> Self {
        let ((small, small_jobs), (large, large_jobs)) = (Lane::<W>::new(), Lane::<W>::new());
        let tasks = Tasks::new();
        for (workers, jobs) in [(workers, small_jobs), (LARGE_WORKERS, large_jobs)] {
            for _ in 0..workers {
                tasks.spawn(|stop| work(worker(), jobs.clone(), stop));
            }
        }
        Self { small, large, workers: tasks, alone: Mutex::new(worker()), open: AtomicUsize::new(0) }
    }

    pub(super) async fn ask(&self, call: W::Call) -> Result<W::Answer> {
        let opened = Open::new(&self.open);
        if opened.first
            && !self.small.is_closed()
            && let Ok(mut worker) = self.alone.try_lock()
        {
            return boxed(&mut *worker, vec![call]).await.pop().expect("an answer for each call");
        }
        let (reply, answer) = oneshot::channel();
        let closed = |_| Error::Unavailable("the store is closed".into());
        let lane = if W::weight(&call) > LARGE_BYTES { &self.large } else { &self.small };
        lane.send(QueuedCall { call, reply }).map_err(closed)?;
        // No answer: the task ended with the runtime, perhaps after it had written.
        answer.await.unwrap_or_else(|gone| Err(Error::Unknown(Box::new(gone))))
    }

    /// Accepts no more calls, and waits until all are answered. A call that its own caller executes may never be polled again:
    /// it is waited for no longer than `patience`.
    pub(super) async fn stop(&self, patience: Duration) {
        self.workers.stop().await;
        if let Err(elapsed) = tokio::time::timeout(patience, self.alone.lock()).await {
            tracing::warn!(error = %elapsed, "the store is closed while a call still waits for its answer");
        }
    }
}

type AnswersFuture<'w, W> = Pin<Box<dyn Future<Output = Vec<Result<<W as Worker>::Answer>>> + Send + 'w>>;

/// Boxed: the futures of all callers stay small, and compile times too.
fn boxed<W: Worker>(worker: &mut W, calls: Vec<W::Call>) -> AnswersFuture<'_, W> {
    Box::pin(worker.work(calls))
}

/// A call, counted until it is answered or given up.
struct Open<'a> {
    calls: &'a AtomicUsize,
    /// Whether there was no other open call. A wrong answer only costs time.
    first: bool,
}

impl<'a> Open<'a> {
    fn new(calls: &'a AtomicUsize) -> Self {
        Self { calls, first: calls.fetch_add(1, Ordering::Relaxed) == 0 }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn work<W: Worker>(mut worker: W, queue: SharedLane<W>, mut stop: Stop) {
    let mut jobs = Vec::new();
    while next::<W>(&queue, &mut jobs, &mut stop).await {
        let (calls, replies): (Vec<_>, Vec<_>) = jobs.drain(..).map(|job| (job.call, job.reply)).unzip();
        for (reply, answer) in replies.into_iter().zip(worker.work(calls).await) {
            // The caller may have stopped waiting.
            drop(reply.send(answer));
        }
    }
}

/// Waits for calls and takes those that are queued; false when the queue is closed and empty.
async fn next<W: Worker>(lane: &SharedLane<W>, batch: &mut Vec<JobOf<W>>, stop: &mut Stop) -> bool {
    let mut lane = lane.lock().await;
    let mut first = lane.next.take();
    if first.is_none() {
        let stopped = tokio::select! {
            biased;
            () = stop.asked() => true,
            job = lane.jobs.recv() => {
                first = job;
                false
            }
        };
        if stopped {
            // Dropped or stopped: what is queued is still taken out, and nothing more comes in.
            lane.jobs.close();
            first = lane.jobs.recv().await;
        }
    }
    let Some(first) = first else { return false };
    lane.fill(first, batch);
    true
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::task::{Context, Waker};

    use tokio::sync::Semaphore;

    use super::*;

    /// Answers each call with the size of its batch, as soon as the semaphore permits.
    struct Counter(Arc<Semaphore>);

    impl Worker for Counter {
        /// Its bytes.
        type Call = usize;
        type Answer = usize;
        const MOST: usize = 10;

        fn weight(call: &usize) -> usize {
            *call
        }

        async fn work(&mut self, calls: Vec<usize>) -> Vec<Result<usize>> {
            let _let = self.0.acquire().await;
            calls.iter().map(|_| Ok(calls.len())).collect()
        }
    }

    fn queue(permits: usize) -> (BatchQueue<Counter>, Arc<Semaphore>) {
        let gate = Arc::new(Semaphore::new(permits));
        let worker = gate.clone();
        (BatchQueue::start(1, move || Counter(worker.clone())), gate)
    }

    type Asking<'a> = Pin<Box<dyn Future<Output = Result<usize>> + 'a>>;

    /// Polls a small call once, and gives it back.
    fn begun(queue: &BatchQueue<Counter>) -> Asking<'_> {
        begun_with(queue, 1)
    }

    /// The same for a call with this number of bytes.
    fn begun_with(queue: &BatchQueue<Counter>, bytes: usize) -> Asking<'_> {
        let mut asking: Asking<'_> = Box::pin(queue.ask(bytes));
        assert!(asking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        asking
    }

    #[tokio::test]
    async fn a_batch_has_room_for_so_many_bytes() {
        let (queue, gate) = queue(0);
        let third = BATCH_BYTES / 3;
        let mut asked = vec![begun(&queue), begun_with(&queue, third)];
        tokio::task::yield_now().await;
        asked.extend([third, third, third, BATCH_BYTES * 2, third].map(|bytes| begun_with(&queue, bytes)));
        gate.add_permits(10);
        let mut together = Vec::new();
        for asking in asked {
            together.push(asking.await.unwrap());
        }
        assert_eq!(
            together,
            [1, 1, 3, 3, 3, 1, 1],
            "alone, taken before the others came, and as many as have room"
        );
    }

    #[tokio::test]
    async fn small_calls_do_not_wait_behind_large_ones() {
        let (queue, gate) = queue(0);
        let large: Vec<_> = (0..20).map(|_| begun_with(&queue, BATCH_BYTES)).collect();
        tokio::task::yield_now().await;
        // One for the batch that is under way: the next to ask is the small one.
        gate.add_permits(2);
        let small = begun(&queue);
        let mut asking = small;
        let answered = tokio::time::timeout(Duration::from_secs(10), &mut asking).await;
        assert_eq!(answered.ok().and_then(Result::ok), Some(1), "{} large ones are under way", large.len());
    }

    #[tokio::test]
    async fn who_is_alone_waits_for_no_other_task() {
        let (queue, _gate) = queue(1);
        let mut asking = Box::pin(queue.ask(1));
        let asked = asking.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(asked, std::task::Poll::Ready(Ok(1))), "no task had a turn in between");
    }

    #[tokio::test]
    async fn a_call_that_arrives_while_others_wait_goes_with_them() {
        let (queue, gate) = queue(0);
        // The first is alone, the second is taken by the worker; the rest gather behind it.
        let alone = begun(&queue);
        let second = begun(&queue);
        tokio::task::yield_now().await;
        let rest = [begun(&queue), begun(&queue), begun(&queue)];
        gate.add_permits(10);
        assert_eq!((alone.await.ok(), second.await.ok()), (Some(1), Some(1)));
        for asking in rest {
            assert_eq!(asking.await.ok(), Some(3));
        }
        assert_eq!(queue.open.load(Ordering::Relaxed), 0, "all are answered");
    }

    #[tokio::test]
    async fn a_single_call_that_is_never_polled_again_delays_no_other() {
        let (queue, gate) = queue(0);
        let asleep = begun(&queue);
        gate.add_permits(10);
        assert_eq!(queue.ask(1).await.ok(), Some(1));
        drop(asleep);
        assert_eq!(queue.open.load(Ordering::Relaxed), 0, "who gives up is not counted any more");
        assert_eq!(queue.ask(1).await.ok(), Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_is_stopped_although_a_call_is_never_polled_again() {
        let (queue, _gate) = queue(0);
        let asleep = begun(&queue);
        queue.stop(Duration::from_mins(1)).await;
        assert!(matches!(queue.ask(1).await, Err(Error::Unavailable(_))));
        drop(asleep);
        assert!(
            matches!(queue.ask(1).await, Err(Error::Unavailable(_))),
            "the one that is alone takes no more, too"
        );
    }

    #[tokio::test]
    async fn a_queue_that_is_stopped_waits_for_whom_it_answers_and_takes_no_more() {
        let (queue, gate) = queue(0);
        let (alone, other) = (begun(&queue), begun(&queue));
        let stopped = AtomicBool::new(false);
        let stop = async {
            queue.stop(Duration::from_mins(1)).await;
            stopped.store(true, Ordering::Relaxed);
        };
        let ask = async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            assert!(!stopped.load(Ordering::Relaxed), "two are not answered yet");
            gate.add_permits(10);
            assert_eq!((alone.await.ok(), other.await.ok()), (Some(1), Some(1)));
        };
        tokio::join!(stop, ask);
        assert!(matches!(queue.ask(1).await, Err(Error::Unavailable(_))));
    }
}
