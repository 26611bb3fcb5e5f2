//! Time that passes only when nothing else can happen, and the clocks that nodes read it from.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use semel::clock::{Clock, Time, Until};
use uuid::{Builder, Uuid};

use crate::stage::Stage;

/// Ends at this time of the simulation; waits for the same time end in the order in which they began.
pub(crate) struct Wait {
    stage: Arc<Stage>,
    at: Time,
    id: Option<u64>,
}

impl Wait {
    pub(crate) fn new(stage: Arc<Stage>, at: Time) -> Self {
        Self { stage, at, id: None }
    }
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (stage, at) = (self.stage.clone(), self.at);
        let mut scene = stage.lock();
        if scene.now >= at {
            return Poll::Ready(());
        }
        let id = *self.id.get_or_insert_with(|| scene.next_number());
        scene.waiting.insert((at, id), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.stage.lock().waiting.remove(&(self.at, id));
        }
    }
}

/// The clock of a node in one life: its error is constant, and it stands still with its node.
pub(crate) struct NodeClock {
    pub(crate) stage: Arc<Stage>,
    pub(crate) node: usize,
    pub(crate) life: u32,
}

impl Clock for NodeClock {
    fn now(&self) -> Time {
        let scene = self.stage.lock();
        let node = &scene.nodes[self.node];
        Time(node.frozen_at.unwrap_or(scene.now).0 + node.wrong_by)
    }

    fn uuid(&self) -> Uuid {
        let now = self.now();
        let count = self.stage.lock().next_number();
        let mut random = [0; 10];
        random[2..].copy_from_slice(&count.to_be_bytes());
        Builder::from_unix_timestamp_millis(now.0.unsigned_abs(), &random).into_uuid()
    }

    fn until(&self, at: Time) -> Until {
        let wrong_by = self.stage.lock().nodes[self.node].wrong_by;
        let (stage, node, life) = (self.stage.clone(), self.node, self.life);
        Box::pin(async move {
            stage.until(Time(at.0.saturating_sub(wrong_by))).await;
            stage.gate(node, life).await;
        })
    }
}

/// The store's clock: it shows what time it is.
pub(crate) struct StoreClock(pub(crate) Arc<Stage>);

impl Clock for StoreClock {
    fn now(&self) -> Time {
        self.0.lock().now
    }

    fn uuid(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.0.lock().next_number()))
    }

    fn until(&self, at: Time) -> Until {
        Box::pin(self.0.until(at))
    }
}
