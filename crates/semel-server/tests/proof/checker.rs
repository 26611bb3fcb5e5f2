//! Holds what runs say over the public API against what the recorder knows: nothing lost, nothing twice, every run ended,
//! every answer true.

mod inboxes;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use libtest_mimic::Failed;
use semel::clock::Clock as _;
use serde_json::{Value, json};

use crate::api::Question;
use crate::books::{Books, Call};
use crate::driver::{Life, Superseded};
use crate::execute::{QUEUE, Told, WORKFLOW};
use crate::findings::{Findings, Sort};
use crate::program::{Effect, Expected, Kind, PARTS, cleaned};
use crate::rows::Row;
use crate::site::Site;

/// So many questions at once.
const AT_ONCE: usize = 8;
/// One clock is read by three processes in whole milliseconds.
const ROUNDING: i64 = 2;
/// So many duplicates are sent when all is calm, and must be seen.
const RECEIPTS: usize = 20;
/// A receipt is written behind; it does not take that long.
const WRITTEN: Duration = Duration::from_secs(10);

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) runs: u64,
    pub(crate) asked: u64,
    pub(crate) applied: u64,
    pub(crate) absorbed: u64,
    /// Calls that the recorder has refused because a look-up had reported that they would not come.
    pub(crate) overtaken: u64,
    /// Results that the servers have refused because their run was another's.
    pub(crate) late: u64,
}

/// Who checks.
pub(crate) struct Checker<'a> {
    site: &'a Site,
    findings: Arc<Findings>,
    begun: &'a [Expected],
    lives: &'a [Life],
    calls: HashMap<&'a str, Vec<&'a Call>>,
    rows: HashMap<&'a str, Vec<&'a Row>>,
    books: &'a Books,
}

impl<'a> Checker<'a> {
    pub(crate) fn new(
        site: &'a Site,
        findings: Arc<Findings>,
        begun: &'a [Expected],
        lives: &'a [Life],
        books: &'a Books,
    ) -> Self {
        let (mut calls, mut rows): (HashMap<_, Vec<_>>, HashMap<_, Vec<_>>) = Default::default();
        for call in &books.calls {
            calls.entry(call.ask.at.as_str()).or_default().push(call);
        }
        for row in &books.rows {
            rows.entry(row.at.as_str()).or_default().push(row);
        }
        Self { site, findings, begun, lives, calls, rows, books }
    }

    /// Everything.
    pub(crate) async fn check(&self) -> Result<Counted, Failed> {
        let runs = self.runs(WORKFLOW).await?;
        let queued = self.runs(&format!("queue:{QUEUE}")).await?;
        let details = self.details(&runs).await?;
        let late = details.values().map(late).sum();
        for detail in details.values() {
            self.run(detail);
        }
        let places = self.places(details.values());
        self.onces(details.values());
        for life in self.lives {
            match details.get(&life.run) {
                Some(detail) => self.life(life, detail),
                None => {
                    let said = format!("{} was answered with it", life.key);
                    self.findings.add(Sort::Lost, &life.run, "", said);
                }
            }
        }
        self.known();
        self.hooks().await?;
        self.inboxes(&details, &places).await?;
        self.receipts().await?;
        let calls = &self.books.calls;
        let count = |wanted: fn(&Call) -> bool| calls.iter().filter(|call| wanted(call)).count() as u64;
        let rows = self.books.rows.len() as u64;
        Ok(Counted {
            runs: (runs.len() + queued.len()) as u64,
            asked: calls.len() as u64 + rows,
            applied: count(|call| call.applied) + rows,
            absorbed: count(|call| call.number.is_some() && !call.applied),
            overtaken: count(|call| call.refused),
            late,
        })
    }

    /// The ids of all runs of a workflow; each has ended.
    async fn runs(&self, workflow: &str) -> Result<Vec<String>, Failed> {
        let (mut runs, mut cursor) = (Vec::new(), String::new());
        loop {
            let path = format!("/workflow-runs?workflow={}&limit=500{cursor}", workflow.replace(':', "%3A"));
            let reply = self.site.api.ask(&Question::get(0, path)).await?;
            let page = match reply.is_ok() && reply.body["runs"].is_array() {
                true => reply.body,
                false => {
                    return Err(format!("a list is answered with {} {}", reply.status, reply.body).into());
                }
            };
            for run in page["runs"].as_array().into_iter().flatten() {
                let id = run["id"].as_str().unwrap_or_default();
                if !run["endedAt"].is_string() {
                    self.findings.add(Sort::Stuck, id, "", format!("it is {}", run["status"]));
                }
                runs.push(id.to_owned());
            }
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok(runs),
            }
        }
    }

    async fn details(&self, runs: &[String]) -> Result<HashMap<String, Value>, Failed> {
        let detail = async |run: &String| {
            let reply = self.site.api.ask(&Question::get(0, format!("/workflow-runs/{run}"))).await?;
            if !reply.is_ok() {
                let said = format!("it is in the list, and answered with {} {}", reply.status, reply.body);
                self.findings.add(Sort::Lost, run, "", said);
            }
            Ok(reply.is_ok().then(|| (run.clone(), reply.body)))
        };
        let all: Vec<Result<Option<_>, Failed>> =
            stream::iter(runs).map(detail).buffer_unordered(AT_ONCE).collect().await;
        all.into_iter().filter_map(Result::transpose).collect()
    }

    /// All runs by their places. Each place was asked for, and has one run.
    fn places<'b>(&self, details: impl Iterator<Item = &'b Value>) -> HashMap<&'b str, &'b Value> {
        let known: HashSet<&str> =
            self.begun.iter().flat_map(|expected| &expected.places).map(String::as_str).collect();
        let mut places: HashMap<&str, &Value> = HashMap::new();
        for detail in details {
            let text = |value: &'b Value| value.as_str().unwrap_or_default();
            let (run, place) = (text(&detail["id"]), text(&detail["input"]["place"]));
            if !known.contains(place) {
                self.findings.add(Sort::Wrong, run, place, "no program asks for it");
            }
            if let Some(other) = places.insert(place, detail) {
                self.findings.add(Sort::Doubled, run, place, format!("{} is a run of it too", other["id"]));
            }
        }
        places
    }

    /// What a run says of its steps is so outside, whatever its end.
    fn run(&self, detail: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (run, place) = (text(&detail["id"]), text(&detail["input"]["place"]));
        for step in detail["steps"].as_array().into_iter().flatten() {
            let tick = match step["tick"].as_u64() {
                None | Some(1) => String::new(),
                Some(tick) => format!("#{tick}"),
            };
            let (at, key) = (format!("{place} {}{tick}", text(&step["path"])), text(&step["effectKey"]));
            if step["status"] == "COMPLETED" && !self.took_place(&at, &key) {
                let said = format!("it says that this is done, and nothing was done under {key}");
                self.findings.add(Sort::Lost, &run, &at, said);
            }
            if let Some(other) = self.other_key(&at, &key) {
                self.findings.add(Sort::Doubled, &run, &at, format!("{key} and {other} are keys of it"));
            }
        }
        if !matches!(detail["status"].as_str(), Some("COMPLETED" | "CANCELLED"))
            && detail["endedAt"].is_string()
        {
            let said = format!("it is {} with {}", detail["status"], detail["error"]);
            self.findings.add(Sort::Wrong, &run, "", said);
        }
    }

    fn took_place(&self, at: &str, key: &str) -> bool {
        let called = self
            .calls
            .get(at)
            .is_some_and(|calls| calls.iter().any(|call| call.ask.key == key && call.number.is_some()));
        called || self.rows.get(at).is_some_and(|rows| rows.iter().any(|row| row.key == key))
    }

    fn other_key(&self, at: &str, key: &str) -> Option<&str> {
        let calls = self.calls.get(at).into_iter().flatten().map(|call| call.ask.key.as_str());
        let rows = self.rows.get(at).into_iter().flatten().map(|row| row.key.as_str());
        calls.chain(rows).find(|other| *other != key)
    }

    /// All runs have the same value of what was done once for all.
    fn onces<'b>(&self, details: impl Iterator<Item = &'b Value>) {
        let mut values: HashMap<String, u64> = HashMap::new();
        for detail in details {
            for (at, number) in told(detail).into_iter().filter(|(at, _)| at.starts_with("once ")) {
                let first = *values.entry(at.clone()).or_insert(number);
                if first != number {
                    let run = detail["id"].as_str().unwrap_or_default();
                    self.findings.add(
                        Sort::Doubled,
                        run,
                        &at,
                        format!("it has {number}, others have {first}"),
                    );
                }
            }
        }
    }

    /// What the driver was told about a run is so.
    fn life(&self, life: &Life, detail: &Value) {
        let status = detail["status"].as_str().unwrap_or_default();
        let wrong = |said: String| self.findings.add(Sort::Wrong, &life.run, "", said);
        if detail["key"] != life.key.as_str() {
            wrong(format!("it was started under {} and has {}", life.key, detail["key"]));
        }
        if detail["input"]["place"].as_str() != life.expected.places.first().map(String::as_str) {
            wrong(format!(
                "it was started for {:?} and has {}",
                life.expected.places, detail["input"]["place"]
            ));
        }
        if detail["version"].as_u64() < Some(life.version) {
            wrong(format!("it had version {} and has {}", life.version, detail["version"]));
        }
        if life.end != status {
            wrong(format!("it had ended as {} and is {status}", life.end));
        }
        if life.superseded == Superseded::Told && status != "CANCELLED" {
            wrong(format!("a later start was told that it took its place, and it is {status}"));
        }
        match &life.cancel {
            Some(cancel) if !cancel.graceful => {
                let won = cancel.changed || (cancel.repeated && cancel.status == "CANCELLED");
                if (status == "CANCELLED") != won || cancel.status != status {
                    wrong(format!("its cancel was answered with {cancel:?}, and it is {status}"));
                }
            }
            Some(cancel) if status == "CANCELLED" && !cancel.changed && !cancel.repeated => {
                wrong(format!("its cancel was answered with {cancel:?}, and it is cancelled"));
            }
            None if status == "CANCELLED" && life.superseded == Superseded::Not => {
                wrong("it was not cancelled by a client".to_owned());
            }
            _ => {}
        }
        let completed = status == "COMPLETED";
        let told: HashMap<String, u64> = told(detail).into_iter().collect();
        for effect in &life.expected.effects {
            self.effect(life, effect, completed, &told);
        }
        self.clean_up(life, status);
        self.received(life, completed, &told);
        self.naps(life);
    }

    fn effect(&self, life: &Life, effect: &Effect, completed: bool, told: &HashMap<String, u64>) {
        let at = effect.at.as_str();
        let (keys, numbers) = self.applied(at, effect.kind);
        let add = |sort, said: String| self.findings.add(sort, &life.run, at, said);
        if numbers.len() > 1 || keys.len() > 1 {
            add(Sort::Doubled, format!("{:?}: it took place as {numbers:?} under {keys:?}", effect.kind));
        }
        if !completed {
            return;
        }
        if effect.required && numbers.is_empty() {
            add(Sort::Lost, "the run has completed, and it did not take place".to_owned());
        }
        match (told.get(at), numbers.first()) {
            (None, _) if effect.required && effect.told => {
                add(Sort::Lost, "the run's result does not tell of it".to_owned());
            }
            (Some(said), Some(number)) if said != number => {
                add(Sort::Wrong, format!("the run was told {said}, the recorder knows {number}"));
            }
            _ => {}
        }
    }

    /// The keys under which something was asked for at a place, and the numbers of what was done there.
    fn applied(&self, at: &str, kind: Kind) -> (HashSet<&str>, Vec<u64>) {
        if kind == Kind::Row {
            let rows = self.rows.get(at).map_or(&[][..], Vec::as_slice);
            return (
                rows.iter().map(|row| row.key.as_str()).collect(),
                rows.iter().map(|row| row.number).collect(),
            );
        }
        let calls = self.calls.get(at).map_or(&[][..], Vec::as_slice);
        let applied = calls.iter().filter(|call| call.applied).filter_map(|call| call.number);
        (calls.iter().map(|call| call.ask.key.as_str()).collect(), applied.collect())
    }

    /// A run that was asked to end has cleaned up, each part once; no other run has.
    fn clean_up(&self, life: &Life, status: &str) {
        let graceful = life.cancel.as_ref().is_some_and(|cancel| cancel.graceful);
        for (number, place) in life.expected.places.iter().enumerate() {
            for part in PARTS {
                let at = cleaned(place, part);
                let (keys, numbers) = self.applied(&at, Kind::Keyed);
                if numbers.len() > 1 || keys.len() > 1 {
                    self.findings.add(Sort::Doubled, &life.run, &at, format!("{numbers:?} under {keys:?}"));
                }
                if number == 0 && graceful && status == "CANCELLED" && numbers.is_empty() {
                    self.findings.add(
                        Sort::Lost,
                        &life.run,
                        &at,
                        "it was asked to end and has not cleaned up",
                    );
                }
                // Children of a cancelled run are asked to end, however it was cancelled, and may clean up.
                let may = if number == 0 { graceful } else { status != "COMPLETED" };
                if !keys.is_empty() && (!may || status == "COMPLETED") {
                    let said =
                        format!("it is {status}, no client has asked it to end, and it has cleaned up");
                    self.findings.add(Sort::Wrong, &life.run, &at, said);
                }
            }
        }
    }

    /// What was delivered to a run that has completed was received once and in order.
    fn received(&self, life: &Life, completed: bool, told: &HashMap<String, u64>) {
        for (token, payloads) in life.expected.tokens.iter().filter(|_| completed) {
            for number in 0..*payloads {
                let at = format!("{token} {number}");
                if told.get(&at) != Some(&u64::from(number)) {
                    let said = format!("it received {:?}", told.get(&at));
                    self.findings.add(Sort::Wrong, &life.run, &at, said);
                }
            }
        }
    }

    /// No timer has fired early: the first call after it came no sooner than it may after the first before it.
    fn naps(&self, life: &Life) {
        for nap in &life.expected.naps {
            let first = |at: &str, applied: bool| {
                let calls = self.calls.get(at)?.iter().filter(|call| call.applied || !applied);
                calls.map(|call| call.came.0).min()
            };
            if let (Some(before), Some(after)) = (first(&nap.before, true), first(&nap.after, false)) {
                let slept = after - before;
                if slept + ROUNDING < nap.millis as i64 {
                    let said = format!("a timer of {} ms has fired after {slept} ms", nap.millis);
                    self.findings.add(Sort::Wrong, &life.run, &nap.after, said);
                }
            }
        }
    }

    /// No effect took place that no program asks for; each key belongs to one visit.
    fn known(&self) {
        let mut known: HashSet<String> = HashSet::new();
        for expected in self.begun {
            known.extend(expected.effects.iter().map(|effect| effect.at.clone()));
            known.extend(expected.places.iter().flat_map(|place| PARTS.map(|part| cleaned(place, part))));
        }
        let mut owners: HashMap<&str, &str> = HashMap::new();
        let asked = self.books.calls.iter().map(|call| (&call.ask.at, &call.ask.key, call.ask.run.as_str()));
        let rows = self.books.rows.iter().map(|row| (&row.at, &row.key, ""));
        for (at, key, run) in asked.chain(rows) {
            if !known.contains(at) {
                self.findings.add(Sort::Wrong, run, at, "no program that was started has this effect");
            }
            let owner = *owners.entry(key).or_insert(at);
            if owner != at {
                self.findings.add(Sort::Doubled, run, at, format!("its key {key} is that of {owner}"));
            }
        }
    }

    /// Every token is free.
    async fn hooks(&self) -> Result<(), Failed> {
        for life in self.lives {
            for (token, _) in &life.expected.tokens {
                let reply = self.site.api.ask(&Question::get(0, format!("/hooks/{token}"))).await?;
                if reply.status != 404 {
                    let said = format!("its token is still owned: {} {}", reply.status, reply.body);
                    self.findings.add(Sort::Wrong, &life.run, token, said);
                }
            }
        }
        Ok(())
    }

    /// Duplicates that are sent now are attached, and seen on their run. (A crash may lose receipts of its last moment.)
    async fn receipts(&self) -> Result<(), Failed> {
        let held: Vec<&Life> = self.lives.iter().filter(|life| life.superseded == Superseded::Not).collect();
        for life in held.iter().step_by((held.len() / RECEIPTS).max(1)) {
            let key = self.site.api.ask(&Question::get(0, format!("/keys/{}", life.key))).await?;
            let holder = key.text("/run/id");
            if !key.is_ok() || !self.lives.iter().any(|other| other.key == life.key && other.run == holder) {
                let said = format!("its key {} is answered with {} {}", life.key, key.status, key.body);
                self.findings.add(Sort::Lost, &life.run, "", said);
                continue;
            }
            if holder != life.run {
                // Superseded after its end: the key is the later run's.
                continue;
            }
            let before = absorbed(&key.body);
            let path = format!("/workflow-runs/{}", life.run);
            let input = self.site.api.ask(&Question::get(0, path)).await?.body["input"].clone();
            let body = json!({"workflow": WORKFLOW, "input": input});
            let reply = self.site.api.ask(&Question::post(0, "/workflow-runs", &life.key, body)).await?;
            if reply.status != 200 || reply.text("/run/id") != life.run {
                let said = format!("a duplicate at the end is answered with {} {}", reply.status, reply.body);
                self.findings.add(Sort::Lost, &life.run, "", said);
            }
            let end = self.site.clock.now().after(WRITTEN);
            while absorbed(&self.site.api.ask(&Question::get(0, format!("/keys/{}", life.key))).await?.body)
                <= before
            {
                if self.site.clock.now() > end {
                    self.findings.add(Sort::Lost, &life.run, "", "the receipt of a duplicate is not shown");
                    break;
                }
                self.site.clock.until(self.site.clock.now().after(Duration::from_millis(50))).await;
            }
        }
        Ok(())
    }
}

/// What a run tells of itself.
fn told(detail: &Value) -> Told {
    serde_json::from_value(detail["result"].clone()).unwrap_or_default()
}

fn receipts(body: &Value, kind: &str) -> u64 {
    let all = body["duplicates"].as_array().into_iter().flatten();
    all.filter(|receipt| receipt["kind"] == kind).filter_map(|receipt| receipt["count"].as_u64()).sum()
}

fn absorbed(body: &Value) -> u64 {
    receipts(body, "start")
}

fn late(detail: &Value) -> u64 {
    receipts(detail, "result")
}
