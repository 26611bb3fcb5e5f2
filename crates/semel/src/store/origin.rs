//! Who makes the calls of a task. Receipts say it, so that a duplicate tells where it came from.
//!
//! It travels with the task and not with the calls: nothing is decided by it, and most calls leave no receipt.

use std::sync::Arc;

tokio::task_local! {
    static ORIGIN: Arc<Origin>;
}

/// The caller of a request, for the receipts of its calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Name of the caller, such as that of its API key. None if it is not known.
    pub by: Option<String>,
    /// Id of the request. None if it has none.
    pub request_id: Option<String>,
}

impl Origin {
    /// Runs a future whose calls of a store come from this caller.
    pub async fn around<F: Future>(self, calls: F) -> F::Output {
        ORIGIN.scope(Arc::new(self), calls).await
    }

    /// The caller of the running task. None outside of [`Origin::around`], and in tasks that it has spawned: give it to them.
    pub fn current() -> Option<Self> {
        ORIGIN.try_with(|origin| Self::clone(origin)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_caller_is_known_in_its_own_task_only() {
        let origin = Origin { by: Some("shop".to_owned()), request_id: None };
        assert_eq!(Origin::current(), None);
        let (inside, spawned) = origin
            .clone()
            .around(async { (Origin::current(), tokio::spawn(async { Origin::current() }).await.unwrap()) })
            .await;
        assert_eq!((inside, spawned), (Some(origin), None));
    }
}
