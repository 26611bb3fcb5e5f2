//! Requests over HTTP, counted by route and status.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use axum::extract::MatchedPath;
use axum::http::Method;
use metrics::{Counter, Histogram, counter, histogram};

use super::{REQUEST_SECONDS, REQUESTS};

/// Paths without a route count as one: callers can invent any number of them.
const NO_ROUTE: &str = "none";

type RouteMeters = HashMap<(&'static str, u16), (Counter, Histogram)>;

/// The meters of requests, each looked up once. There are as many as routes, methods and statuses.
#[derive(Debug, Default)]
pub struct Requests(RwLock<HashMap<String, RouteMeters>>);

impl Requests {
    /// The name of a route: its pattern, never the path itself, which holds keys and tokens.
    pub fn route(path: Option<&MatchedPath>) -> &str {
        path.map_or(NO_ROUTE, MatchedPath::as_str)
    }

    /// Counts an answered request.
    pub fn answered(&self, route: &str, method: &Method, status: u16, took: Duration) {
        let key = (name(method), status);
        let count = |(counter, histogram): &(Counter, Histogram)| {
            counter.increment(1);
            histogram.record(took);
        };
        let meters = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = meters.get(route).and_then(|meters| meters.get(&key)) {
            return count(found);
        }
        drop(meters);
        let mut meters = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let labels =
            [("route", route.to_owned()), ("method", key.0.to_owned()), ("status", status.to_string())];
        let made = || (counter!(REQUESTS, &labels), histogram!(REQUEST_SECONDS, "route" => route.to_owned()));
        count(meters.entry(route.to_owned()).or_default().entry(key).or_insert_with(made));
    }
}

/// Methods that no route has count as one, for the same reason.
fn name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
