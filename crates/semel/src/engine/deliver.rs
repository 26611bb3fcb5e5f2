//! Delivering a payload: what is asked, before it takes place.

use std::future::IntoFuture;
use std::pin::Pin;

use super::Engine;
use crate::error::Result;
use crate::rules::deliver::{Deliver, Delivered};
use crate::rules::json::{InvalidJson, Payload};
use crate::rules::key::{CallId, Token};

/// A delivery that has not taken place yet. It does when it is awaited.
#[must_use = "a delivery takes place when it is awaited"]
#[derive(Debug)]
pub struct DeliverTo {
    engine: Engine,
    token: String,
    payload: Result<Payload, InvalidJson>,
    id: Option<String>,
}

impl DeliverTo {
    pub(super) fn new(engine: Engine, token: String, payload: Result<Payload, InvalidJson>) -> Self {
        Self { engine, token, payload, id: None }
    }

    /// The id under which it may be repeated: the second time it is absorbed.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }
}

impl IntoFuture for DeliverTo {
    type Output = Result<Delivered>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let core = self.engine.core();
            let deliver = Deliver {
                workspace: core.workspace,
                token: Token::new(self.token)?,
                payload: self.payload?,
                id: self.id.map(CallId::new).transpose()?,
            };
            core.store.deliver(deliver).await
        })
    }
}
