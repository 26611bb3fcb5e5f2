//! The provider of effects. It remembers every call. A call under a known key has no second effect, except for letters, whose
//! provider does not recognise repetitions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use semel::clock::Time;
use semel::id::RunId;
use semel::rules::entry::Class;
use semel::{Attempt, Fail};
use tokio::sync::oneshot;

use crate::case::{Trouble, What};
use crate::programs::{Answer, Nap, Outside};
use crate::stage::Stage;

/// The try of a step whose body has begun.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    pub(crate) node: usize,
    pub(crate) life: u32,
    pub(crate) at: Time,
    /// Its position in the sequence of all events.
    pub(crate) order: u64,
    pub(crate) run: RunId,
    pub(crate) path: String,
    pub(crate) number: u32,
    pub(crate) fence: u64,
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) class: Class,
}

/// What was asked for, and what was done.
#[derive(Default)]
pub(crate) struct Provider {
    /// Bodies of steps, in the order in which they began.
    pub(crate) begun: Vec<Begun>,
    /// Bodies of `run_once` in the order in which they began: their run and node.
    pub(crate) onces: Vec<(RunId, usize)>,
    /// Tasks that wait for the next body of either kind.
    pub(crate) expectant: Vec<Waker>,
    /// How often each key was asked for, with and without success.
    pub(crate) asked: BTreeMap<String, usize>,
    /// What was done under a key: its name, which of that name, and how often it arrived here.
    pub(crate) done: BTreeMap<String, (String, u32, u32)>,
    /// Position of the event in which a node, in one life, was last told what was done under a key.
    pub(crate) told: BTreeMap<(String, usize, u32), u64>,
    /// Keys for which something is under way: a body, or its call.
    pub(crate) under_way: BTreeMap<String, u32>,
}

impl Provider {
    /// How many bodies have begun in a run, and on which node the latest.
    pub(crate) fn bodies(&self, run: RunId) -> (usize, Option<usize>) {
        let steps = self.begun.iter().filter(|begun| begun.run == run).map(|begun| begun.node);
        let onces = self.onces.iter().filter(|(of, _)| *of == run).map(|(_, node)| *node);
        let nodes: Vec<_> = onces.chain(steps).collect();
        (nodes.len(), nodes.last().copied())
    }

    /// How many bodies have begun in all.
    pub(crate) fn begun(&self) -> usize {
        self.begun.len() + self.onces.len()
    }

    /// The run that does something under a key, in this life of a node if it has begun there.
    fn run_of(&self, key: &str, node: usize, life: u32) -> Option<RunId> {
        let of_key = || self.begun.iter().rev().filter(|begun| begun.key == key);
        let here = of_key().find(|begun| (begun.node, begun.life) == (node, life));
        here.or_else(|| of_key().next()).map(|begun| begun.run)
    }

    fn apply(&mut self, name: &str, key: &str) -> u32 {
        let number = 1 + self.done.values().filter(|(done, ..)| done == name).count() as u32;
        let done = self.done.entry(key.to_owned()).or_insert_with(|| (name.to_owned(), number, 0));
        done.2 += 1;
        done.1
    }
}

/// How long the body of a `run_once` takes, in milliseconds.
const ONCE: u64 = 900;

/// How long a node is gone that has died of a poisonous run, in milliseconds.
const POISONED: u64 = 100;

/// The access of a node, in one life, to the provider.
pub(crate) struct Way {
    pub(crate) stage: Arc<Stage>,
    pub(crate) node: usize,
    pub(crate) life: u32,
}

/// Marks a key as under way.
struct UnderWay(Arc<Stage>, String);

impl UnderWay {
    fn new(stage: &Arc<Stage>, key: &str) -> Self {
        *stage.lock().provider.under_way.entry(key.to_owned()).or_default() += 1;
        Self(stage.clone(), key.to_owned())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(count) = self.0.lock().provider.under_way.get_mut(&self.1) {
            *count -= 1;
        }
    }
}

impl Way {
    /// The run that asks for an effect, and what goes wrong with it.
    fn trouble(&self, key: &str, once: Option<RunId>) -> (Option<RunId>, Option<Trouble>) {
        let mut scene = self.stage.lock();
        let run = once.or_else(|| scene.provider.run_of(key, self.node, self.life));
        let trouble = scene.trouble(self.node, What::Effect);
        if run.is_some_and(|run| scene.is_poisonous(run)) && scene.lives(self.node, self.life) {
            scene.figures.count("nodes poisoned");
            return (run, Some(Trouble::Dies { before: true, down: POISONED }));
        }
        (run, trouble)
    }

    /// The run that asks what was done, and what goes wrong with that.
    fn looks_up(&self, key: &str) -> (Option<RunId>, Option<Trouble>) {
        let mut scene = self.stage.lock();
        let run = scene.provider.run_of(key, self.node, self.life);
        if let Some((run, claim)) = run.and_then(|run| Some((run, scene.oracle.runs.get(&run)?.claim))) {
            scene.executes(run, claim, self.node, self.life);
        }
        (run, scene.trouble(self.node, What::LookUp))
    }
}

impl Outside for Way {
    fn begins(&self, name: &str, class: Class, attempt: &Attempt) {
        let mut scene = self.stage.lock();
        let begun = Begun {
            node: self.node,
            life: self.life,
            at: scene.now,
            order: scene.next_number(),
            run: attempt.run_id(),
            path: attempt.path(),
            number: attempt.number(),
            fence: attempt.fence(),
            name: name.to_owned(),
            key: attempt.key().to_owned(),
            class,
        };
        scene.begins(begun);
    }

    fn apply(&self, name: String, key: String, once: Option<RunId>) -> Answer<'_, u32> {
        let here = UnderWay::new(&self.stage, &key);
        *self.stage.lock().provider.asked.entry(key.clone()).or_default() += 1;
        if let Some(run) = once {
            self.stage.lock().makes_once(run, &key, self.node, self.life);
        }
        Box::pin(async move {
            let _here = here;
            let (mut there, mut back) = self.stage.way();
            if once.is_some() {
                // It takes longer, so that others come meanwhile.
                there += ONCE;
            }
            let mut last = None;
            let (run, trouble) = self.trouble(&key, once);
            match trouble {
                Some(Trouble::Dies { before: true, down }) => {
                    self.stage.lock().kill_by(self.node, down, run);
                    std::future::pending::<()>().await;
                }
                Some(Trouble::Dies { before: false, down }) => last = Some(down),
                Some(Trouble::StandsStill { millis }) => self.stage.freeze(self.node, millis),
                Some(Trouble::Slow { there: slowly, back: slow }) => {
                    (there, back) = (there + slowly, back + slow);
                }
                _ => {}
            }
            self.stage.gate(self.node, self.life).await;
            let (reply, answer) = oneshot::channel();
            let (stage, node, on_its_way) = (self.stage.clone(), self.node, UnderWay::new(&self.stage, &key));
            tokio::spawn(async move {
                stage.pause(there).await;
                let number = {
                    let mut scene = stage.lock();
                    scene.note(|| format!("node {node}: {name} takes place under {key}"));
                    scene.figures.count("effects");
                    if let Some(down) = last {
                        scene.kill_by(node, down, run);
                    }
                    scene.provider.apply(&name, &key)
                };
                drop(on_its_way);
                stage.pause(back).await;
                // The caller may have died.
                let _heard = reply.send(number);
            });
            let answered = answer.await;
            self.stage.gate(self.node, self.life).await;
            match answered {
                Ok(number) => Ok(number),
                Err(_) => std::future::pending().await,
            }
        })
    }

    fn find(&self, key: String) -> Answer<'_, Option<u32>> {
        Box::pin(async move {
            let (mut there, mut back) = self.stage.way();
            let (run, trouble) = self.looks_up(&key);
            match trouble {
                Some(Trouble::Dies { down, .. }) => {
                    self.stage.lock().kill_by(self.node, down, run);
                    std::future::pending::<()>().await;
                }
                Some(Trouble::StandsStill { millis }) => self.stage.freeze(self.node, millis),
                Some(Trouble::Slow { there: slowly, back: slow }) => {
                    (there, back) = (there + slowly, back + slow);
                }
                Some(Trouble::Refused) => return Err(Fail::retryable("no answer, on purpose")),
                _ => {}
            }
            self.stage.gate(self.node, self.life).await;
            self.stage.pause(there).await;
            let found = self.stage.lock().provider.done.get(&key).map(|(_, number, _)| *number);
            self.stage.pause(back).await;
            self.stage.gate(self.node, self.life).await;
            let mut scene = self.stage.lock();
            scene.figures.count("look-ups");
            let number = scene.next_number();
            scene.provider.told.insert((key, self.node, self.life), number);
            Ok(found)
        })
    }

    fn calls_under(&self, key: &str) -> usize {
        self.stage.lock().provider.asked.get(key).copied().unwrap_or(0)
    }

    fn has_once(&self, run: RunId, label: &str, result: &str) {
        self.stage.lock().has_once((run, self.node, self.life), label, result);
    }

    fn sleeps(&self, nap: Nap<'_>) -> Time {
        self.stage.lock().sleeps(nap)
    }

    fn slept(&self, nap: Nap<'_>, asked: Time) {
        self.stage.lock().slept(nap, asked);
    }
}
