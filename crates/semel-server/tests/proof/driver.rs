//! The client: starts programs, repeats calls without an answer, sends duplicates, sends other inputs under the same
//! key, delivers, cancels, supersedes, and remembers every answer.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libtest_mimic::Failed;
use semel::clock::Clock as _;
use semel::testing::Dice;
use serde_json::{Value, json};

use crate::api::{Question, Reply};
use crate::bulk::{self, Bulk};
use crate::execute::WORKFLOW;
use crate::findings::{Findings, Sort};
use crate::program::{Act, Expected, Program, draw};
use crate::site::{Site, Surroundings};
use crate::trap::Trap;

/// How often a client looks whether a hook is open.
const ROUND: Duration = Duration::from_millis(60);
/// How long the end of a run is waited for in one question.
const WAIT: Duration = Duration::from_secs(5);

/// A run that the driver has started, and what it was told about it.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) key: String,
    pub(crate) run: String,
    pub(crate) expected: Expected,
    /// What a cancel was answered with.
    pub(crate) cancel: Option<Cancel>,
    /// Whether a later start has taken this run's place.
    pub(crate) superseded: Superseded,
    /// Payloads that were accepted.
    pub(crate) delivered: Vec<Delivered>,
    /// The latest version, and the status that it ended with.
    pub(crate) version: u64,
    pub(crate) end: String,
}

impl Life {
    /// Whether it was asked to end, and did.
    pub(crate) fn ended_on_request(&self) -> bool {
        self.end == "CANCELLED" && self.cancel.as_ref().is_some_and(|cancel| cancel.graceful)
    }
}

/// What a later start was told about the run that held its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Superseded {
    /// It was not tried, or the run had ended before.
    Not,
    /// That it was cancelled.
    Told,
    /// Nothing: the answer that would have told was lost.
    Untold,
}

/// A payload that was accepted.
#[derive(Clone, Debug)]
pub(crate) struct Delivered {
    pub(crate) token: String,
    /// The run that got it.
    pub(crate) owner: String,
    /// The how manieth message of that run it is.
    pub(crate) arrival: u64,
}

/// An answer to a cancel.
#[derive(Clone, Debug)]
pub(crate) struct Cancel {
    pub(crate) graceful: bool,
    pub(crate) changed: bool,
    pub(crate) status: String,
    /// Whether an earlier answer was lost. Only the first call says that it has changed something.
    pub(crate) repeated: bool,
}

impl Cancel {
    /// Whether the run had not ended when it was answered.
    pub(crate) fn was_open(&self) -> bool {
        matches!(self.status.as_str(), "PENDING" | "RUNNING" | "WAITING" | "PAUSED")
    }
}

/// What is done to a run beside starting it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    LeftAlone,
    Cancelled { graceful: bool },
    Superseded,
}

/// How often something was asked.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) starts: AtomicU64,
    pub(crate) duplicates: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// Answers that came only after an earlier one was lost.
    pub(crate) repeated: AtomicU64,
    pub(crate) deliveries: AtomicU64,
    pub(crate) cancels: AtomicU64,
}

/// The client that starts programs.
pub(crate) struct Driver {
    site: Arc<Site>,
    seed: u64,
    findings: Arc<Findings>,
    trap: Arc<Trap>,
    next: AtomicU64,
    /// Programs with large values so far.
    pub(crate) bulky: AtomicU64,
    over: AtomicBool,
    pub(crate) asked: Asked,
    /// Of all programs that were drawn to be started, also of those whose end was not seen.
    begun: Mutex<Vec<Expected>>,
    lives: Mutex<Vec<Life>>,
}

impl Driver {
    pub(crate) fn new(site: Arc<Site>, seed: u64, findings: Arc<Findings>, trap: Arc<Trap>) -> Self {
        let (next, over, asked) = (AtomicU64::new(0), AtomicBool::new(false), Asked::default());
        let (begun, lives, bulky) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
        Self { site, seed, findings, trap, next, bulky, over, asked, begun, lives }
    }

    /// No more orders.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn lives(&self) -> Vec<Life> {
        self.lives.lock().expect("no holder of the lock panics").clone()
    }

    pub(crate) fn begun(&self) -> Vec<Expected> {
        self.begun.lock().expect("no holder of the lock panics").clone()
    }

    /// Draws a program that is going to be started.
    fn draw(&self, dice: &mut Dice, place: String) -> Program {
        let mut bulky = Dice::named(self.seed, &format!("bulk {place}"));
        let mut program = draw(dice, place);
        // There is no room for much on a small disk, and the players of other languages have no such part.
        let layout = &self.site.layout;
        let is_bulky = !matches!(layout.surroundings, Surroundings::Small(_)) && layout.language.is_none();
        if is_bulky
            && bulky.below(bulk::RARITY) == 0
            && self.bulky.fetch_add(1, Ordering::SeqCst) < bulk::MOST
        {
            program.acts.push(Act::Bulk(Bulk::draw(&mut bulky)));
        }
        self.begun.lock().expect("no holder of the lock panics").push(Expected::of(&program));
        program
    }

    /// One caller: asks for one order after the other.
    pub(crate) async fn call(self: Arc<Self>) {
        while !self.over.load(Ordering::SeqCst) {
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            if let Err(error) = self.order(number).await {
                let said = error.message().unwrap_or("no reason").to_owned();
                self.findings.add(Sort::Stuck, &format!("key-{number}"), "", said);
            }
        }
    }

    async fn order(&self, number: u64) -> Result<(), Failed> {
        let mut dice = Dice::named(self.seed, &format!("order {number}"));
        let program = self.draw(&mut dice, format!("o{number}"));
        let (key, server) = (format!("key-{number}"), dice.below(self.site.api.servers() as u64) as usize);
        let start = || self.start(server, &key, &program, None);
        let reply = match dice.below(100) {
            // At the same time, at both servers if there are two.
            0..5 => {
                let (one, two) = tokio::join!(start(), self.start(server + 1, &key, &program, None));
                let (one, two) = (one?, two?);
                self.duplicate(&key, &one, &two);
                one
            }
            5..10 => {
                let one = start().await?;
                self.pause(dice.below(400)).await;
                let two = start().await?;
                self.duplicate(&key, &one, &two);
                one
            }
            _ => start().await?,
        };
        if dice.percent(2) {
            self.other(server, &key, &program).await?;
        }
        let fate = match dice.below(100) {
            0..4 => Fate::Cancelled { graceful: false },
            4..8 => Fate::Cancelled { graceful: true },
            8..11 => Fate::Superseded,
            _ => Fate::LeftAlone,
        };
        self.live(key, reply.text("/run/id"), program, fate, dice).await
    }

    async fn pause(&self, millis: u64) {
        self.site.clock.until(self.site.clock.now().after(Duration::from_millis(millis))).await;
    }

    /// Starts a program; it must be answered with a run.
    async fn start(
        &self,
        server: usize,
        key: &str,
        program: &Program,
        policy: Option<&str>,
    ) -> Result<Reply, Failed> {
        self.asked.starts.fetch_add(1, Ordering::Relaxed);
        let mut body = json!({"workflow": WORKFLOW, "input": program});
        if let Some(policy) = policy {
            body["onConflict"] = policy.into();
        }
        if let Some(token) = carried(program) {
            let (payload, id) = (bulk::payload(&token, 0), format!("{token} 0"));
            body["deliver"] = json!({"token": token, "payload": payload, "id": id});
        }
        let reply = self.site.api.ask(&Question::post(server, "/workflow-runs", key, body)).await?;
        self.trap.spring(&self.site, reply.server)?;
        self.asked.repeated.fetch_add(u64::from(reply.repeated), Ordering::Relaxed);
        if !reply.is_ok() || reply.text("/run/id").is_empty() {
            return Err(format!("a start is answered with {} {}", reply.status, reply.body).into());
        }
        Ok(reply)
    }

    /// Two starts under one key are one run.
    fn duplicate(&self, key: &str, one: &Reply, two: &Reply) {
        self.asked.duplicates.fetch_add(1, Ordering::Relaxed);
        let (run, other) = (one.text("/run/id"), two.text("/run/id"));
        if run != other {
            self.findings.add(Sort::Doubled, &run, "", format!("{key} was also answered with {other}"));
        }
        if one.status == 201 && two.status == 201 {
            self.findings.add(
                Sort::Doubled,
                &run,
                "",
                format!("two starts of {key} say that they created it"),
            );
        }
    }

    /// Something else under the same key is refused.
    async fn other(&self, server: usize, key: &str, program: &Program) -> Result<(), Failed> {
        let program = Program { place: format!("{}x", program.place), ..program.clone() };
        let body = json!({"workflow": WORKFLOW, "input": program});
        let reply = self.site.api.ask(&Question::post(server, "/workflow-runs", key, body)).await?;
        self.asked.refused.fetch_add(1, Ordering::Relaxed);
        if (reply.status, reply.text("/code").as_str()) != (422, "KEY_REUSED") {
            let said = format!("another payload is answered with {} {}", reply.status, reply.body);
            self.findings.add(Sort::Wrong, key, "", said);
        }
        Ok(())
    }

    /// Accompanies a run to its end.
    fn live(
        &self,
        key: String,
        run: String,
        program: Program,
        fate: Fate,
        mut dice: Dice,
    ) -> Pin<Box<dyn Future<Output = Result<(), Failed>> + Send + '_>> {
        Box::pin(async move {
            let expected = Expected::of(&program);
            let ended = AtomicBool::new(false);
            let watches = dice.percent(20);
            let (mut deliver, mut fated) = (dice.clone(), Dice::named(dice.below(u64::MAX), "fate"));
            let (end, delivered, met) = tokio::join!(
                async {
                    let end = self.end_of(&run, watches).await;
                    ended.store(true, Ordering::SeqCst);
                    end
                },
                self.deliver(&run, &program, &ended, &mut deliver),
                self.meet(&key, &run, &program, fate, &mut fated),
            );
            let ((version, end), delivered, (cancel, superseded)) = (end?, delivered?, met?);
            let life = Life { key, run, expected, cancel, superseded, delivered, version, end };
            self.lives.lock().expect("no holder of the lock panics").push(life);
            Ok(())
        })
    }

    /// Waits for a run's end. With `watches`, every version is looked at: it only grows.
    async fn end_of(&self, run: &str, watches: bool) -> Result<(u64, String), Failed> {
        let mut seen = 0;
        loop {
            let version = if watches { format!("&version={seen}") } else { String::new() };
            let path = format!("/workflow-runs/{run}?wait={}{version}", WAIT.as_secs());
            let question = Question { wait: WAIT, ..Question::get(seen as usize, path) };
            let reply = self.site.api.ask(&question).await?;
            if !reply.is_ok() {
                let said = format!("it was answered with 2xx and is now {} {}", reply.status, reply.body);
                self.findings.add(Sort::Lost, run, "", said);
                return Ok((seen, "GONE".to_owned()));
            }
            let version = reply.body["version"].as_u64().unwrap_or_default();
            if version < seen {
                self.findings.add(Sort::Lost, run, "", format!("version {seen} has become {version}"));
            }
            seen = seen.max(version);
            if reply.body["endedAt"].is_string() {
                return Ok((seen, reply.text("/status")));
            }
        }
    }

    /// Delivers what the hooks of a run wait for, some of it twice.
    async fn deliver(
        &self,
        run: &str,
        program: &Program,
        ended: &AtomicBool,
        dice: &mut Dice,
    ) -> Result<Vec<Delivered>, Failed> {
        let (mut delivered, carried) = (Vec::new(), carried(program));
        for (token, payloads) in Expected::of(program).tokens {
            let mut number = 0;
            // What came with the start is asked for even if the run has ended: it was accepted, and is remembered.
            while number < payloads
                && (!ended.load(Ordering::SeqCst) || (number == 0 && carried.as_ref() == Some(&token)))
            {
                let server = dice.below(self.site.api.servers() as u64) as usize;
                let id = format!("{token} {number}");
                let question =
                    Question::post(server, format!("/hooks/{token}"), &id, bulk::payload(&token, number));
                let reply = self.site.api.ask(&question).await?;
                self.trap.spring(&self.site, reply.server)?;
                if number == 0 && carried.as_ref() == Some(&token) {
                    self.carried(run, &token, &reply);
                } else if reply.status == 404 {
                    self.pause(ROUND.as_millis() as u64).await;
                    continue;
                }
                if !reply.is_ok() {
                    let said = format!("a delivery is answered with {} {}", reply.status, reply.body);
                    self.findings.add(Sort::Wrong, run, &token, said);
                    return Ok(delivered);
                }
                self.asked.deliveries.fetch_add(1, Ordering::Relaxed);
                if dice.percent(20) {
                    self.deliver_again(run, &token, &question, &reply).await?;
                }
                let arrival = reply.body["arrival"].as_u64().unwrap_or_default();
                delivered.push(Delivered { token: token.clone(), owner: reply.text("/run"), arrival });
                number += 1;
            }
        }
        Ok(delivered)
    }

    /// The start of the run was answered with 2xx: so what came with it was accepted, whatever became of the run since.
    fn carried(&self, run: &str, token: &str, reply: &Reply) {
        if reply.status != 200 || reply.body["absorbed"] != true {
            let said =
                format!("it came with the start, and again is answered with {} {}", reply.status, reply.body);
            self.findings.add(Sort::Lost, run, token, said);
        }
    }

    /// A delivery that was accepted is absorbed, even if its hook is closed by now.
    async fn deliver_again(
        &self,
        run: &str,
        token: &str,
        question: &Question,
        first: &Reply,
    ) -> Result<(), Failed> {
        let again = self.site.api.ask(question).await?;
        let same = again.body["arrival"] == first.body["arrival"] && again.body["absorbed"] == true;
        if again.is_ok() && same {
            return Ok(());
        }
        // A server that does not know the key any more has forgotten it; one that takes it anew takes it twice.
        let sort = if again.is_ok() { Sort::Doubled } else { Sort::Lost };
        let said = format!(
            "the same delivery again is answered with {} {}, after {}",
            again.status, again.body, first.body
        );
        self.findings.add(sort, run, token, said);
        Ok(())
    }

    /// Does to a run what is its fate.
    async fn meet(
        &self,
        key: &str,
        run: &str,
        program: &Program,
        fate: Fate,
        dice: &mut Dice,
    ) -> Result<(Option<Cancel>, Superseded), Failed> {
        let server = dice.below(self.site.api.servers() as u64) as usize;
        match fate {
            Fate::LeftAlone => Ok((None, Superseded::Not)),
            Fate::Cancelled { graceful } => {
                self.pause(dice.below(500)).await;
                self.asked.cancels.fetch_add(1, Ordering::Relaxed);
                let (path, id) = (format!("/workflow-runs/{run}/cancel"), format!("cancel-{run}"));
                let body = json!({"graceful": graceful, "reason": "as planned"});
                let reply = self.site.api.ask(&Question::post(server, path, &id, body)).await?;
                if !reply.is_ok() {
                    let said = format!("a cancel is answered with {} {}", reply.status, reply.body);
                    self.findings.add(Sort::Wrong, run, "", said);
                }
                let (changed, status) =
                    (reply.body["changed"] == Value::Bool(true), reply.text("/run/status"));
                Ok((Some(Cancel { graceful, changed, status, repeated: reply.repeated }), Superseded::Not))
            }
            Fate::Superseded => {
                self.pause(dice.below(500)).await;
                let next = self.draw(dice, format!("{}s", program.place));
                let reply = self.start(server, key, &next, Some("supersede")).await?;
                let (other, replaced) = (reply.text("/run/id"), reply.text("/superseded"));
                if other == run {
                    let said = format!("another payload was attached to it: {}", reply.body);
                    self.findings.add(Sort::Wrong, run, "", said);
                    return Ok((None, Superseded::Not));
                }
                self.live(key.to_owned(), other, next, Fate::LeftAlone, dice.clone()).await?;
                Ok((
                    None,
                    match (replaced == run, reply.repeated) {
                        (true, _) => Superseded::Told,
                        (false, true) => Superseded::Untold,
                        (false, false) => Superseded::Not,
                    },
                ))
            }
        }
    }
}

/// The token whose first payload comes with the start, before there is a hook; it is delivered once more later. Of half of
/// the programs that can have one: only a token of the run itself, which owns it from then on; a child could not have it.
fn carried(program: &Program) -> Option<String> {
    let (token, _) = Expected::of(program).tokens.into_iter().next()?;
    let own = token.starts_with(&format!("{}:", program.place));
    (own && token.len().is_multiple_of(2)).then_some(token)
}
