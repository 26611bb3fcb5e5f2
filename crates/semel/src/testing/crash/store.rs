//! The store of an engine that will die: once it is dead, no call takes place or is answered.

use std::sync::Arc;

use super::fate::Fate;
use crate::clock::Time;
use crate::error::Result;
use crate::rules::claim::Claim;
use crate::rules::node::EngineRecord;
use crate::rules::record::{Keep, Record};
use crate::store::layer::{StoreCall, StoreLayer, StoreWork};
use crate::store::{Answer, Claims, Lease, LeaseAct, Store, Sweep, Swept};

/// What an engine that will die sees of a store that lives on.
pub(super) struct Mortal {
    store: Arc<dyn Store>,
    fate: Arc<Fate>,
}

impl Mortal {
    pub(super) fn new(store: Arc<dyn Store>, fate: Arc<Fate>) -> Self {
        Self { store, fate }
    }

    /// A call at which the engine does not die, but which a dead one cannot make.
    async fn read<T: Send + 'static>(&self, work: StoreWork<T>) -> Result<T> {
        self.fate.take_time().await;
        self.fate.breathe().await;
        let answer = work(self.store.clone()).await;
        self.fate.take_time().await;
        self.fate.breathe().await;
        answer
    }

    /// A durable write: the engine may die before it, or after it and before its answer.
    async fn write<T: Send + 'static>(&self, name: &'static str, work: StoreWork<T>) -> Result<T> {
        let fate = self.fate.clone();
        let write = move |store: Arc<dyn Store>| -> Answer<'static, T> {
            Box::pin(async move {
                fate.before_write(name)?;
                fate.breathe().await;
                // What was refused has written nothing.
                let answer = work(store).await?;
                fate.wrote(name)?;
                Ok(answer)
            })
        };
        self.read(Box::new(write)).await
    }
}

impl StoreLayer for Mortal {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn around<T: Send + 'static>(&self, call: StoreCall, work: StoreWork<T>) -> Answer<'_, T> {
        Box::pin(async move {
            match call.writes {
                true => self.write(call.name, work).await,
                false => self.read(work).await,
            }
        })
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Claims> {
        let fate = self.fate.clone();
        let work = move |store: Arc<dyn Store>| -> Answer<'static, Claims> {
            Box::pin(async move {
                let claims = store.claim(claim).await?;
                // Most claims find nothing. What was before one that finds something was after the write before.
                if !claims.runs.is_empty() {
                    fate.wrote("claim")?;
                }
                Ok(claims)
            })
        };
        Box::pin(self.read(Box::new(work)))
    }

    fn lease(&self, lease: Lease) -> Answer<'_, Time> {
        if matches!(lease.act, LeaseAct::Join(_)) {
            self.fate.joined(lease.node);
        }
        Box::pin(self.read(Box::new(move |store| Box::pin(async move { store.lease(lease).await }))))
    }

    fn keep(&self, keep: Keep) -> Answer<'_, Record> {
        // The record of an engine makes no difference to a run.
        let kept_for_runs = keep.kind != EngineRecord::kind();
        let work = move |store: Arc<dyn Store>| -> Answer<'static, Record> {
            Box::pin(async move { store.keep(keep).await })
        };
        Box::pin(async move {
            match kept_for_runs {
                true => self.write("keep", Box::new(work)).await,
                false => self.read(Box::new(work)).await,
            }
        })
    }

    fn sweep(&self, sweep: Sweep) -> Answer<'_, Swept> {
        Box::pin(self.read(Box::new(move |store| Box::pin(async move { store.sweep(sweep).await }))))
    }

    /// The store lives on.
    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}
