//! What was put into the inboxes of runs: consumed once and in order, or shown as left; and nothing else is left there.

use std::collections::{HashMap, HashSet};

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use libtest_mimic::Failed;
use serde_json::Value;

use super::{AT_ONCE, Checker};
use crate::api::Question;
use crate::bulk::number_of;
use crate::driver::{Delivered, Life};
use crate::findings::Sort;

/// The entries by which a run takes a message out of its inbox. Messages are numbered without a gap as they arrive.
const CONSUMING: [&str; 4] = ["hookReceived", "childFinished", "noted", "cancelling"];

impl Checker<'_> {
    /// Looks into the inboxes of all lives and their children, which are known by their places.
    pub(super) async fn inboxes(
        &self,
        details: &HashMap<String, Value>,
        places: &HashMap<&str, &Value>,
    ) -> Result<(), Failed> {
        let checked = stream::iter(self.lives).map(async |life: &Life| {
            self.left(life, places);
            let owners: HashSet<&String> = life.delivered.iter().map(|delivered| &delivered.owner).collect();
            for detail in owners.into_iter().filter_map(|owner| details.get(owner)) {
                self.owner(life, detail).await?;
            }
            match details.get(&life.run) {
                Some(detail) => self.wish(life, detail).await,
                None => Ok(()),
            }
        });
        checked.buffer_unordered(AT_ONCE).try_collect().await
    }

    /// In the inbox of a run that has completed nothing is left that it had to read, nor in those of its children.
    fn left(&self, life: &Life, places: &HashMap<&str, &Value>) {
        if life.end != "COMPLETED" {
            return;
        }
        for (number, place) in life.expected.places.iter().enumerate() {
            let (Some(detail), false) = (places.get(place.as_str()), life.expected.asking.contains(place))
            else {
                continue;
            };
            // The request to end came too late to be read.
            let wish = life.cancel.as_ref().is_some_and(|cancel| cancel.graceful) && number == 0;
            if left(detail) > u64::from(wish) {
                let said = format!("{} messages are left in its inbox", left(detail));
                self.findings.add(Sort::Wrong, &text(&detail["id"]), place, said);
            }
        }
    }

    /// A wish to end that was accepted was seen, or is still there.
    async fn wish(&self, life: &Life, detail: &Value) -> Result<(), Failed> {
        let accepted = life.cancel.as_ref().is_some_and(|cancel| {
            cancel.graceful && (cancel.changed || (cancel.repeated && cancel.was_open()))
        });
        if !accepted || detail["status"] != "COMPLETED" || left(detail) > 0 {
            return Ok(());
        }
        let entries = self.ledger(detail).await?;
        if !entries.iter().any(|entry| entry["cancelling"].is_object() || entry["noted"].is_object()) {
            let said = "it was asked to end, has completed, and knows nothing of that";
            self.findings.add(Sort::Lost, &life.run, "", said);
        }
        Ok(())
    }

    /// What was accepted for a run was received once and in order, or is left.
    async fn owner(&self, life: &Life, detail: &Value) -> Result<(), Failed> {
        let (run, entries) = (text(&detail["id"]), self.ledger(detail).await?);
        let delivered: Vec<&Delivered> =
            life.delivered.iter().filter(|delivered| delivered.owner == run).collect();
        let consumed: Vec<u64> = entries.iter().filter_map(consumes).collect();
        let (once, left): (HashSet<&u64>, u64) = (consumed.iter().collect(), left(detail));
        if once.len() < consumed.len() {
            let said = format!("it has consumed the messages {consumed:?}");
            self.findings.add(Sort::Doubled, &run, "", said);
        }
        let arrived = delivered.iter().map(|delivered| delivered.arrival).max().unwrap_or_default();
        if once.len() as u64 + left < arrived {
            let said =
                format!("of at least {arrived} messages it has consumed {consumed:?}, {left} are left");
            self.findings.add(Sort::Lost, &run, "", said);
        }
        for token in delivered.iter().map(|delivered| &delivered.token).collect::<HashSet<_>>() {
            let accepted: Vec<u64> = delivered
                .iter()
                .filter(|delivered| delivered.token == *token)
                .map(|delivered| delivered.arrival)
                .collect();
            self.hook(&run, token, &accepted, &received(&entries, token));
        }
        Ok(())
    }

    /// What a token has received, each with its arrival, is the beginning of what was accepted for it.
    fn hook(&self, run: &str, token: &str, accepted: &[u64], received: &[(u64, u64)]) {
        let last = received.iter().map(|(arrival, _)| *arrival).max().unwrap_or_default();
        let arrivals: Vec<u64> = received.iter().map(|(arrival, _)| *arrival).collect();
        let said = format!("accepted were the arrivals {accepted:?}, received {received:?}");
        if accepted.iter().any(|arrival| *arrival < last && !arrivals.contains(arrival)) {
            self.findings.add(Sort::Lost, run, token, said.clone());
        }
        let in_order = received.iter().map(|(_, payload)| *payload).eq(0..received.len() as u64);
        if !in_order || arrivals.iter().any(|arrival| !accepted.contains(arrival)) {
            self.findings.add(Sort::Doubled, run, token, said);
        }
    }

    /// The entries of a run that has ended, all of them.
    async fn ledger(&self, detail: &Value) -> Result<Vec<Value>, Failed> {
        let (run, version) = (text(&detail["id"]), detail["version"].as_u64().unwrap_or_default());
        let mut entries: Vec<Value> = Vec::new();
        while (entries.len() as u64) < version {
            let from = entries.len() + 1;
            let path = format!("/workflow-runs/{run}/ledger?from={from}&limit=1000");
            let page = self.site.api.ask(&Question::get(0, path)).await?;
            match page.body["entries"].as_array() {
                Some(lines) if page.is_ok() && !lines.is_empty() => {
                    entries.extend(lines.iter().map(|line| line["entry"].clone()));
                }
                _ => {
                    let said = format!(
                        "it has version {version}, and from {from} on its ledger is {} {}",
                        page.status, page.body
                    );
                    self.findings.add(Sort::Lost, &run, "", said);
                    break;
                }
            }
        }
        Ok(entries)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn left(detail: &Value) -> u64 {
    detail["unconsumed"].as_u64().unwrap_or_default()
}

/// The message that an entry has consumed.
fn consumes(entry: &Value) -> Option<u64> {
    CONSUMING.iter().find_map(|name| entry[name]["arrival"].as_u64())
}

/// Arrival and payload of all that a token has received.
fn received(entries: &[Value], token: &str) -> Vec<(u64, u64)> {
    let hook = format!("@hook[{token}]");
    let received = entries.iter().map(|entry| &entry["hookReceived"]);
    let of_token = received.filter(|entry| entry["hook"].as_str().is_some_and(|name| name.ends_with(&hook)));
    of_token.filter_map(|entry| Some((entry["arrival"].as_u64()?, number_of(&entry["payload"])?))).collect()
}
