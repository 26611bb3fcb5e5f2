//! The line between a node and the store: calls and answers take time, get lost, arrive late, and go on after the
//! death of their caller. Each call that reaches the store is shown to the oracle.

use std::sync::Arc;

use semel::Error;
use semel::clock::Time;
use semel::error::Result;
use semel::id::{RunId, WorkspaceId};
use semel::rules::claim::Claim;
use semel::rules::commit::{Commit, Saved};
use semel::rules::control::{Control, Controlled};
use semel::rules::deliver::{Deliver, Delivered};
use semel::rules::entry::Outcome;
use semel::rules::once::{OnceAnswer, OnceCall};
use semel::rules::run::Run;
use semel::rules::start::Start;
use semel::store::layer::{Layered, StoreCall, StoreLayer, StoreWork};
use semel::store::{Answer, Claims, Find, Lease, LeaseAct, Numbered, Started, Store, Sweep, Swept, Wake};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, oneshot};

use crate::case::{Trouble, What};
use crate::stage::Stage;

/// What one life of a node sees of the store.
#[derive(Clone)]
pub(crate) struct Line {
    stage: Arc<Stage>,
    store: Arc<dyn Store>,
    node: usize,
    life: u32,
    wakes: broadcast::Sender<Wake>,
}

/// A call that is about to be made.
struct Call<T> {
    /// As what it is counted, beside as a call.
    what: What,
    /// What it is, for the trace.
    said: String,
    /// The run that the call is about, if that run's driver waits for the answer.
    about: Option<RunId>,
    /// Whether the oracle looks at the store afterwards.
    changes: fn(&T) -> bool,
    /// What of the answer is noted.
    tells: fn(&T) -> String,
}

impl Line {
    pub(crate) fn open(stage: &Arc<Stage>, store: &Arc<dyn Store>, node: usize) -> Arc<Layered<Self>> {
        let life = stage.lock().nodes[node].life;
        let (stage, store) = (stage.clone(), store.clone());
        let this = Self { stage, store, node, life, wakes: broadcast::Sender::new(256) };
        tokio::spawn(this.clone().pass_on_wakes());
        Arc::new(Layered(this))
    }

    /// Wake-ups come as they may: they only save time.
    async fn pass_on_wakes(self) {
        let mut heard = self.store.wakes();
        loop {
            let wake = match heard.recv().await {
                Ok(wake) => wake,
                Err(RecvError::Lagged(_)) => Wake::All,
                Err(RecvError::Closed) => return,
            };
            let trouble = {
                let mut scene = self.stage.lock();
                if !scene.lives(self.node, self.life) {
                    return;
                }
                if scene.nodes[self.node].deaf && !scene.calm {
                    continue;
                }
                scene.trouble(self.node, What::Wake)
            };
            self.stage.gate(self.node, self.life).await;
            let _heard = match trouble {
                Some(Trouble::Lost) => continue,
                Some(Trouble::Repeated { millis }) => {
                    let again = self.clone();
                    tokio::spawn(async move {
                        again.stage.pause(millis).await;
                        again.wakes.send(wake)
                    });
                    self.wakes.send(wake)
                }
                _ => self.wakes.send(wake),
            };
        }
    }

    fn trouble(&self, what: What) -> Option<Trouble> {
        let mut scene = self.stage.lock();
        let any = scene.trouble(self.node, What::Call);
        if what == What::Call { any } else { scene.trouble(self.node, what).or(any) }
    }

    fn call<T: Send + 'static>(&self, call: Call<T>, work: StoreWork<T>) -> Answer<'_, T> {
        Box::pin(async move {
            self.stage.gate(self.node, self.life).await;
            let _talks = call.about.map(|run| Talks::new(&self.stage, run));
            let (mut there, mut back) = self.stage.way();
            let trouble = self.trouble(call.what);
            let (mut unheard, mut late, mut dies) = (false, 0, None);
            match trouble {
                Some(Trouble::Refused) => {
                    self.stage.pause(there + back).await;
                    self.stage.gate(self.node, self.life).await;
                    return Err(Error::Unavailable(
                        format!("{} was not begun, on purpose", call.said).into(),
                    ));
                }
                Some(Trouble::Dies { before: true, down }) => {
                    self.stage.lock().kill(self.node, down);
                    std::future::pending::<()>().await;
                }
                Some(Trouble::Dies { before: false, down }) => dies = Some(down),
                Some(Trouble::Lost) => {
                    self.stage.pause(there + back).await;
                    self.stage.gate(self.node, self.life).await;
                    return Err(unknown(&call.said));
                }
                Some(Trouble::Unanswered) => unheard = true,
                Some(Trouble::Late { millis }) => late = millis,
                Some(Trouble::Slow { there: slowly, back: slow }) => {
                    (there, back) = (there + slowly, back + slow);
                }
                _ => {}
            }
            let said = call.said.clone();
            let (reply, answer) = oneshot::channel();
            let way = StoreWay {
                stage: self.stage.clone(),
                store: self.store.clone(),
                node: self.node,
                there: there + late,
                back,
                dies,
            };
            // Apart from the caller: a message on its way arrives even if its sender dies.
            tokio::spawn(async move {
                let _slow = (way.there + way.back > SLOW).then(|| Slow::new(&way.stage));
                way.carry(call, work, reply).await;
            });
            if late > 0 {
                self.stage.pause(there + back).await;
                self.stage.gate(self.node, self.life).await;
                return Err(unknown(&said));
            }
            let answered = answer.await;
            self.stage.gate(self.node, self.life).await;
            match answered {
                Ok(_) if unheard => Err(unknown(&said)),
                Ok(answer) => answer,
                Err(_) => {
                    self.stage.lock().violate("panic", format!("{said} was never answered"));
                    std::future::pending().await
                }
            }
        })
    }
}

fn unknown(said: &str) -> Error {
    Error::Unknown(format!("the answer to {said} is lost, on purpose").into())
}

/// Calls that take longer than this, in milliseconds, are waited for at the end.
const SLOW: u64 = 100;

/// The way of a call to the store, and of its answer back.
struct StoreWay {
    stage: Arc<Stage>,
    store: Arc<dyn Store>,
    node: usize,
    there: u64,
    back: u64,
    /// The caller dies when the call has taken place. Milliseconds for which it is gone.
    dies: Option<u64>,
}

impl StoreWay {
    async fn carry<T: Send + 'static>(
        self,
        call: Call<T>,
        work: StoreWork<T>,
        reply: oneshot::Sender<Result<T>>,
    ) {
        let Self { stage, store, node, there, back, dies } = self;
        stage.pause(there).await;
        let answer = work(store.clone()).await;
        if answer.as_ref().is_ok_and(call.changes) {
            crate::oracle::look(&stage, &*store).await;
        }
        {
            let mut scene = stage.lock();
            scene.note(|| match &answer {
                Ok(answer) => format!("node {node}: {} -> {}", call.said, (call.tells)(answer)),
                Err(error) => format!("node {node}: {} -> {}", call.said, error.code()),
            });
            if let Err(Error::Concurrency { .. }) = &answer {
                scene.figures.count("late commits refused");
            }
            if let Some(down) = dies {
                scene.kill(node, down);
            }
        }
        stage.pause(back).await;
        // The caller may have died.
        drop(reply.send(answer));
    }
}

/// A call that takes its time.
struct Slow(Arc<Stage>);

impl Slow {
    fn new(stage: &Arc<Stage>) -> Self {
        stage.lock().slow += 1;
        Self(stage.clone())
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.0.lock().slow -= 1;
    }
}

/// A driver waits for an answer about its run.
struct Talks(Arc<Stage>, RunId);

impl Talks {
    fn new(stage: &Arc<Stage>, run: RunId) -> Self {
        *stage.lock().open_calls.entry(run).or_default() += 1;
        Self(stage.clone(), run)
    }
}

impl Drop for Talks {
    fn drop(&mut self) {
        if let Some(count) = self.0.lock().open_calls.get_mut(&self.1) {
            *count -= 1;
        }
    }
}

fn never<T>(_: &T) -> bool {
    false
}

fn always<T>(_: &T) -> bool {
    true
}

fn nothing<T>(_: &T) -> String {
    "answered".to_owned()
}

/// A call that only reads.
fn reads<T>(said: String, about: Option<RunId>) -> Call<T> {
    Call { what: What::Call, said, about, changes: never, tells: nothing }
}

impl StoreLayer for Line {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn around<T: Send + 'static>(&self, call: StoreCall, work: StoreWork<T>) -> Answer<'_, T> {
        self.call(reads(call.name.to_owned(), None), work)
    }

    fn start(&self, start: Start) -> Answer<'_, Started> {
        let said = format!("start {} under {}", start.run, start.key);
        let tells = |started: &Started| format!("{:?} {}", started.verdict, started.run.id());
        let call = Call { what: What::Start, said, about: None, changes: always, tells };
        let started =
            self.call(call, Box::new(move |store| Box::pin(async move { store.start(start).await })));
        Box::pin(async move {
            let started = started.await?;
            self.stage.lock().has_in_hand(&started.run, self.node, self.life);
            Ok(started)
        })
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Claims> {
        let tells = |claims: &Claims| {
            let runs = claims
                .runs
                .iter()
                .map(|claimed| format!("{} at {}", claimed.run.id(), claimed.run.state.version));
            runs.collect::<Vec<_>>().join(", ")
        };
        let call = Call {
            what: What::Call,
            said: format!("claim {} for {}", claim.limit, claim.node),
            about: None,
            // One that gives nothing may have parked what kills its nodes.
            changes: always,
            tells,
        };
        let (stage, node) = (self.stage.clone(), claim.node);
        let claims = self.call(
            call,
            Box::new(move |store| {
                Box::pin(async move {
                    let claims = store.claim(claim).await?;
                    let mut scene = stage.lock();
                    for claimed in &claims.runs {
                        scene.was_claimed(&claimed.run, node);
                    }
                    drop(scene);
                    Ok(claims)
                })
            }),
        );
        Box::pin(async move {
            let claims = claims.await?;
            let mut scene = self.stage.lock();
            for claimed in &claims.runs {
                scene.has_in_hand(&claimed.run, self.node, self.life);
            }
            drop(scene);
            Ok(claims)
        })
    }

    fn commit(&self, commit: Commit) -> Answer<'_, Saved> {
        let call = Call {
            what: What::Call,
            said: format!("commit {} at {} +{}", commit.run(), commit.expected(), commit.count()),
            about: Some(commit.run()),
            changes: always,
            tells: |saved: &Saved| format!("{} {:?}", saved.version, saved.settled),
        };
        let saved =
            self.call(call, Box::new(move |store| Box::pin(async move { store.commit(commit).await })));
        Box::pin(async move {
            let saved = saved.await;
            if let Err(Error::Concurrency { run, expected }) = &saved {
                self.stage.lock().heard_of_loss(*run, *expected, self.node, self.life);
            }
            saved
        })
    }

    fn deliver(&self, deliver: Deliver) -> Answer<'_, Delivered> {
        let said = format!("deliver {:?} to {}", deliver.id, deliver.token);
        let tells = |delivered: &Delivered| {
            format!("{} {} absorbed: {}", delivered.run, delivered.arrival, delivered.absorbed)
        };
        let call = Call { what: What::Call, said, about: None, changes: always, tells };
        let (stage, asked) = (self.stage.clone(), deliver.clone());
        self.call(
            call,
            Box::new(move |store| {
                Box::pin(async move {
                    let delivered = store.deliver(deliver).await;
                    stage.lock().was_delivered(&asked, &delivered);
                    delivered
                })
            }),
        )
    }

    fn control(&self, control: Control) -> Answer<'_, Controlled> {
        let said = format!("{:?} {}", control.action, control.run);
        let tells = |controlled: &Controlled| {
            let Controlled { run, changed, repeated } = controlled;
            format!("{} changed: {changed} repeated: {repeated}", run.status())
        };
        let call = Call { what: What::Call, said, about: None, changes: always, tells };
        self.call(call, Box::new(move |store| Box::pin(async move { store.control(control).await })))
    }

    fn once(&self, once: OnceCall) -> Answer<'_, OnceAnswer> {
        let said = format!("{:?} {} by {}", once.ask, once.label, once.run);
        let call = Call {
            what: What::Once,
            said,
            about: None,
            changes: always,
            tells: |answer: &OnceAnswer| format!("{answer:?}"),
        };
        self.call(call, Box::new(move |store| Box::pin(async move { store.once(once).await })))
    }

    fn lease(&self, lease: Lease) -> Answer<'_, Time> {
        let call = Call {
            what: What::Call,
            said: format!("{:?} {}", lease.act, lease.node),
            about: None,
            changes: never,
            tells: |until: &Time| until.to_string(),
        };
        let stage = self.stage.clone();
        let leased = self.call(
            call,
            Box::new(move |store| {
                Box::pin(async move {
                    let until = store.lease(lease).await?;
                    stage.lock().was_leased(lease, until);
                    Ok(until)
                })
            }),
        );
        Box::pin(async move {
            let until = leased.await?;
            if let LeaseAct::Join(ttl) | LeaseAct::Renew(ttl) = lease.act {
                let told = Time(until.0 - ttl.as_millis() as i64);
                self.stage.lock().heard_time(self.node, self.life, told);
            }
            Ok(until)
        })
    }

    fn sweep(&self, sweep: Sweep) -> Answer<'_, Swept> {
        let call = Call {
            what: What::Call,
            said: "sweep".to_owned(),
            about: None,
            changes: |swept: &Swept| *swept != Swept::default(),
            tells: |swept: &Swept| swept.orphaned.to_string(),
        };
        let stage = self.stage.clone();
        self.call(
            call,
            Box::new(move |store| {
                Box::pin(async move {
                    let swept = store.sweep(sweep).await?;
                    if swept == Swept::default() {
                        stage.lock().had_nothing_to_sweep();
                    }
                    Ok(swept)
                })
            }),
        )
    }

    fn find(&self, find: Find) -> Answer<'_, Option<(Run, Option<Outcome>)>> {
        let call = reads(format!("find {:?}", find.by), None);
        self.call(call, Box::new(move |store| Box::pin(async move { store.find(find).await })))
    }

    fn ledger(&self, workspace: WorkspaceId, run: RunId, from: u64) -> Answer<'_, Vec<Numbered>> {
        let call = reads(format!("ledger of {run} from {from}"), Some(run));
        self.call(
            call,
            Box::new(move |store| Box::pin(async move { store.ledger(workspace, run, from).await })),
        )
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.wakes.subscribe()
    }

    fn close(&self) -> Answer<'_, ()> {
        // The store lives on.
        Box::pin(async { Ok(()) })
    }
}
