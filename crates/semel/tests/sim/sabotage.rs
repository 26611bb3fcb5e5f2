//! Deliberate bugs: this very program is started once for each of them, and must find it.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::scope;

use libtest_mimic::Failed;
use semel::sabotage::Bug;

use crate::hunt::{hunt, threads};

/// The bugs that the simulator must find (those of the rules, the verbs, the memory store, the engine and the SDK), and
/// after how many seeds each was found last. The number is a hint: that seed is played first, and all seeds if the bug is
/// not found there any more.
const HUNTED: &[(Bug, u64)] = &[
    (Bug::IgnoreFingerprint, 3),
    (Bug::IgnoreDelay, 2),
    (Bug::DuplicateSaysCreated, 1),
    (Bug::RestartForgetsIntents, 6),
    (Bug::GiveUpIsForgotten, 565),
    (Bug::RaceOutlivesFailure, 184),
    (Bug::ForkForgetsIntents, 47),
    (Bug::ChildKeyIsNew, 7),
    (Bug::OnceGivenTwice, 6),
    (Bug::TicksAreNotCounted, 10),
    (Bug::SkipVersionGuard, 102),
    (Bug::TimersFireEarly, 2),
    (Bug::ConsumedStays, 3),
    (Bug::RestMissesArrivals, 35),
    (Bug::RestFreesTokens, 5),
    (Bug::EndKeepsTokens, 4),
    (Bug::EndIsNotTold, 6),
    (Bug::EndKeepsOnces, 377),
    (Bug::CancelForgetsChildren, 42),
    (Bug::ReadThenInsert, 4),
    (Bug::SupersededGoesOn, 4),
    (Bug::ClaimWithoutLease, 33),
    (Bug::TakeoverKeepsVersion, 25),
    (Bug::ClaimedStaysDue, 1),
    (Bug::ClaimDropsInbox, 3),
    (Bug::DeliveryIdForgotten, 14),
    (Bug::EveryCancelWins, 9),
    (Bug::HappenedIgnored, 169),
    (Bug::FreshForkSharesKeys, 61),
    (Bug::SweepForgetsOrphans, 2),
    (Bug::BlameBystanders, 54),
    (Bug::LostGoesOn, 51),
    (Bug::UnknownIsSaved, 48),
    (Bug::UnknownIsRefused, 48),
    (Bug::UnknownClaimForgotten, 174),
    (Bug::UnknownStartForgotten, 78),
    (Bug::CancelLeavesDriver, 3_184),
    (Bug::LastDeliveryFirst, 510),
    (Bug::IntentAfterBody, 78),
    (Bug::KeyPerTry, 1),
    (Bug::ReplayCallsBodies, 2),
    (Bug::RetryAtOnce, 4),
    (Bug::RaceIsNotRecorded, 144),
    (Bug::TimesCountFromTheEarliest, 4),
    (Bug::DeadlineIsIgnored, 1_485),
    (Bug::EffectBeforeDurable, 80),
    (Bug::UnknownPauses, 6),
    (Bug::OnceLostForEver, 11),
    (Bug::ReconcileNeverAsks, 47),
    (Bug::UnknownIsAbsent, 76),
    (Bug::CleanUpIsCancelled, 3),
    (Bug::FirstTryIsTheLast, 4),
    (Bug::WishForgotten, 3),
];

/// Number of seeds within which each bug must be found: three times as many as the rarest took, so that a change of the random
/// programs does not lose it.
const SEEDS: u64 = 10_000;

/// Tells this program that it is the hunter, and at which seed the bug was found last.
const HUNTER: &str = "SEMEL_SIM_HUNTER";

/// The result of the hunt for one bug.
struct Fate {
    bug: Bug,
    /// The seeds it took, and how it was found.
    caught: Option<(u64, String)>,
}

/// What the hunter has found, if this process is the hunter of a bug.
pub(crate) fn hunted() -> Option<String> {
    let told: Option<u64> = std::env::var(HUNTER).ok()?.parse().ok();
    // Where it was, it most often still is: that spares all seeds before. If not, all of them are played.
    let there = told.and_then(|seeds| seeds.checked_sub(1)).map(|seed| hunt(seed..seed + 1, 1));
    let hunted = there.filter(|hunted| hunted.caught.is_some()).unwrap_or_else(|| hunt(0..SEEDS, 1));
    Some(match hunted.caught {
        Some((seed, violation)) => format!("caught {} {}: {}", seed + 1, violation.kind, violation.message),
        None => "not caught".to_owned(),
    })
}

/// The book names every bug, also those that other tools find.
pub(crate) fn is_told() -> Result<(), Failed> {
    let book = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reliability.md"))?;
    let untold = |bug: &&Bug| !book.contains(&format!("`{}`", bug.name()));
    let untold: Vec<_> = Bug::ALL.iter().filter(untold).map(|bug| bug.name()).collect();
    if untold.is_empty() {
        Ok(())
    } else {
        Err(format!("not named in docs/reliability.md: {untold:?}").into())
    }
}

pub(crate) fn is_caught() -> Result<(), Failed> {
    let (next, fates) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((bug, seeds)) = HUNTED.get(next.fetch_add(1, Ordering::SeqCst)) {
            let fate = set_loose(*bug, *seeds);
            fates.lock().expect("no thread panics while it holds the lock").push(fate);
        }
    };
    scope(|scope| (0..threads()).for_each(|_| drop(scope.spawn(work))));
    let mut fates = fates.into_inner().expect("no thread panics while it holds the lock");
    fates.sort_by_key(|fate| HUNTED.iter().position(|(bug, _)| *bug == fate.bug));
    println!("\n{}", table(&fates));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().ok_or("there is a target folder")?;
    std::fs::write(target.join("sabotage-sim.json"), json(&fates))?;
    let escaped: Vec<_> =
        fates.iter().filter(|fate| fate.caught.is_none()).map(|fate| fate.bug.name()).collect();
    if escaped.is_empty() { Ok(()) } else { Err(format!("not caught: {escaped:?}").into()) }
}

/// Starts this program with a bug that was last found after this number of seeds.
fn set_loose(bug: Bug, seeds: u64) -> Fate {
    let this = std::env::current_exe().expect("a program knows where it is");
    let ended = Command::new(this)
        .env(HUNTER, seeds.to_string())
        .env("SEMEL_SABOTAGE", bug.name())
        .env_remove("SEMEL_SEEDS")
        .output();
    let ended = ended.expect("a program can be started");
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    let caught = said.strip_prefix("caught ").and_then(|told| told.split_once(' '));
    let caught = caught.filter(|_| ended.status.success()).and_then(|(seeds, how)| {
        let how = how.lines().next().unwrap_or_default();
        Some((seeds.parse().ok()?, how.chars().take(100).collect()))
    });
    Fate { bug, caught }
}

fn table(fates: &[Fate]) -> String {
    let mut text = "bug | caught after seeds | how\n".to_owned();
    for Fate { bug, caught } in fates {
        let name = bug.name();
        let _ = match caught {
            Some((seeds, how)) => writeln!(text, "{name} | {seeds} | {how}"),
            None => writeln!(text, "{name} | not caught in {SEEDS} |"),
        };
    }
    text
}

fn json(fates: &[Fate]) -> String {
    let row = |Fate { bug, caught }: &Fate| {
        let (seeds, how) = caught.clone().unzip();
        serde_json::json!({ "bug": bug.name(), "tool": "sim", "seeds": seeds, "how": how })
    };
    let rows: Vec<_> = fates.iter().map(row).collect();
    format!("{}\n", serde_json::Value::from(rows))
}
