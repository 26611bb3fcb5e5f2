//! Calls of many callers, answered together. While one batch is under way the next one fills up; there is no timer and
//! no waiting. A call that comes alone is answered by its caller's own task: the way through another and back is what
//! whoever is alone would wait for in vain.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, oneshot};

use super::tasks::{Stop, Tasks};
use crate::error::{Error, Result, Source};

/// Why no call of a batch has an answer: the error they get, and its common cause.
pub(super) type Failure = (fn(Source) -> Error, Arc<dyn std::error::Error + Send + Sync>);

/// The error that one of the callers gets.
pub(super) fn failed((error, cause): &Failure) -> Error {
    error(Box::new(cause.clone()))
}

/// Answers batches.
pub(super) trait Worker: Send + 'static {
    type Call: Send + Sync + 'static;
    type Answer: Send + 'static;
    /// Most calls in one batch: beyond this it only gets longer, not faster.
    const MOST: usize;
    /// Answers all of these, in their order. It may be dropped in the middle, and asked again: a caller that answers its own
    /// call may go away.
    fn work(&mut self, calls: Vec<Self::Call>) -> impl Future<Output = Vec<Result<Self::Answer>>> + Send;
}

/// A call on its way, and who waits for it.
struct Job<C, A> {
    call: C,
    reply: oneshot::Sender<Result<A>>,
}

/// The way into the batches.
pub(super) struct Queue<W: Worker> {
    sender: mpsc::UnboundedSender<Job<W::Call, W::Answer>>,
    workers: Tasks,
    /// The worker of a caller that is alone; apart from the others, so that one who is never polled again holds up nobody.
    alone: Mutex<W>,
    /// Calls without an answer.
    open: AtomicUsize,
}

type Jobs<W> = Arc<Mutex<mpsc::UnboundedReceiver<Job<<W as Worker>::Call, <W as Worker>::Answer>>>>;

impl<W: Worker> Queue<W> {
    /// Starts so many workers, beside the one for those who come alone. They end when this is dropped or stopped, and all
    /// that was queued is answered.
    pub(super) fn start(workers: usize, worker: impl Fn() -> W) -> Self {
        let (sender, jobs) = mpsc::unbounded_channel();
        let (jobs, tasks) = (Arc::new(Mutex::new(jobs)), Tasks::new());
        for _ in 0..workers {
            tasks.spawn(|stop| work(worker(), jobs.clone(), stop));
        }
        Self { sender, workers: tasks, alone: Mutex::new(worker()), open: AtomicUsize::new(0) }
    }

    pub(super) async fn ask(&self, call: W::Call) -> Result<W::Answer> {
        let opened = Open::new(&self.open);
        if opened.first
            && !self.sender.is_closed()
            && let Ok(mut worker) = self.alone.try_lock()
        {
            return boxed(&mut *worker, vec![call]).await.pop().expect("an answer for each call");
        }
        let (reply, answer) = oneshot::channel();
        let closed = |_| Error::Unavailable("the store is closed".into());
        self.sender.send(Job { call, reply }).map_err(closed)?;
        // No answer: the task has gone down with the runtime, perhaps after it has written.
        answer.await.unwrap_or_else(|gone| Err(Error::Unknown(Box::new(gone))))
    }

    /// Takes no more, and waits until everything that was asked is answered; of one who is alone, and perhaps never polled
    /// again, not longer than this.
    pub(super) async fn stop(&self, patience: Duration) {
        self.workers.stop().await;
        if let Err(elapsed) = tokio::time::timeout(patience, self.alone.lock()).await {
            tracing::warn!(error = %elapsed, "the store is closed, and somebody still waits for an answer of it");
        }
    }
}

type Answers<'w, W> = Pin<Box<dyn Future<Output = Vec<Result<<W as Worker>::Answer>>> + Send + 'w>>;

/// Boxed: a caller has room for what it may have to carry, and the compiler cannot see through all of it.
fn boxed<W: Worker>(worker: &mut W, calls: Vec<W::Call>) -> Answers<'_, W> {
    Box::pin(worker.work(calls))
}

/// A call, counted until it is answered or given up.
struct Open<'a> {
    calls: &'a AtomicUsize,
    /// Whether there was no other. Who is told so wrongly goes another way, and nothing else.
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

async fn work<W: Worker>(mut worker: W, queue: Jobs<W>, mut stop: Stop) {
    let mut jobs = Vec::new();
    while next::<W>(&queue, &mut jobs, &mut stop).await {
        let (calls, replies): (Vec<_>, Vec<_>) = jobs.drain(..).map(|job| (job.call, job.reply)).unzip();
        for (reply, answer) in replies.into_iter().zip(worker.work(calls).await) {
            // Whoever no longer waits needs no answer.
            drop(reply.send(answer));
        }
    }
}

/// Waits for calls and takes what is there; false when there will be no more.
async fn next<W: Worker>(queue: &Jobs<W>, jobs: &mut Vec<Job<W::Call, W::Answer>>, stop: &mut Stop) -> bool {
    let mut queue = queue.lock().await;
    tokio::select! {
        biased;
        // Dropped or stopped: what is queued is still taken out, and nothing more comes in.
        () = stop.asked() => queue.close(),
        taken = queue.recv_many(jobs, W::MOST) => return taken > 0,
    }
    queue.recv_many(jobs, W::MOST).await > 0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::task::{Context, Waker};

    use tokio::sync::Semaphore;

    use super::*;

    /// Says how many calls it was given together, as soon as it is let.
    struct Counter(Arc<Semaphore>);

    impl Worker for Counter {
        type Call = ();
        type Answer = usize;
        const MOST: usize = 10;

        async fn work(&mut self, calls: Vec<()>) -> Vec<Result<usize>> {
            let _let = self.0.acquire().await;
            calls.iter().map(|()| Ok(calls.len())).collect()
        }
    }

    fn queue(permits: usize) -> (Queue<Counter>, Arc<Semaphore>) {
        let gate = Arc::new(Semaphore::new(permits));
        let worker = gate.clone();
        (Queue::start(1, move || Counter(worker.clone())), gate)
    }

    /// Polls a call once, and gives it back.
    fn begun<'a>(queue: &'a Queue<Counter>) -> Pin<Box<dyn Future<Output = Result<usize>> + 'a>> {
        let mut asking: Pin<Box<dyn Future<Output = Result<usize>> + 'a>> = Box::pin(queue.ask(()));
        assert!(asking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        asking
    }

    #[tokio::test]
    async fn who_is_alone_waits_for_no_other_task() {
        let (queue, _gate) = queue(1);
        let mut asking = Box::pin(queue.ask(()));
        let asked = asking.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(asked, std::task::Poll::Ready(Ok(1))), "no task had a turn in between");
    }

    #[tokio::test]
    async fn whoever_comes_while_others_wait_goes_with_the_others() {
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
    async fn one_who_is_alone_and_never_polled_again_holds_up_nobody() {
        let (queue, gate) = queue(0);
        let asleep = begun(&queue);
        gate.add_permits(10);
        assert_eq!(queue.ask(()).await.ok(), Some(1));
        drop(asleep);
        assert_eq!(queue.open.load(Ordering::Relaxed), 0, "who gives up is not counted any more");
        assert_eq!(queue.ask(()).await.ok(), Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_is_stopped_although_somebody_is_never_polled_again() {
        let (queue, _gate) = queue(0);
        let asleep = begun(&queue);
        queue.stop(Duration::from_mins(1)).await;
        assert!(matches!(queue.ask(()).await, Err(Error::Unavailable(_))));
        drop(asleep);
        assert!(
            matches!(queue.ask(()).await, Err(Error::Unavailable(_))),
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
        assert!(matches!(queue.ask(()).await, Err(Error::Unavailable(_))));
    }
}
