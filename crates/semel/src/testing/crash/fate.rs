//! The life of one engine, and its end: what it has written, and whether it is dead by now.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::point::{Moment, Point, Side};
use crate::error::{Error, Result};
use crate::id::NodeId;
use crate::rules::path::Visit;

/// Decides when an engine dies. A dead engine gets no answers, and nothing it does takes place.
pub(crate) struct Fate {
    end: Option<Point>,
    turns: u32,
    /// The write that was chosen to fail has failed; the same one is repeated.
    failed: AtomicBool,
    dead: AtomicBool,
    died: Notify,
    /// Number of calls of any kind. While it does not change, nothing happens.
    calls: AtomicU64,
    writes: Mutex<Vec<&'static str>>,
    nodes: Mutex<Vec<NodeId>>,
    /// The number of tasks that wait for something outside.
    outside: AtomicUsize,
}

/// A task waits for something outside, in real time, until this is dropped.
pub(crate) struct OutsideWait(Arc<Fate>);

impl Drop for OutsideWait {
    fn drop(&mut self) {
        self.0.outside.fetch_sub(1, Ordering::SeqCst);
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is a single push.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fate {
    pub(super) fn new(end: Option<Point>, turns: u32) -> Self {
        Self {
            end,
            turns,
            failed: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            died: Notify::new(),
            calls: AtomicU64::new(0),
            writes: Mutex::default(),
            nodes: Mutex::default(),
            outside: AtomicUsize::new(0),
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Ends the task that calls this.
    pub(super) fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.died.notify_one();
    }

    /// Resolves when the engine is dead.
    pub(super) async fn died(&self) {
        while !self.is_dead() {
            self.died.notified().await;
        }
    }

    /// Resolves only while the engine is alive.
    pub(super) async fn breathe(&self) {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }

    /// Delays a call by this number of turns of the other tasks.
    pub(super) async fn take_time(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        for _ in 0..self.turns {
            tokio::task::yield_now().await;
        }
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// A task begins to wait for something outside.
    pub(crate) fn outside(self: &Arc<Self>) -> OutsideWait {
        self.outside.fetch_add(1, Ordering::SeqCst);
        OutsideWait(self.clone())
    }

    pub(super) fn is_outside(&self) -> bool {
        self.outside.load(Ordering::SeqCst) > 0
    }

    /// The durable writes so far: the names of the calls, in their order.
    pub(super) fn writes(&self) -> Vec<&'static str> {
        lock(&self.writes).clone()
    }

    /// Called before a write; an error if the write must not take place.
    pub(super) fn before_write(&self, what: &'static str) -> Result<()> {
        let number = lock(&self.writes).len() + 1;
        if self.end == Some(Point::Write(number, Side::Before)) {
            self.die();
        }
        let fails = self.end == Some(Point::Answer(number, Side::Before));
        if fails && !self.failed.swap(true, Ordering::SeqCst) {
            return Err(Error::Unavailable(format!("{what} was not begun, on purpose").into()));
        }
        Ok(())
    }

    /// Called after a write; an error if its answer is lost.
    pub(super) fn wrote(&self, what: &'static str) -> Result<()> {
        let mut writes = lock(&self.writes);
        writes.push(what);
        if self.end == Some(Point::Write(writes.len(), Side::After)) {
            self.die();
        }
        if self.end == Some(Point::Answer(writes.len(), Side::After)) {
            return Err(Error::Unknown(format!("the answer to {what} is lost, on purpose").into()));
        }
        Ok(())
    }

    pub(super) fn joined(&self, node: NodeId) {
        lock(&self.nodes).push(node);
    }

    pub(super) fn nodes(&self) -> Vec<NodeId> {
        lock(&self.nodes).clone()
    }

    /// A step reaches a moment at which the engine may die.
    pub(crate) async fn pass(&self, step: &Visit, moment: Moment) {
        if let Some(Point::Body(path, when)) = &self.end
            && *when == moment
            && step.to_string() == *path
        {
            self.die();
        }
        self.breathe().await;
    }
}
