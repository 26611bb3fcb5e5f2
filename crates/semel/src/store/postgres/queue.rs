//! Calls of many callers, answered together. While one batch is under way the next one fills up; there is no timer and
//! no waiting.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, oneshot};

use super::tasks::{Stop, Tasks};
use crate::error::{Error, Result, Source};

/// A call on its way, and who waits for it.
pub(super) struct Job<C, A> {
    pub(super) call: C,
    reply: oneshot::Sender<Result<A>>,
}

impl<C, A> Job<C, A> {
    /// Answers. Whoever no longer waits needs no answer.
    pub(super) fn answer(self, answer: impl FnOnce(C) -> Result<A>) {
        drop(self.reply.send(answer(self.call)));
    }
}

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
    /// Answers all of these, and leaves none.
    fn work(&mut self, jobs: &mut Vec<Job<Self::Call, Self::Answer>>) -> impl Future<Output = ()> + Send;
}

/// The way into the batches.
pub(super) struct Queue<W: Worker> {
    sender: mpsc::UnboundedSender<Job<W::Call, W::Answer>>,
    workers: Tasks,
}

type Jobs<W> = Arc<Mutex<mpsc::UnboundedReceiver<Job<<W as Worker>::Call, <W as Worker>::Answer>>>>;

impl<W: Worker> Queue<W> {
    /// Starts the workers. They end when this is dropped or stopped, and all that was queued is answered.
    pub(super) fn start(workers: impl IntoIterator<Item = W>) -> Self {
        let (sender, jobs) = mpsc::unbounded_channel();
        let (jobs, tasks) = (Arc::new(Mutex::new(jobs)), Tasks::new());
        for worker in workers {
            tasks.spawn(|stop| work(worker, jobs.clone(), stop));
        }
        Self { sender, workers: tasks }
    }

    pub(super) async fn ask(&self, call: W::Call) -> Result<W::Answer> {
        let (reply, answer) = oneshot::channel();
        let closed = |_| Error::Unavailable("the store is closed".into());
        self.sender.send(Job { call, reply }).map_err(closed)?;
        // No answer: the task has gone down with the runtime, perhaps after it has written.
        answer.await.unwrap_or_else(|gone| Err(Error::Unknown(Box::new(gone))))
    }

    /// Takes no more, and waits until everything that was queued is answered.
    pub(super) async fn stop(&self) {
        self.workers.stop().await;
    }
}

async fn work<W: Worker>(mut worker: W, queue: Jobs<W>, mut stop: Stop) {
    let mut jobs = Vec::new();
    while next::<W>(&queue, &mut jobs, &mut stop).await {
        worker.work(&mut jobs).await;
        jobs.clear();
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
