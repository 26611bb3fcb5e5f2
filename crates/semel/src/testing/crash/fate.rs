//! The life of one engine, and its end: what it has written, and whether it is dead by now.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::point::{Moment, Point, Side};
use crate::id::NodeId;
use crate::rules::path::Visit;

/// Decides when an engine dies. Dead, it hears nothing any more and nothing it does takes place.
pub(crate) struct Fate {
    end: Option<Point>,
    dead: AtomicBool,
    died: Notify,
    /// Calls of any kind: when they stop, nothing moves.
    calls: AtomicU64,
    writes: Mutex<Vec<&'static str>>,
    nodes: Mutex<Vec<NodeId>>,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is a single push.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fate {
    pub(super) fn new(end: Option<Point>) -> Self {
        Self {
            end,
            dead: AtomicBool::new(false),
            died: Notify::new(),
            calls: AtomicU64::new(0),
            writes: Mutex::default(),
            nodes: Mutex::default(),
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Ends here.
    pub(super) fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.died.notify_one();
    }

    /// Is over when the engine is dead.
    pub(super) async fn died(&self) {
        while !self.is_dead() {
            self.died.notified().await;
        }
    }

    /// Goes on only if it is alive.
    pub(super) async fn breathe(&self) {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }

    pub(super) fn called(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// What it has written: the names of the calls, in their order.
    pub(super) fn writes(&self) -> Vec<&'static str> {
        lock(&self.writes).clone()
    }

    /// Is about to write.
    pub(super) fn before_write(&self) {
        let number = lock(&self.writes).len() + 1;
        if self.end == Some(Point::Write(number, Side::Before)) {
            self.die();
        }
    }

    /// Has written.
    pub(super) fn wrote(&self, what: &'static str) {
        let mut writes = lock(&self.writes);
        writes.push(what);
        if self.end == Some(Point::Write(writes.len(), Side::After)) {
            self.die();
        }
    }

    pub(super) fn joined(&self, node: NodeId) {
        lock(&self.nodes).push(node);
    }

    pub(super) fn nodes(&self) -> Vec<NodeId> {
        lock(&self.nodes).clone()
    }

    /// A step comes by a moment at which the engine may die.
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
