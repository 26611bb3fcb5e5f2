//! The provider of effects. It remembers every call; what comes under a key that it knows it does not do again, unless
//! it was asked for something that it cannot tell from something new (a letter).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use semel::Attempt;
use semel::id::RunId;
use semel::rules::entry::Class;
use tokio::sync::oneshot;

use crate::case::{Trouble, What};
use crate::programs::{Answer, Outside};
use crate::stage::Stage;

/// The try of a step whose body has begun.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    pub(crate) node: usize,
    pub(crate) life: u32,
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
    /// Those who wait for the next one.
    pub(crate) expectant: Vec<Waker>,
    /// How often each key was asked for, with and without success.
    pub(crate) asked: BTreeMap<String, usize>,
    /// What was done under a key: its name, which of that name, and how often it arrived here.
    pub(crate) done: BTreeMap<String, (String, u32, u32)>,
    /// Keys for which something is under way: a body, or its call.
    pub(crate) under_way: BTreeMap<String, u32>,
}

impl Provider {
    fn apply(&mut self, name: &str, key: &str) -> u32 {
        let number = 1 + self.done.values().filter(|(done, ..)| done == name).count() as u32;
        let done = self.done.entry(key.to_owned()).or_insert_with(|| (name.to_owned(), number, 0));
        done.2 += 1;
        done.1
    }
}

/// So many milliseconds the body of a once takes.
const ONCE: u64 = 400;

/// The way of one life of a node to the provider.
pub(crate) struct Way {
    pub(crate) stage: Arc<Stage>,
    pub(crate) node: usize,
    pub(crate) life: u32,
}

/// Something is under way for a key.
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

impl Outside for Way {
    fn apply<'a>(
        &'a self,
        name: String,
        key: String,
        (class, attempt): (Class, Option<&Attempt>),
    ) -> Answer<'a> {
        let here = UnderWay::new(&self.stage, &key);
        let mut scene = self.stage.lock();
        *scene.provider.asked.entry(key.clone()).or_default() += 1;
        if let Some(attempt) = attempt {
            scene.begins(Begun {
                node: self.node,
                life: self.life,
                run: attempt.run_id(),
                path: attempt.path(),
                number: attempt.number(),
                fence: attempt.fence(),
                name: name.clone(),
                key: key.clone(),
                class,
            });
        }
        drop(scene);
        let attempt_less = attempt.is_none();
        Box::pin(async move {
            let _here = here;
            let (mut there, mut back) = self.stage.way();
            if attempt_less {
                // It takes longer, so that others come meanwhile.
                there += ONCE;
            }
            let mut last = None;
            let trouble = self.stage.lock().trouble(self.node, What::Effect);
            match trouble {
                Some(Trouble::Dies { before: true, down }) => {
                    self.stage.lock().kill(self.node, down);
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
                        scene.kill(node, down);
                    }
                    scene.provider.apply(&name, &key)
                };
                drop(on_its_way);
                stage.pause(back).await;
                // Nobody may be left to hear it.
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

    fn find(&self, key: &str) -> Option<u32> {
        self.stage.lock().provider.done.get(key).map(|(_, number, _)| *number)
    }

    fn calls_under(&self, key: &str) -> usize {
        self.stage.lock().provider.asked.get(key).copied().unwrap_or(0)
    }
}
