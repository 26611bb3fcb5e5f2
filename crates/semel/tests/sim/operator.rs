//! The operator: resolves steps in doubt, resumes paused runs, retries failed ones, and knows when all
//! is done. It tells the truth: it says that an effect did not take place only when it cannot take place any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use semel::id::RunId;
use semel::rules::control::ControlAction;
use semel::rules::entry::{Entry, Failure, FailureKind, Outcome, PauseReason, Resolution, RestartFrom};
use semel::rules::json::Payload;
use semel::rules::key::EffectKey;
use semel::rules::path::Visit;
use semel::rules::status::Status;
use semel::{Error, Result};

use crate::case::{Again, Case};
use crate::clients::{Client, resumed, started};
use crate::oracle::Seen;
use crate::programs::FAILS;
use crate::stage::Scene;

/// Milliseconds between two rounds.
const ROUND: u64 = 150;
/// A run that fails more often than this never ends.
const FAILS_FOR_EVER: usize = 60;
/// Why a step fails that the operator gives up.
const GIVEN_UP: &str = "given up, as planned";
/// Milliseconds after which a paused run is resumed.
const PAUSED_LONG: i64 = 6_000;

/// What is to be done about a run.
enum Task {
    Resolve(Visit, Resolution),
    Resume(&'static str),
    Restart(usize),
}

/// Repeats rounds until everything is done.
pub(crate) async fn go_round(client: Client, case: Arc<Case>) {
    let busy = Arc::new(Mutex::new(BTreeSet::new()));
    loop {
        let tasks = look_round(&mut client.stage.lock(), &case);
        for (run, task) in tasks {
            if busy.lock().unwrap_or_else(PoisonError::into_inner).insert(run) {
                tokio::spawn(see_to(client.clone(), case.clone(), run, task, busy.clone()));
            }
        }
        {
            let idle = busy.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
            let mut scene = client.stage.lock();
            scene.done = scene.calm && idle && scene.told.open == 0 && scene.slow == 0 && all_over(&scene);
        }
        client.stage.pause(ROUND).await;
    }
}

/// Whether all runs have ended, and none of them is to go on.
pub(crate) fn all_over(scene: &Scene) -> bool {
    scene.oracle.runs.values().all(|seen| seen.ended() && !can_go_on(seen))
}

fn can_go_on(seen: &Seen) -> bool {
    seen.is_root() && seen.run.status() == Status::Failed && seen.run.state.holds_key
}

fn look_round(scene: &mut Scene, case: &Case) -> Vec<(RunId, Task)> {
    let mut tasks = Vec::new();
    let mut hopeless = None;
    for (run, seen) in &scene.oracle.runs {
        let task = match seen.run.status() {
            Status::Paused => unpause(scene, seen),
            Status::Failed if can_go_on(seen) => {
                if let Some(Outcome::Failed(failure)) = seen.outcomes.last()
                    && !as_planned(&failure.message)
                {
                    hopeless = Some(format!("{run} failed: {}", failure.message));
                }
                let program = case.programs.iter().position(|scripted| is_of(seen, &scripted.program));
                if seen.outcomes.len() > FAILS_FOR_EVER {
                    hopeless = Some(format!("{run} fails for ever"));
                }
                program.map(Task::Restart)
            }
            _ => None,
        };
        tasks.extend(task.map(|task| (*run, task)));
    }
    if let Some(message) = hopeless {
        scene.violate("failure", message);
    }
    tasks
}

/// Programs fail where they say so, or where a step was given up; or because a run that goes on without its key has their
/// token. That another step fails is no reason.
pub(crate) fn as_planned(message: &str) -> bool {
    [FAILS, GIVEN_UP, "is owned by"].iter().any(|reason| message.contains(reason))
}

/// Whether a run executes a program.
pub(crate) fn is_of(seen: &Seen, program: &crate::programs::Program) -> bool {
    Payload::of(program).is_ok_and(|input| seen.created().is_some_and(|created| created.input == input))
}

fn unpause(scene: &Scene, seen: &Seen) -> Option<Task> {
    let paused = seen.entries.iter().rev().find_map(|numbered| match &numbered.entry {
        Entry::Paused { reason } => Some((reason, numbered.at)),
        _ => None,
    });
    let (reason, at) = paused?;
    match reason {
        PauseReason::Poisoned => Some(Task::Resume("poisoned runs resumed")),
        // An operator will resume it, unless a restart of the world comes between.
        PauseReason::Operator { .. } => {
            (scene.now.0 - at.0 > PAUSED_LONG).then_some(Task::Resume("paused runs resumed"))
        }
        PauseReason::InDoubt => resolve(scene, seen),
        PauseReason::Diverged(_) => None,
    }
}

/// The resolution of the first step in doubt; none while its effect may still take place.
fn resolve(scene: &Scene, seen: &Seen) -> Option<Task> {
    let run = &seen.run;
    let step = in_doubt(seen).into_iter().next()?;
    let key = EffectKey::of(run.new.workspace, run.new.lineage, &step, "").to_string();
    let under_way = scene.provider.under_way.get(&key).is_some_and(|count| *count > 0);
    let in_talks = scene.open_calls.get(&run.id()).is_some_and(|count| *count > 0);
    if under_way || in_talks {
        return None;
    }
    let name = step.path.to_string();
    let name = name.rsplit('/').next().unwrap_or(&name).to_owned();
    // Once for each step: a run that is retried comes here again.
    let before = |entry: &Entry| match entry {
        Entry::StepResolved { step: given_up, resolution: Resolution::GiveUp(_), .. } => *given_up == step,
        _ => false,
    };
    let may_give_up = !seen.entries.iter().any(|numbered| before(&numbered.entry));
    let resolution = match scene.provider.done.contains_key(&key) {
        true => Resolution::Happened(Payload::of(&name).ok()?),
        false if may_give_up && run.state.version.is_multiple_of(5) => {
            let message = GIVEN_UP.to_owned();
            Resolution::GiveUp(Failure::new(FailureKind::Fatal, message))
        }
        false => Resolution::DidNotHappen,
    };
    Some(Task::Resolve(step, resolution))
}

fn in_doubt(seen: &Seen) -> Vec<Visit> {
    let mut doubts = BTreeMap::new();
    for numbered in &seen.entries {
        match &numbered.entry {
            Entry::StepInDoubt { step, .. } => drop(doubts.insert(step.to_string(), step.clone())),
            Entry::StepResolved { step, .. } => drop(doubts.remove(&step.to_string())),
            _ => {}
        }
    }
    doubts.into_values().collect()
}

async fn see_to(
    mut client: Client,
    case: Arc<Case>,
    run: RunId,
    task: Task,
    busy: Arc<Mutex<BTreeSet<RunId>>>,
) {
    let number = client.stage.lock().next_number();
    (client.node, client.direct) = (number as usize % 7, number.is_multiple_of(4));
    let id = format!("operator {number}");
    let done = act(&client, &case, run, task, id).await;
    // Another operator may have been faster: it has ended, or was resolved or restarted already.
    let faster = |error: &Error| {
        matches!(error, Error::RunFinished { .. } | Error::Refused { .. } | Error::Concurrency { .. })
    };
    if let Some(error) = done.err().filter(|error| !faster(error)) {
        client.stage.lock().violate("operator", format!("{run}: {error}"));
    }
    busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&run);
}

async fn act(client: &Client, case: &Arc<Case>, run: RunId, task: Task, id: String) -> Result<(), Error> {
    let stage = &client.stage;
    match task {
        Task::Resolve(step, resolution) => {
            client.control(run, ControlAction::Resolve { step, resolution }, id).await?;
            stage.lock().figures.count("doubts resolved");
        }
        Task::Resume(counted_as) => {
            let controlled = client.control(run, ControlAction::Resume, id).await?;
            resumed(client, run, &controlled);
            if controlled.changed {
                stage.lock().figures.count(counted_as);
            }
        }
        Task::Restart(program) => {
            stage.pause(ROUND).await;
            match case.keys[case.programs[program].key].again {
                Again::Start => {
                    let drawn = u128::from(stage.lock().next_number()) + 2_000_000;
                    let answer = client.start(case, program, drawn).await;
                    started(client, case, program, answer)?;
                }
                again => {
                    let from =
                        if again == Again::Retry { RestartFrom::Failure } else { RestartFrom::Beginning };
                    client.control(run, ControlAction::Restart(from), id).await?;
                }
            }
        }
    }
    Ok(())
}
