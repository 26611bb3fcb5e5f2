//! The callers: several for each order, over HTTP. A caller without an answer repeats the call.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use semel::clock::Clock;
use semel::rules::status::Status;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::plan::Customer;
use super::tally::ShowEvent;
use crate::api::{ControlAnswer, DeliverAnswer, ProblemView, StartAnswer};
use crate::demo::order::OrderApproval;
use crate::demo::{DemoError, NAME, Order, token};
use crate::http::PREFIX;

/// Pause before a call without an answer is repeated.
const PAUSE: Duration = Duration::from_millis(25);
/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an answer is to wait for the end of a run, in seconds.
const WAIT: &str = "wait=3";

/// A caller of the engine.
#[derive(Clone)]
pub(super) struct CrowdCaller {
    http: reqwest::Client,
    engine: watch::Receiver<SocketAddr>,
    tell: UnboundedSender<ShowEvent>,
    clock: Arc<dyn Clock>,
}

/// A start, as it travels.
#[derive(Serialize)]
struct StartRequest<'a> {
    workflow: &'static str,
    input: &'a Order,
}

/// A call that is repeated until it has an answer.
struct CrowdCall<'a> {
    path: String,
    key: Option<&'a str>,
    wait: bool,
    body: Vec<u8>,
    order: &'a str,
}

impl CrowdCaller {
    pub(super) fn new(
        engine: watch::Receiver<SocketAddr>,
        tell: UnboundedSender<ShowEvent>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, DemoError> {
        Ok(Self { http: crate::demo::http_client()?, engine, tell, clock })
    }

    fn say(&self, seen: ShowEvent) {
        // The receiver is gone once the demo is over.
        drop(self.tell.send(seen));
    }

    async fn pause(&self, time: Duration) {
        self.clock.until(self.clock.now().after(time)).await;
    }

    /// All calls about one order, until it has ended.
    pub(super) async fn order(self, customer: Customer) {
        self.pause(customer.after).await;
        join_all((0..customer.copies).map(|_| self.start(&customer, false))).await;
        self.say(ShowEvent::Sent { order: customer.order.order.clone(), copies: customer.copies });
        if let Some(other) = customer.impostor {
            self.impersonate(&customer, other).await;
        }
        tokio::select! {
            () = self.approve(&customer) => {}
            () = self.end(&customer) => {}
        }
        self.say(ShowEvent::Ended);
    }

    /// Starts the order, or finds the run that it has.
    async fn start(&self, customer: &Customer, wait: bool) -> Option<StartAnswer> {
        let Order { order, .. } = &customer.order;
        let answer = self.send_start(customer, &customer.order, wait).await.ok()?;
        let (run, created) = (answer.run.id.clone(), answer.created);
        self.say(ShowEvent::Started { order: order.clone(), run, created });
        Some(answer)
    }

    /// Sends another input under the same key.
    async fn impersonate(&self, customer: &Customer, other: u64) {
        let input = Order { amount: other, ..customer.order.clone() };
        let code = self.send_start(customer, &input, false).await.err().map(|problem| problem.code);
        self.say(ShowEvent::Impostor { order: input.order, code });
    }

    async fn send_start(
        &self,
        customer: &Customer,
        input: &Order,
        wait: bool,
    ) -> Result<StartAnswer, ProblemView> {
        let body = json(&StartRequest { workflow: NAME, input });
        let (path, key) = ("/workflow-runs".to_owned(), Some(&*customer.key));
        self.call(CrowdCall { path, key, wait, body, order: &input.order }).await
    }

    /// Approves the order as soon as its hook is open, and then once more. It ends with its order.
    async fn approve(&self, customer: &Customer) {
        if customer.needs_approval() {
            let order = &customer.order.order;
            while !self.deliver(order).await {
                self.pause(PAUSE).await;
            }
            self.deliver(order).await;
        }
        std::future::pending::<()>().await;
    }

    /// Delivers the approval, always under the same id; false if no hook is open.
    async fn deliver(&self, order: &str) -> bool {
        let body = json(&OrderApproval { approved: true, by: "Ada".to_owned() });
        let id = format!("click-{order}");
        let path = format!("/hooks/{}", token(order));
        let call = CrowdCall { path, key: Some(&id), wait: false, body, order };
        match self.call::<DeliverAnswer>(call).await {
            Ok(DeliverAnswer { absorbed, .. }) => {
                self.say(ShowEvent::Delivered { order: order.to_owned(), absorbed });
                true
            }
            Err(_) => false,
        }
    }

    /// Asks for the result until there is one, by starting the order again: that is what keys are for.
    async fn end(&self, customer: &Customer) {
        loop {
            match self.start(customer, true).await {
                Some(answer) if answer.run.status.is_terminal() => return,
                Some(answer) if answer.run.status == Status::Paused => {
                    self.resume(&customer.order.order, &answer.run.id).await;
                }
                _ => self.pause(PAUSE).await,
            }
        }
    }

    /// An operator has looked at a run that died with its engine again and again, and lets it go on.
    async fn resume(&self, order: &str, run: &str) {
        let path = format!("/workflow-runs/{run}/resume");
        let call = CrowdCall { path, key: None, wait: false, body: b"{}".to_vec(), order };
        if self.call::<ControlAnswer>(call).await.is_ok_and(|answer| answer.changed) {
            self.say(ShowEvent::Resumed { order: order.to_owned() });
        }
        self.pause(PAUSE).await;
    }

    /// Calls until there is an answer.
    async fn call<T: DeserializeOwned>(&self, call: CrowdCall<'_>) -> Result<T, ProblemView> {
        loop {
            let answered = self.call_once(&call).await;
            match answered {
                Ok((status, text)) if status < 300 => {
                    if let Ok(answer) = serde_json::from_str(&text) {
                        return Ok(answer);
                    }
                }
                // 5xx: not now.
                Ok((status, text)) if status < 500 => {
                    if let Ok(problem) = serde_json::from_str(&text) {
                        return Err(problem);
                    }
                }
                Ok(_) => {}
                // The engine was down.
                Err(error) if error.is_connect() => {}
                Err(_) => self.say(ShowEvent::CutOff { order: call.order.to_owned() }),
            }
            self.pause(PAUSE).await;
        }
    }

    async fn call_once(&self, call: &CrowdCall<'_>) -> reqwest::Result<(u16, String)> {
        let url = format!("http://{}{PREFIX}{}", *self.engine.borrow(), call.path);
        let mut request = self.http.post(url).timeout(PATIENCE).body(call.body.clone());
        request = request.header("content-type", "application/json");
        if let Some(key) = call.key {
            request = request.header("idempotency-key", key);
        }
        if call.wait {
            request = request.header("prefer", WAIT);
        }
        let response = request.send().await?;
        Ok((response.status().as_u16(), response.text().await?))
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data")
}
