//! Deliberate bugs that only real processes show: the proof must find each of them.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Failed;
use semel::clock::{Clock as _, SystemClock};
use semel::sabotage::{Bug, VARIABLE};
use serde_json::json;

use crate::definitions;
use crate::faults::Haunted;
use crate::findings::{Finding, Findings, Sort};
use crate::forms::{CALM, in_folder, seed, sqlite};
use crate::nemesis::Pace;
use crate::phase::{Phase, play};
use crate::poison;
use crate::report;
use crate::restarts;
use crate::site::{Layout, Site, Surroundings};

/// So often a bug is looked for, each time with other draws.
const ROUNDS: u64 = 6;
/// How long a round has load and blows. It is over as soon as something is found, which takes seconds; a machine that is
/// slow or busy has time enough.
const LOAD: Duration = Duration::from_secs(20);
/// The same for what only the checker finds, at the end.
const BRIEF: Duration = Duration::from_secs(5);

/// A bug, what brings it out, and what it must be found by. Anything else may be a slow machine.
#[derive(Clone, Copy)]
struct Case {
    bug: Bug,
    sorts: &'static [Sort],
    pace: Pace,
    /// How much longer a write of the server takes.
    write: Duration,
    /// How long a round has load and blows.
    load: Duration,
}

impl Case {
    const fn of(bug: Bug, sorts: &'static [Sort], pace: Pace) -> Self {
        Self { bug, sorts, pace, write: Duration::ZERO, load: LOAD }
    }
}

fn cases() -> [Case; 7] {
    let (quiet, millis) = (Pace::default(), Duration::from_millis);
    // What a worker has done in its database and could not yet tell a server that stands still is done again elsewhere.
    let untold = Pace { worker_kills: millis(250), freezes: millis(300), ..quiet };
    // What a worker has begun without a trace is begun again by another only when that worker is gone.
    let forgotten = Pace { server_kills: millis(500), worker_kills: millis(700), ..quiet };
    [
        Case {
            write: millis(1),
            ..Case::of(Bug::AnswerBeforeCommit, &[Sort::Lost], Pace { server_kills: millis(300), ..quiet })
        },
        Case::of(Bug::IgnoreFenceTable, &[Sort::Doubled], untold),
        Case::of(Bug::BelieveZombies, &[Sort::Lost, Sort::Doubled], Pace { zombies: millis(100), ..quiet }),
        Case::of(Bug::UnknownIsSaved, &[Sort::Lost, Sort::Doubled], forgotten),
        Case::of(Bug::DeliveryIdForgotten, &[Sort::Doubled], quiet),
        Case::of(Bug::StartForgetsDelivery, &[Sort::Lost], quiet),
        Case { load: BRIEF, ..Case::of(Bug::WishForgotten, &[Sort::Lost], quiet) },
    ]
}

/// The bugs that runs of definitions must find: of fences, of keys, of windows.
const DEFINED: [Bug; 3] = [Bug::WindowIgnored, Bug::IgnoreFenceTable, Bug::KeyPerTry];

pub(crate) fn find_all() -> Result<(), Failed> {
    let (mut rows, mut missed) = (Vec::new(), Vec::new());
    println!("\n{:<24}  {:<12}  {:>12}  how", "bug", "played with", "caught after");
    let hunts = cases().map(Hunt::Programs).into_iter().chain(DEFINED.map(Hunt::Definitions));
    let hunts = hunts.chain([Hunt::Restarts(Bug::LeasesClearedOnOpen), Hunt::Poison(Bug::BlameBystanders)]);
    for hunt in hunts {
        let (bug, tool) = (hunt.bug(), hunt.tool());
        let (clock, mut found) = (SystemClock::new(), None);
        for round in 0..ROUNDS {
            match hunt.look(seed()? + round) {
                Ok(None) => {}
                Ok(first) => {
                    found = first;
                    break;
                }
                // A bug may break so much that nothing goes on; that alone does not count as found.
                Err(failed) => println!("{}: {}", bug.name(), failed.message().unwrap_or("no reason")),
            }
        }
        let seconds = clock.elapsed().as_secs_f32();
        let how = found.map(|Finding { sort, at, said, .. }| format!("{sort:?}: {at}: {said}"));
        println!(
            "{:<24}  {tool:<12}  {seconds:>10.1} s  {}",
            bug.name(),
            how.as_deref().unwrap_or("NOT CAUGHT")
        );
        if how.is_none() {
            missed.push(bug.name());
        }
        rows.push(json!({"bug": bug.name(), "tool": tool, "seconds": seconds, "how": how}));
    }
    report::write("sabotage-proof.json", &json!({"seed": seed()?, "bugs": rows}))?;
    if missed.is_empty() { Ok(()) } else { Err(format!("not found: {}", missed.join(", ")).into()) }
}

/// What brings a bug out.
enum Hunt {
    Programs(Case),
    /// Runs of definitions.
    Definitions(Bug),
    /// Restarts of a server whose workers are left alone.
    Restarts(Bug),
    /// A run that kills its workers.
    Poison(Bug),
}

impl Hunt {
    fn bug(&self) -> Bug {
        match self {
            Self::Programs(case) => case.bug,
            Self::Definitions(bug) | Self::Restarts(bug) | Self::Poison(bug) => *bug,
        }
    }

    /// What is played.
    fn tool(&self) -> &'static str {
        match self {
            Self::Programs(_) => "programs",
            Self::Definitions(_) => "definitions",
            Self::Restarts(_) => "restarts",
            Self::Poison(_) => "poison",
        }
    }

    fn look(&self, seed: u64) -> Result<Option<Finding>, Failed> {
        match self {
            Self::Programs(case) => look(*case, seed),
            Self::Definitions(bug) => look_at_definitions(*bug, seed),
            Self::Restarts(bug) => look_at_restarts(*bug, seed),
            Self::Poison(bug) => look_at_poison(*bug, seed),
        }
    }
}

fn look_at_restarts(bug: Bug, seed: u64) -> Result<Option<Finding>, Failed> {
    let env = vec![(VARIABLE.to_owned(), bug.name().to_owned())];
    in_folder(async |folder| {
        let findings = Arc::new(Findings::default());
        let played = restarts::play(Layout { env, ..sqlite(bug.name()) }, &folder, seed, &findings).await;
        match findings.any(&[Sort::Wrong]) {
            Some(first) => Ok(Some(first)),
            None => played.map(|_| None),
        }
    })
}

fn look_at_poison(bug: Bug, seed: u64) -> Result<Option<Finding>, Failed> {
    let env = vec![(VARIABLE.to_owned(), bug.name().to_owned())];
    in_folder(async |folder| {
        let findings = Arc::new(Findings::default());
        poison::play(Layout { env, ..sqlite(bug.name()) }, &folder, seed, &findings).await?;
        Ok(findings.any(&[Sort::Wrong]))
    })
}

fn look_at_definitions(bug: Bug, seed: u64) -> Result<Option<Finding>, Failed> {
    let env = vec![(VARIABLE.to_owned(), bug.name().to_owned())];
    in_folder(async |folder| {
        let layout = Layout { workers: 2, env, ..sqlite(bug.name()) };
        let findings = Arc::new(Findings::default());
        let sorts = &[Sort::Doubled];
        tokio::select! {
            biased;
            first = findings.first(sorts) => Ok(Some(first)),
            // The last look may have found it.
            played = definitions::play(&definitions::SHORT, layout, &folder, seed, &findings) => match findings.any(sorts) {
                Some(first) => Ok(Some(first)),
                None => played.map(|_| None),
            },
        }
    })
}

/// Plays with a bug in all processes; gives what was found first of what it must be found by.
fn look(Case { bug, sorts, pace, write, load }: Case, seed: u64) -> Result<Option<Finding>, Failed> {
    let env = vec![(VARIABLE.to_owned(), bug.name().to_owned())];
    in_folder(async |folder| {
        let haunted = Haunted::in_folder(&folder)?;
        haunted.faults.slow_writes(write)?;
        let surroundings = Surroundings::Haunted(Arc::new(haunted));
        let layout = Layout { surroundings, env, ..sqlite(bug.name()) };
        let phase = Phase { layout, pace, others: Vec::new(), callers: 32, load, calm: CALM };
        let findings = Arc::new(Findings::default());
        tokio::select! {
            biased;
            first = findings.first(sorts) => Ok(Some(first)),
            // The last look may have found it, and with it have ended everything.
            played = play(phase, &folder, seed, &findings) => match findings.any(sorts) {
                Some(first) => Ok(Some(first)),
                None => played.map(|_| None),
            },
        }
    })
}

/// Checks all the time whether an effect took place twice, so that the test need not wait for the end.
pub(crate) async fn watch(site: Arc<Site>, findings: Arc<Findings>) {
    loop {
        // If the database is away, the next look tells.
        for at in site.outside.doubled().await.unwrap_or_default() {
            findings.add(Sort::Doubled, "", &at, "it took place twice");
        }
        site.clock.until(site.clock.now().after(Duration::from_millis(200))).await;
    }
}
