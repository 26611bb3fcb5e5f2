//! The simulator: several engines on one store, on one thread, and all that can go wrong between them drawn from a seed.
//!
//! A seed is made into a [`case`]: nodes, programs, what clients ask for, what goes wrong. It is [played](play) on a
//! [`stage`] whose time passes only when nothing else can happen, with a [`line`] between every node and the store. The
//! [`oracle`] watches the store, the [`verdict`] looks at everything in the end. `SEMEL_SEEDS=7` plays seed 7,
//! `SEMEL_SEEDS=0..100000` these; a case that fails is [shrunk](shrink).

mod blame;
mod case;
mod clients;
mod figures;
mod hunt;
mod line;
mod operator;
mod oracle;
mod outside;
mod plain;
mod play;
mod postman;
#[path = "../programs/mod.rs"]
mod programs;
#[cfg(feature = "sabotage")]
mod sabotage;
mod shrink;
mod stage;
mod time;
mod verdict;

use std::ops::Range;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::case::Case;
use crate::figures::MUST_HAPPEN;
use crate::hunt::{hunt, threads};
use crate::play::play;

/// The seeds that every check plays.
const SEEDS: Range<u64> = 0..2_000;
/// Number of them that are played twice.
const TWICE: u64 = 60;

fn main() -> ExitCode {
    play::note_panics();
    #[cfg(feature = "sabotage")]
    if let Some(told) = sabotage::hunted() {
        println!("{told}");
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::from_args();
    let mut trials = vec![
        Trial::test("sim::no_seed_breaks_a_promise", no_seed_breaks_a_promise),
        Trial::test("sim::a_seed_replays_exactly", a_seed_replays_exactly),
        #[cfg(feature = "sabotage")]
        Trial::test("sim::sabotage_is_caught", sabotage::is_caught),
        #[cfg(feature = "sabotage")]
        Trial::test("sim::every_deliberate_bug_is_in_the_table_of_who_found_it", sabotage::is_told),
    ];
    trials.extend(plain::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The seeds that the environment asks for.
fn chosen() -> Result<Option<Range<u64>>, Failed> {
    let Ok(text) = std::env::var("SEMEL_SEEDS") else { return Ok(None) };
    let (first, end) = text.split_once("..").unwrap_or((&text, ""));
    let first: u64 = first.parse()?;
    Ok(Some(first..if end.is_empty() { first + 1 } else { end.parse()? }))
}

fn no_seed_breaks_a_promise() -> Result<(), Failed> {
    let chosen = chosen()?;
    let hunted = hunt(chosen.clone().unwrap_or(SEEDS), threads());
    println!("\n{} seeds\n{}", hunted.seeds, hunted.figures);
    if let Some((seed, violation)) = hunted.caught {
        return Err(shrink::report(seed, &violation).into());
    }
    if chosen.is_none() {
        // A kind of trouble that never came up has shown nothing.
        let missing: Vec<_> = MUST_HAPPEN.iter().filter(|what| hunted.figures.of(what) == 0).collect();
        if !missing.is_empty() {
            return Err(format!("never seen: {missing:?}").into());
        }
    }
    Ok(())
}

fn a_seed_replays_exactly() -> Result<(), Failed> {
    let chosen = chosen()?.unwrap_or(0..TWICE);
    for seed in chosen.take(TWICE as usize) {
        let case = Case::of(seed);
        let (one, two) = (play(&case, true), play(&case, true));
        if one.hash != two.hash {
            let differs = one.lines.iter().zip(&two.lines).position(|(one, two)| one != two);
            let at = differs.unwrap_or(one.lines.len().min(two.lines.len()));
            let (one, two) = (one.lines.get(at), two.lines.get(at));
            return Err(format!("seed {seed} goes its own way at line {at}:\n{one:?}\n{two:?}").into());
        }
    }
    Ok(())
}
