//! The client of the phase: starts runs of the definition, delivers what they wait for, cancels some, and remembers every answer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libtest_mimic::Failed;
use semel::clock::Clock as _;
use semel::testing::Dice;
use serde_json::{Value, json};

use super::parts::LINES;
use crate::api::{Question, Reply};
use crate::findings::{Findings, Sort};
use crate::site::Site;
use crate::trap::Trap;

/// How often it is looked whether a hook is open.
const ROUND: Duration = Duration::from_millis(60);
/// How long the end of a run is waited for in one question: shorter than the server lives.
const WAIT: Duration = Duration::from_secs(1);

/// How a run is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// At the end of its steps.
    Last,
    /// By a `return` in a branch.
    Return,
    /// By a `fail`, so that it is undone.
    Fail,
    /// It is asked to end, so that it is undone if it has not ended before.
    Cancel,
}

/// A run that was started, and what became of it.
#[derive(Clone, Debug)]
pub(super) struct DefinedLife {
    pub(super) place: String,
    pub(super) run: String,
    pub(super) ending: Ending,
    /// The answer about the run when it had ended.
    pub(super) detail: Value,
}

/// The client.
pub(super) struct DefinitionCaller {
    site: Arc<Site>,
    seed: u64,
    findings: Arc<Findings>,
    trap: Arc<Trap>,
    next: AtomicU64,
    over: AtomicBool,
    pub(super) starts: AtomicU64,
    pub(super) duplicates: AtomicU64,
    pub(super) deliveries: AtomicU64,
    pub(super) decisions: AtomicU64,
    lives: Mutex<Vec<DefinedLife>>,
}

impl DefinitionCaller {
    pub(super) fn new(site: Arc<Site>, seed: u64, findings: Arc<Findings>, trap: Arc<Trap>) -> Self {
        Self {
            site,
            seed,
            findings,
            trap,
            next: AtomicU64::new(0),
            over: AtomicBool::new(false),
            starts: AtomicU64::new(0),
            duplicates: AtomicU64::new(0),
            deliveries: AtomicU64::new(0),
            decisions: AtomicU64::new(0),
            lives: Mutex::default(),
        }
    }

    /// No more runs.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// How many runs were begun.
    pub(super) fn begun(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    pub(super) fn lives(&self) -> Vec<DefinedLife> {
        self.lives.lock().expect("no holder of the lock panics").clone()
    }

    /// Pushes the definitions.
    pub(super) async fn push(&self, definitions: &[String]) -> Result<(), Failed> {
        for text in definitions {
            let answer = self.site.api.push(text).await?;
            if !answer.is_ok() {
                return Err(format!("a push is answered with {} {}", answer.status, answer.body).into());
            }
        }
        Ok(())
    }

    /// One caller: one run after the other.
    pub(super) async fn call(self: Arc<Self>) {
        while !self.over.load(Ordering::SeqCst) {
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            if let Err(error) = self.order(number).await {
                let said = error.message().unwrap_or("no reason").to_owned();
                self.findings.add(Sort::Stuck, &format!("d{number}"), "", said);
            }
        }
    }

    async fn order(&self, number: u64) -> Result<(), Failed> {
        let mut dice = Dice::named(self.seed, &format!("definition {number}"));
        let (place, server) = (format!("d{number}"), dice.below(self.site.api.servers() as u64) as usize);
        let ending = match dice.below(10) {
            0 | 1 => Ending::Fail,
            2 | 3 => Ending::Return,
            4 => Ending::Cancel,
            _ => Ending::Last,
        };
        let first = self.start(server, &place, ending).await?;
        let run = first.text("/run/id");
        if dice.percent(10) {
            let again = self.start(server, &place, ending).await?;
            self.duplicates.fetch_add(1, Ordering::Relaxed);
            if again.text("/run/id") != run {
                let said = format!("the same start was also answered with {}", again.text("/run/id"));
                self.findings.add(Sort::Doubled, &run, "", said);
            }
        }
        let ended = AtomicBool::new(false);
        let (detail, early, late, cancelled) = tokio::join!(
            async {
                let detail = self.end_of(&run).await;
                ended.store(true, Ordering::SeqCst);
                detail
            },
            self.deliver(server, format!("{place}:changes"), 7, &ended),
            self.deliver(server, format!("{place}:late"), 8, &ended),
            self.cancel(server, &run, ending, dice.below(2_000)),
        );
        early?;
        late?;
        cancelled?;
        let life = DefinedLife { place, run, ending, detail: detail? };
        self.lives.lock().expect("no holder of the lock panics").push(life);
        Ok(())
    }

    async fn pause(&self, pause: Duration) {
        self.site.clock.until(self.site.clock.now().after(pause)).await;
    }

    async fn ask(&self, question: &Question) -> Result<Reply, Failed> {
        let reply = self.site.api.ask(question).await?;
        self.trap.spring(&self.site, reply.server)?;
        Ok(reply)
    }

    async fn start(&self, server: usize, place: &str, ending: Ending) -> Result<Reply, Failed> {
        self.starts.fetch_add(1, Ordering::Relaxed);
        let end = match ending {
            Ending::Return => "return",
            Ending::Fail => "fail",
            Ending::Last | Ending::Cancel => "last",
        };
        let input = json!({"place": place, "lines": LINES, "end": end});
        let body = json!({"definitionId": "everything", "input": input});
        let reply = self.ask(&Question::post(server, "/workflow-runs", place, body)).await?;
        if !reply.is_ok() || reply.text("/run/id").is_empty() {
            return Err(format!("a start is answered with {} {}", reply.status, reply.body).into());
        }
        Ok(reply)
    }

    async fn end_of(&self, run: &str) -> Result<Value, Failed> {
        loop {
            let path = format!("/workflow-runs/{run}?wait={}", WAIT.as_secs());
            let reply = self.site.api.ask(&Question { wait: WAIT, ..Question::get(0, path) }).await?;
            if !reply.is_ok() {
                return Err(format!("a run that was started is now {} {}", reply.status, reply.body).into());
            }
            if reply.body["endedAt"].is_string() {
                return Ok(reply.body);
            }
        }
    }

    /// Delivers to a hook as soon as it is open.
    async fn deliver(
        &self,
        server: usize,
        token: String,
        payload: u64,
        ended: &AtomicBool,
    ) -> Result<(), Failed> {
        while !ended.load(Ordering::SeqCst) {
            let question = Question::post(server, format!("/hooks/{token}"), &token, json!(payload));
            let reply = self.ask(&question).await?;
            match reply.status {
                404 => self.pause(ROUND).await,
                200 => {
                    self.deliveries.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                // The run was cancelled at the same time.
                _ if ended.load(Ordering::SeqCst) => return Ok(()),
                status => {
                    return Err(
                        format!("a delivery to {token} is answered with {status} {}", reply.body).into()
                    );
                }
            }
        }
        Ok(())
    }

    async fn cancel(&self, server: usize, run: &str, ending: Ending, millis: u64) -> Result<(), Failed> {
        if ending != Ending::Cancel {
            return Ok(());
        }
        self.pause(Duration::from_millis(millis)).await;
        let (path, body) = (format!("/workflow-runs/{run}/cancel"), json!({"graceful": true}));
        let reply = self.ask(&Question::post(server, path, &format!("cancel-{run}"), body)).await?;
        match reply.is_ok() {
            true => Ok(()),
            false => Err(format!("a cancel is answered with {} {}", reply.status, reply.body).into()),
        }
    }

    /// The people: they decide whatever is open, until there are no more runs.
    pub(super) async fn decide(self: Arc<Self>, until: Arc<AtomicBool>) {
        while !until.load(Ordering::SeqCst) {
            if let Err(error) = self.decide_all().await {
                self.findings.add(Sort::Stuck, "of people", "", error.message().unwrap_or("no reason"));
            }
            self.pause(ROUND).await;
        }
    }

    async fn decide_all(&self) -> Result<(), Failed> {
        let open = self.ask(&Question::get(0, "/approvals?limit=100")).await?;
        for approval in open.body["approvals"].as_array().into_iter().flatten() {
            let id = approval["id"].as_str().unwrap_or_default();
            let (answer, other) = match approval["task"].as_str() {
                Some("approval") => (json!({"decision": "approved"}), json!({"decision": "rejected"})),
                _ => (json!({"content": 5}), json!({"content": 6})),
            };
            let path = format!("/approvals/{id}/decide");
            let first = self.ask(&Question::post(0, path.clone(), &format!("{id}-1"), answer)).await?;
            // A run that was cancelled takes no decision.
            if !first.is_ok() {
                continue;
            }
            self.decisions.fetch_add(1, Ordering::Relaxed);
            let second = self.ask(&Question::post(0, path, &format!("{id}-2"), other)).await?;
            if !matches!(second.status, 404 | 409) {
                let said = format!("a second decision is answered with {} {}", second.status, second.body);
                self.findings.add(Sort::Wrong, id, "", said);
            }
        }
        Ok(())
    }
}
