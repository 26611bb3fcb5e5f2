//! A delivery that is described first and takes place when it is awaited.

use std::future::IntoFuture;
use std::pin::Pin;

use super::caller::EngineOrClient;
use crate::error::Result;
use crate::rules::deliver::{Deliver, Delivered};
use crate::rules::json::{InvalidJson, Payload};
use crate::rules::key::{CallId, Token};

/// A delivery that has not taken place yet. It does when it is awaited.
#[must_use = "a delivery takes place when it is awaited"]
#[derive(Debug)]
pub struct DeliverTo {
    caller: EngineOrClient,
    token: String,
    payload: Result<Payload, InvalidJson>,
    id: Option<String>,
}

impl DeliverTo {
    pub(super) fn new(caller: EngineOrClient, token: String, payload: Result<Payload, InvalidJson>) -> Self {
        Self { caller, token, payload, id: None }
    }

    /// Id under which the delivery may be repeated: a second one under the same id is absorbed.
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
            let deliver = Deliver {
                workspace: self.caller.workspace(),
                token: Token::new(self.token)?,
                payload: self.payload?,
                id: self.id.map(CallId::new).transpose()?,
            };
            self.caller.store().deliver(deliver).await
        })
    }
}
