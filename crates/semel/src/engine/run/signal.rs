//! How a driver is woken: by its workflow, or because something about the run has changed.

use std::pin::pin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Wake, Waker};

use super::cell::Cell;

const WOKEN: u8 = 1;
const NUDGED: u8 = 2;
const EASED: u8 = 4;

/// Wakes the driver of a run. It tells apart wake-ups of the workflow from those of the driver's own affairs, and needs
/// no trip through the runtime while the driver is being polled.
#[derive(Debug, Default)]
pub(in crate::engine) struct Signal {
    flags: AtomicU8,
    /// Whether the driver is being polled right now: then it looks at the flags itself before it leaves.
    inside: AtomicBool,
    task: OnceLock<Waker>,
}

impl Signal {
    /// The driver comes in.
    pub(in crate::engine) fn enter(&self, task: &Waker) {
        self.task.get_or_init(|| task.clone());
        self.inside.store(true, Ordering::SeqCst);
    }

    /// The driver leaves, whatever was called meanwhile.
    pub(in crate::engine) fn exit(&self) {
        self.inside.store(false, Ordering::SeqCst);
    }

    /// The driver wants to leave; false if it has to stay, because it was called meanwhile.
    pub(in crate::engine) fn leave(&self) -> bool {
        self.inside.store(false, Ordering::SeqCst);
        // After the store: a call from now on sees it and wakes the task.
        let called = self.flags.load(Ordering::SeqCst) != 0;
        if called {
            self.inside.store(true, Ordering::SeqCst);
        }
        !called
    }

    /// Whether the workflow was woken, and that is still to be taken.
    pub(in crate::engine) fn is_woken(&self) -> bool {
        self.flags.load(Ordering::SeqCst) & WOKEN != 0
    }

    /// Whether the workflow was woken since it was asked last.
    pub(in crate::engine) fn take_woken(&self) -> bool {
        self.flags.fetch_and(!WOKEN, Ordering::SeqCst) & WOKEN != 0
    }

    /// Whether something about the run has changed since it was asked last.
    pub(in crate::engine) fn take_nudged(&self) -> bool {
        self.flags.fetch_and(!(NUDGED | EASED), Ordering::SeqCst) & (NUDGED | EASED) != 0
    }

    /// Forgets the flag: the driver's next look sees what is over by now.
    pub(in crate::engine) fn take_eased(&self) {
        self.flags.fetch_and(!EASED, Ordering::SeqCst);
    }

    /// Something about the run has changed.
    pub(in crate::engine) fn nudge(&self) {
        self.call(NUDGED);
    }

    /// Something that kept the run from moving on is over. The driver sees it without another round, if it was the
    /// workflow's own turn that ended it.
    pub(in crate::engine) fn ease(&self) {
        self.call(EASED);
    }

    /// The workflow can go on.
    pub(in crate::engine) fn woken(&self) {
        self.call(WOKEN);
    }

    fn call(&self, flag: u8) {
        self.flags.fetch_or(flag, Ordering::SeqCst);
        if !self.inside.load(Ordering::SeqCst)
            && let Some(task) = self.task.get()
        {
            task.wake_by_ref();
        }
    }
}

/// A turn that comes after all other tasks that could go on have had one.
#[derive(Debug)]
pub(in crate::engine) struct LastTurn {
    come: AtomicBool,
    cell: Arc<Cell>,
}

impl LastTurn {
    pub(in crate::engine) fn ask(cell: Arc<Cell>) -> Arc<Self> {
        let turn = Arc::new(Self { come: AtomicBool::new(false), cell });
        let waker = Waker::from(turn.clone());
        // Polled once: the runtime keeps the waker until then, and the rest of it is of no use.
        let _pending = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&waker));
        turn
    }

    pub(in crate::engine) fn has_come(&self) -> bool {
        self.come.load(Ordering::SeqCst)
    }
}

impl Wake for LastTurn {
    fn wake(self: Arc<Self>) {
        self.come.store(true, Ordering::SeqCst);
        self.cell.nudge();
    }
}
