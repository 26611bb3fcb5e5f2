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

/// The bugs that are the simulator's to find: those of the rules, the verbs, the memory store, the engine and the SDK.
const HUNTED: &[Bug] = &[
    Bug::IgnoreFingerprint,
    Bug::IgnoreDelay,
    Bug::DuplicateSaysCreated,
    Bug::RestartForgetsIntents,
    Bug::GiveUpIsForgotten,
    Bug::RaceOutlivesFailure,
    Bug::ForkForgetsIntents,
    Bug::ChildKeyIsNew,
    Bug::OnceGivenTwice,
    Bug::TicksAreNotCounted,
    Bug::SkipVersionGuard,
    Bug::TimersFireEarly,
    Bug::ConsumedStays,
    Bug::RestMissesArrivals,
    Bug::RestFreesTokens,
    Bug::EndKeepsTokens,
    Bug::EndIsNotTold,
    Bug::EndKeepsOnces,
    Bug::CancelForgetsChildren,
    Bug::ReadThenInsert,
    Bug::SupersededGoesOn,
    Bug::ClaimWithoutLease,
    Bug::TakeoverKeepsVersion,
    Bug::ClaimedStaysDue,
    Bug::ClaimDropsInbox,
    Bug::DeliveryIdForgotten,
    Bug::EveryCancelWins,
    Bug::HappenedIgnored,
    Bug::FreshForkSharesKeys,
    Bug::SweepForgetsOrphans,
    Bug::LostGoesOn,
    Bug::UnknownIsSaved,
    Bug::UnknownIsRefused,
    Bug::UnknownClaimForgotten,
    Bug::UnknownStartForgotten,
    Bug::CancelLeavesDriver,
    Bug::LastDeliveryFirst,
    Bug::IntentAfterBody,
    Bug::KeyPerTry,
    Bug::ReplayCallsBodies,
    Bug::RetryAtOnce,
    Bug::RaceIsNotRecorded,
    Bug::TimesCountFromTheEarliest,
    Bug::DeadlineIsIgnored,
    Bug::EffectBeforeDurable,
    Bug::UnknownPauses,
    Bug::OnceLostForEver,
    Bug::ReconcileNeverAsks,
    Bug::UnknownIsAbsent,
    Bug::CleanUpIsCancelled,
    Bug::FirstTryIsTheLast,
    Bug::WishForgotten,
];

/// Within so many seeds every one of them is found: three times as many as the rarest took, so that another drawing of the
/// programs does not lose it.
const SEEDS: u64 = 10_000;

/// Tells this program that it is the hunter, and after how many seeds the bug was found the last time that somebody looked.
const HUNTER: &str = "SEMEL_SIM_HUNTER";

/// What became of one.
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

/// The table in the book has all of them, also those that others find: none is forgotten by everybody.
pub(crate) fn is_told() -> Result<(), Failed> {
    let book = book()?;
    let untold = |bug: &&Bug| !book.contains(&format!("`{}`", bug.name()));
    let untold: Vec<_> = Bug::ALL.iter().filter(untold).map(|bug| bug.name()).collect();
    if untold.is_empty() {
        Ok(())
    } else {
        Err(format!("in no row of docs/reliability.md: {untold:?}").into())
    }
}

fn book() -> std::io::Result<String> {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reliability.md"))
}

/// After how many seeds a bug was found, as the book has it: `` `bug-name` 1,925 ``.
fn told(book: &str, bug: Bug) -> Option<u64> {
    let (_, after) = book.split_once(&format!("`{}` ", bug.name()))?;
    let number = after.split(|c: char| c != ',' && !c.is_ascii_digit()).next()?;
    number.replace(',', "").parse().ok()
}

pub(crate) fn is_caught() -> Result<(), Failed> {
    let book = book()?;
    let (next, fates) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(bug) = HUNTED.get(next.fetch_add(1, Ordering::SeqCst)) {
            let fate = set_loose(*bug, told(&book, *bug));
            fates.lock().expect("nobody panics with it").push(fate);
        }
    };
    scope(|scope| (0..threads()).for_each(|_| drop(scope.spawn(work))));
    let mut fates = fates.into_inner().expect("nobody panics with it");
    fates.sort_by_key(|fate| HUNTED.iter().position(|bug| *bug == fate.bug));
    println!("\n{}", table(&fates));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().ok_or("there is a target folder")?;
    std::fs::write(target.join("sabotage-sim.json"), json(&fates))?;
    let escaped: Vec<_> =
        fates.iter().filter(|fate| fate.caught.is_none()).map(|fate| fate.bug.name()).collect();
    if escaped.is_empty() { Ok(()) } else { Err(format!("not caught: {escaped:?}").into()) }
}

/// Starts this program with a bug that was found after so many seeds.
fn set_loose(bug: Bug, told: Option<u64>) -> Fate {
    let this = std::env::current_exe().expect("a program knows where it is");
    let ended = Command::new(this)
        .env(HUNTER, told.unwrap_or(0).to_string())
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
