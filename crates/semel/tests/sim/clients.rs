//! Clients: they ask nodes, or the store itself, and ask again elsewhere, under the same ids, until they have an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use semel::engine::RunHandle;
use semel::error::Result;
use semel::id::{RunId, WorkspaceId};
use semel::rules::control::{Control, ControlAction, Controlled, Fork};
use semel::rules::entry::Outcome;
use semel::rules::json::Payload;
use semel::rules::key::{CallId, Key};
use semel::rules::ledger::{Lineage, RefusedEntry};
use semel::rules::path::Name;
use semel::rules::start::{Start, StartVerdict};
use semel::rules::status::Status;
use semel::store::Store;
use semel::{Engine, Error};
use uuid::Uuid;

use crate::case::{Ask, Case, Request, Scripted};
use semel::store::layer::Layered;

use crate::line::Line;
use crate::oracle::{Seen, Won};
use crate::programs::execute;
use crate::stage::Stage;

/// Who clients and operator say they are.
pub(crate) const CLIENT: &str = "client";

/// Milliseconds that a client waits for an answer before it asks another node.
const PATIENCE: u64 = 2_500;

/// Milliseconds before it asks again after an error.
const AGAIN: u64 = 250;

/// What clients have asked for and were told.
#[derive(Default)]
pub(crate) struct Told {
    /// Runs that starts of a program were answered with.
    pub(crate) started: BTreeMap<usize, Vec<RunId>>,
    /// Runs that a client was told to have made.
    pub(crate) made: BTreeSet<RunId>,
    /// Outcomes that clients waited for, and how many lives of the run were over when the wait began.
    pub(crate) outcomes: Vec<(RunId, usize, Outcome)>,
    /// Runs that a client has cancelled, by an answer that said so.
    pub(crate) cancelled: BTreeSet<RunId>,
    /// Runs that a client cancelled, whether or not it got an answer.
    pub(crate) unwanted: BTreeSet<RunId>,
    /// Runs that a client has asked to end, by an answer that said so.
    pub(crate) wished: BTreeSet<RunId>,
    /// Ends that a client was told when its cancel came too late.
    pub(crate) too_late: Vec<(RunId, Status)>,
    /// Requests without an answer.
    pub(crate) open: usize,
}

/// Who is asked.
#[derive(Clone)]
pub(crate) enum Asked {
    Node(usize, u32, Engine),
    Store(Arc<Layered<Line>>),
}

pub(crate) type Asking<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// A client, and where it asks first.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) stage: Arc<Stage>,
    pub(crate) front: Arc<Layered<Line>>,
    pub(crate) node: usize,
    pub(crate) direct: bool,
}

impl Client {
    /// Asks until there is an answer: the calls may be lost, the nodes may die.
    pub(crate) async fn insist<T>(&self, ask: impl Fn(Asked) -> Asking<T>) -> Result<T> {
        for place in self.node.. {
            let near = if self.direct { None } else { self.stage.engine_near(place) };
            let asked = match near {
                Some((node, life, engine)) => Asked::Node(node, life, engine),
                None => Asked::Store(self.front.clone()),
            };
            let answer = tokio::select! {
                biased;
                answer = ask(asked) => answer,
                () = self.stage.pause(PATIENCE) => continue,
            };
            match answer {
                Err(Error::Unavailable(_) | Error::Unknown(_)) => self.stage.pause(AGAIN).await,
                answer => return answer,
            }
        }
        unreachable!("it asks for ever")
    }

    /// An operator action, under an id that makes its repetition harmless.
    pub(crate) async fn control(&self, run: RunId, action: ControlAction, id: String) -> Result<Controlled> {
        let stage = self.stage.clone();
        let cancels = matches!(action, ControlAction::Cancel { .. });
        self.insist(move |asked| {
            let (action, id, stage) = (action.clone(), id.clone(), stage.clone());
            Box::pin(async move {
                let (node, life, engine) = match asked {
                    Asked::Node(node, life, engine) => (node, life, engine),
                    Asked::Store(line) => {
                        let (workspace, by, id) =
                            (WorkspaceId::DEFAULT, CLIENT.to_owned(), Some(CallId::new(id)?));
                        return line
                            .control(Control { workspace, run, action, by, id, expected: None })
                            .await;
                    }
                };
                let number = stage.lock().next_number();
                let controlled = engine.run(run).by(CLIENT).call_id(id).control(action).await?;
                if cancels && controlled.changed {
                    stage.lock().oracle.won.push(Won { run, node, life, asked: number });
                }
                Ok(controlled)
            })
        })
        .await
    }

    /// Starts a program; gives its run.
    pub(crate) async fn start(
        &self,
        case: &Arc<Case>,
        program: usize,
        id: u128,
    ) -> Result<(RunId, StartVerdict)> {
        let case = case.clone();
        self.insist(move |asked| {
            let case = case.clone();
            Box::pin(async move {
                let scripted = &case.programs[program];
                match asked {
                    Asked::Node(_, _, engine) => start_at(&engine, &case, scripted).await,
                    Asked::Store(line) => {
                        let started = line.start(as_start(&case, scripted, id)?).await?;
                        Ok((started.run.id(), started.verdict))
                    }
                }
            })
        })
        .await
    }
}

async fn start_at(engine: &Engine, case: &Case, scripted: &Scripted) -> Result<(RunId, StartVerdict)> {
    let mut start = engine
        .start(execute, scripted.program.clone())
        .key(format!("key {}", scripted.key))
        .on_conflict(case.keys[scripted.key].policy())
        .delay(Duration::from_millis(scripted.delay));
    if let Some(timeout) = scripted.timeout {
        start = start.timeout(Duration::from_millis(timeout));
    }
    let run: RunHandle<_> = start.await?;
    Ok((run.id(), run.verdict().expect("it was started here")))
}

fn as_start(case: &Case, scripted: &Scripted, id: u128) -> Result<Start> {
    let key = Key::new(format!("key {}", scripted.key))?;
    let run = RunId(Uuid::from_u128(id));
    let start = Start::new(
        WorkspaceId::DEFAULT,
        run,
        Name::new("program")?,
        Payload::of(&scripted.program)?,
        Some(key),
    );
    Ok(Start {
        policy: case.keys[scripted.key].policy(),
        delay: Duration::from_millis(scripted.delay),
        timeout: scripted.timeout.map(Duration::from_millis),
        ..start
    })
}

/// Plays all that is asked for.
pub(crate) fn play_all(stage: &Arc<Stage>, case: &Arc<Case>, front: &Arc<Layered<Line>>) {
    stage.lock().told.open = case.requests.len();
    for (number, request) in case.requests.iter().enumerate() {
        let client =
            Client { stage: stage.clone(), front: front.clone(), node: request.node, direct: request.direct };
        let (request, case) = (request.clone(), case.clone());
        tokio::spawn(async move {
            client.stage.pause(request.at).await;
            let answered = play(&client, &case, &request, number).await;
            let mut scene = client.stage.lock();
            scene.note(|| format!("client {number} has its answer: {answered:?}"));
            if let Err(error) = answered {
                scene.violate("client", format!("{request:?} was answered with {error}"));
            }
            scene.told.open -= 1;
        });
    }
}

async fn play(client: &Client, case: &Arc<Case>, request: &Request, number: usize) -> Result<()> {
    let id = format!("client {number}");
    let stage = &client.stage;
    if request.ask == Ask::Start {
        let answer = client.start(case, request.program, 1_000 + number as u128).await;
        return started(client, case, request.program, answer);
    }
    let Some(run) = known(client, request.program).await else { return Ok(()) };
    match request.ask {
        Ask::Start => unreachable!("done"),
        Ask::Cancel { close } => {
            let client = match close {
                Some(millis) => {
                    let driver = driver(client, run).await;
                    stage.pause(millis).await;
                    driver
                }
                None => client.clone(),
            };
            stage.lock().told.unwanted.insert(run);
            let controlled = client.control(run, ControlAction::Cancel { reason: id.clone() }, id).await?;
            cancelled(&client, run, &controlled);
        }
        Ask::RequestCancel => {
            stage.lock().told.unwanted.insert(run);
            let controlled =
                client.control(run, ControlAction::RequestCancel { reason: id.clone() }, id).await?;
            if controlled.changed {
                let mut scene = stage.lock();
                scene.figures.count("cancels asked for");
                scene.told.wished.insert(run);
            }
        }
        Ask::Pause { millis } => {
            match client.control(run, ControlAction::Pause, id.clone()).await {
                Ok(controlled) if controlled.changed => stage.lock().figures.count("pauses"),
                Ok(_) | Err(Error::RunFinished { .. }) => {}
                Err(error) => return Err(error),
            }
            stage.pause(millis).await;
            match client.control(run, ControlAction::Resume, format!("{id} again")).await {
                Ok(controlled) => resumed(client, run, &controlled),
                // It was in doubt before it could be paused: it goes on when the doubt is resolved.
                Err(Error::Refused { source: RefusedEntry::Doubts(_), .. } | Error::RunFinished { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ask::Fork { fresh } => fork(client, run, fresh, id).await?,
        Ask::Watch => {
            let before = stage.lock().oracle.runs.get(&run).map_or(0, Seen::lives_before);
            let outcome = client.insist(|asked| watch(asked, run)).await?;
            stage.lock().told.outcomes.push((run, before, outcome));
        }
    }
    Ok(())
}

fn watch(asked: Asked, run: RunId) -> Asking<Outcome> {
    Box::pin(async move {
        match asked {
            Asked::Node(_, _, engine) => engine.run(run).outcome().await,
            Asked::Store(line) => {
                let find =
                    semel::store::Find { workspace: WorkspaceId::DEFAULT, by: semel::store::FindBy::Id(run) };
                let found = line.find(find).await?.ok_or(Error::RunNotFound(run))?;
                found.1.ok_or_else(|| Error::Unavailable("it has not ended".into()))
            }
        }
    })
}

/// A client of the node that drives a run, as soon as its next step has begun there.
async fn driver(client: &Client, run: RunId) -> Client {
    let begun = || client.stage.lock().provider.bodies(run).0;
    let before = begun();
    while begun() == before && !client.stage.lock().calm {
        tokio::select! {
            biased;
            () = client.stage.next_body() => {}
            () = client.stage.pause(PATIENCE) => {}
        }
    }
    let node = client.stage.lock().provider.bodies(run).1.unwrap_or(client.node);
    Client { node, direct: false, ..client.clone() }
}

/// The run of a program, as soon as a client was told of it.
async fn known(client: &Client, program: usize) -> Option<RunId> {
    loop {
        {
            let scene = client.stage.lock();
            let run = scene.told.started.get(&program).and_then(|runs| runs.last());
            if run.is_some() || scene.calm {
                return run.copied();
            }
        }
        client.stage.pause(50).await;
    }
}

/// Takes in what a start was answered with.
pub(crate) fn started(
    client: &Client,
    case: &Case,
    program: usize,
    answer: Result<(RunId, StartVerdict)>,
) -> Result<()> {
    let scripted = &case.programs[program];
    let mut scene = client.stage.lock();
    match answer {
        Ok((run, verdict)) => {
            scene.figures.count(match verdict {
                StartVerdict::Created => "starts that created",
                StartVerdict::Attached | StartVerdict::Replayed => "starts absorbed",
                StartVerdict::Restarted => "starts that restarted",
                StartVerdict::Superseded => "starts that superseded",
            });
            scene.told.started.entry(program).or_default().push(run);
            let makes = matches!(verdict, StartVerdict::Created | StartVerdict::Superseded);
            if makes && !scene.told.made.insert(run) {
                scene.violate("made twice", format!("two clients were told that they have made {run}"));
            }
            let completed =
                |seen: &Seen| seen.outcomes.iter().any(|end| matches!(end, Outcome::Completed(_)));
            if verdict == StartVerdict::Replayed && !scene.oracle.runs.get(&run).is_some_and(completed) {
                scene.violate("replayed", format!("{run} was replayed, and has not completed"));
            }
            let wanted = Payload::of(&scripted.program)?;
            let asked_for =
                scene.oracle.runs.get(&run).and_then(|seen| seen.created()).map(|created| &created.input);
            if asked_for != Some(&wanted) {
                let message =
                    format!("a start of program {program} was answered with {run}, which does {asked_for:?}");
                scene.violate("start", message);
            }
            Ok(())
        }
        Err(Error::KeyReused { owner, .. }) => {
            let wanted = Payload::of(&scripted.program)?;
            let key = format!("key {}", scripted.key);
            let owned = scene.oracle.runs.get(&owner).is_some_and(|seen| {
                let differs = seen.created().is_some_and(|created| created.input != wanted);
                differs && seen.run.new.key.to_string() == key
            });
            if !owned || case.keys[scripted.key].policy == "supersede" {
                let message = format!("program {program} was refused because of {owner}, which is no reason");
                scene.violate("key reused", message);
            }
            scene.figures.count("starts refused for another payload");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn cancelled(client: &Client, run: RunId, controlled: &Controlled) {
    let status = controlled.run.status();
    let mut scene = client.stage.lock();
    if !status.is_terminal() && !controlled.repeated {
        scene.violate("cancel", format!("{run} was cancelled and is {status}"));
    }
    if controlled.changed {
        scene.figures.count("cancels won");
        scene.told.cancelled.insert(run);
    } else if !controlled.repeated {
        scene.figures.count("cancels too late");
        scene.told.too_late.push((run, status));
    }
}

/// Takes in what a resume was answered with: the run goes on, unless it was paused once more before the answer came again.
pub(crate) fn resumed(client: &Client, run: RunId, controlled: &Controlled) {
    if controlled.run.status() == Status::Paused && !controlled.repeated {
        client.stage.lock().violate("resume", format!("{run} was resumed, and is paused"));
    }
}

/// Forks a run that can never go on: what goes on in both at once would be done twice under one key.
async fn fork(client: &Client, run: RunId, fresh: bool, id: String) -> Result<()> {
    loop {
        let (status, version) = {
            let scene = client.stage.lock();
            let seen = &scene.oracle.runs[&run];
            (seen.run.status(), seen.run.state.version)
        };
        if status.is_terminal() {
            if status == Status::Failed || status == Status::TimedOut {
                return Ok(());
            }
            let lineage = if fresh { Lineage::Fresh } else { Lineage::Inherited };
            let at = (version % 2 == 0).then_some(version / 2);
            let drawn = RunId(Uuid::from_u128(u128::from(client.stage.lock().next_number()) + 1_000_000));
            let forked = client
                .control(run, ControlAction::Fork(Fork { run: drawn, key: None, at, lineage }), id)
                .await?;
            let mut scene = client.stage.lock();
            let origin = scene.oracle.runs[&run].run.new.lineage;
            if (forked.run.new.lineage == origin) == fresh {
                scene.violate("lineage", format!("{run} was forked as {}, {lineage:?}", forked.run.id()));
            }
            return Ok(());
        }
        client.stage.pause(100).await;
    }
}
