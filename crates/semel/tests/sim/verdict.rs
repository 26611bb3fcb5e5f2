//! The verdict: conditions that must hold when every run has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use semel::clock::Time;
use semel::error::Result;
use semel::id::{RunId, WorkspaceId};
use semel::rules::entry::{Class, Entry, Message, Outcome, Resolution, RestartFrom};
use semel::rules::key::Token;
use semel::rules::ledger::Ledger;
use semel::rules::status::Status;
use semel::store::{Find, FindBy, Store};

use crate::case::{Ask, Case, Request, Scripted};
use crate::operator::{as_planned, is_of};
use crate::oracle::Seen;
use crate::programs::{Calls, Count, Expected, Program};
use crate::stage::{Scene, Stage};

/// Kind of a broken promise, and a message about it.
type Wrong = (&'static str, String);

pub(crate) async fn give(stage: &Stage, case: &Case, store: &dyn Store) {
    let mut wrong = Vec::new();
    if let Err(error) = read_again(stage, store, &mut wrong).await {
        wrong.push(("the store cannot be read", error.to_string()));
    }
    let mut scene = stage.lock();
    answers(&scene, &mut wrong);
    keys(&scene, case, &mut wrong);
    effects(&scene, &mut wrong);
    children(&scene, &mut wrong);
    onces(&scene, &mut wrong);
    scene.oracle.runs.values().for_each(|seen| any(seen, &mut wrong));
    for seen in scene.oracle.runs.values().filter(|seen| seen.is_root()) {
        root(&scene, case, seen, &mut wrong);
    }
    count_ends(&mut scene);
    for (kind, message) in wrong {
        scene.violate(kind, message);
    }
}

fn count_ends(scene: &mut Scene) {
    let ends: Vec<_> = scene.oracle.runs.values().map(|seen| seen.run.status()).collect();
    for status in ends {
        scene.figures.count(match status {
            Status::Completed => "runs completed",
            Status::Failed => "runs failed",
            Status::Cancelled => "runs cancelled",
            Status::TimedOut => "runs timed out",
            _ => "runs not ended",
        });
    }
}

/// The store still has every entry that was ever read from it. Its ledgers can be folded, and agree with the headers. Every
/// delivered message was consumed, or is in the inbox. No token belongs to a run that has ended.
async fn read_again(stage: &Stage, store: &dyn Store, wrong: &mut Vec<Wrong>) -> Result<()> {
    let ids: Vec<RunId> = stage.lock().oracle.runs.keys().copied().collect();
    let mut tokens = BTreeSet::new();
    for id in ids {
        let entries = store.ledger(WorkspaceId::DEFAULT, id, 1).await?;
        let inbox = store.inbox(WorkspaceId::DEFAULT, id, 1).await?;
        let scene = stage.lock();
        let seen = &scene.oracle.runs[&id];
        if entries != seen.entries {
            wrong.push(("ledger changed", format!("{id} had\n{:?}\nand has\n{entries:?}", seen.entries)));
        }
        let run = seen.run.clone();
        let (status, version) = (run.status(), run.state.version);
        match Ledger::read(run, entries.iter().map(|numbered| numbered.entry.clone())) {
            Ok(ledger) if (ledger.run().status(), ledger.run().state.version) == (status, version) => {}
            Ok(_) => wrong.push(("ledger", format!("header and ledger of {id} differ"))),
            Err(refused) => wrong.push(("ledger", format!("{id}: {refused}"))),
        }
        let left: BTreeSet<u64> = inbox.iter().map(|arrival| arrival.number).collect();
        let taken: BTreeSet<u64> =
            seen.entries.iter().filter_map(|numbered| taken(&numbered.entry)).collect();
        let own = |arrival: &&u64| !seen.is_fork() || scene.oracle.payloads.contains_key(&(id, **arrival));
        if let Some(both) = left.intersection(&taken).find(own) {
            wrong.push(("delivery", format!("message {both} of {id} was taken, and is still there")));
        }
        for ((run, arrival), (token, _)) in scene.oracle.payloads.range((id, 0)..=(id, u64::MAX)) {
            if !left.contains(arrival) && !taken.contains(arrival) {
                wrong.push(("delivery", format!("message {arrival} of {run} for {token} is lost")));
            }
        }
        let wished = |entry: &Entry| matches!(entry, Entry::Cancelling { .. } | Entry::Noted { .. });
        let told = seen.has(wished) || inbox.iter().any(|arrival| arrival.message.wishes_end().is_some());
        if scene.oracle.bereaved.contains(&id) && !told {
            wrong.push(("child", format!("{id} was not told that its parent was cancelled")));
        }
        if scene.told.wished.contains(&id) && !told {
            wrong.push((
                "cancel lost",
                format!("an answer said that {id} was asked to end, and it got no such message"),
            ));
        }
        let unknown = |message: &Message| matches!(message, Message::Delivery { .. });
        for arrival in inbox.iter().filter(|arrival| unknown(&arrival.message)) {
            if !scene.oracle.payloads.contains_key(&(id, arrival.number)) {
                wrong.push(("delivery", format!("message {} of {id} was never delivered", arrival.number)));
            }
        }
        let opened = |entry: &Entry| match entry {
            Entry::HookOpened { token, .. } => Some(token.clone()),
            _ => None,
        };
        tokens.extend(
            seen.entries.iter().filter_map(|numbered| opened(&numbered.entry)).map(|t| t.to_string()),
        );
    }
    for token in tokens {
        let find = Find { workspace: WorkspaceId::DEFAULT, by: FindBy::Token(Token::new(token.clone())?) };
        if let Some((owner, _)) = store.find(find).await? {
            wrong.push((
                "token",
                format!("{token} still belongs to {}, which is {}", owner.id(), owner.status()),
            ));
        }
    }
    Ok(())
}

fn taken(entry: &Entry) -> Option<u64> {
    match entry {
        Entry::HookReceived { arrival, .. }
        | Entry::ChildFinished { arrival, .. }
        | Entry::Noted { arrival }
        | Entry::Cancelling { arrival, .. } => Some(*arrival),
        _ => None,
    }
}

/// The answers that clients received are true.
fn answers(scene: &Scene, wrong: &mut Vec<Wrong>) {
    let told = &scene.told;
    for (program, runs) in &told.started {
        for run in runs.iter().filter(|run| !scene.oracle.runs.contains_key(run)) {
            wrong.push(("start", format!("{run} of program {program} was started, and is not there")));
        }
    }
    for run in &told.cancelled {
        let status = scene.oracle.runs[run].run.status();
        if status != Status::Cancelled {
            wrong.push(("cancel", format!("an answer said that {run} was cancelled, and it is {status}")));
        }
    }
    let ends = |run: &RunId| &scene.oracle.runs[run].outcomes;
    for (run, status) in &told.too_late {
        if !ends(run).iter().any(|outcome| status_of(outcome) == *status) {
            wrong.push((
                "cancel",
                format!("the answer to a cancel said that {run} was {status}, which it never was"),
            ));
        }
    }
    for (run, before, outcome) in &told.outcomes {
        if !ends(run)[*before..].contains(outcome) {
            wrong.push((
                "outcome",
                format!("an answer said that {run} has the outcome {outcome:?}, which it never had"),
            ));
        }
    }
}

fn status_of(outcome: &Outcome) -> Status {
    match outcome {
        Outcome::Completed(_) => Status::Completed,
        Outcome::Failed(_) => Status::Failed,
        Outcome::Cancelled(_) => Status::Cancelled,
        Outcome::TimedOut => Status::TimedOut,
        Outcome::Purged(status) => *status,
    }
}

/// Each key has one run, unless its policy lets a later run take the key.
fn keys(scene: &Scene, case: &Case, wrong: &mut Vec<Wrong>) {
    for (number, kind) in case.keys.iter().enumerate() {
        let key = format!("key {number}");
        let of_key = |seen: &&Seen| seen.is_root() && seen.run.new.key.to_string() == key;
        let runs: Vec<_> = scene.oracle.runs.values().filter(of_key).map(|seen| seen.run.id()).collect();
        if runs.len() > 1 && matches!(kind.policy, "attach" | "retry-failed") {
            wrong.push(("two runs of one key", format!("{key} has {runs:?}")));
        }
        let starts =
            |request: &Request| request.ask == Ask::Start && case.programs[request.program].key == number;
        let asked = case.requests.iter().any(starts);
        if runs.is_empty() && asked {
            wrong.push(("start", format!("{key} was asked for, and has no run")));
        }
    }
}

/// Each step has one effect key, and no letter was sent twice.
fn effects(scene: &Scene, wrong: &mut Vec<Wrong>) {
    let mut by_step: BTreeMap<(RunId, &str), &str> = BTreeMap::new();
    let mut by_key: BTreeMap<&str, (RunId, &str)> = BTreeMap::new();
    for begun in &scene.provider.begun {
        let Some(seen) = scene.oracle.runs.get(&begun.run) else { continue };
        let step = (seen.run.new.lineage, begun.path.as_str());
        let key = by_step.entry(step).or_insert(&begun.key);
        if *key != begun.key {
            wrong.push((
                "effect key",
                format!("{} of {} has the keys {key} and {}", step.1, step.0, begun.key),
            ));
        }
        let known = by_key.entry(&begun.key).or_insert(step);
        if *known != step {
            wrong.push(("effect key", format!("{known:?} and {step:?} have the key {}", begun.key)));
        }
        let done = scene.provider.done.get(&begun.key).map_or(0, |(_, _, times)| *times);
        if begun.class == Class::AtMostOnce && done > 1 {
            wrong.push(("letter twice", format!("{} of {} took place {done} times", begun.path, begun.run)));
        }
        let tries = scene.provider.begun.iter().filter(|other| other.key == begun.key).count();
        if begun.class == Class::AtMostOnce && tries > 1 + denials(scene, step) {
            wrong
                .push(("letter tried again", format!("{} of {} began {tries} times", begun.path, begun.run)));
        }
    }
}

/// How often an operator said that a step did not happen, in all runs of a lineage.
fn denials(scene: &Scene, (lineage, path): (RunId, &str)) -> usize {
    let denied = |entry: &Entry| match entry {
        Entry::StepResolved { step, resolution, .. } => {
            step.to_string() == path && *resolution == Resolution::DidNotHappen
        }
        _ => false,
    };
    let of_lineage = |seen: &&Seen| seen.run.new.lineage == lineage;
    let entries = scene.oracle.runs.values().filter(of_lineage).flat_map(|seen| &seen.entries);
    entries.filter(|numbered| denied(&numbered.entry)).count()
}

/// A parent has one child per visit, unless an earlier one was cancelled, and was told the outcome that the child had.
fn children(scene: &Scene, wrong: &mut Vec<Wrong>) {
    let mut at: BTreeMap<(RunId, String), Vec<RunId>> = BTreeMap::new();
    for seen in scene.oracle.runs.values().filter(|seen| seen.run.status() != Status::Cancelled) {
        if let Some(parent) = seen.created().and_then(|created| created.parent.as_ref()) {
            at.entry((parent.run, parent.visit.to_string())).or_default().push(seen.run.id());
        }
    }
    for ((parent, visit), runs) in at.into_iter().filter(|(_, runs)| runs.len() > 1) {
        wrong.push(("child", format!("{runs:?} are all the child {visit} of {parent}")));
    }
    for seen in scene.oracle.runs.values() {
        for numbered in &seen.entries {
            if let Entry::ChildFinished { child, outcome, .. } = &numbered.entry
                && !started_as(seen, &child.to_string()).iter().any(|run| had(scene, *run, outcome))
            {
                wrong.push((
                    "child",
                    format!("{} heard {outcome:?} of {child}, which never was", seen.run.id()),
                ));
            }
        }
    }
}

fn started_as(seen: &Seen, visit: &str) -> Vec<RunId> {
    let started = |entry: &Entry| match entry {
        Entry::ChildStarted { child, run, .. } if child.to_string() == visit => Some(*run),
        _ => None,
    };
    seen.entries.iter().filter_map(|numbered| started(&numbered.entry)).collect()
}

fn had(scene: &Scene, run: RunId, outcome: &Outcome) -> bool {
    scene.oracle.runs.get(&run).is_some_and(|seen| seen.outcomes.contains(outcome))
}

/// The code of a completed run was given the results of `run_once` that its ledger has.
fn onces(scene: &Scene, wrong: &mut Vec<Wrong>) {
    for ((run, label), heard) in &scene.oracle.heard {
        let seen = &scene.oracle.runs[run];
        let kept = seen.once(label).and_then(|value| value.read::<String>().ok());
        if seen.run.status() == Status::Completed && kept.as_ref() != Some(heard) {
            wrong.push((
                "once differs",
                format!("{run} had {heard} for {label}, and its ledger has {kept:?}"),
            ));
        }
    }
}

/// Checks of every run, children and forks included: its result, why it failed, and that it has cleaned up.
fn any(seen: &Seen, wrong: &mut Vec<Wrong>) {
    let id = seen.run.id();
    for numbered in &seen.entries {
        match &numbered.entry {
            Entry::Failed { error } if !as_planned(&error.message) => {
                wrong.push(("failure", format!("{id} failed: {}", error.message)));
            }
            Entry::Cancelled { reason, .. } if seen.asked_to_end() == Some(reason) => {
                let cleaned = |part: &str| {
                    let step = format!("clean up[{part}]");
                    seen.has(|entry| matches!(entry, Entry::StepCompleted { step: done, .. } if done.to_string() == step))
                };
                if !cleaned("one") || !cleaned("two") {
                    wrong
                        .push(("clean-up", format!("{id} ended as it was asked to, and has not cleaned up")));
                }
            }
            _ => {}
        }
    }
    let program = seen.created().and_then(|created| created.input.read::<Program>().ok());
    let (Some(program), Some(Outcome::Completed(value))) = (program, seen.outcomes.last()) else { return };
    let (expected, values) = (Expected::of(&program), value.read::<Vec<String>>().unwrap_or_default());
    if seen.asked_to_end().is_none() && !expected.fits(&values) {
        wrong.push(("result", format!("{id} gave {values:?} instead of {:?}", expected.values)));
    }
}

/// A run that a client started has an outcome that can be explained, with the effects that belong to it.
fn root(scene: &Scene, case: &Case, seen: &Seen, wrong: &mut Vec<Wrong>) {
    let id = seen.run.id();
    let Some(scripted) = case.programs.iter().find(|scripted| is_of(seen, &scripted.program)) else {
        wrong.push(("start", format!("{id} was started by no client")));
        return;
    };
    let expected = Expected::of(&scripted.program);
    match seen.outcomes.last() {
        Some(Outcome::Failed(failure)) if seen.run.state.holds_key => {
            wrong.push(("failure", format!("{id} failed: {}", failure.message)));
        }
        Some(Outcome::Cancelled(reason)) => {
            let successor = reason.strip_prefix("superseded by ").and_then(|run| run.parse().ok());
            let unwanted = scene.told.unwanted.contains(&id);
            if !unwanted && !successor.is_some_and(|run| scene.oracle.runs.contains_key(&run)) {
                wrong.push(("cancel", format!("{id} was cancelled, and no client asked for it: {reason}")));
            }
        }
        Some(Outcome::TimedOut) if scripted.timeout.is_none() => {
            wrong.push(("timer", format!("{id} timed out, and had all the time")));
        }
        _ => {}
    }
    not_too_soon(seen, scripted, wrong);
    let completed =
        matches!(seen.outcomes.last(), Some(Outcome::Completed(_))) && seen.asked_to_end().is_none();
    for count in &expected.effects {
        count_effects(scene, seen, scripted, count, completed, wrong);
    }
}

fn not_too_soon(seen: &Seen, scripted: &Scripted, wrong: &mut Vec<Wrong>) {
    let claimed = |entry: &Entry| matches!(entry, Entry::Claimed { .. });
    if let Some(claimed) = seen.entries.iter().find(|numbered| claimed(&numbered.entry))
        && claimed.at.0 < seen.run.new.created.0 + scripted.delay as i64
    {
        wrong.push((
            "delay",
            format!("{} was to begin later, and was claimed at {}", seen.run.id(), claimed.at),
        ));
    }
    let allowed = |since: Time| scripted.timeout.map(|timeout| since.after(Duration::from_millis(timeout)));
    for numbered in &seen.entries {
        let deadline = match &numbered.entry {
            Entry::Created(created) => created.deadline,
            Entry::Restarted { deadline, .. } => *deadline,
            _ => continue,
        };
        if deadline != allowed(numbered.at) {
            wrong.push(("deadline", format!("{} has time until {deadline:?}", seen.run.id())));
        }
    }
}

fn count_effects(
    scene: &Scene,
    seen: &Seen,
    scripted: &Scripted,
    count: &Count,
    completed: bool,
    wrong: &mut Vec<Wrong>,
) {
    let done = &scene.provider.done;
    let keys: BTreeSet<&str> = if count.name.starts_with(['o', 'q']) {
        // A `run_once` value is recorded under its label.
        let label = |key: &str| match count.calls {
            Calls::Shared => key == count.name,
            _ => key.starts_with(&format!("{}/", scripted.program.0)),
        };
        done.iter()
            .filter(|(key, (name, ..))| *name == count.name && label(key))
            .map(|(key, _)| key.as_str())
            .collect()
    } else {
        let family = family(scene, seen.run.id());
        let ours = scene
            .provider
            .begun
            .iter()
            .filter(|begun| begun.name == count.name && family.contains(&begun.run));
        ours.map(|begun| begun.key.as_str()).filter(|key| done.contains_key(*key)).collect()
    };
    let least = if completed { count.least } else { 0 };
    let many = keys.len() as u32;
    if many < least {
        wrong.push((
            "effect lost",
            format!("{} of {} took place {many} times, not {least}", count.name, seen.run.id()),
        ));
    }
    let most = count.most + if began_again(scene, seen.run.id()) { count.anew } else { 0 };
    if many > most {
        let message = format!("{} of {} took place {many} times, not {most}", count.name, seen.run.id());
        wrong.push(("effect too often", message));
    }
}

/// Whether a run, or one below it, was restarted from its beginning.
fn began_again(scene: &Scene, root: RunId) -> bool {
    let from_the_beginning = |entry: &Entry| match entry {
        Entry::Restarted { from, .. } => *from == RestartFrom::Beginning,
        _ => false,
    };
    family(scene, root).iter().any(|run| scene.oracle.runs[run].has(from_the_beginning))
}

/// A run with its children, their children, and so on.
fn family(scene: &Scene, root: RunId) -> BTreeSet<RunId> {
    let mut family = BTreeSet::from([root]);
    loop {
        let belongs = |seen: &&Seen| seen.run.new.parent.is_some_and(|parent| family.contains(&parent));
        let more: Vec<_> = scene.oracle.runs.values().filter(belongs).map(|seen| seen.run.id()).collect();
        let before = family.len();
        family.extend(more);
        if family.len() == before {
            return family;
        }
    }
}

/// Requests and open runs of a case that does not end.
pub(crate) fn how_things_stand(scene: &Scene) -> String {
    let mut text = format!("{} requests have no answer\n", scene.told.open);
    for seen in scene.oracle.runs.values().filter(|seen| !seen.ended()) {
        let state = &seen.run.state;
        let _ = writeln!(
            text,
            "{} is {}, due {:?}, driven by {:?}",
            seen.run.id(),
            state.status,
            state.due,
            state.node
        );
        for numbered in &seen.entries {
            let _ = writeln!(text, "    {} {:?}", numbered.number, numbered.entry);
        }
    }
    text
}
